"""The history of an incident as a list of steps for people; pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuvigil.clock import duration, moment
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Acknowledgement, Act, CoveredBy, Incident, NodeAction, Transition
from gpuvigil.numbers_in_words import counted


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
    return Moment(at=step.at, kind=step.to_state, title=title, text=reason(step, before))


def reason(step: Transition, before: Transition | None) -> str:
    """Return why a step was made; of a change, the old and the new values since the step before."""
    old, new = _body(before), _body(step)
    if step.signal == Signal.CHANGED.value:
        return "; ".join(_changes(old, new)) or step.reason
    severities = old.get("severity"), new.get("severity")
    return "; ".join([step.reason, *_change("severity", *severities)])


def _body(step: Transition | None) -> Mapping[str, Any]:
    """Return the incident as it was after a step; empty if that was not written down."""
    return {} if step is None else step.snapshot.get("body") or {}


def _impact(body: Mapping[str, Any]) -> str:
    hit = body["impact"]
    return str(hit.get("text") or f"{counted(int(hit.get('gpus', 0)), 'GPU')} blocked")


# What a reader may compare, by its name; a body of an older version may lack some.
_COMPARED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "severity": lambda body: str(body["severity"]),
    "title": lambda body: str(body["title"]),
    "impact": _impact,
    "places": lambda body: f"{len(body['members']):,}",
    "findings explained": lambda body: f"{len(body['covers']):,}",
    "data": lambda body: "late" if body["late"] else "in time",
}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield `severity: info → warning` for each thing that changed, as far as both sides are known."""
    for name, words in _COMPARED.items():
        try:
            yield from _change(name, words(old), words(new))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    if old and old.get("held", "") != new.get("held", ""):
        yield f"out of service: {new['held']}" if new.get("held") else "in service again"


def _change(name: str, old: str | None, new: str | None) -> Iterator[str]:
    if old and new and old != new:
        yield f"{name}: {old} → {new}"


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
