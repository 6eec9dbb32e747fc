"""Whose an Xid is: which events are silent, which repeat too often to be a program's, what sites say."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

from gpuvigil.faults import Scope, Xid
from gpuvigil.model import Allocation, Event, Severity, Subject
from gpuvigil.xid_messages import read

from .window import Window

_CLEAN_UP, _EXCEPTION, _PAGE_FAULT, _ADVICE = 45, 13, 31, 154
# NVIDIA's catalogue: when it comes back within a day it is no longer the program. On the same part
# of a GPU twice is no chance. Of page faults it says no number; at five times the rate of Delta's 450
# A100 (8,863 in 2.5 years), 10,000 GPUs would show four users' on one by chance once in three weeks,
# and three users' twice a day.
_DAY, _REPEATS = timedelta(hours=24), {_EXCEPTION: 2, _PAGE_FAULT: 4}
# An Xid 45 by itself is nothing.
_CLEAN_UPS = 2
# A job ends, and the driver cleans up after it; the scheduler's own record may come a little later.
_END = timedelta(minutes=5)
_PLACE = re.compile(r"GPC (\d+), TPC (\d+)")
_DIAGNOSE = (
    "Run the in-band diagnostic (DCGM EUD) when no job runs on the GPU; if it fails, the field"
    " diagnostic."
)


def row_of(event: Event) -> Xid:
    """What the table says of an event, made more exact by its message."""
    return read(event.xid or 0, event.message)


def audible(window: Window, subject: Subject, events: Sequence[Event]) -> list[Event]:
    """The events of a GPU without those that say nothing.

    45 is what every kill leaves behind: silent where a job ended or another Xid says why, and else
    told only when it repeats on a GPU that nobody holds. Advice to do nothing is none.
    """
    others = any(e.xid not in {_CLEAN_UP, _ADVICE} for e in events)
    held = window.allocations.get(subject.key, ())
    alone = [e for e in events if e.xid == _CLEAN_UP and not _at_an_end(held, e.at)]
    silent = others or len(alone) < _CLEAN_UPS or any(a.ended_at is None for a in held)
    kept = [e for e in events if e.xid != _CLEAN_UP or (e in alone and not silent)]
    return [e for e in kept if not (e.xid == _ADVICE and _is_nothing(e))]


def _at_an_end(held: Iterable[Allocation], at: datetime) -> bool:
    return any(
        a.ended_at is not None and a.ended_at - _END <= at <= a.ended_at + _END for a in held
    )


def _is_nothing(event: Event) -> bool:
    return row_of(event).scope is Scope.PASSING


def suspect(window: Window, subject: Subject, code: int) -> Xid | None:
    """The row of a program's Xid that came back across jobs, on this GPU or one part of it.

    31 counts per GPU, 13 per GPC and TPC; None while it may still be the program's.
    """
    if code not in {_EXCEPTION, _PAGE_FAULT}:
        return None
    events = [
        e
        for e in window.events.get(subject.of_node().key, ())
        if e.subject == subject and e.xid == code and window.now - e.at < _DAY
    ]
    places: dict[tuple[str, ...], set[str]] = {}
    for event in events:
        found = _PLACE.search(event.message)
        if code == _EXCEPTION and found is None:
            continue
        place = () if code == _PAGE_FAULT or found is None else found.groups()
        holder = _holder(window.allocations.get(subject.key, ()), event.at)
        if holder:
            places.setdefault(place, set()).add(holder)
    if not any(len(holders) >= _REPEATS[code] for holders in places.values()):
        return None
    part = "this GPU" if code == _PAGE_FAULT else "one part of this GPU"
    return replace(
        read(code, ""),
        severity=Severity.WARNING,
        summary=f"came back on {part} in jobs of different users",
        action=_DIAGNOSE,
        confined=False,
    )


def _holder(held: Iterable[Allocation], at: datetime) -> str:
    """Whose job held the GPU when it happened: of one user it may be one program, started again.

    The end of a job may be written down before its Xid.
    """
    for a in held:
        if a.started_at <= at and (a.ended_at is None or at <= a.ended_at + _END):
            return a.user or a.holder
    return ""


def overridden(row: Xid, overrides: Sequence[str]) -> Xid | None:
    """The row as the site wants it; None when it does not want to hear of the code."""
    word = _overrides(tuple(overrides)).get(row.code)
    if word is None:
        return row
    if word == "ignore":
        return None
    return replace(row, severity=Severity(word), source=f"{row.source}; the site's own severity")


@cache
def _overrides(entries: tuple[str, ...]) -> Mapping[int, str]:
    pairs = (entry.partition("=") for entry in entries)
    return {int(code): word for code, _, word in pairs}
