"""A node whose kernel reports or counts machine checks repeatedly, mostly because of a DIMM."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_CORRECTED, _UNCORRECTED = (
    Aggregate(function=Function.INCREASE, field=f"memory_errors_{how}")
    for how in ("corrected", "uncorrected")
)
NEEDS = (Need(measurement="node", span=Span.TREND, aggregates=(_CORRECTED, _UNCORRECTED)),)

_FAULT = FAULTS["host_memory"]
# One corrected error may be a cosmic ray; mcelog's default acts on ten of a DIMM within a day.
_HOUR, _IN_AN_HOUR = timedelta(hours=1), 3
_DAY, _IN_A_DAY = timedelta(hours=24), 10


def failing_hosts(window: Window) -> list[Finding]:
    """Return one finding per node with three machine checks in an hour, ten in a day, or as many counted errors.

    Where the kernel's EDAC handles the machine's memory, not every corrected error is a machine check in its
    log; its counters see them all.
    """
    told = {finding.subject: finding for finding in (*_counted(window), *_findings(window))}
    return [told[node] for node in sorted(told)]


def _counted(window: Window) -> Iterator[Finding]:
    rows = window.get("node", Span.TREND)
    many = rows.values(_CORRECTED.column) >= _IN_A_DAY
    for node, row in rows.where(many | (rows.values(_UNCORRECTED.column) >= 1)):
        yield _finding_of(node, row, window.settings.trend_seconds / 60.0)


def _finding_of(node: Subject, row: Row, minutes: float) -> Finding:
    return Finding(
        fault="host_memory",
        subject=node,
        severity=_FAULT.severity,
        since=row["first_at"],
        evidence=(
            Evidence(
                name="corrected errors",
                value=f"{row[_CORRECTED.column] or 0:.0f} in {minutes:g} min",
                limit=f"fewer than {_IN_A_DAY} in a day",
            ),
            Evidence(
                name="uncorrected errors", value=f"{row[_UNCORRECTED.column] or 0:.0f}", limit="0"
            ),
        ),
        detector="host_memory",
        action=_FAULT.action,
        source="EDAC, the kernel's counters of the memory controllers",
    )


def _findings(window: Window) -> list[Finding]:
    events: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(EventKind.MACHINE_CHECK):
        if window.now - event.at < _DAY:
            events[event.subject.of_node()].append(event)
    return [
        _finding(window, node, events[node])
        for node in sorted(events)
        if _count(e for e in events[node] if window.now - e.at < _HOUR) >= _IN_AN_HOUR
        or _count(events[node]) >= _IN_A_DAY
    ]


def _count(events: Iterable[Event]) -> int:
    return sum(event.count for event in events)


def _finding(window: Window, node: Subject, events: list[Event]) -> Finding:
    last = events[-1]
    return Finding(
        fault="host_memory",
        subject=node,
        severity=_FAULT.severity,
        since=events[0].at,
        evidence=(
            Evidence(
                name="machine checks",
                value=f"{_count(events)} in a day, last at {moment(last.at)}",
                limit=f"fewer than {_IN_AN_HOUR} in an hour, {_IN_A_DAY} in a day",
            ),
            Evidence(name="message", value=last.message or "none"),
        ),
        detector="host_memory",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        certain=True,
        late=window.came_late(events),
    )


DETECTOR = Detector(
    name="host_memory",
    find=failing_hosts,
    faults=found_by("host_memory"),
    needs=NEEDS,
    reads_events=True,
    sentence="A node whose kernel reports or counts memory errors again and again.",
    source="mcelog acts on ten of a DIMM within a day",
)
