"""The marks across all charts of a page: events as lines, incidents as shades; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.model import Event, EventKind, Incident, Severity

from ..data.annotations import Note, bands, labelled
from .window import Window

MOST_MARKS = 40
# Of marks closer to each other than this share of the window, only the first has a label.
_NEAR = 0.09

_NAMES = {
    EventKind.XID: "Xid",
    EventKind.GPU_LOST: "GPU lost",
    EventKind.GPU_BACK: "GPU back",
    EventKind.GPU_RESET: "GPU reset",
    EventKind.PORT_DOWN: "port down",
    EventKind.PORT_UP: "port up",
    EventKind.DRIVER_SILENT: "driver silent",
    EventKind.DRIVER_BACK: "driver back",
    EventKind.SXID: "SXid",
    EventKind.PCIE_ERROR: "PCIe error",
    EventKind.OOM_KILL: "out of memory",
    EventKind.MACHINE_CHECK: "machine check",
    EventKind.KERNEL_HANG: "kernel hangs",
    EventKind.STORAGE_ERROR: "storage fails",
    EventKind.BOOT: "boot",
    EventKind.LOGS: "logs collected",
    EventKind.HOST: "supply, fan or mount",
    EventKind.SHUTDOWN: "shutdown",
    EventKind.STOPPED: "collector stopped",
    EventKind.COLLECTIVE: "ranks of a stalled job",
}
_GOOD = frozenset({EventKind.GPU_BACK, EventKind.PORT_UP, EventKind.DRIVER_BACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line at one moment; `label` is empty if there is no room for it."""

    at: datetime
    label: str
    good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """The time of an incident, or of an annotation that lasted, within the window."""

    start: datetime
    end: datetime
    severity: Severity | None  # None for an annotation


def name(event: Event) -> str:
    """Return an event in a word or two."""
    code = event.sxid if event.xid is None else event.xid
    return _NAMES[event.kind] if code is None else f"{_NAMES[event.kind]} {code}"


def is_good(event: Event) -> bool:
    """Return whether an event ends something bad."""
    return event.kind in _GOOD


def marks(events: Iterable[Event], window: Window) -> tuple[Mark, ...]:
    """Return lines for the window's newest events; events at the same moment share one line and label."""
    inside = [it for it in events if window.start <= it.at < window.end][-MOST_MARKS:]
    groups: list[list[Event]] = []
    for event in inside:
        if groups and event.at - groups[-1][0].at <= window.span * _NEAR:
            groups[-1].append(event)
        else:
            groups.append([event])
    found = []
    for group in groups:
        seen: set[datetime] = set()
        for event in group:
            label = _label(group) if event is group[0] else ""
            if event.at not in seen:
                found.append(Mark(at=event.at, label=label, good=all(map(is_good, group))))
            seen.add(event.at)
    return tuple(found)


def with_notes(found: Sequence[Mark], of: Iterable[Note], window: Window) -> tuple[Mark, ...]:
    """Return the marks of events and notes; if two are close, the event has the label."""
    taken = [mark.at for mark in found if mark.label]
    notes = labelled(of, taken, window.span * _NEAR, window.start)
    done = (Mark(at=at, label=label, good=True) for at, label in notes)
    return tuple(sorted((*found, *done), key=lambda mark: mark.at))


def _label(group: Sequence[Event]) -> str:
    bad = [event for event in group if not is_good(event)]
    told = next((event for event in bad if event.xid is not None), None) or next(
        iter(bad), group[0]
    )
    others = len(group) - 1
    return name(told) + (f" +{others}" if others else "")


def shades(
    incidents: Iterable[Incident], window: Window, now: datetime, of: Iterable[Note] = ()
) -> tuple[Shade, ...]:
    """Return shades for incidents worse than info, and for notes that lasted.

    Incidents that overlap are one shade, with the worst severity.
    """
    lasted = bands(of, window.start, window.end)
    return (
        *(Shade(start=a, end=b, severity=None) for a, b in lasted),
        *_stood(incidents, window, now),
    )


def _stood(incidents: Iterable[Incident], window: Window, now: datetime) -> Sequence[Shade]:
    spans = sorted(
        (max(one.since, window.start), min(one.resolved_at or now, window.end), one.severity)
        for one in incidents
        if one.severity is not Severity.INFO
    )
    found: list[tuple[datetime, datetime, Severity]] = []
    for start, end, severity in spans:
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            first, last, before = found[-1]
            found[-1] = (first, max(last, end), min(before, severity, key=lambda it: it.rank))
        else:
            found.append((start, end, severity))
    return [Shade(start=start, end=end, severity=severity) for start, end, severity in found]


def least(span: timedelta) -> timedelta:
    """Return the least length that a span is drawn with, so that it can be seen and pointed at."""
    return span / 400
