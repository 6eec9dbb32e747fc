"""A node whose kernel reports machine checks again and again: a DIMM, mostly."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject

from ..window import Window

_FAULT = FAULTS["host_memory"]
# One corrected error is a cosmic ray's; mcelog's default acts on ten of a DIMM within a day.
_HOUR, _IN_AN_HOUR = timedelta(hours=1), 3
_DAY, _IN_A_DAY = timedelta(hours=24), 10


def failing_hosts(window: Window) -> list[Finding]:
    """One finding per node: three machine checks in an hour, or ten in a day."""
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
        certain=True,
        late=window.came_late(events),
    )
