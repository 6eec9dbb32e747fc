"""The impact of a fault: which GPUs wait, and who holds them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpuvigil.faults import Blame, where
from gpuvigil.faults.gpu_states import STOPPING
from gpuvigil.model import (
    SWITCH_DEVICE,
    Allocation,
    Finding,
    HolderKind,
    Impact,
    Incident,
    Severity,
    Subject,
)
from gpuvigil.numbers_in_words import counted

from ..evidence.crossing import Crossing, crossing
from ..evidence.kept_pace import keeps_pace
from ..window.fault_kinds import AT_SWITCHES, OF_LINKS, OF_PORTS, OF_RACKS, SILENCES, SWITCHES
from ..window.holdings import Holding, holder_key, name
from ..window.window import Window
from .causes import multi_node

# For a cable between switches whose hosts are unknown.
_UNKNOWN = "whose jobs go over it is not known"
_CROSSED_BY_NONE = "no job runs across these switches now"
_NEEDS_NONE = "no job over several nodes runs there"
_NONE_ACROSS = Crossing(known=True, jobs=())
_HELD_FOR_NOTHING = where(lambda row: row.blame in {Blame.HOLDER, Blame.USE})


def impact(window: Window, finding: Finding) -> Impact:
    """Return the impact of a finding: GPUs that wait now, and holders, ended ones included."""
    held = window.holdings
    gpus = gpus_of_finding(window, finding)
    hit = _hit(window, finding, gpus)
    now = [a for a in hit if a.ended_at is None]
    ended = [a for a in hit if _ended_with_it(a, finding.since)]
    active = _current_holdings(now, held)
    own, others = _waiting(finding, gpus, active)
    everybody = [*now, *ended]
    between = not gpus and finding.subject.device == SWITCH_DEVICE
    over = crossing(window, finding) if between else _NONE_ACROSS
    slower = _is_slower(window, finding, active.values())
    return Impact(
        gpus=_together([own, *(h.gpus for h in others.values())]),
        holders=tuple(sorted({str(a.holder) for a in everybody})),
        users=tuple(sorted({a.user for a in everybody if a.user})),
        text=_between_switches(over, finding)
        if between
        else _text(finding, now, ended, active.values(), slower)
        or (_NEEDS_NONE if _is_of_fabric(window, finding) else "not allocated to anybody"),
        running=bool(now),
        jobs_across=len(over.jobs) if over.known else None,
        slower=slower,
    )


def _is_slower(window: Window, finding: Finding, active: Collection[Holding]) -> bool | None:
    """Tell whether holders are known to wait or to get less done because of a port or switch.

    None if that is not known; False if all of them go on at the pace that they had before.
    """
    if not active or finding.fault not in OF_PORTS:
        return None
    if _halts(finding) or finding.lost > 0.0:
        return True
    stands = window.once(_open, None).get(finding.fingerprint)
    kept = stands is not None and stands.impact.slower is False
    # Some findings begin with their newest sample, each time anew.
    since = finding.since if stands is None else min(finding.since, stands.since)
    return False if all(keeps_pace(window, it, since, kept) for it in active) else None


def _open(window: Window, _: None) -> Mapping[str, Incident]:
    return {it.fingerprint: it for it in window.active_incidents}


def with_max_loss(cause: Finding, hidden: Iterable[Finding]) -> Finding:
    """Return a network cause with the largest loss among itself and what it explains.

    A cable between switches without members also gets the members of that lossy finding.
    """
    lossy = [it for it in hidden if it.fault in OF_PORTS and it.lost > cause.lost]
    if cause.fault not in OF_PORTS or not lossy:
        return cause
    most = max(lossy, key=lambda it: it.lost)
    # Which jobs go over a cable between switches, only the hosts that lose by it say.
    hosts = () if cause.subject.device != SWITCH_DEVICE or cause.members else most.members
    return replace(cause, lost=most.lost, members=(*cause.members, *hosts))


def blocked_work(
    window: Window, finding: Finding
) -> tuple[Collection[Subject], Mapping[str, Holding]]:
    """Return what cannot work because of a finding: single GPUs, and whole holders by key."""
    gpus = gpus_of_finding(window, finding)
    now = [a for a in _hit(window, finding, gpus) if a.ended_at is None]
    return _waiting(finding, gpus, _current_holdings(now, window.holdings))


def _between_switches(over: Crossing, finding: Finding) -> str:
    """Return in words which jobs may send packets over a link between switches."""
    if not over.known:
        return _UNKNOWN
    names = _names([it.name for it in over.jobs])
    if not names:
        return _CROSSED_BY_NONE
    gpus = _together([it.gpus for it in over.jobs])
    nodes = _together([it.nodes for it in over.jobs])
    feels = "may stand still" if finding.severity is Severity.CRITICAL else "may be slower"
    return f"{names} {feels} ({counted(gpus, 'GPU')} on {counted(nodes, 'node')})"


def _hit(window: Window, finding: Finding, gpus: Iterable[Subject]) -> list[Allocation]:
    """Return the GPUs' current and recent allocations; the fabric's without jobs on one node."""
    hit = [a for gpu in gpus for a in window.allocations.get(gpu.key, ())]
    return (
        [a for a in hit if not _is_on_one_node(window, a)]
        if _is_of_fabric(window, finding)
        else hit
    )


def _is_of_fabric(window: Window, finding: Finding) -> bool:
    """Tell whether a finding is only about ports of the fabric over which jobs communicate."""
    ports = [it for it in (finding.subject, *finding.members) if it.kind == "port"]
    roles = {
        known.role
        for port in ports
        if (inventory := window.inventories.get(port.of_node().key)) is not None
        for known in inventory.ports
        if (known.device, known.port) == (port.device, port.port)
    }
    return finding.fault in OF_PORTS and roles == {"fabric"}


def _is_on_one_node(window: Window, allocation: Allocation) -> bool:
    """Tell whether a job is known to run on one node only.

    False for a process, which may be one of many, and for a job that has ended.
    """
    held = window.holdings.get(holder_key(allocation))
    is_job = allocation.holder.kind is HolderKind.JOB and allocation.ended_at is None
    return is_job and held is not None and len(held.nodes) == 1


def gpus_of_finding(window: Window, finding: Finding) -> tuple[Subject, ...]:
    """Return the GPUs of a finding: its own, those that it names, or those of its nodes."""
    subject = finding.subject
    if finding.fault in SILENCES and finding.members:  # nodes of a rack
        return tuple(gpu for node in finding.members for gpu in _of_node(window, node))
    if any(member.kind == "port" for member in finding.members):
        nodes = sorted({s.of_node() for s in (subject, *finding.members)})
        return tuple(gpu for node in nodes for gpu in _of_node(window, node))
    if subject.kind == "gpu":
        return tuple(sorted({subject, *finding.members}))
    if finding.members:
        return finding.members
    return _of_node(window, subject.of_node())


def _of_node(window: Window, node: Subject) -> tuple[Subject, ...]:
    """Return a node's GPUs by its inventory."""
    inventory = window.inventories.get(node.key)
    if inventory is None:
        return ()
    return tuple(Subject(cluster=node.cluster, node=node.node, gpu=g.uuid) for g in inventory.gpus)


def _waiting(
    finding: Finding,
    gpus: Sequence[Subject],
    active: Mapping[str, Holding],
) -> tuple[Collection[Subject], Mapping[str, Holding]]:
    """Return what waits: a broken GPU itself and its holder's GPUs, for ports only held GPUs."""
    if finding.fault in _HELD_FOR_NOTHING or finding.confined:
        return frozenset(gpus), {}
    of_ports = finding.subject.kind == "port" or finding.fault in OF_LINKS
    own = frozenset() if of_ports else frozenset(gpus)
    return own, active


def _current_holdings(now: Iterable[Allocation], held: Mapping[str, Holding]) -> dict[str, Holding]:
    keys = {holder_key(a) for a in now}
    return {key: held[key] for key in sorted(keys) if key in held}


def _together(parts: Iterable[Collection[Subject]]) -> int:
    """Return the size of the union, without copying the largest part: jobs may have 10,000 GPUs."""
    *others, largest = sorted(parts, key=len)
    return len(largest) + len(set().union(*others).difference(largest))


def _ended_with_it(allocation: Allocation, since: datetime) -> bool:
    return (
        allocation.ended_at is not None
        and allocation.started_at <= since
        and allocation.ended_at >= since
    )


def _text(
    finding: Finding,
    now: Collection[Allocation],
    ended: Iterable[Allocation],
    holdings: Iterable[Holding],
    slower: bool | None,
) -> str:
    """Return who is hit in words; empty if nobody holds it now, nor held it when it began."""
    active = sorted(holdings, key=_largest)
    names = _names([holding.name for holding in active])
    own = f"{counted(len({a.subject for a in now}), 'GPU')} allocated to {names}"
    # The node's jobs may run on: only what it held when last heard is known.
    if finding.fault in SILENCES:
        return f"{own} when last heard" if names else "not allocated when last heard"
    if names and finding.fault in _HELD_FOR_NOTHING:
        return own
    if names and finding.confined:
        return f"{names}: the one program that ran on this GPU"
    if names and slower is False:
        return f"{names}: {_unchanged(active)}"
    if names:
        return f"{names}{'' if finding.lost > 0.0 else ':'} {_loss(finding, active)}"
    was = _names(sorted({name(a) for a in ended}))
    return f"was allocated to {was}, ended since" if was else ""


def _largest(holding: Holding) -> tuple[int, str]:
    return (-len(holding.gpus), holding.name)


def _names(names: Sequence[str]) -> str:
    """Return `job 1042 of alice` or `job 1042 of alice and 4 more`."""
    return " and ".join([*names[:1], *([f"{len(names) - 1} more"] if len(names) > 1 else [])])


def _unchanged(active: Sequence[Holding]) -> str:
    """Say that the jobs go on as before, such as `its pace is unchanged (64 GPUs on 8 nodes)`."""
    gpus = _together(holding.gpus for holding in active)
    nodes = _together(holding.nodes for holding in active)
    whose = "its" if len(active) == 1 else "their"
    return f"{whose} pace is unchanged ({counted(gpus, 'GPU')} on {counted(nodes, 'node')})"


def _halts(finding: Finding) -> bool:
    """Tell whether jobs are known to stand still because of the finding."""
    return finding.halted or finding.fault in STOPPING


def _loss(finding: Finding, active: Sequence[Holding]) -> str:
    """Return a loss in words, such as `64 GPUs on 8 nodes wait for this one`."""
    gpus = _together(holding.gpus for holding in active)
    nodes = _together(holding.nodes for holding in active)
    kind = "switch" if finding.fault in SWITCHES else finding.subject.kind
    if finding.group is not None:
        kind = finding.group.kind.value
    elif finding.fault in OF_RACKS and multi_node(finding):
        kind = "rack"
    place = "this one" if kind == "gpu" else f"this {kind}"
    if finding.fault in AT_SWITCHES - SWITCHES and finding.members:
        place = "it"
    if finding.lost > 0.0:
        much = f"{'moves' if len(active) == 1 else 'move up to'} {100.0 * finding.lost:.0f} % less"
        return f"{much} data ({counted(gpus, 'GPU')} on {counted(nodes, 'node')})"
    if gpus == 1 and finding.subject in active[0].gpus:
        return "waits for this GPU" if finding.fault in STOPPING else "may suffer from it"
    verb = "may suffer from"
    if _halts(finding):
        verb = "waits for" if gpus == 1 else "wait for"
    return f"{counted(gpus, 'GPU')} on {counted(nodes, 'node')} {verb} {place}"
