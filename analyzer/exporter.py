"""`/metrics` of the analyzer: active incidents, GPU holders, and whether passes still run.

A fleet can have thousands of incidents and holders, so their series are bounded; for incidents a
series counts those that are not shown.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuvigil.faults import FAULTS
from gpuvigil.model import Allocation, Incident
from gpuvigil.model.holder import HolderKind
from gpuvigil.web.metrics_page import Sample, family

# Series, one per node and fault; an outage of half a cluster must not flood a Prometheus.
MOST_INCIDENTS = 2_000
# Series, one per GPU and holder.
MOST_HOLDERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """The analyzer's counts of its own passes."""

    count: int = 0
    seconds: float = 0.0  # all of them together
    last_at: float = 0.0  # when the last one ended, in seconds since 1970; 0 before the first
    failing: int = 0  # detectors that failed in the last one


def exposition(
    active: Iterable[Incident], held: Iterable[Allocation] | None, passes: Passes
) -> str:
    """Return the metrics in Prometheus's text format, without what the selftest plays.

    With `held` None, holders are not shown.
    """
    found, hidden = _incidents(list(active))
    parts = [
        family("gpuvigil_incidents", "gauge", "Open incidents.", found),
        family(
            "gpuvigil_incidents_not_shown",
            "gauge",
            f"Incidents beyond {MOST_INCIDENTS} series.",
            [({}, hidden)],
        ),
        *_of_passes(passes),
    ]
    if held is not None:
        text = "1 while the job or pod holds the GPU; a process is `process`."
        parts.append(family("gpuvigil_gpu_held", "gauge", text, _holders(held)))
    return "".join(parts)


def _incidents(active: Sequence[Incident]) -> tuple[list[Sample], int]:
    """Return incidents counted by node, fault, severity and hold, and how many exceed the bound.

    The most severe come first.
    """
    counted = Counter(
        (
            one.severity.rank,
            one.subject.cluster,
            one.subject.node,
            one.fault,
            one.out_of_service is not None,
        )
        for one in active
        if not one.marked
    )
    severities = {one.severity.rank: one.severity.value for one in active}
    rows = sorted(counted.items())
    shown: list[Sample] = [
        (
            {
                "cluster": cluster,
                "node": node,
                "fault": fault,
                "title": FAULTS[fault].title if fault in FAULTS else fault,
                "severity": severities[rank],
                "held": "yes" if held else "no",
            },
            count,
        )
        for (rank, cluster, node, fault, held), count in rows[:MOST_INCIDENTS]
    ]
    return shown, sum(count for _, count in rows[MOST_INCIDENTS:])


def _holders(held: Iterable[Allocation]) -> list[Sample]:
    """Return a sample per held GPU; only jobs and pods are named, as processes name people."""
    found = {
        (
            one.subject.cluster,
            one.subject.node,
            one.subject.gpu or "",
            "process" if one.holder.kind is HolderKind.PROCESS else str(one.holder),
            one.account or "",
            one.partition or "",
        )
        for one in held
        if not one.subject.marked
    }
    names = ("cluster", "node", "uuid", "holder", "account", "partition")
    return [(dict(zip(names, row, strict=True)), 1) for row in sorted(found)[:MOST_HOLDERS]]


def _of_passes(passes: Passes) -> list[str]:
    rows = (
        ("passes_total", "counter", "Looks at the whole fleet.", passes.count),
        ("pass_seconds_total", "counter", "Time that they took.", round(passes.seconds, 3)),
        (
            "last_pass_timestamp_seconds",
            "gauge",
            "When the last one ended, in seconds since 1970.",
            round(passes.last_at, 3),
        ),
        ("failing_detectors", "gauge", "Detectors that failed in it.", passes.failing),
    )
    # Before the first pass there are no samples.
    return [
        family(f"gpuvigil_analyzer_{name}", kind, text, [({}, value)] if passes.count else [])
        for name, kind, text, value in rows
    ]
