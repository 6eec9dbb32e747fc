"""The list of recent changes: transitions of incidents; GPUs, ports, nodes and jobs that come and go.

What belongs together is one line: a job on many GPUs, a burst of reboots, an event and the incident about it.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuvigil.lifecycle import State
from gpuvigil.model import (
    UNREADABLE,
    CoveredBy,
    Event,
    EventKind,
    Incident,
    Record,
    Subject,
    Transition,
)
from gpuvigil.numbers_in_words import counted
from gpuvigil.web import page_links

from ..model.short_label import short_label
from .allocation_changes import BURST, AllocationChange

BACK = timedelta(hours=6)
MOST = 60
# An incident opens or resolves this soon after the event about the same thing.
SOON = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of the list: time of its start, text, tone and link."""

    at: datetime
    text: str
    tone: str = ""  # "bad", "warn", "good" or nothing
    href: str = ""  # empty without a page about it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransitionSummary:
    """The parsed part of a transition that lines are made of again and again."""

    at: datetime
    subject: Subject
    to_state: str
    incident_id: str
    incident: Incident | None  # as it was then; None: not worth a line, or unreadable
    about: frozenset[str]  # keys of the subjects that it is about


def summarize_transition(transition: Transition) -> TransitionSummary:
    """Return the part of a transition that lines are made of."""
    told = transition.to_state in _INCIDENTS and not isinstance(transition.cause, CoveredBy)
    steps = transition.from_state != transition.to_state
    members = (transition.snapshot.get("body") or {}).get("members") or ()
    return TransitionSummary(
        at=transition.at,
        subject=transition.subject,
        to_state=transition.to_state,
        incident_id=transition.incident,
        incident=_incident(transition) if told and steps else None,
        about=frozenset({transition.subject.key, *map(str, members)}),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Happened:
    """What happened in one cluster in the last hours; the same object while nothing new happens."""

    transitions: tuple[TransitionSummary, ...] = ()
    events: tuple[Event, ...] = ()
    allocation_changes: tuple[AllocationChange, ...] = ()  # what jobs, pods and programs did


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One thing that happened, before bursts are merged; `one` and `many` are its texts."""

    at: datetime
    kind: tuple[str, ...]  # steps of the same kind may be one burst
    subject: Subject
    one: str
    many: str  # text after the number of things
    tone: str
    href: str
    several_href: str = ""
    said: str = ""  # text before either


@dataclass(slots=True)
class _Burst:
    steps: list[_Step] = field(default_factory=list)

    def takes(self, step: _Step) -> bool:
        return step.at - self.steps[-1].at <= BURST


def changes(
    happened: Happened, now: datetime, label: Callable[[Subject], str]
) -> tuple[Change, ...]:
    """Return the changes of the last six hours, newest first, at most `MOST`; `label` names a subject."""
    steps = [
        *_of_incidents(happened.transitions, label),
        *_of_events(happened, label),
    ]
    young = [step for step in steps if now - BACK <= step.at <= now]
    # Thousands of jobs begin and end in a large cluster: only shown ones get their texts.
    allocation_changes = (one for one in happened.allocation_changes if one.at >= now - BACK)
    newest = heapq.nlargest(MOST, allocation_changes, key=lambda one: (one.at, one.said))
    lines = [*map(_line, _bursts(young)), *(_allocation_line(one, now) for one in newest)]
    lines.sort(key=lambda one: (one.at, one.text), reverse=True)
    return tuple(lines[:MOST])


def _bursts(steps: Iterable[_Step]) -> list[_Burst]:
    found: list[_Burst] = []
    open_: dict[tuple[str, ...], _Burst] = {}
    for step in sorted(steps, key=lambda one: (one.at, one.subject)):
        burst = open_.get(step.kind)
        if burst is None or not burst.takes(step):
            burst = open_[step.kind] = _Burst()
            found.append(burst)
        burst.steps.append(step)
    return found


def _line(burst: _Burst) -> Change:
    first, last = burst.steps[0], burst.steps[-1]
    subjects = {step.subject for step in burst.steps}
    if len(burst.steps) == 1:
        return Change(at=first.at, text=first.said + first.one, tone=first.tone, href=first.href)
    if len(subjects) == 1:
        text = f"{first.said}{first.one} ({len(burst.steps)} times)"
        return Change(at=first.at, text=text, tone=first.tone, href=last.href)
    text = f"{first.said}{len(subjects):,} {first.many}"
    return Change(at=first.at, text=text, tone=first.tone, href=first.several_href)


# The text before an incident's line, so that it is read even if the line is cut; and its tone.
_INCIDENTS = {
    State.OPEN.value: ("", ""),
    State.FLAPPING.value: ("Comes and goes: ", "warn"),
    State.RESOLVED.value: ("Over: ", "good"),
    State.ACKNOWLEDGED.value: ("Taken: ", ""),
}
_NOUNS = {"gpu": "GPUs", "node": "nodes", "port": "ports"}
_TONES = {"critical": "bad", "warning": "warn"}


def _of_incidents(
    transitions: Iterable[TransitionSummary], label: Callable[[Subject], str]
) -> Iterable[_Step]:
    for one in transitions:
        incident = one.incident
        if incident is None:
            continue
        said, tone = _INCIDENTS[one.to_state]
        if one.to_state == State.OPEN.value:
            tone = _TONES.get(incident.severity.value, "")
        if one.to_state == State.ACKNOWLEDGED.value and incident.acknowledged_by:
            said = f"Taken by {incident.acknowledged_by}: "
        yield _Step(
            at=one.at,
            kind=("incident", one.to_state, said, incident.title, incident.subject.cluster),
            subject=incident.subject,
            said=said,
            one=f"{short_label(incident) or label(incident.subject)}: {incident.title}",
            many=f"{_NOUNS[incident.subject.kind]}: {incident.title}",
            tone=tone,
            href=page_links.incident_page(one.incident_id),
            several_href=page_links.INCIDENTS,
        )


def _incident(transition: Transition) -> Incident | None:
    """Return the incident as it was then; None if it is unreadable, such as one of a newer version."""
    try:
        return Incident.from_record(Record.from_json(transition.snapshot))
    except UNREADABLE:
        return None


# By kind of event: text for one subject, text for several, tone, and the incident state that says the
# same, if any.
_EVENTS = {
    EventKind.GPU_LOST: ("is lost", "GPUs are lost", "bad", State.OPEN),
    EventKind.GPU_BACK: ("is back", "GPUs are back", "good", State.RESOLVED),
    EventKind.GPU_RESET: ("was reset", "GPUs were reset", "", State.RESOLVED),
    EventKind.PORT_DOWN: ("is down", "ports are down", "warn", State.OPEN),
    EventKind.PORT_UP: ("is up", "ports are up", "good", State.RESOLVED),
    EventKind.DRIVER_SILENT: ("driver is silent", "drivers are silent", "bad", State.OPEN),
    EventKind.DRIVER_BACK: ("driver answers again", "drivers answer again", "good", State.RESOLVED),
    EventKind.BOOT: ("booted", "nodes booted", "", None),
    EventKind.SXID: ("SXid", "nodes report SXid", "warn", State.OPEN),
    EventKind.PCIE_ERROR: ("has a PCIe error", "devices have PCIe errors", "warn", None),
    EventKind.OOM_KILL: ("ran out of memory", "nodes ran out of memory", "warn", None),
    EventKind.MACHINE_CHECK: ("has a machine check", "nodes have machine checks", "warn", None),
    EventKind.KERNEL_HANG: ("has hung tasks", "nodes have hung tasks", "warn", None),
    EventKind.STORAGE_ERROR: ("has a failing drive", "nodes have failing drives", "warn", None),
    EventKind.LOGS: ("logs", "nodes have collected logs", "", None),
    EventKind.HOST: (
        *("reports on supplies, fans or mounts", "nodes report on supplies, fans or mounts"),
        *("warn", None),
    ),
    EventKind.SHUTDOWN: ("shut down cleanly", "nodes shut down cleanly", "", None),
    EventKind.STOPPED: ("collector was stopped", "collectors were stopped", "", None),
    EventKind.XID: ("Xid", "GPUs report Xid", "warn", State.OPEN),
    EventKind.COLLECTIVE: (
        *(
            "reports where a stalled job's ranks stand",
            "nodes report where stalled jobs' ranks stand",
        ),
        *("", None),
    ),
}


def _of_events(happened: Happened, label: Callable[[Subject], str]) -> Iterable[_Step]:
    told = _state_changes(happened.transitions)
    for event in happened.events:
        one, many, tone, step = _EVENTS[event.kind]
        if step is not None and any(
            timedelta(0) <= at - event.at + timedelta(seconds=10) <= SOON
            for at in told.get((step.value, event.subject.key), ())
        ):
            continue
        code = event.sxid if event.xid is None else event.xid
        number = "" if code is None else f" {code}"
        yield _Step(
            at=event.at,
            kind=("event", event.kind.value, number, event.subject.cluster),
            subject=event.subject,
            one=f"{label(event.subject)} {one}{number}",
            many=f"{many}{number}",
            tone=tone,
            href=page_links.around(event.subject, event.at, event.at),
        )


def _state_changes(
    transitions: Iterable[TransitionSummary],
) -> dict[tuple[str, str], list[datetime]]:
    """Return when incidents came into a state, by state and subject key; flapping counts as open."""
    found: dict[tuple[str, str], list[datetime]] = {}
    for one in transitions:
        state = State.OPEN.value if one.to_state == State.FLAPPING.value else one.to_state
        for key in one.about:
            found.setdefault((state, key), []).append(one.at)
    return found


def _allocation_line(change: AllocationChange, now: datetime) -> Change:
    """Return the line of a change; a job links to its page, a program to where it ran."""
    first = change.span[0][1]
    gpus = {subject for _, subject in change.span}
    nodes = {subject.of_node() for subject in gpus}
    where = first.node if len(nodes) == 1 else counted(len(nodes), "node")
    href = change.page
    if not href and len(nodes) == 1:
        page = first if len(gpus) == 1 else first.of_node()
        href = page_links.around(page, change.at, min(change.span[-1][0], now))
    text = f"{change.said}, {counted(len(gpus), 'GPU')} on {where}"
    return Change(at=change.at, text=text, href=href)
