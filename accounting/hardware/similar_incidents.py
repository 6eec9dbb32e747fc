"""Earlier incidents of the same fault, what ended them, and whether the fault came back; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import duration
from gpuvigil.model import (
    Acknowledgement,
    Act,
    Ended,
    EndedBy,
    EventKind,
    Incident,
    NodeAction,
    Rma,
    RmaState,
    Transition,
)

MOST_SHOWN = 4
LOOKED_BACK = timedelta(days=90)
_CURES = {
    EventKind.GPU_RESET: "GPU reset",
    EventKind.BOOT: "reboot",
    EventKind.GPU_BACK: "GPU back",
    EventKind.PORT_UP: "port up again",
    EventKind.DRIVER_BACK: "driver back",
}
_ENDS = {
    EndedBy.REPORTS_AGAIN: "reports again",
    EndedBy.RETIRED: "node retired",
    EndedBy.NOT_SEEN: "went away by itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierIncident:
    """One resolved incident and how it ended."""

    incident: Incident
    same_subject: bool  # whether it has the same subject
    what_helped: str  # what ended it, as far as anybody said; else empty
    came_back_after: timedelta | None  # None: not so far


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRecords:
    """What was recorded about one resolved incident."""

    transitions: Sequence[Transition] = ()
    notes: Sequence[Acknowledgement] = ()
    rma: Sequence[Rma] = ()
    actions: Sequence[NodeAction] = ()


def similar_incidents(one: Incident, past: Iterable[Incident], now: datetime) -> Sequence[Incident]:
    """Return similar resolved incidents: same fault and code, the same subject first, then the newest."""
    found = [
        it
        for it in past
        if (it.fault, it.xid, it.sxid) == (one.fault, one.xid, one.sxid)
        and it.id != one.id
        and it.resolved_at is not None
        and it.resolved_at > now - LOOKED_BACK
        and not it.covered_by
        and it.simulated == one.simulated
    ]
    return sorted(found, key=lambda it: (it.subject != one.subject, -it.since.timestamp()))


def earlier_incident(
    one: Incident, it: Incident, records: IncidentRecords, past: Iterable[Incident]
) -> EarlierIncident:
    """Return how an earlier incident ended; `past` holds all of its fault, itself included."""
    ended = it.resolved_at or it.updated_at
    again = [
        other.since
        for other in (one, *past)
        if other.fingerprint == it.fingerprint and other.since > ended
    ]
    return EarlierIncident(
        incident=it,
        same_subject=it.subject == one.subject,
        what_helped=what_helped(records),
        came_back_after=min(again) - ended if again else None,
    )


def what_helped(records: IncidentRecords) -> str:
    """Return what ended it: a replaced part, a person's last note, an event, or whatever else is known."""
    if any(step.state is RmaState.REPLACED for step in records.rma):
        return "part replaced"
    notes = [one.note.strip() for one in sorted(records.notes, key=lambda it: it.at) if one.note]
    last = max(records.transitions, key=lambda it: it.number, default=None)
    cause = None if last is None else last.cause
    how = _how(cause) if isinstance(cause, Ended) else ""
    if notes:
        return f"{notes[-1]} ({how})" if how else notes[-1]
    if how:
        return how
    return "drained by gpuvigil" if any(it.act is Act.DRAIN for it in records.actions) else ""


def _how(cause: Ended) -> str:
    if cause.by is EndedBy.EVENT and cause.event is not None:
        return _CURES.get(cause.event, cause.event.value.replace("_", " "))
    return _ENDS.get(cause.by, "")


def outcome(one: EarlierIncident, now: datetime) -> str:
    """Return whether the cure held, as text."""
    if one.came_back_after is not None:
        return f"came back after {duration(one.came_back_after)}"
    ended = one.incident.resolved_at or one.incident.updated_at
    return f"not back for {duration(now - ended)}"


def summary(found: Sequence[EarlierIncident], amount: int) -> str:
    """Return how many similar incidents there were, in a few words."""
    here = sum(it.same_subject for it in found)
    span = f"{LOOKED_BACK.days} days"
    return f"{amount} in {span}" + (f", {here} of them here" if here else "")
