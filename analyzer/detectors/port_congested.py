"""A network port that waits for others while the jobs behind it get less through.

What a sender waits for lies beyond its port: only counters of switches could say which link is full. Hosts can
only show the smallest set of ports that wait: one, all of a node, those at one leaf, or those of jobs at
several leaves. Where the leaf is unknown, ports of the same name are assumed to share it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Allocation, Evidence, Finding, Subject

from ..evidence.claims import Claim, findings
from ..evidence.fabric_links import switch_port_drops
from ..evidence.port_drops import NODES, fabric_ports
from ..evidence.port_groups import Rail, at_full_leaves, joined, leaf_of, place_of, rail_of, ties_of
from ..evidence.port_rates import (
    DELAY_SECONDS,
    PAUSED_SHARE,
    QUEUED_SECONDS,
    TIMESCALES,
    Rates,
    Timescale,
    jobs_through,
    loses_speed,
    rates_of,
    still_slow,
    still_waits,
    waiting_share,
)
from ..evidence.port_rates import NEEDS as RATES
from ..evidence.slow_paths import Slow, slow_ports
from ..evidence.waits_less import DISCARDS, DISCARDS_PER_SECOND, DROPS, would_show_waiting
from ..window.columns import fabric
from ..window.fault_kinds import OF_LINKS, SWITCHES_DOWN
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector
from .port_receiver import NEEDS as RECEIVERS
from .port_receiver import stopping

NEEDS = (
    *RATES,
    *RECEIVERS,
    Need(measurement="port", span=Span.RECENT, aggregates=(DISCARDS,)),
    Need(measurement="port", span=Span.STEADY, aggregates=(DISCARDS,)),
)
# A single port is reported after this many minutes of that many discards: the ports of a full leaf pass the
# limit one after the other [own].
_ALONE_SPANS = 2.0
# The share of a node's fabric ports, and the number, that make it a matter of the node.
_MOST_OF_NODE, _LEAST_OF_NODE = 0.5, 2
_NODE_WAITS = "Node's network is slow"
_CHECK_NODE = "Check the node's network settings (PFC, ECN, MTU), then its switch ports."
# With this share of the smallest drop in traffic, a waiting port shows that another one is not alone [own].
_FAINT = 0.5
# If a smaller share of the ports is at one leaf, they have no leaf in common.
_AT_ONE_LEAF = 0.8
_SEVERAL = CONDITIONS["nodes_wait"]
# Conditions of incidents about ports, except those that a node or a cable causes.
_OF_PORTS = frozenset({"", DROPS, _SEVERAL.key})
_SHOWN = 8


_Place = TypeVar("_Place", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A port that waits, or drops what it cannot send, with the evidence."""

    port: Subject
    since: datetime
    evidence: tuple[Evidence, ...]
    alone: bool  # whether it is reported even if no other port waits with it
    faint: bool = False  # it lost too little to be reported, but shows that others are not alone
    jobs: frozenset[str] = frozenset()  # keys (`holder_key`) of the jobs that get less through it
    lost: float = 0.0  # the share of their traffic that is lost
    condition: str = ""  # the condition of a fault that only this port has


def congested_ports(window: Window) -> list[Finding]:
    """Return one finding per waiting port, or per node or switch where several wait."""
    found = {one.port: one for one in _dropping(window)}
    for scale in TIMESCALES:
        for one in _waiting(window, scale):
            known = found.get(one.port)
            found[one.port] = one if known is None else _with(one, known)
    for scale in TIMESCALES:
        for one in _answered_late(window, scale):
            if one.port not in found or found[one.port].faint:
                found[one.port] = one
    return sorted(_grouped(window, found.values()), key=lambda finding: finding.subject.key)


def _dropping(window: Window) -> Iterator[_Waiting]:
    rows, span = window.get("port", Span.RECENT), window.settings.window_seconds
    limit = DISCARDS_PER_SECOND * span
    long = window.get("port", Span.STEADY)
    for port, row in rows.where(rows.values(DISCARDS.column) > limit):
        in_all = long.get(port)
        yield _Waiting(
            port=port,
            since=row["first_at"],
            evidence=(
                Evidence(
                    name="discards",
                    value=f"{row[DISCARDS.column] / span:.0f} per second",
                    limit=f"{DISCARDS_PER_SECOND:g} per second at most",
                ),
            ),
            alone=in_all is not None
            and (in_all.get(DISCARDS.column) or 0.0) >= _ALONE_SPANS * limit,
            jobs=frozenset(jobs_through(window, port, TIMESCALES[-1])),
        )


def _waiting(window: Window, scale: Timescale) -> Iterator[_Waiting]:
    """Yield ports that wait more than before while less gets through for the same jobs."""
    rates = window.once(rates_of, scale)
    if not len(rates.rows):
        return
    slow = rates.waits & (rates.fall >= scale.least_fall)
    if not slow.any():
        return
    waits = fabric(window, rates.rows) & still_waits(window, rates) & ~loses_speed(window, rates)
    faint = rates.waits & waits & (rates.fall >= _FAINT * scale.least_fall)
    slow &= waits
    if scale.now is Span.STEADY:
        slow &= still_slow(window, rates)
    else:
        faint = slow
    echoes = _echoes(window) if slow.any() else set()
    cut = _without_a_rail(window, scale) if slow.any() else set()
    share = waiting_share(window, rates)
    for number in np.flatnonzero(slow | faint if slow.any() else slow).tolist():
        port = rates.rows.subjects[number]
        jobs = jobs_through(window, port, scale)
        rail = rail_of(port)
        told = cut.isdisjoint(jobs) and echoes.isdisjoint((rail, job) for job in jobs)
        # Within a minute, a host that the others wait for may not have been heard yet.
        heard = scale.now is Span.STEADY or all(
            window.once(_is_measured, (rail, job, scale)) for job in jobs
        )
        if jobs and told and heard:
            row = Row(rates.rows, number)
            span = row["last_at"] - row["first_at"]
            yield _Waiting(
                port=port,
                since=row["last_at"] - float(share[number]) * span,
                evidence=tuple(_evidence(rates, number, list(jobs.values()))),
                # Other ports may be about to follow.
                alone=bool(slow[number]) and scale.now is Span.STEADY,
                faint=not slow[number],
                jobs=frozenset(jobs),
                lost=float(rates.fall[number]),
                condition="shaped" if rates.shaped[number] else "",
            )


def _answered_late(window: Window, scale: Timescale) -> Iterator[_Waiting]:
    """Yield ports that late paths have in common; three or more at one leaf are the leaf's."""
    rates = window.once(rates_of, scale)
    slow = [one for one in slow_ports(window, scale) if one.port not in stopping(window)]
    jobs = {one.port: frozenset(jobs_through(window, one.port, scale)) for one in slow}
    groups = joined(jobs, lambda port: ties_of(window, port, jobs[port]))
    beside = {port: len(group) for group in groups for port in group}
    for one in slow:
        number = rates.rows.index.number(one.port)
        if number is not None:
            yield _Waiting(
                port=one.port,
                since=Row(rates.rows, number)["first_at"],
                evidence=tuple(_of_paths(window, rates, one, scale)),
                alone=scale.now is Span.STEADY,
                jobs=jobs[one.port],
                lost=float(rates.fall[rates.rows.index.number(one.paths[0][0])]),
                condition="slow_link" if beside[one.port] < NODES else "",
            )


def _of_paths(window: Window, rates: Rates, slow: Slow, scale: Timescale) -> Iterator[Evidence]:
    senders = list(dict.fromkeys(port for port, _ in slow.paths))
    for port in senders[:_SHOWN]:
        milliseconds = 1e3 * rates.delay[rates.rows.index.number(port)]
        yield Evidence(
            name=f"answers to {port.node} {port.device} are late by",
            value=f"{milliseconds:.0f} ms",
            limit=f"{1e3 * DELAY_SECONDS:g} ms",
        )
    fall = rates.fall[rates.rows.index.number(slow.paths[0][0])]
    yield Evidence(name="traffic", value=f"{100.0 * fall:.0f} % less than before")
    if len(slow.paths) == 1:
        yield Evidence(name="it may also be", value="a link between switches")
    elif slow.others:
        yield Evidence(name="it may also be", value=", ".join(map(_place, slow.others[:_SHOWN])))
    jobs = jobs_through(window, slow.port, scale)
    if slow.job in jobs:
        yield Evidence(name="its job", value=str(jobs[slow.job].holder))


def _place(port: Subject) -> str:
    return f"{port.node} {port.device}"


def _is_measured(window: Window, asked: tuple[Rail, str, Timescale]) -> bool:
    """Return whether the port of that name was measured on each of the job's nodes."""
    (_, device, port), job, scale = asked
    rates = window.once(rates_of, scale)
    places = (
        rates.rows.index.number(replace(node, device=device, port=port))
        for node in window.holdings[job].nodes
    )
    return all(place is not None and bool(rates.measured[place]) for place in places)


def _echoes(window: Window) -> set[tuple[Rail, str]]:
    """Return the rails and jobs of hosts that do not keep up; those are reported instead of the ports waiting for them."""
    return {
        (rail_of(port), job)
        for port in stopping(window)
        for scale in TIMESCALES
        for job in jobs_through(window, port, scale)
    }


def _without_a_rail(window: Window, scale: Timescale) -> set[str]:
    """Return the jobs that lost a link to a switch in this time: the link's traffic crowds their other links."""
    lately = [
        it
        for it in window.active_incidents
        if it.fault in SWITCHES_DOWN
        and window.now - it.since < timedelta(seconds=scale.long_seconds(window))
    ]
    ports = {port for it in lately for port in (it.subject, *map(Subject.parse, it.members))}
    return {job for port in ports for job in jobs_through(window, port, scale)}


def _evidence(rates: Rates, number: int, jobs: Sequence[Allocation]) -> Iterator[Evidence]:
    if rates.paused[number] >= PAUSED_SHARE:
        yield Evidence(
            name="paused by its switch",
            value=f"{100.0 * min(rates.paused[number], 1.0):.0f} % of the time",
            limit=f"{100.0 * PAUSED_SHARE:g} %",
        )
    elif rates.queues[number]:
        yield Evidence(
            name="waits in the node's queue",
            value=f"{1e3 * rates.queued[number]:.0f} ms",
            limit=f"{1e3 * QUEUED_SECONDS:g} ms",
        )
        if rates.shaped[number]:
            shaped = f"{rates.held_back[number]:.0f} times a second"
            yield Evidence(name="held back by a traffic shaper", value=shaped)
    else:
        times = rates.ticks[number] / rates.ticks_before[number]
        yield Evidence(name="waits for credit", value=f"{times:.1f} times as long as before")
    yield Evidence(name="traffic", value=f"{100.0 * rates.fall[number]:.0f} % less than before")
    yield Evidence(name="its job", value=", ".join(str(job.holder) for job in jobs[:_SHOWN]))


def _with(one: _Waiting, other: _Waiting) -> _Waiting:
    names = {evidence.name for evidence in one.evidence}
    more = tuple(it for it in other.evidence if it.name not in names)
    return _Waiting(
        port=one.port,
        since=min(one.since, other.since),
        evidence=(*one.evidence, *more),
        alone=one.alone or other.alone,
        faint=one.faint and other.faint,
        jobs=one.jobs | other.jobs,
        lost=max(one.lost, other.lost),
        condition=one.condition or other.condition,
    )


def _grouped(window: Window, found: Collection[_Waiting]) -> Iterator[Finding]:
    """Yield findings by node where most of its ports wait, and by leaf where ports on several nodes do.

    A node that waits at a full leaf waits at its other ports, too, and is not slow by itself.
    """
    full = at_full_leaves(window, (one.port for one in found if not one.faint))
    at_full = {port.of_node() for port in full}
    apart = [one for one in found if one.port.of_node() not in at_full]
    slow = _slow_nodes(window, [one for one in apart if not one.faint])
    for node, them in slow.items():
        yield _of_node(window, node, them)
    left = [one for one in found if one.port in full]
    left += [one for one in apart if one.port.of_node() not in slow]
    # What a node or its own cable causes is not the leaf's.
    own = [one for one in left if one.condition and not one.faint]
    lost = {one.port: one.lost for one in own}
    for told in findings("port_congested", (_claim(one) for one in own if one.alone)):
        yield replace(told, lost=lost[told.subject])
    yield from _of_leaves(window, [one for one in left if not one.condition])


def _slow_nodes(window: Window, found: Iterable[_Waiting]) -> Mapping[Subject, Sequence[_Waiting]]:
    """Return the nodes of which most ports wait, with those ports.

    Where there are several with a job or a leaf in common, they wait for something that hosts cannot identify,
    and are left out.
    """
    nodes = _by(found, lambda one: one.port.of_node())
    slow = [(node, them) for node, them in nodes.items() if _is_most(window, node, them)]
    groups = joined(slow, lambda it: {tie for one in it[1] for tie in _shared(window, one)})
    return {node: them for group in groups if len(group) < NODES for node, them in group}


def _shared(window: Window, one: _Waiting) -> Iterator[Hashable]:
    """Yield what a port may share with other waiting ports: its leaf, and its jobs on whatever rail."""
    yield place_of(window, one.port)
    yield from one.jobs


def _of_leaves(window: Window, found: Collection[_Waiting]) -> Iterator[Finding]:
    """Yield one finding for the ports that wait at one leaf or for one job on its rail; a lone port gets its own."""
    groups = _matters(window, found)
    large = [leaf for leaf in groups if _nodes(leaf) >= NODES]
    for them in joined(large, lambda leaf: {tie for one in leaf for tie in _carried(one)}):
        yield _of_switch(window, [one for leaf in them for one in leaf])
    for few in groups:
        if 1 < _nodes(few) < NODES:
            yield _of_switch(window, few)
        elif few not in large:
            yield from (_finding(window, "port_congested", it, it.evidence) for it in few)


def _matters(window: Window, found: Collection[_Waiting]) -> list[Sequence[_Waiting]]:
    """Return the ports to report, in groups with a common cause.

    A further port that waits where a switch's incident stands is not reported by itself; a second one beside a
    port's incident makes it the leaf's.
    """
    if all(one.faint for one in found):
        return []
    told, known = _stood(window, "switch_congested"), {one.port for one in found}
    found = [*found, *(it for it in _stood(window, "port_congested") if it.port not in known)]
    matters: list[Sequence[_Waiting]] = []
    for group in joined([*told, *found], lambda one: ties_of(window, one.port, one.jobs)):
        waiting = [one for one in group if one not in told]
        firm = [one for one in waiting if not one.faint]
        if _nodes(firm) >= NODES:
            matters.append(firm)
        elif len(waiting) == len(group):
            parts = joined(waiting, lambda one: ties_of(window, one.port, one.jobs, sure=True))
            matters += map(_to_report, parts)
    return matters


def _to_report(few: Sequence[_Waiting]) -> Sequence[_Waiting]:
    """Return which ports, at too few nodes for a leaf, are reported: all, if one would be reported even alone."""
    firm = [one for one in few if not one.faint]
    if not any(one.alone for one in firm):
        return ()
    several = few if _nodes(few) >= NODES else firm
    return several if _nodes(several) > 1 else [one for one in firm if one.alone]


def _carried(one: _Waiting) -> Iterator[Hashable]:
    """Yield what waiting leaves may have in common: a job that uses both, or a node."""
    yield one.port.of_node()
    yield from one.jobs


def _nodes(them: Iterable[_Waiting]) -> int:
    return len({one.port.of_node() for one in them})


def _claim(one: _Waiting) -> Claim:
    return Claim(subject=one.port, condition=one.condition, since=one.since, evidence=one.evidence)


def _by(
    them: Iterable[_Waiting], key: Callable[[_Waiting], _Place]
) -> Mapping[_Place, Sequence[_Waiting]]:
    groups: dict[_Place, list[_Waiting]] = defaultdict(list)
    for one in them:
        groups[key(one)].append(one)
    return groups


def _stood(window: Window, fault: str) -> list[_Waiting]:
    """Return the ports of this fault's open incidents, of a leaf or of a single port."""
    ports = {
        Subject.parse(key)
        for it in window.recent_incidents
        if it.fault == fault and it.condition in _OF_PORTS and not it.resolved_at
        for key in (it.subject.key, *it.members)
    }
    return [
        _Waiting(
            port=port,
            since=window.now,
            evidence=(),
            alone=False,
            jobs=frozenset(jobs_through(window, port, TIMESCALES[-1])),
        )
        for port in sorted(ports)
        if port.kind == "port"
    ]


def _is_most(window: Window, node: Subject, them: Sequence[_Waiting]) -> bool:
    ports = fabric_ports(window, node)
    return len(them) >= max(_LEAST_OF_NODE, _MOST_OF_NODE * len(ports))


def _of_node(window: Window, node: Subject, them: Sequence[_Waiting]) -> Finding:
    first = _first(them)
    whole = replace(first, lost=max(it.lost for it in them))
    one = _finding(window, "port_congested", whole, (_named(them), *first.evidence))
    return replace(
        one,
        subject=node,
        title=_NODE_WAITS,
        condition=one.condition or "node_network",
        action=_CHECK_NODE,
        members=tuple(sorted(it.port for it in them)),
    )


def _of_switch(window: Window, them: Sequence[_Waiting]) -> Finding:
    own = _with_faults(window)
    sound = [it for it in them if own.isdisjoint((it.port.key, it.port.of_node().key))]
    first = _first(sound or them)
    whole = replace(first, lost=max(it.lost for it in them))
    one = _finding(window, "switch_congested", whole, (_named(them), *first.evidence))
    one = replace(one, members=tuple(sorted(it.port for it in them if it is not first)))
    if _is_of_one_leaf(window, them):
        return one
    condition = one.condition or _SEVERAL.key
    return replace(one, title=_SEVERAL.title, condition=condition, action=_SEVERAL.action)


def _with_faults(window: Window) -> set[str]:
    """Return keys of ports and nodes with a fault of their own, also by a switch's report; no leaf is named by them."""
    return {
        key
        for it in window.active_incidents
        if it.fault in OF_LINKS
        and (it.fault not in DETECTOR.faults or it.condition not in _OF_PORTS)
        for key in (it.subject.key, *it.members)
    }


def _is_of_one_leaf(window: Window, them: Sequence[_Waiting]) -> bool:
    """Return whether nearly all ports are at one leaf or, where no leaf is known, have the same name."""
    leaves = Counter(leaf for one in them if (leaf := leaf_of(window, one.port)) is not None)
    counts: Counter[str] | Counter[Rail] = leaves or Counter(rail_of(one.port) for one in them)
    return max(counts.values()) >= _AT_ONE_LEAF * counts.total()


def _first(them: Sequence[_Waiting]) -> _Waiting:
    return min(them, key=lambda one: (one.faint, one.since, one.port))


def _named(them: Sequence[_Waiting]) -> Evidence:
    """Describe which ports wait, by their names and nodes, as far as there is room."""
    devices = ", ".join(sorted({one.port.device or "" for one in them}))
    nodes = sorted({one.port.node for one in them})
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return Evidence(name="ports", value=f"{devices} of {', '.join(nodes[:_SHOWN])}{more}")


def _finding(window: Window, fault: str, one: _Waiting, evidence: tuple[Evidence, ...]) -> Finding:
    known = FAULTS[fault]
    return Finding(
        fault=fault,
        subject=one.port,
        severity=known.severity,
        since=one.since,
        evidence=(*evidence, *switch_port_drops(window, one.port)),
        detector="port_congested",
        action=known.action,
        source=known.source,
        own_limit=known.own_limit,
        condition="" if one.lost else DROPS,
        lost=one.lost,
    )


DETECTOR = Detector(
    name="port_congested",
    find=congested_ports,
    faults=found_by("port_congested"),
    needs=NEEDS,
    sentence="Network ports that wait for others, or drop packets, while their jobs get less through.",
    source="NVSentinel's limit of discards; of waits, a port's own past",
    would_show=would_show_waiting,
)
