"""A host that runs out of memory: it swaps, reads its programs from disk again, or ends a process.

Memory that caches files counts as available, and used swap does not matter as long as memory is available.
"""

from collections.abc import Iterable

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import Mask, divided, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_LEFT = Aggregate(function=Function.MAX, field="memory_available_bytes")
_TOTAL = Aggregate(function=Function.MAX, field="memory_total_bytes")
NEEDS = (
    Need(measurement="node", span=Span.STEADY, aggregates=(_LEFT, _TOTAL)),
    Need(measurement="node", span=Span.TREND, aggregates=(_LEFT,)),
)

_FAULT = FAULTS["host_memory_full"]
# Share of the machine's memory, at every sample of the steady span: the kernel ends processes when almost
# none is left, and a page cache that programs can have back counts as available [ours].
_LEAST = 0.01
# And within the half hour before, this much was available: memory that is set aside for good, as huge pages
# of virtual machines, is no fault [ours].
_HAD = 0.05
_COVERAGE = 0.8


def full_hosts(window: Window) -> list[Finding]:
    """Return one finding per node, for as long as its memory stays full."""
    rows = window.get("node", Span.STEADY)
    left = divided(rows.values(_LEFT.column), rows.values(_TOTAL.column))
    full = (left < _LEAST) & (seconds(rows) >= _COVERAGE * window.settings.steady_seconds)
    if not full.any():
        return []
    most = window.get("node", Span.TREND).beside(rows, _LEFT.column)
    had = divided(most, rows.values(_TOTAL.column))
    full &= (had >= _HAD) | _of(rows, _stand(window))
    return [_finding(window, node, row) for node, row in rows.where(full)]


def _of(rows: Rows, known: Iterable[Subject]) -> Mask:
    found: Mask = np.zeros(len(rows), np.bool_)
    places = [rows.index.number(node) for node in known]
    found[[place for place in places if place is not None]] = True
    return found


def _stand(window: Window) -> list[Subject]:
    return [it.subject for it in window.active_incidents if it.fault == _FAULT.key]


def _finding(window: Window, node: Subject, row: Row) -> Finding:
    minutes = window.settings.steady_seconds / 60.0
    return Finding(
        fault="host_memory_full",
        subject=node,
        severity=_FAULT.severity,
        since=row["first_at"],
        evidence=(
            Evidence(
                name="memory left",
                value=f"{row[_LEFT.column] / 1024**3:.1f} GiB at most in {minutes:g} min",
                limit=f"{100.0 * _LEAST:g} % of {row[_TOTAL.column] / 1024**3:.0f} GiB",
            ),
        ),
        detector="host_memory_full",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="host_memory_full",
    find=full_hosts,
    faults=found_by("host_memory_full"),
    needs=NEEDS,
    sentence="A node whose memory ran full.",
    source="/proc/meminfo, MemAvailable",
)
