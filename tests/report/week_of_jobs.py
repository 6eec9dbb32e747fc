"""A made-up week as the hub keeps it, and what its report said when every quarter of it was added up.

`python -m tests.report.week_of_jobs` writes the report's numbers anew: only where one is meant to change.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from accounting.cost.money import Prices
from accounting.efficiency.efficiency import Advice
from accounting.efficiency.inefficient_hours import HOUR, Waste, WasteHour
from accounting.usage import BUCKET, Bucket, Share, Usage
from gpuvigil.config.pricing import CostSettings, PriceSettings
from gpuvigil.model import Impact, Job, Subject
from report.formats.json_format import json_text
from report.inputs.facts import Facts, SpanData
from report.sections.build import build

from .weeks import END, START, WEEK, bucket, facts, incident, share

SAID = Path(__file__).with_suffix(".json")
_JOBS = 60
_MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
_GAPS = (
    (START + timedelta(days=3), START + timedelta(days=3, hours=5)),
    (START - timedelta(days=2, minutes=45), START - timedelta(days=2)),
)
# From here to here somebody's node brought its spool late, and an earlier version counted.
_LATE = START + timedelta(days=4, hours=6), START + timedelta(days=4, hours=8)
_OLD = START + timedelta(days=1), START + timedelta(days=1, hours=2)
_FAULT = START + timedelta(days=5, hours=1), START + timedelta(days=5, hours=9, minutes=20)


def week() -> Facts:
    """Two weeks of jobs, some over midnight, over the end of the week before and over that of this one."""
    past = [
        SpanData(
            usage=_usage(start),
            wastes=tuple(_wastes(start)),
            incidents=(
                incident(
                    since=_FAULT[0],
                    until=_FAULT[1],
                    impact=Impact(gpus=2, holders=("job 50", "job 51"), users=("user 1",)),
                ),
            )
            if start == START
            else (),
            jobs=tuple(one for one in map(_job, range(_JOBS)) if one.submitted_at < start + WEEK),
        )
        for start in (START, START - WEEK)
    ]
    prices = (
        PriceSettings(per_gpu_hour=1.1, owner="lab"),
        PriceSettings(model="A100", per_gpu_hour=1.3, owner="lab", since="2026-11-17"),
    )
    made = facts(prices=Prices(settings=CostSettings(prices=prices)))
    history = ({"account": {"team 1": 40.0}, "": {"": 41.0}},)
    return replace(made, now=past[0], earlier=past[1], history=history)


def numbers() -> dict[str, Any]:
    """The numbers of its report: sentences may come to be said in another way."""
    found = json.loads(json_text((build(week()),)))["reports"][0]
    figures = {
        key: {name: one[name] for name in ("value", "low", "high", "change") if name in one}
        for key, one in found["figures"].items()
    }
    sheets = {key: {"rows": one["rows"], "all": one["all"]} for key, one in found["sheets"].items()}
    amounts = ("points", "hours", "days", "capacity", "allocated_gpu_hours", "installed_gpu_hours")
    return {"figures": figures, "sheets": sheets, **{key: found[key] for key in amounts}}


def _begins(number: int) -> tuple[datetime, datetime]:
    """Of the jobs from the week before until after this one; each lasts 5 to 13 hours, the last for days."""
    since = START - WEEK + timedelta(hours=5.6 * number)
    length = timedelta(days=3) if number == _JOBS - 1 else timedelta(hours=5 + number % 9)
    return since, since + length


def _job(number: int) -> Job:
    since, until = _begins(number)
    return Job(
        told_by=Subject(cluster="alpha", node="n1"),
        number=str(number),
        state="COMPLETED" if until < END else "RUNNING",
        submitted_at=since - timedelta(minutes=37 * (number % 4)),
        seen_at=min(until, END),
        started_at=since,
        ended_at=until if until < END else None,
        gpus=1 + number % 4,
        nodes=("n1",) if number % 3 else ("n1", "n2"),
    )


def _usage(start: datetime) -> Usage:
    quarters = (start + BUCKET * number for number in range(WEEK // BUCKET))
    counted = (at for at in quarters if not any(since <= at < until for since, until in _GAPS))
    kept = (_quarter(at).to_record() for at in counted)
    buckets = tuple(Bucket.from_record(one) for one in kept)
    return Usage(cluster="alpha", start=start, end=start + WEEK, buckets=buckets)


def _quarter(at: datetime) -> Bucket:
    """What each job held of it: in the first and the last quarter of a job a part."""
    late, old = (since <= at < until for since, until in (_LATE, _OLD))
    shares = [one for number in range(_JOBS) for one in _shares(number, at, old=old)]
    busy = share("processes", "lena", 1, 0.5, 0.0, model=_MODELS[0])
    if at.hour % 6 == 3:  # comes and goes, so that it has gaps of its own
        shares.append(busy)
    return bucket(at, shares, gpus=24, unknown=2.5 if late else 0.25, lost={"fault": 0.5})


def _shares(number: int, at: datetime, *, old: bool) -> Iterator[Share]:
    since, until = _begins(number)
    held = (min(until, at + BUCKET) - max(since, at)).total_seconds()
    if held <= 0:
        return
    gpus = 1 + number % 4
    # Some are idle for their first hours, some from time to time, some never.
    age = (at - since) // BUCKET
    spell = (number % 5 == 0 and age < 9) or (number % 5 == 1 and age % 7 in {2, 3, 4})
    quiet = (0.25 * (1 + number % 4) if spell else 0.0) if held == BUCKET.total_seconds() else 0.0
    names: dict[str, Any] = {
        "account": f"team {number % 3}",
        "partition": "gpu" if number % 4 else None,
        "project": f"project {number % 7}",
    }
    models = _MODELS if number % 6 == 2 else (_MODELS[number % 2],)
    for model in models:
        yield share(
            f"job {number}",
            f"user {number % 8}",
            gpus,
            (1.0 - quiet) * (0.35 + 0.01 * (number % 50)),
            0.02 * (number % 4),
            gpus * held,
            None if old else quiet,
            model=model,
            energy_joules=gpus * held * 350.0,
            **names,
        )


def _wastes(start: datetime) -> Iterator[WasteHour]:
    for hour in range(WEEK // HOUR):
        at = start + hour * HOUR
        wastes = [
            Waste(
                f"job {n}",
                f"user {n % 8}",
                None,
                None,
                None,
                (Advice.GATHER if n % 8 == 3 else Advice.LITTLE).value,
                1 + n % 4,
                0.3 + n % 3,
            )
            for n in range(_JOBS)
            if n % 4 == 3 and _begins(n)[0] <= at and at + HOUR <= _begins(n)[1]
        ]
        yield WasteHour(cluster="alpha", start=at, wastes=tuple(wastes), scattered_gpus=hour % 5)


if __name__ == "__main__":
    SAID.write_text(json.dumps(numbers(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
