"""Policy for Xids: which events are silent, and when a program's Xid points at the GPU."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from gpuvigil.faults import Scope, Xid
from gpuvigil.faults.xid_messages import read
from gpuvigil.model import Allocation, Event, Severity, Subject

from ..window.window import Window
from .xid_repeats import END, PAGE_FAULT

_CLEAN_UP, _ADVICE = 45, 154
# A single Xid 45 means nothing.
_CLEAN_UPS = 2
_DIAGNOSE = (
    "Run the in-band diagnostic (DCGM EUD) when no job runs on the GPU; if it fails, the field"
    " diagnostic."
)


def row_of(event: Event) -> Xid:
    """Return the table's row for an event, made more exact by its message."""
    return read(event.code, event.message)


def relevant_xids(window: Window, subject: Subject, events: Sequence[Event]) -> list[Event]:
    """Return a GPU's events without those that mean nothing.

    Every kill leaves a 45 behind: it is silent if a job ended or another Xid says why, and
    otherwise counts only if it repeats on a GPU that nobody holds. Advice to do nothing is left
    out, too.
    """
    others = any(e.xid not in {_CLEAN_UP, _ADVICE} for e in events)
    held = window.allocations.get(subject.key, ())
    alone = [e for e in events if e.xid == _CLEAN_UP and not _at_an_end(held, e.at)]
    silent = others or len(alone) < _CLEAN_UPS or any(a.ended_at is None for a in held)
    kept = [e for e in events if e.xid != _CLEAN_UP or (e in alone and not silent)]
    return [e for e in kept if not (e.xid == _ADVICE and _is_nothing(e))]


def _at_an_end(held: Iterable[Allocation], at: datetime) -> bool:
    # The scheduler's own record may come a little later than what the driver cleans up.
    return any(a.ended_at is not None and a.ended_at - END <= at <= a.ended_at + END for a in held)


def _is_nothing(event: Event) -> bool:
    return row_of(event).scope is Scope.PASSING


def suspect(code: int) -> Xid:
    """Return the row of a program's Xid that came back on one GPU, or on one part (`xid_repeats`)."""
    part = "this GPU" if code == PAGE_FAULT else "one part of this GPU"
    return replace(
        read(code, ""),
        severity=Severity.WARNING,
        summary=f"came back on {part} in jobs of different users",
        action=_DIAGNOSE,
        confined=False,
    )
