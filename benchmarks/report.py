"""The report of a week of 10,000 GPUs: how long it takes, how much memory, how large it is.

`python -m benchmarks.report` keeps the week of `benchmarks.usage` in a real hub, with as much the week
before, seven weeks for trends, the jobs as a scheduler tells of them, hours that were judged and hardware
incidents, and runs `gpuvigil report` as people do. It writes `benchmarks/report.json`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from accounting.efficiency.efficiency import Advice
from accounting.efficiency.inefficient_hours import HOUR, Waste, WasteHour
from accounting.usage.ledger import DAY, STATES
from benchmarks.footprint import cpu_seconds
from benchmarks.spine import about, say
from benchmarks.usage import DAYS, GPUS, PER_NODE, START, Fleet, keep, rolled_up
from gpuvigil.clock import to_text
from gpuvigil.faults import FAULTS, Shows, where
from gpuvigil.model import (
    Allocation,
    Impact,
    Incident,
    Job,
    Record,
    RecordKind,
    Subject,
    fingerprint,
)
from tests.servers import ROOT, HubProcess

RESULT = Path(__file__).with_suffix(".json")
WEEK = timedelta(days=DAYS)
WEEKS_OF_TREND = 7
INCIDENTS = 300
# Of this many holders one leaves half of its GPUs unfilled.
ONE_IN = 3
REPEATS = 3
FORMATS = ("json", "html")
_PER_BODY = 500
(_LOST,) = (FAULTS[key] for key in where(lambda row: row.shows is Shows.LOST))


def main() -> int:
    """Measure and write the result."""
    fleet, load_average = Fleet(), os.getloadavg()[0]
    counted, _ = rolled_up(fleet)
    say("the week is counted")
    with (
        tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as name,
        HubProcess(Path(name)) as hub,
    ):
        client, beside = hub.hub(), list(_beside(fleet))
        keep(client, [*counted, *_weeks_before(counted)])
        for first in range(0, len(beside), _PER_BODY):
            client.write_records(beside[first : first + _PER_BODY])
        say("the hub has it")
        made = {form: _made(hub, Path(name) / f"report.{form}") for form in FORMATS}
    result = {
        "about": {
            **{key: value for key, value in about().items() if key != "simulator_seed"},
            "command": "python -m benchmarks.report",
            "load_average": round(load_average, 1),
            "gpus": GPUS,
            "days": DAYS,
            "jobs": sum(one.kind is RecordKind.JOB for one in beside),
            "incidents": INCIDENTS,
            "runs": REPEATS,
        },
        "formats": made,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    say(f"wrote {RESULT.name}")
    return 0


def _weeks_before(counted: Sequence[Record]) -> Iterator[Record]:
    """The same again a week earlier, and of the weeks before that the days."""
    for record in counted:
        is_day = record.body.get("state") == STATES[DAY]
        for weeks in range(1, WEEKS_OF_TREND + 1 if is_day else 2):
            at = record.at - weeks * WEEK
            yield replace(record, at=at, id=record.id.replace(to_text(record.at), to_text(at)))


def _beside(fleet: Fleet) -> Iterator[Record]:
    """Nodes, jobs, judged hours and incidents."""
    yield from (one.to_record() for one in fleet.inventories())
    first = [one for number, one in enumerate(fleet.allocations()) if number % PER_NODE == 0]
    yield from map(_job, first)
    yield from _judged(first)
    for number in range(INCIDENTS):
        held = first[number * 37 % len(first)]
        mark = fingerprint(_LOST.key, held.subject, str(number))
        since = START + number * WEEK / INCIDENTS
        yield Incident(
            id=f"{mark}-1", fingerprint=mark, fault=_LOST.key, subject=held.subject,
            severity=_LOST.severity, state="resolved", title=_LOST.title, since=since,
            updated_at=since + HOUR, resolved_at=since + HOUR,
            impact=Impact(gpus=1, holders=(str(held.holder),), users=(held.user or "",)),
            evidence=(), action="", members=(held.subject.key,), label=held.subject.node,
        ).to_record()  # fmt: skip


def _job(held: Allocation) -> Record:
    return Job(
        told_by=Subject(cluster=held.subject.cluster, node="head"),
        number=str(held.holder).removeprefix("job "),
        state="COMPLETED",
        submitted_at=held.started_at - HOUR,
        seen_at=held.ended_at or held.started_at,
        started_at=held.started_at,
        ended_at=held.ended_at,
        user=held.user,
        account=held.account,
        partition=held.partition,
        nodes=(held.subject.node,),
        gpus=PER_NODE,
    ).to_record()


def _judged(held: Sequence[Allocation]) -> Iterator[Record]:
    """Each hour of the week, with every third of those who held GPUs through it."""
    wastes: defaultdict[int, list[Waste]] = defaultdict(list)
    for one in held[::ONE_IN]:
        assert one.ended_at is not None
        begin, end = -((START - one.started_at) // HOUR), (one.ended_at - START) // HOUR
        for hour in range(max(begin, 0), min(end, WEEK // HOUR)):
            waste = Waste(
                str(one.holder), one.user, one.account, one.partition, None, Advice.LITTLE.value,
                PER_NODE, PER_NODE / 2,
            )  # fmt: skip
            wastes[hour].append(waste)
    for hour, them in wastes.items():
        start = START + hour * HOUR
        yield WasteHour(
            cluster=held[0].subject.cluster, start=start, wastes=tuple(them), scattered_gpus=0
        ).to_record()


def _made(hub: HubProcess, out: Path) -> dict[str, Any]:
    """Medians of the clock and of the processor, and the most memory that the command had."""
    assert hub.process is not None
    options = ["--config", str(hub.config), "--week", f"{START:%G-W%V}", "--out", str(out)]
    here = {**os.environ, "GPUVIGIL_HUB_URL": hub.url}
    clock, own, beside, most = [], [], [], 0
    for _ in range(REPEATS):
        began, of_hub = time.perf_counter(), cpu_seconds([hub.process.pid])
        command = [sys.executable, "-m", "gpuvigil", "report", *options]
        process = subprocess.Popen(command, cwd=ROOT, env=here)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        clock.append(time.perf_counter() - began)
        own.append(used.ru_utime + used.ru_stime)
        beside.append(cpu_seconds([hub.process.pid]) - of_hub)
        most = max(most, used.ru_maxrss)
    return {
        "seconds": round(statistics.median(clock), 2),
        "cpu_seconds": round(statistics.median(own), 2),
        "hub_cpu_seconds": round(statistics.median(beside), 2),
        "most_mib": round(most / 1024),
        "bytes": out.stat().st_size,
    }


if __name__ == "__main__":
    raise SystemExit(main())
