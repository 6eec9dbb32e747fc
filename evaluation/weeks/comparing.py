"""The report on an invented cluster beside the truth, number by number."""

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuvigil.schedulers.out_of_service import LostTo
from report.inputs.facts import Facts
from report.sections.build import build
from report.sections.waste import wasted

from .plan import Truth, invented, truth
from .playing import counted, hub_of, send, told

CLOSE, ALIKE = 0.02, 0.02
# For fewer hours, 2 % cannot be told: a sample is 10 s.
LEAST_HOURS = 1.0
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Row:
    """One number of the report beside the true one, in GPU-hours."""

    what: str
    told: float
    true: float

    @property
    def off(self) -> float:
        return (self.told - self.true) / self.true if self.true else 0.0

    @property
    def counts(self) -> bool:
        return self.true >= LEAST_HOURS


def compared(facts: Facts, right: Truth) -> list[Row]:
    """Return each team's hours, and the cluster's hours out of service."""
    told: dict[str, defaultdict[str, float]] = {
        name: defaultdict(float) for name in ("idle", "broken", "little")
    }
    for one in wasted(facts.now, facts):
        told["idle"][one.held.account] += one.idle
        told["broken"][one.held.account] += one.held.excused
        told["little"][one.held.account] += one.little
    rows = [
        Row(f"{name} {team}", told[name][team], hours)
        for name in told
        for team, hours in sorted(getattr(right, name).items())
    ]
    seconds = facts.usage.seconds
    lost = {to.value: seconds.lost(to) / _HOUR for to in LostTo}
    return [*rows, *(Row(f"out {to}", lost[to], hours) for to, hours in sorted(right.lost.items()))]


def worst_right(facts: Facts, right: Truth) -> tuple[int, int]:
    """Return how many of the report's worst jobs are right, ties with the last included, and of how many."""
    sheet = build(facts).sheet("jobs")
    named = [] if sheet is None else [str(row[0]) for row in sheet.rows]
    ranked = sorted(right.wasted.values(), reverse=True)[: len(named)]
    return sum(right.wasted[it] >= ranked[-1] * (1 - ALIKE) for it in named), len(named)


def played(seed: int, nodes: int = 8, hours: float = 24.0) -> dict[str, Any]:
    """Play one cluster and return its figures."""
    begun, week = time.monotonic(), invented(seed, nodes, hours)
    right = truth(week)
    with (
        tempfile.TemporaryDirectory(prefix="gpuvigil-week-") as name,
        hub_of(Path(name)) as (
            services,
            collectors,
            config,
        ),
    ):
        send(week, collectors)
        services.write_records(list(told(week)))
        facts = counted(week, services, config)
        rows = compared(facts, right)
        hits, of = worst_right(facts, right)
    return {
        "seed": seed,
        "jobs": len(week.jobs),
        "rows": rows,
        "worst": (hits, of),
        "seconds": round(time.monotonic() - begun),
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each number, for people; what is off is marked."""
    hits, of = found["worst"]
    yield (
        f"seed {found['seed']}: {found['jobs']} jobs, {hits} of the {of} worst are right,"
        f" {found['seconds']} s"
    )
    for row in found["rows"]:
        mark = " OFF" if row.counts and abs(row.off) > CLOSE else ""
        yield f"  {row.what:24} {row.told:9.2f} of {row.true:9.2f} GPU-h {100 * row.off:+6.2f} %{mark}"
