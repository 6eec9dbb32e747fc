"""The history of an incident as a list of steps for people; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.clock import duration, moment
from gpuvigil.lifecycle import State
from gpuvigil.model import Acknowledgement, Act, CoveredBy, Incident, NodeAction, Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One step of the incident, or one note of a person."""

    at: datetime
    kind: str  # a key of the style: the state that followed, or "note"
    title: str
    text: str


_TITLES = {
    "confirmed": "Opened",
    "changed": "Changed",
    "acknowledged": "Acknowledged",
    "returned": "Came back",
    "flapped": "Flaps",
    "cleared": "Resolved",
}


def steps(
    incident: Incident,
    transitions: Iterable[Transition],
    acknowledgements: Iterable[Acknowledgement] = (),
    actions: Iterable[NodeAction] = (),
) -> tuple[Moment, ...]:
    """Return everything that happened, oldest first; the first is when the fault began."""
    ordered = sorted(transitions, key=lambda step: step.number)
    told = [_step(step, before) for before, step in zip((None, *ordered), ordered, strict=False)]
    said = {step.text for step in told}
    notes = [_note(one) for one in acknowledgements if _reason(one) not in said]
    began = Moment(at=incident.since, kind="began", title="Began", text="the first sign of it")
    done = [_action(one) for one in actions]
    return (began, *sorted([*told, *notes, *done], key=lambda it: it.at))


def _step(step: Transition, before: Transition | None) -> Moment:
    covered = step.to_state == State.RESOLVED.value and isinstance(step.cause, CoveredBy)
    title = "Covered by another incident" if covered else _TITLES.get(step.signal, step.signal)
    old, new = _severity(before), _severity(step)
    text = f"{step.reason}: {old} → {new}" if old and new and old != new else step.reason
    return Moment(at=step.at, kind=step.to_state, title=title, text=text)


def _severity(step: Transition | None) -> str:
    """Return how severe the incident was after a step; "" if that was not written down."""
    return "" if step is None else str(step.snapshot.get("body", {}).get("severity", ""))


def _note(one: Acknowledgement) -> Moment:
    if one.to:
        title = f"{one.by} handed it to {one.to}"
    else:
        title = f"{one.by} wrote" if one.note else f"{one.by} took it"
    return Moment(at=one.at, kind="note", title=title, text=one.note)


def _action(one: NodeAction) -> Moment:
    did = "took the node out of service" if one.act is Act.DRAIN else "gave the node back"
    return Moment(at=one.at, kind="note", title=f"gpuvigil {did}", text=f"undo: {one.undo}")


def _reason(one: Acknowledgement) -> str:
    """Return the reason that the analyzer writes for an acknowledgement: then it needs no line of its own."""
    return f"acknowledged by {one.by}" + (f": {one.note}" if one.note else "")


def span(incident: Incident, now: datetime) -> str:
    """Return since when, until when and how long an incident stands, as text."""
    if incident.resolved_at is None:
        return f"since {moment(incident.since)}, for {duration(now - incident.since)}"
    lasted = duration(incident.resolved_at - incident.since)
    return f"{moment(incident.since)} until {moment(incident.resolved_at)}, lasted {lasted}"
