"""Per GPU its holder, its faults and why its node is out of service, cached while the records stay."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from gpuvigil.faults.affected import affected_keys
from gpuvigil.model import Allocation, Incident, Scheduler, Severity, Subject
from gpuvigil.schedulers.out_of_service import SPEAKS_FOR, name_of, why_out

from ..model.gpus import Column
from .keys import NodeName
from .roster import Roster

Faults = Mapping[str, Severity]
GpuName = tuple[str, str, str]  # cluster, node, UUID
# By GPU: its holder in words, and its allocations.
Held = Mapping[GpuName, tuple[str, tuple[Allocation, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holders:
    """Per GPU of the roster its holder, as an index into `texts`; 0: no open allocation."""

    roster: Roster
    allocations: tuple[Allocation, ...]
    on: Held
    holder: Column
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenFaults:
    """Per GPU of the roster its faults, as an index into `kinds`; 0: no fault."""

    roster: Roster
    incidents: tuple[Incident, ...]
    faults: Column
    kinds: tuple[tuple[Faults, Faults], ...]  # all faults of a GPU and its node, and its own


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutOfService:
    """Per GPU of the roster why its node is out of service, as an index into `texts`; 0: it is in service."""

    roster: Roster
    schedulers: tuple[Scheduler, ...]  # those whose last report is not too old
    why: Column
    texts: tuple[str, ...]


def out_of_service(
    roster: Roster, schedulers: tuple[Scheduler, ...], now: datetime, before: OutOfService | None
) -> OutOfService:
    """Return per GPU why its node is out of service; `before` itself if nothing changed."""
    counting = tuple(one for one in schedulers if now - one.at <= SPEAKS_FOR)
    if before and before.roster is roster and before.schedulers == counting:
        return before
    said = {
        name_of(Subject(cluster=one.told_by.cluster, node=node.name)): why
        for one in counting
        for node in one.nodes or ()
        if (why := why_out(node))
    }
    texts = {"": 0}
    of_node = np.zeros(len(roster.names), np.int64)
    for number, (cluster, node) in enumerate(roster.names if said else ()):
        why = said.get(name_of(Subject(cluster=cluster, node=node)), "")
        of_node[number] = texts.setdefault(why, len(texts))
    return OutOfService(
        roster=roster, schedulers=counting, why=of_node[roster.node], texts=tuple(texts)
    )


def holders(roster: Roster, allocations: tuple[Allocation, ...], before: Holders | None) -> Holders:
    """Return each GPU's holder; `before` itself if nothing changed. Only changed allocations are processed."""
    same = before is not None and before.allocations is allocations
    if before and same and before.roster is roster:
        return before
    on = before.on if before else {}
    if not same:
        on = _brought_up(on, before.allocations if before else (), allocations)
    texts = {
        text: place
        for place, text in enumerate(dict.fromkeys(("", *(it[0] for it in on.values()))))
    }
    holder = np.zeros(len(roster.uuid) + 1, np.int64)
    holder[[roster.numbers.get(gpu, -1) for gpu in on]] = [texts[text] for text, _ in on.values()]
    return Holders(
        roster=roster, allocations=allocations, on=on, holder=holder[:-1], texts=tuple(texts)
    )


def _brought_up(on: Held, was: tuple[Allocation, ...], allocations: tuple[Allocation, ...]) -> Held:
    """Return `on`, made from the old allocations, updated to the new ones."""
    then, now = set(map(id, was)), set(map(id, allocations))
    held: dict[GpuName, list[Allocation]] = {}
    for one in (it for it in was if id(it) not in now):
        held[_gpu(one)] = [it for it in on[_gpu(one)][1] if id(it) in now]
    for one in (it for it in allocations if id(it) not in then):
        name = _gpu(one)
        held.setdefault(name, list(on[name][1]) if name in on else []).append(one)
    named = {name: (_named(those), tuple(those)) for name, those in held.items() if those}
    return {**{name: kept for name, kept in on.items() if name not in held}, **named}


def _gpu(one: Allocation) -> GpuName:
    return one.subject.cluster, one.subject.node, one.subject.gpu or ""


def _named(held: Sequence[Allocation]) -> str:
    """Return the earliest holder in words, and how many more there are."""
    first = min(held, key=lambda one: one.started_at) if held[1:] else held[0]
    user = f" ({first.user})" if first.user else ""
    return f"{first.holder}{user}" + (f" +{len(held) - 1}" if held[1:] else "")


def open_faults(
    roster: Roster, incidents: tuple[Incident, ...], before: OpenFaults | None
) -> OpenFaults:
    """Return each GPU's faults; `before` itself if nothing changed."""
    if before and before.roster is roster and before.incidents is incidents:
        return before
    of_gpus, of_nodes = _faults(incidents)
    own = {
        number: faults
        for gpu, faults in of_gpus.items()
        if (number := roster.numbers.get(gpu)) is not None
    }
    touched = {*own, *_gpus_on(roster, of_nodes)}
    kinds: dict[tuple[tuple[tuple[str, Severity], ...], ...], int] = {((), ()): 0}
    column = np.zeros(len(roster.uuid), np.int64)
    for number in touched:
        here, mine = of_nodes.get(roster.names[roster.node[number]], {}), own.get(number, {})
        kind = (tuple({**here, **mine}.items()), tuple(mine.items()))
        column[number] = kinds.setdefault(kind, len(kinds))
    return OpenFaults(
        roster=roster,
        incidents=incidents,
        faults=column,
        kinds=tuple((dict(every), dict(mine)) for every, mine in kinds),
    )


def _faults(
    incidents: Iterable[Incident],
) -> tuple[dict[tuple[str, str, str], dict[str, Severity]], dict[NodeName, dict[str, Severity]]]:
    """Return the severity by fault, for each GPU and for each node."""
    of_gpus: dict[tuple[str, str, str], dict[str, Severity]] = {}
    of_nodes: dict[NodeName, dict[str, Severity]] = {}
    for incident in incidents:
        for one in _covered(incident):
            if one.gpu is not None:
                found = of_gpus.setdefault((one.cluster, one.node, one.gpu), {})
            elif one.device is None:
                found = of_nodes.setdefault((one.cluster, one.node), {})
            else:
                continue
            found[incident.fault] = incident.severity
    return of_gpus, of_nodes


def _covered(incident: Incident) -> set[Subject]:
    """Return the subjects that an incident is about, without members that this version cannot parse."""
    covered: set[Subject] = set()
    for member in affected_keys(incident):
        with contextlib.suppress(ValueError):
            covered.add(Subject.parse(member))
    return covered


def _gpus_on(roster: Roster, nodes: Iterable[NodeName]) -> Sequence[int]:
    """Return the numbers of the GPUs on these nodes."""
    wanted = set(nodes)
    chosen = np.array([name in wanted for name in roster.names], bool)
    found: list[int] = np.flatnonzero(chosen[roster.node]).tolist()
    return found
