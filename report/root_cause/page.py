"""The page for a part's manufacturer: which part it is, and each time that it failed; pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from accounting.hardware.incident_steps import steps
from accounting.hardware.repeat_offenders import failures, history
from accounting.hardware.similar_incidents import (
    IncidentRecords,
    earlier_incident,
    outcome,
    similar_incidents,
)
from accounting.job_ending import EndCause, around
from accounting.jobs.losses import Ended, Key, Loss, losses, of_allocations, of_job, runs
from accounting.people.records_view import WITHHELD
from gpuvigil.faults.sxids import sxid
from gpuvigil.faults.xid_messages import read
from gpuvigil.lifecycle import ACTIVE, Signal, State
from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    Evidence,
    GpuIdentity,
    Incident,
    Inventory,
    Setup,
    Subject,
    Transition,
)
from gpuvigil.model.setup import TITLES
from gpuvigil.topology.link_names import device_name, port_name

from .gaps import unmeasured
from .page_inputs import AROUND, RootCauseInputs, strikes

MOST_INCIDENTS = 20
MOST_LINES = 10
MOST_STEPS = 20
MOST_BEFORE = 4
LONGEST_LINE = 300
_HOUR = timedelta(hours=1)
_CONFIRMED = frozenset({state.value for state in ACTIVE} | {State.RESOLVED.value})
_OF_SITE = frozenset({EndCause.HARDWARE, EndCause.NODE, EndCause.NETWORK})
# What cures a fault, or was done to the machine; not lines of the kernel.
_DONE = {
    EventKind.GPU_RESET: "GPU was reset",
    EventKind.GPU_BACK: "GPU is back",
    EventKind.DRIVER_BACK: "Driver answers again",
    EventKind.BOOT: "Node was booted",
    EventKind.SHUTDOWN: "Node went down in order",
}
# About programs and gpuvigil itself: not for a manufacturer.
_UNTOLD = frozenset({EventKind.OOM_KILL, EventKind.LOGS, EventKind.STOPPED, EventKind.COLLECTIVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version that a node runs; `since` is None when nobody recorded it."""

    name: str
    value: str
    since: datetime | None
    or_before: bool  # it was already so when the node was first heard of


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A network port, and the firmware of its card."""

    name: str
    kind: str
    firmware: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """An Xid or SXid, its meaning, and how often it was reported."""

    name: str  # "Xid 79"
    mnemonic: str
    meaning: str
    source: str
    times: int
    first: datetime | None  # None: no line of it was kept
    last: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the kernel log, or an event in words."""

    at: datetime
    where: str
    text: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that happened or was done."""

    at: datetime
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A job that the incident ended; `user` is None when names are left out."""

    job: str
    ended_at: datetime
    by: str
    gpus: int | None
    gpu_hours: float | None  # None: not known
    at_most: bool  # no checkpoint is known, so the loss is an upper bound
    user: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """An earlier occurrence of the same fault on this part."""

    since: datetime
    until: datetime
    ended_by: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One incident, as the page describes it."""

    id: str
    fault: str
    title: str
    where: str
    severity: str
    state: str
    since: datetime
    until: datetime | None
    serial: str  # of the GPU that sat there at that time
    slot: str
    evidence: tuple[Evidence, ...]
    rule_from: str
    codes: tuple[Code, ...]
    lines: tuple[Line, ...]
    more_lines: int
    steps: tuple[Step, ...]  # the newest
    more_steps: int
    jobs: tuple[Cost, ...]
    gpus_blocked: int
    gpu_hours_blocked: float
    before: tuple[Before, ...]
    history: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The whole page."""

    about: str
    cluster: str
    node: str
    simulated: bool
    start: datetime
    made_at: datetime
    with_people: bool
    versions: tuple[Version, ...]
    gpus: tuple[GpuIdentity, ...]
    ports: tuple[Port, ...]
    incidents: tuple[Account, ...]  # the newest first
    more_incidents: int
    jobs_lost: int
    job_gpu_hours: float | None  # of the jobs for which it is known; None: of none
    accepted: Step | None
    unmeasured: tuple[str, ...]


def of_node(
    inputs: RootCauseInputs,
    start: datetime,
    now: datetime,
    *,
    with_people: bool = False,
    about: str = "",
) -> Page:
    """Return a node's page with its incidents since `start`, or with only the one with the id `about`."""
    ordered = sorted(inputs.incidents, key=lambda one: (one.since, one.id), reverse=True)
    wanted = [one for one in ordered if (one.id == about if about else _within(one, inputs, start))]
    shown, ended = wanted[:MOST_INCIDENTS], _ended(inputs)
    lost: dict[Key, Loss] = {}
    accounts = []
    for one in shown:
        cost = _lost(one, ended)
        lost |= {loss.job.key: loss for loss in cost}
        accounts.append(_account(one, inputs, cost, now, with_people=with_people))
    part = wanted[0].subject.gpu if about and wanted else None
    known = [one.gpu_hours for one in lost.values() if one.gpu_hours is not None]
    gpus = () if inputs.inventory is None else inputs.inventory.gpus
    return Page(
        about=_about(inputs, part),
        cluster=inputs.node.cluster,
        node=inputs.node.node,
        simulated=inputs.node.simulated,
        start=min(start, wanted[0].since) if about and wanted else start,
        made_at=now,
        with_people=with_people,
        versions=tuple(versions(inputs.setups, inputs.inventory)),
        gpus=tuple(one for one in gpus if part in {None, one.uuid}),
        ports=_ports(inputs.inventory),
        incidents=tuple(accounts),
        more_incidents=len(wanted) - len(shown),
        jobs_lost=len(lost),
        job_gpu_hours=sum(known) if known else None,
        accepted=_accepted(inputs, with_people=with_people),
        unmeasured=tuple(unmeasured(inputs, part)),
    )


def _within(one: Incident, inputs: RootCauseInputs, start: datetime) -> bool:
    """Return whether the incident is this node's, was confirmed, and stood in the span."""
    ended = one.resolved_at
    lately = ended is None or ended > start
    return lately and one.state in _CONFIRMED and not one.marked and strikes(one, inputs.node)


def _about(inputs: RootCauseInputs, part: str | None) -> str:
    if part is None:
        return inputs.node.node
    return _where(Subject(cluster=inputs.node.cluster, node=inputs.node.node, gpu=part), inputs)


def _where(subject: Subject, inputs: RootCauseInputs) -> str:
    """Return a part's name for people."""
    if subject.device is not None:
        return port_name(subject)
    if subject.gpu is None:
        return subject.node
    gpus = () if inputs.inventory is None else inputs.inventory.gpus
    index = next((one.index for one in gpus if one.uuid == subject.gpu), None)
    return f"{subject.node} GPU {subject.gpu if index is None else index}"


def versions(setups: Iterable[Setup], inventory: Inventory | None) -> Iterator[Version]:
    """Yield the versions that the node runs now, and since when without interruption."""
    ordered = sorted(setups, key=lambda one: one.at)
    current = Setup.of(inventory).values if inventory is not None else {}
    if ordered:
        current = {**ordered[-1].values, **current}
    for attribute, word in TITLES.items():
        value = current.get(attribute)
        if value is None:
            continue
        since, first = None, True
        for one in ordered:
            if one.values.get(attribute) != value:
                since, first = None, False
            elif since is None:
                since = one.at
        yield Version(name=word, value=value, since=since, or_before=since is not None and first)


def _ports(inventory: Inventory | None) -> tuple[Port, ...]:
    found = () if inventory is None else inventory.ports
    return tuple(
        Port(name=device_name(one.device, one.port), kind=one.kind, firmware=one.firmware)
        for one in found
    )


def _accepted(inputs: RootCauseInputs, *, with_people: bool) -> Step | None:
    one = inputs.acceptance
    if one is None:
        return None
    what = "Accepted after tests" if one.tested else "Accepted"
    return Step(at=one.at, what=f"{what} by {one.by}: {one.note}" if with_people else what)


def _account(
    one: Incident,
    inputs: RootCauseInputs,
    cost: Sequence[Loss],
    now: datetime,
    *,
    with_people: bool,
) -> Account:
    until = one.resolved_at or now
    events = [it for it in inputs.events if _belongs(it, one, until)]
    lines = _lines(events, inputs)
    went = _steps(one, inputs, events, with_people=with_people)
    return Account(
        id=one.id,
        fault=one.fault,
        title=one.title,
        where=one.label or _where(one.subject, inputs),
        severity=one.severity.value,
        state=one.state,
        since=one.since,
        until=one.resolved_at,
        serial=one.serial,
        slot=one.slot,
        evidence=one.evidence,
        rule_from=one.source,
        codes=tuple(_codes(one, events)),
        lines=lines[:MOST_LINES],
        more_lines=len(lines[MOST_LINES:]),
        steps=went[-MOST_STEPS:],
        more_steps=len(went[:-MOST_STEPS]),
        jobs=tuple(_cost(it, with_people=with_people) for it in cost),
        gpus_blocked=one.impact.gpus,
        gpu_hours_blocked=one.impact.gpus * ((until - one.since) / _HOUR),
        before=tuple(_before(one, inputs, now, with_people=with_people)),
        history=history(one, failures(inputs.incidents)),
    )


def _belongs(event: Event, one: Incident, until: datetime) -> bool:
    """Return whether the event is about the part, or the whole node, and of the incident's time."""
    if event.kind in _UNTOLD or not one.since - AROUND <= event.at <= until + AROUND:
        return False
    about, subject = one.subject, event.subject
    whole = about.kind == "node" or subject.kind == "node"
    return about == subject or whole or subject.key in one.members


def _lines(events: Iterable[Event], inputs: RootCauseInputs) -> tuple[Line, ...]:
    return tuple(
        Line(
            at=one.at,
            where=_where(one.subject, inputs),
            text=_short(one.message),
            times=one.count,
        )
        for one in events
        if one.message and one.kind not in _DONE
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def _codes(one: Incident, events: Iterable[Event]) -> Iterator[Code]:
    """Yield each code once; the incident's own even if no line of it was kept."""
    groups: dict[tuple[int | None, int | None], list[Event]] = {}
    for it in events:
        if it.code:
            groups.setdefault((it.xid, it.sxid), []).append(it)
    if (one.xid or one.sxid) and (one.xid, one.sxid) not in groups:
        groups[one.xid, one.sxid] = []
    for (of_gpu, of_switch), them in groups.items():
        yield _code(of_gpu, of_switch, them)


def _code(of_gpu: int | None, of_switch: int | None, them: Sequence[Event]) -> Code:
    """Return a code as its last line explains it; without a line, as the table does."""
    message = them[-1].message if them else ""
    row = read(of_gpu, message) if of_gpu else sxid(of_switch or 0)
    return Code(
        name=f"Xid {of_gpu}" if of_gpu else f"SXid {of_switch}",
        mnemonic=row.mnemonic,
        meaning=row.summary,
        source=row.source,
        times=sum(it.count for it in them),
        first=them[0].at if them else None,
        last=them[-1].at if them else None,
    )


def _steps(
    one: Incident, inputs: RootCauseInputs, events: Iterable[Event], *, with_people: bool
) -> tuple[Step, ...]:
    """Return what happened and was done: by people, gpuvigil, the driver and the manufacturer."""
    transitions = [_said(it, with_people=with_people) for it in inputs.transitions.get(one.id, ())]
    notes = inputs.notes.get(one.id, ()) if with_people else ()
    moments = steps(one, transitions, notes, inputs.actions.get(one.id, ()))
    found = [Step(at=it.at, what=_short(_joined(it.title, it.text))) for it in moments]
    found += [
        Step(at=it.at, what=f"{_where(it.subject, inputs)}: {_DONE[it.kind]}")
        for it in events
        if it.kind in _DONE
    ]
    for it in inputs.rma.get(one.id, ()):
        serial = f", serial number {it.serial}" if it.serial else ""
        who = _joined(f", by {it.by}", it.note) if with_people else ""
        found.append(Step(at=it.at, what=f"Return to the maker: {it.state.value}{serial}{who}"))
    return tuple(sorted(found, key=lambda it: it.at))


def _said(step: Transition, *, with_people: bool) -> Transition:
    """Drop the note of an acknowledgement unless names are allowed: it may name anybody."""
    own = step.signal == Signal.ACKNOWLEDGED.value and not with_people
    return replace(step, reason="") if own else step


def _joined(title: str, text: str) -> str:
    """Join title and text, leaving out text that only operators may see."""
    return f"{title}: {text}" if text and WITHHELD not in text else title


def _ended(inputs: RootCauseInputs) -> Sequence[Ended]:
    """Return jobs that ended on the node, with their GPUs here; a scheduler's report goes first."""
    runs_: dict[str, list[Ended]] = {}
    by_holder: dict[str, list[Allocation]] = {}
    for one in inputs.held:
        by_holder.setdefault(str(one.holder), []).append(one)
    for holder, held in by_holder.items():
        ends = (of_allocations(run) for run in runs(held))
        runs_[holder] = [one for one in ends if one is not None]
    found = []
    for job in inputs.jobs:
        ended = of_job(job)
        keys = frozenset(it.subject.key for it in by_holder.get(str(job.holder), ()))
        found += [] if ended is None else [replace(ended, gpu_keys=keys)]
    told_of = {str(job.holder) for job in inputs.jobs}
    return [
        *found,
        *(one for holder, them in runs_.items() if holder not in told_of for one in them),
    ]


def _lost(one: Incident, ended: Iterable[Ended]) -> Sequence[Loss]:
    """Return the jobs that this incident ended."""
    near = []
    for job in ended:
        start, end = around(job.ended_at)
        nodes = (Subject(cluster=job.cluster, node=name) for name in job.nodes)
        if start <= one.since < end and any(strikes(one, node) for node in nodes):
            near.append(job)
    return [loss for loss in losses(near, [one]) if loss.why in _OF_SITE]


def _cost(one: Loss, *, with_people: bool) -> Cost:
    return Cost(
        job=str(one.job.holder),
        ended_at=one.job.ended_at,
        by=one.said,
        gpus=one.job.gpus,
        gpu_hours=one.gpu_hours,
        at_most=not one.since_checkpoint,
        user=one.job.user if with_people else None,
    )


def _before(
    one: Incident, inputs: RootCauseInputs, now: datetime, *, with_people: bool
) -> Iterator[Before]:
    """Yield the same fault on the same part, or on the same GPU wherever it sat."""
    past = [
        it
        for it in inputs.incidents
        if it.since < one.since
        and (it.subject == one.subject or (one.serial and it.serial == one.serial))
    ]
    later = [it for it in inputs.incidents if it.since >= one.since and it.id != one.id]
    for it in similar_incidents(one, past, now)[:MOST_BEFORE]:
        said = IncidentRecords(
            transitions=inputs.transitions.get(it.id, ()),
            notes=inputs.notes.get(it.id, ()) if with_people else (),
            rma=inputs.rma.get(it.id, ()),
            actions=inputs.actions.get(it.id, ()),
        )
        found = earlier_incident(one, it, said, [*past, *later])
        yield Before(
            since=it.since,
            until=it.resolved_at or it.updated_at,
            ended_by=found.what_helped or "nobody said what ended it",
            outcome=outcome(found, now),
        )
