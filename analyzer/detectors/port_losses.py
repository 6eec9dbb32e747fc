"""A network port whose packets are lost on the way and have to be sent again.

Where ports of several nodes at one leaf, or of one job, lose packets at once, something that they share is bad
and not their own cables, so that is one finding. Hosts cannot tell which link it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import SWITCH_DEVICE, Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import in_words_of
from ..evidence.fabric import cables, far_end
from ..evidence.fabric_links import switch_port_drops
from ..evidence.port_drops import NODES
from ..evidence.port_groups import joined, leaf_of, ties_of
from ..evidence.port_rates import NEEDS as RATES
from ..evidence.port_rates import (
    PEERS,
    RESENT,
    TIMESCALES,
    Rates,
    jobs_through,
    lately,
    rates_of,
    resent_for,
)
from ..window.columns import Floats, Mask, clusters, combined_codes, per_group, port_kinds
from ..window.fault_kinds import EXPLAINED_BY
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_FAULT = FAULTS["port_packet_loss"]
_TIMEOUTS = Aggregate(function=Function.INCREASE, field="path_timeouts")
NEEDS = (*RATES, Need(measurement="port", span=Span.STEADY, aggregates=(_TIMEOUTS,)))
# Packets resent per second, now and before, and the factor over the port's peers [own].
_PER_SECOND, _TIMES_PEERS = 1.0, 10.0
# A burst of some packets a second may fall into a pause of the job; at this many a second the job feels it
# [own].
_FELT_PER_SECOND = 50.0
_OF_LEAF, _OF_SEVERAL = CONDITIONS["leaf_loses"], CONDITIONS["nodes_lose"]
_CANNOT_TELL = Evidence(name="which link", value="hosts cannot tell; these ports share it")
_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lossy:
    """A port that resends packets, and the jobs behind it."""

    finding: Finding
    jobs: frozenset[str]  # keys, by `holder_key`
    resent: float  # resent packets per second

    @property
    def port(self) -> Subject:
        return self.finding.subject


def lossy_ports(window: Window) -> list[Finding]:
    """Return one finding per port that keeps resending, or per group that shares what loses the packets."""
    found = _lossy(window)
    return sorted(_grouped(window, found), key=lambda finding: finding.subject.key)


def _lossy(window: Window) -> list[_Lossy]:
    """Return ports that resend for longer than a burst, or so much that jobs feel it."""
    found: dict[Subject, _Lossy] = {}
    if not len(window.get("port", Span.STEADY)):
        return []
    for scale in TIMESCALES:
        rates = window.once(rates_of, scale)
        losing, usual = _losing(window, rates)
        lasts = losing & (rates.resent_before >= _PER_SECOND) & (scale.now is Span.STEADY)
        lasts &= lately(window, rates, RESENT) >= _PER_SECOND
        # EFA spreads packets over many paths and sends some again as a matter of course; where it counts
        # timeouts apart, a loss without any costs nothing.
        lasts &= window.get("port", Span.STEADY).beside(rates.rows, _TIMEOUTS.column) != 0.0
        # What a whole fabric begins to lose is no port's, and still costs the job.
        more = losing | (rates.resent >= _TIMES_PEERS * rates.resent_before)
        felt = more & (rates.resent >= _FELT_PER_SECOND) & (rates.fall >= scale.least_fall)
        share = resent_for(window, rates)
        for number in np.flatnonzero(lasts | felt).tolist():
            port = rates.rows.subjects[number]
            jobs = frozenset(jobs_through(window, port, scale))
            if lasts[number] or jobs:
                one = _finding(window, rates, number, usual[number])
                since = _since(Row(rates.rows, number), float(share[number]))
                lost = float(rates.fall[number]) if felt[number] else 0.0
                one = replace(one, since=since, lost=lost)
                again = float(rates.resent[number])
                found.setdefault(port, _Lossy(finding=one, jobs=jobs, resent=again))
    return [found[port] for port in sorted(found)]


def _grouped(window: Window, found: Sequence[_Lossy]) -> Iterator[Finding]:
    """Yield one finding per group of ports with a common cause.

    Three nodes with a leaf or a job in common are a group; two are, where their leaf or their job is known for
    sure. An open incident keeps its subject, whichever of its ports lose packets now.
    """
    for group in joined(found, lambda one: ties_of(window, one.port, one.jobs)):
        parts = [group]
        if len({one.port.of_node() for one in group}) < NODES:
            parts = joined(group, lambda one: ties_of(window, one.port, one.jobs, sure=True))
        for them in parts:
            yield from _findings(window, them)


def _findings(window: Window, them: Sequence[_Lossy]) -> Iterator[Finding]:
    ports = {one.port for one in them}
    known = _stood(window, ports)
    if len({port.of_node() for port in ports | known}) > 1:
        yield _of_several(window, them, known)
    else:
        yield from (one.finding for one in them)


def _stood(window: Window, ports: set[Subject]) -> set[Subject]:
    """Return all ports of open group incidents in which one of these ports still loses packets."""
    active = (
        {it.subject, *map(Subject.parse, it.members)}
        for it in window.active_incidents
        if it.fault == _FAULT.key and it.condition
    )
    return {port for those in active if not ports.isdisjoint(those) for port in those}


def _of_several(window: Window, them: Sequence[_Lossy], known: set[Subject]) -> Finding:
    ports = {one.port for one in them} | known
    subject = _called_by(window, them, known)
    first = min((one.finding for one in them), key=lambda it: (it.since, it.subject))
    leaves = {leaf_of(window, port) for port in ports}
    row = _OF_LEAF if len(leaves) == 1 and None not in leaves else _OF_SEVERAL
    most = max(them, key=lambda one: one.resent).finding
    found = replace(
        first,
        subject=subject,
        lost=max(one.finding.lost for one in them),
        evidence=(_named(them), _CANNOT_TELL, *most.evidence),
        members=tuple(sorted(ports - {subject})),
    )
    return in_words_of(found, row)


def _called_by(window: Window, them: Sequence[_Lossy], known: set[Subject]) -> Subject:
    """Return the subject of a group's finding.

    This is the port with a fault that explains the loss, else the subject of the open incident, else the first
    port.
    """
    ports = {one.port for one in them} | known
    active = sorted(
        (it for it in window.active_incidents if it.subject in ports),
        key=lambda it: (it.since, it.id),
    )
    why = [it.subject for it in active if _FAULT.key in EXPLAINED_BY.get(it.fault, ())]
    own = [it.subject for it in active if it.fault == _FAULT.key]
    first = min(them, key=lambda one: (one.finding.since, one.port))
    return next(iter([*why, *_bad_uplinks(window, ports), *own, first.port]))


def _bad_uplinks(window: Window, ports: Iterable[Subject]) -> Iterator[Subject]:
    """Yield the ends of cables between switches, at these ports' leaves, with an open fault that explains the loss."""
    bad = {
        it.subject
        for it in window.active_incidents
        if it.subject.device == SWITCH_DEVICE and _FAULT.key in EXPLAINED_BY.get(it.fault, ())
    }
    if bad:
        whole = window.whole or window
        at = {port: far_end(whole, port) for port in ports}
        leaves = {(port.cluster, end[0]) for port, end in at.items() if end is not None}
        for cable in cables(whole):
            cluster, names = cable.between
            if cable.at_switches and not leaves.isdisjoint((cluster, name) for name in names):
                yield from (end.subject for end in cable.ends if end.subject in bad)


def _named(them: Sequence[_Lossy]) -> Evidence:
    """Describe which ports resend and how often, the worst first."""
    most = sorted(them, key=lambda one: (-one.resent, one.port))
    shown = ", ".join(
        f"{one.port.node} {one.port.device} {one.resent:.0f}" for one in most[:_SHOWN]
    )
    more = f" and {len(most) - _SHOWN} more ports" if len(most) > _SHOWN else ""
    return Evidence(name="packets sent again per second", value=f"{shown}{more}")


def _since(row: Row, share: float) -> datetime:
    """Return when a port began to resend as it does now, `share` of the row's span ago."""
    last: datetime = row["last_at"]
    span: timedelta = last - row["first_at"]
    return last - share * span


def _losing(window: Window, rates: Rates) -> tuple[Mask, Floats]:
    peers = combined_codes(clusters(rates.rows), port_kinds(window, rates.rows))
    usual, count = per_group(peers, rates.resent)
    usual = np.where(count >= PEERS, usual, np.nan)
    return rates.resent >= np.fmax(_PER_SECOND, _TIMES_PEERS * usual), usual


def _rate(per_second: float) -> str:
    """Return a rate as people write it: 0.25, 3.1, 2,400."""
    return f"{per_second:.2g}" if per_second < 10.0 else f"{per_second:,.0f}"


def _timeouts(row: Row) -> Iterator[Evidence]:
    count = row.get(_TIMEOUTS.column)
    if count is not None:
        yield Evidence(name="timeouts on its paths", value=f"{count:,.0f}", limit="0")


def _finding(window: Window, rates: Rates, number: int, usual: float) -> Finding:
    row = Row(rates.rows, number)
    fall = rates.fall[number]
    less = (
        ()
        if not fall > 0.0
        else (Evidence(name="traffic", value=f"{100.0 * fall:.0f} % less than before"),)
    )
    return Finding(
        fault="port_packet_loss",
        subject=rates.rows.subjects[number],
        severity=_FAULT.severity,
        since=row["first_at"],
        evidence=(
            Evidence(
                name="packets sent again",
                value=f"{rates.resent[number]:.1f} per second",
                limit=f"{_PER_SECOND:g} per second",
                peers=None if np.isnan(usual) else _rate(usual),
            ),
            *_timeouts(row),
            *less,
            *switch_port_drops(window, rates.rows.subjects[number]),
        ),
        detector="port_losses",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="port_losses",
    find=lossy_ports,
    faults=found_by("port_losses"),
    needs=NEEDS,
    sentence="A network port whose packets have to be sent again, or several that share what loses them.",
    source="retransmissions that its network card counts, and the cluster's other ports",
)
