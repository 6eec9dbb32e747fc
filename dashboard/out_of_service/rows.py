"""What is known of each node that is out of service, and its next step; pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from accounting.hardware.returns import newest, step_line
from gpuvigil.faults import FAULTS, Shows
from gpuvigil.faults.affected import affected_keys
from gpuvigil.faults.gpu_states import UNHEARD
from gpuvigil.model import (
    Acceptance,
    Act,
    Allocation,
    Incident,
    Inventory,
    NodeAction,
    Rma,
    RmaState,
    ScheduledNode,
    Scheduler,
    Severity,
    Subject,
)
from gpuvigil.numbers_in_words import natural
from gpuvigil.schedulers.out_of_service import Checks, LostTo, lost_to, name_of, why_out

# Who set a Slurm reason and when, as `scontrol show node` prints it: `fan [ada@2026-01-31T11:00:00]`.
_BY = re.compile(r"\s*\[([^\[\]@]+)@([^\[\]]+)\]\s*$")
# `OPS-123`, `#4711`, `INC0012345`, `ticket 99`, `case 4711`. Keys are upper-case, as in Jira.
_TICKET = re.compile(
    r"\b([A-Z][A-Z0-9]+-\d+|(?:INC|CHG|RITM|REQ)\d{5,})(?![\w-])"
    r"|\b((?i:ticket|case|rma)[ :#]*\d[\w-]*)|(#\d{2,})"
)
# Texts that look like ticket keys but are not.
_PARTS = re.compile(
    r"(?:GPU|XID|RACK|NODE|HOST|NIC|PORT|SLOT|CPU|PSU|FAN|DIMM|NVME|UTF|ISO|CVE|SHA|RTX|[ABHLV]\d+)-"
)


# What to do about a silent node without an incident.
_UNHEARD_STEP = next(row.action for row in FAULTS.values() if row.shows is Shows.UNHEARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A silent node."""

    node: Subject
    gpus: int
    heard_at: datetime | None  # None: never


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfServiceRecords:
    """The records that say why nodes take no jobs, and the silent nodes."""

    inventories: Sequence[Inventory] = ()
    schedulers: Sequence[Scheduler] = ()
    incidents: Sequence[Incident] = ()  # open ones
    rmas: Sequence[Rma] = ()
    acceptances: Mapping[str, Acceptance] = field(default_factory=dict)  # by node key
    actions: Sequence[NodeAction] = ()
    checks: Checks = field(default_factory=Checks)
    silent: Sequence[Silent] = ()
    allocations: Sequence[Allocation] = ()  # open ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One node; unknown facts are empty or None."""

    node: Subject
    gpus: int
    lost_to: LostTo | None  # None: it is silent, but not known to be out of service
    why: str
    since: datetime | None
    who: str
    step: str  # what to do next
    accepted: Acceptance | None
    incident: Incident | None  # the worst open one
    ticket: str = ""
    jobs: Sequence[Allocation] = ()  # one allocation for each holder on it


def rows(known: OutOfServiceRecords) -> Sequence[Row]:
    """Return the nodes that are out of service, those that wait longest first."""
    told = {
        name_of(Subject(cluster=one.told_by.cluster, node=node.name)): (node, one)
        for one in known.schedulers
        for node in one.nodes or ()
    }
    active = _by_node(known.incidents)
    repairs = _repairs(known.rmas)
    names = _names(known.inventories)
    found = []
    for inventory in known.inventories:
        node = inventory.subject
        scheduled = told.get(name_of(node), (None, None))[0]
        here = active.get(node, ())
        critical = {it.fault for it in here if it.severity is Severity.CRITICAL}
        lost = lost_to(scheduled, critical, in_repair=node in repairs, checks=known.checks)
        if lost is not None:
            repair = repairs.get(node)
            row = _row(inventory, scheduled, lost, here, repair, known)
            found.append(replace(row, ticket=_ticket(scheduled, repair, names)))
    listed = {row.node for row in found}
    found += [_unheard(it, active, known) for it in known.silent if it.node not in listed]
    jobs = _jobs(known.allocations)
    return sorted((replace(it, jobs=jobs.get(it.node, ())) for it in found), key=_rank)


def _unheard(
    silent: Silent, open_incidents: Mapping[Subject, Sequence[Incident]], known: OutOfServiceRecords
) -> Row:
    """Return the row of a silent node, of which only the time since when it is silent is known."""
    here = open_incidents.get(silent.node, ())
    of_silence = next((it for it in here if it.fault in UNHEARD), None)
    return Row(
        node=silent.node,
        gpus=silent.gpus,
        lost_to=None,
        why="",
        since=silent.heard_at or (None if of_silence is None else of_silence.since),
        who="",
        step=_UNHEARD_STEP if of_silence is None else of_silence.action or _UNHEARD_STEP,
        accepted=known.acceptances.get(silent.node.key),
        incident=of_silence,
    )


def _jobs(allocations: Iterable[Allocation]) -> Mapping[Subject, Sequence[Allocation]]:
    """Return by node the first allocation of each of its holders."""
    found: dict[Subject, dict[str, Allocation]] = {}
    for one in allocations:
        found.setdefault(one.subject.of_node(), {}).setdefault(str(one.holder), one)
    return {node: tuple(held.values()) for node, held in found.items()}


def _rank(row: Row) -> tuple[bool, float, list[tuple[int, str]]]:
    since = 0.0 if row.since is None else row.since.timestamp()
    return row.since is None, since, natural(row.node.node)


def _by_node(incidents: Iterable[Incident]) -> Mapping[Subject, Sequence[Incident]]:
    """Return by node the open incidents about it and its GPUs, worst first."""
    found: dict[Subject, list[Incident]] = {}
    for one in sorted(incidents, key=lambda it: (it.severity.rank, it.since)):
        for node in {Subject.parse(key).of_node() for key in affected_keys(one)}:
            found.setdefault(node, []).append(one)
    return found


def _repairs(rmas: Iterable[Rma]) -> Mapping[Subject, Rma]:
    """Return by node the newest step of a return that is not over."""
    open_ = [one for one in newest(rmas).values() if one.state is not RmaState.REPLACED]
    return {one.subject.of_node(): one for one in sorted(open_, key=lambda it: it.at)}


def _row(
    inventory: Inventory,
    scheduled: ScheduledNode | None,
    lost: LostTo,
    here: Sequence[Incident],
    repair: Rma | None,
    known: OutOfServiceRecords,
) -> Row:
    node = inventory.subject
    reason = "" if scheduled is None else scheduled.reason or ""
    by = _BY.search(reason)
    ours = max(
        (it for it in known.actions if it.node == node and it.act is Act.DRAIN),
        key=lambda it: it.at,
        default=None,
    )
    accepted = known.acceptances.get(node.key)
    since = _since(by, ours, here if scheduled is None else ())
    return Row(
        node=node,
        gpus=len(inventory.gpus),
        lost_to=lost,
        why="" if scheduled is None else why_out(scheduled),
        since=since,
        who=by[1] if by else "gpuvigil" if ours is not None and scheduled is not None else "",
        step=next_step(lost, scheduled, here, repair, accepted, since),
        accepted=accepted,
        incident=here[0] if here else None,
    )


def _since(
    by: re.Match[str] | None, ours: NodeAction | None, here: Sequence[Incident]
) -> datetime | None:
    """Return since when a node is out: by its Slurm reason, gpuvigil's drain, or its fault; a cordon has no time."""
    if by is not None:
        try:
            told = datetime.fromisoformat(by[2])
        except ValueError:
            told = None
        if told is not None:
            # Slurm prints the controller's local time without a zone. It is taken for UTC, so a site
            # in another zone sees it as its clock shows it.
            return told if told.tzinfo else told.replace(tzinfo=timezone.utc)
    if ours is not None:
        return ours.at
    return min((it.since for it in here), default=None)


def _names(inventories: Iterable[Inventory]) -> frozenset[str]:
    """Return the full and short names of nodes, and of racks, none of which is a ticket."""
    known = {it.subject.node for it in inventories} | {it.rack for it in inventories if it.rack}
    return frozenset(known | {name.partition(".")[0] for name in known})


def _ticket(scheduled: ScheduledNode | None, repair: Rma | None, names: Collection[str]) -> str:
    """Return the ticket in the scheduler's reason, or in the note on the part's return; "" for none."""
    reason = "" if scheduled is None else scheduled.reason or ""
    notes = (reason, "" if repair is None else repair.note)
    return next((found for text in notes if (found := ticket(text, names))), "")


def ticket(text: str, names: Collection[str] = ()) -> str:
    """Return the first ticket that a text names; "" for none."""
    for found in _TICKET.finditer(text):
        key = found[0]
        if key not in names and _PARTS.match(key) is None:
            return key
    return ""


def next_step(
    lost: LostTo,
    scheduled: ScheduledNode | None,
    here: Sequence[Incident],
    repair: Rma | None,
    accepted: Acceptance | None,
    since: datetime | None,
) -> str:
    """Return what to do next about a node."""
    if repair is not None:
        word = step_line(repair)
        wait = "ship the part" if repair.state is RmaState.OPEN else "wait for the replacement"
        return f"{wait} ({word})"
    counts = accepted is not None and since is not None and accepted.at > since
    known = accepted.at if accepted is not None and counts else None
    if (worst := next((it for it in here if _comes_first(it, known)), None)) is not None:
        return worst.action or "resolve its open incidents"
    if counts:
        return f"accepted: give it back to its scheduler{_command(scheduled)}"
    if lost is LostTo.MAINTENANCE:
        return "give it back when the work is done"
    if lost is LostTo.UNKNOWN:
        return "find out who took it out, and why"
    return "test it, then gpuvigil node accept NODE --results FILE"


def _comes_first(one: Incident, accepted_at: datetime | None) -> bool:
    """Return whether an incident must be handled first: any critical, or a warning newer than the acceptance."""
    if one.severity is Severity.CRITICAL:
        return True
    return one.severity is Severity.WARNING and (accepted_at is None or one.since > accepted_at)


def _command(scheduled: ScheduledNode | None) -> str:
    if scheduled is None:
        return ""
    if "CORDONED" in scheduled.states:
        return f": kubectl uncordon {scheduled.name}"
    return f": scontrol update nodename={scheduled.name} state=resume"


def unknown(known: OutOfServiceRecords) -> Sequence[str]:
    """Return why the list may lack nodes: schedulers that do not answer, or none at all."""
    if not known.schedulers:
        return [
            "No scheduler is connected: only silent nodes and those whose faults stop all their GPUs are listed."
        ]
    return [
        f"The scheduler of {one.told_by.cluster} does not answer: {one.why or 'no reason given'}."
        for one in known.schedulers
        if one.nodes is None
    ]
