"""The network now: is it a bottleneck, which links, whose jobs; what the page and `gpuvigil network` say."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpuvigil.clock import moment as time_of
from gpuvigil.faults import About, where
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, PortIdentity, Subject
from gpuvigil.numbers_in_words import counted, natural
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.external import store_of

from .fleet_now import Moment
from .table import Column, Grid, Value, percents, tenths, whole

SPAN = timedelta(minutes=5)
# Faults that say of themselves that they are about links.
OF_LINKS = where(lambda row: row.about in {About.PORT, About.SWITCH})

COLUMNS = (
    Column(key="link", title="LINK", flexible=True),
    Column(key="verdict", title="VERDICT", flexible=True),
    Column(key="since", title="SINCE", show=time_of),
    Column(key="suffers", title="SUFFERS", flexible=True),
    Column(key="load_percent", title="LOAD", show=percents, right=True),
    Column(key="wait_percent", title="WAIT", show=percents, right=True),
    Column(key="wait_times_usual", title="WAIT, TIMES PEERS", show=tenths, right=True),
    Column(key="errors_per_hour", title="ERRORS/H", show=whole, right=True),
    Column(key="speed_gbit_per_second", title="GBIT/S", show=whole, right=True),
    Column(key="severity", title="SEVERITY"),
    Column(key="incident", title="INCIDENT"),
    Column(key="node", title="NODE"),
    Column(key="device", title="DEVICE"),
    Column(key="port", title="PORT"),
    Column(key="switch", title="SWITCH"),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 8
_ROWS_FOR_PEOPLE = 20
# Links of which nothing is told are listed where they wait or carry so much, in percent.
_WORTH_WAIT, _WORTH_LOAD = 1.0, 50.0
_BITS, _HOUR = 8.0, 3600.0
# Of its speed, so much in percent is all that a link carries beside its protocol's share [own].
_FULL_LOAD, _FULL = 95.0, "Carries all that it can"
# Counted over so little, a rate says nothing.
_LEAST_SECONDS = 15.0
_PEERS = 3

_INCREASES = (
    *("receive_bytes", "transmit_bytes", "receive_pause_microseconds", "transmit_wait_ticks"),
    *("symbol_errors", "receive_errors", "transmit_discards", "retransmits", "link_downed"),
)
ASKED = (
    Aggregate(function=Function.MAX, field="speed_bits_per_second"),
    *(Aggregate(function=Function.INCREASE, field=name) for name in _INCREASES),
)
_ERRORS = ("symbol_errors", "receive_errors", "transmit_discards", "retransmits", "link_downed")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Ports as columns of one length; NaN is not measured."""

    subjects: Sequence[Subject]
    roles: Sequence[str]
    load: Floats  # percent of the speed, the busier way
    wait: Floats  # percent of the time for which others stopped it
    ticks: Floats  # without credit, times the middle of the ports of its kind
    errors: Floats  # per hour, of all sorts
    gbits: Floats

    def __len__(self) -> int:
        return len(self.subjects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The worst of some links; None is not measured."""

    wait: float | None
    load: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What is said of it."""

    answer: str
    said: str  # of the worst finding; empty where there is none
    to_do: str  # empty where nothing is
    worst: Incident | None
    findings: Sequence[Incident]  # worst first
    jobs: Sequence[str]  # that suffer
    links: Links
    grid: Grid
    rails: Sequence[str]
    racks: Mapping[str, Mapping[str, Cell]]  # by rack, then by rail
    unseen: Sequence[str]


def look(hub: Hub, moment: Moment) -> Network:
    """HubUnavailable, HubRefused or StoreError when the hub or the store does not answer."""
    shown = {one.name for one in moment.clusters}
    told = store_of(hub).window("port", ASKED, moment.now - SPAN, moment.now)
    return network(moment, measured(told, shown))


def measured(told: pa.Table, clusters: Iterable[str]) -> Links:
    """What the ports of these clusters did, by what a store says of the last minutes."""
    shown = set(clusters)
    names = [told[tag].to_pylist() for tag in ("cluster", "node", "device", "port", "kind", "role")]
    rows = [place for place, cluster in enumerate(names[0]) if cluster in shown]
    chosen = np.array(rows, np.int64)

    def column(name: str) -> Floats:
        values = told[name].to_numpy(zero_copy_only=False).astype(np.float64)
        found: Floats = values[chosen]
        return found

    begin, end = (
        told[name].to_numpy().astype(np.int64)[chosen] for name in ("first_at", "last_at")
    )
    length = (end - begin) / 1e6
    length = np.where(length >= _LEAST_SECONDS, length, np.nan)
    rates = {name: column(f"{name}_increase") / length for name in _INCREASES}
    speed = column("speed_bits_per_second_max")
    busier = np.fmax(rates["receive_bytes"], rates["transmit_bytes"])
    known = [rates[name] for name in _ERRORS]
    errors = np.where(np.isnan(known).all(axis=0), np.nan, np.nansum(known, axis=0))
    kinds = [f"{names[0][place]} {names[4][place]} {names[5][place]}" for place in rows]
    return Links(
        subjects=[
            Subject(cluster=names[0][n], node=names[1][n], device=names[2][n], port=names[3][n])
            for n in rows
        ],
        roles=[names[5][n] or "" for n in rows],
        load=100.0 * busier * _BITS / np.where(speed > 0.0, speed, np.nan),
        wait=np.minimum(rates["receive_pause_microseconds"] / 1e4, 100.0),
        ticks=_times_usual(rates["transmit_wait_ticks"], kinds),
        errors=errors * _HOUR,
        gbits=speed / 1e9,
    )


def _times_usual(ticks: Floats, kinds: Sequence[str]) -> Floats:
    """How long a tick is differs by card: each against the middle of those of its kind that wait."""
    found = np.full(len(ticks), np.nan)
    places: dict[str, list[int]] = defaultdict(list)
    for place, kind in enumerate(kinds):
        places[kind].append(place)
    for those in places.values():
        some = ticks[those]
        waiting = some[some > 0.0]
        if len(waiting) >= _PEERS:
            found[those] = some / np.median(waiting)
    return found


def network(moment: Moment, links: Links) -> Network:
    """The answer and everything beside it."""
    findings = _findings(moment)
    switches = _switches(moment)
    jobs = list(dict.fromkeys(job for one in findings for job in one.impact.holders))
    worst = findings[0] if findings else None
    rails, racks = _matrix(moment, links)
    answer, said = _answer(links, findings), _said(findings)
    return Network(
        answer=answer,
        said=said,
        to_do="" if worst is None else worst.action,
        worst=worst,
        findings=findings,
        jobs=jobs,
        links=links,
        grid=_grid(links, findings, switches, [f"{answer} {said}".strip()]),
        rails=rails,
        racks=racks,
        unseen=list(_unseen(moment, links)),
    )


def _findings(moment: Moment) -> list[Incident]:
    """Standing incidents about links, of the clusters that are shown; those that cost a job first."""
    shown = {one.name for one in moment.clusters}
    found = [
        one.incident
        for one in moment.view.attention
        if one.subject.cluster in shown and one.incident.fault in OF_LINKS
    ]
    return sorted(found, key=lambda one: (not one.impact.running, one.severity.rank))


def _answer(links: Links, findings: Sequence[Incident]) -> str:
    """One sentence to the question whether the network is the bottleneck."""
    if not findings:
        if not len(links):
            return "Not known: no network port was measured in the last five minutes."
        return f"No: none of {counted(len(links), 'link')} has a finding."
    suffering = {job for one in findings if one.impact.running for job in one.impact.holders}
    found = counted(len(findings), "finding")
    if not suffering:
        return f"No job suffers now; {found}."
    return f"Yes: {counted(len(suffering), 'job')} may suffer; {found}."


def _said(findings: Sequence[Incident]) -> str:
    if not findings:
        return ""
    worst = findings[0]
    return f"{worst.label}: {worst.title}, since {time_of(worst.since)}; {worst.impact.text}."


def _switches(moment: Moment) -> Mapping[Subject, PortIdentity]:
    found = {}
    for inventory in moment.inventories:
        at = inventory.subject
        for port in inventory.ports:
            if port.switch:
                found[
                    Subject(cluster=at.cluster, node=at.node, device=port.device, port=port.port)
                ] = port
    return found


def _grid(
    links: Links,
    findings: Sequence[Incident],
    switches: Mapping[Subject, PortIdentity],
    head: Sequence[str],
) -> Grid:
    places = {subject: place for place, subject in enumerate(links.subjects)}
    taken: set[int] = set()
    rows = []
    for one in findings:
        ports = [one.subject, *map(Subject.parse, one.members)]
        here = sorted({places[port] for port in ports if port in places})
        taken.update(here)
        rows.append(_told(links, one, here, switches.get(one.subject)))
    rest = [place for place in range(len(links)) if place not in taken]
    rest.sort(key=lambda place: tuple(-np.nan_to_num(_of(links, place))))
    rows += [_quiet(links, place, switches.get(links.subjects[place])) for place in rest]
    worth = len(findings) + sum(_is_worth(links, place) for place in rest)
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        rows_for_people=min(max(worth, 1), _ROWS_FOR_PEOPLE),
        head=head,
        empty="",
    )


def _of(links: Links, place: int) -> Floats:
    """What links are ordered by: waits, errors, load."""
    return np.array([links.wait[place], links.errors[place], links.load[place]])


def _is_worth(links: Links, place: int) -> bool:
    return bool(links.wait[place] >= _WORTH_WAIT or links.load[place] >= _WORTH_LOAD)


def _told(
    links: Links, one: Incident, here: Sequence[int], identity: PortIdentity | None
) -> tuple[Value, ...]:
    subject = one.subject
    return (
        one.label or subject.key,
        one.title,
        one.since,
        _some(one.impact.holders),
        *(_worst(column[here]) for column in (links.load, links.wait, links.ticks, links.errors)),
        _worst(links.gbits[here]),
        one.severity.value,
        one.id,
        subject.node,
        subject.device,
        subject.port,
        None if identity is None else identity.switch,
        subject.cluster,
    )


def _some(holders: Sequence[str]) -> str | None:
    """`job 1042 and 3 more`."""
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"{holders[0]}{more}" if holders else None


def _quiet(links: Links, place: int, identity: PortIdentity | None) -> tuple[Value, ...]:
    subject = links.subjects[place]
    end = "" if identity is None else f" → {identity.switch}"
    if identity is not None and identity.switch_port:
        end += f" port {identity.switch_port}"
    return (
        f"{subject.node} {subject.device}{end}",
        _FULL if links.load[place] >= _FULL_LOAD else None,
        None,
        None,
        *(
            _worst(column[[place]])
            for column in (links.load, links.wait, links.ticks, links.errors)
        ),
        _worst(links.gbits[[place]]),
        None,
        None,
        subject.node,
        subject.device,
        subject.port,
        None if identity is None else identity.switch,
        subject.cluster,
    )


def _worst(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None


def _matrix(moment: Moment, links: Links) -> tuple[Sequence[str], Mapping[str, Mapping[str, Cell]]]:
    """Of the fabric, by rack and by rail (the ports' name), where there are several of both."""
    racks = {one.subject: one.rack for one in moment.inventories if one.rack}
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, (subject, role) in enumerate(zip(links.subjects, links.roles, strict=True)):
        rack = racks.get(subject.of_node())
        if role == "fabric" and rack:
            places[rack, subject.device or ""].append(place)
    rails = sorted({rail for _, rail in places}, key=natural)
    names = sorted({rack for rack, _ in places}, key=natural)
    if len(rails) < 2 or len(names) < 2:
        return (), {}
    return rails, {
        rack: {
            rail: Cell(wait=_worst(links.wait[here]), load=_worst(links.load[here]))
            for rail in rails
            if (here := places.get((rack, rail)))
        }
        for rack in names
    }


def _unseen(moment: Moment, links: Links) -> Iterator[str]:
    """What nobody can see from here, and what it may hide."""
    fabric = np.array([role == "fabric" for role in links.roles], bool)
    waits = np.isfinite(links.wait) | np.isfinite(links.ticks)
    blind = int((fabric & ~waits).sum())
    if blind:
        yield (
            f"{counted(blind, 'fabric port')} of {int(fabric.sum()):,} tell no waits: their counters"
            " are full or their driver has none. Congestion there shows only as a slower job."
        )
    silent = sum(len(one.silent_nodes) for one in moment.clusters)
    if silent:
        yield f"{counted(silent, 'node')} without data: their ports are not seen."
    if len(links):
        yield (
            "Beyond the hosts' ports: which link between switches is full is not observable without"
            " counters of switches."
        )
