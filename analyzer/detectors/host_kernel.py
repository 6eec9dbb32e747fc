"""A node whose kernel reports repeatedly that it hangs, or that a drive fails."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.faults import FAULTS, Sign, found_by, where
from gpuvigil.model import Event, EventKind, Evidence, Finding, Subject

from ..window.window import Window
from . import Detector

# One task that waits for two minutes points at a slow server, and a virtual machine that was moved pauses
# once; a lasting hang is reported again within minutes. The fault lasts for as long as it was reported
# lately.
_HANGS, _WITHIN, _LATELY = 3, timedelta(minutes=10), timedelta(hours=1)
# A file system stays read-only, and a drive away, until somebody acts.
_DAY = timedelta(hours=24)
# Faults that tasks wait for: once they are over, so is what the kernel said about those tasks.
_WAITED_FOR = where(lambda row: row.explains is not None and Sign.TASKS_WAIT in row.explains.signs)


def troubled_kernels(window: Window) -> list[Finding]:
    """Return one finding per node and fault, by what its kernel reported since the last boot."""
    found = [*_hanging(window), *_storage(window)]
    return sorted(found, key=lambda it: (it.subject, it.fault))


def _hanging(window: Window) -> Iterator[Finding]:
    for node, told in _of(window, EventKind.KERNEL_HANG, _LATELY):
        over = _waited_until(window, node)
        events = [event for event in told if over is None or event.at > over]
        most = max(
            (
                sum(e.count for e in events if timedelta() <= e.at - first.at <= _WITHIN)
                for first in events
            ),
            default=0,
        )
        if most >= _HANGS:
            minutes = _WITHIN.total_seconds() / 60.0
            limit = f"fewer than {_HANGS} in {minutes:g} min"
            yield _finding(window, "host_hang", node, events, limit)


def _waited_until(window: Window, node: Subject) -> datetime | None:
    """Return when the last fault that the node's tasks waited for was over; None if there was none."""
    ends = (
        one.resolved_at
        for one in window.recent_incidents
        if one.fault in _WAITED_FOR and one.subject == node
    )
    return max((at for at in ends if at is not None), default=None)


def _storage(window: Window) -> Iterator[Finding]:
    for node, events in _of(window, EventKind.STORAGE_ERROR, _DAY):
        yield _finding(window, "host_storage", node, events, "none")


def _of(window: Window, kind: EventKind, span: timedelta) -> Iterator[tuple[Subject, list[Event]]]:
    """Yield for each node what its kernel reported within the span and since the last boot, oldest first."""
    told: dict[Subject, list[Event]] = defaultdict(list)
    for event in window.all_events(kind):
        told[event.subject.of_node()].append(event)
    for node in sorted(told):
        boots = window.node_events(node, EventKind.BOOT)
        since = max((boot.at for boot in boots), default=None)
        events = [
            event
            for event in told[node]
            if window.now - event.at < span and (since is None or event.at >= since)
        ]
        if events:
            yield node, sorted(events, key=lambda event: event.at)


def _finding(
    window: Window, fault: str, node: Subject, events: Sequence[Event], limit: str
) -> Finding:
    row, last = FAULTS[fault], events[-1]
    count = sum(event.count for event in events)
    return Finding(
        fault=fault,
        subject=node,
        severity=row.severity,
        since=events[0].at,
        evidence=(
            Evidence(
                name="kernel reports", value=f"{count}, last at {moment(last.at)}", limit=limit
            ),
            Evidence(name="message", value=last.message or "none"),
        ),
        detector="host_kernel",
        action=row.action,
        source=row.source,
        own_limit=row.own_limit,
        certain=True,
        late=window.came_late(list(events)),
    )


DETECTOR = Detector(
    name="host_kernel",
    find=troubled_kernels,
    faults=found_by("host_kernel"),
    needs=(),
    reads_events=True,
    sentence="A node whose kernel reports that it hangs, or that a drive or file system fails.",
    source="the kernel's watchdogs and its storage drivers",
)
