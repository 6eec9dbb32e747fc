"""The network now, for the page and `gpuvigil network`: is it a bottleneck, which links, whose jobs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuvigil.clock import moment as time_of
from gpuvigil.faults import About, Sign, where
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    SWITCH_DEVICE,
    Holder,
    Incident,
    RecordKind,
    Subject,
    Switch,
    readable,
)
from gpuvigil.numbers_in_words import counted, natural
from gpuvigil.store.external import store_of
from gpuvigil.topology.link_names import device_name, link_name, port_name, switch_port_name

from ..model.short_label import short_label
from . import full_links
from .fleet_now import FleetNow
from .links import ASKED, AVERAGES, SPAN, Floats, Links, Mask, Port, measured, times
from .one_link import LinkInventory, Plug, plugged
from .table import Column, Grid, Value, percents, whole
from .wiring import MOST_SWITCHES, OLD, Wiring, wirings

# The faults that are about ports or switches.
OF_LINKS = where(lambda row: row.about in {About.PORT, About.SWITCH})
_ARE_DOWN = where(
    lambda row: (
        Sign.LINK_DOWN in row.signs
        or (
            row.about is About.SWITCH
            and row.explains is not None
            and Sign.LINK_DOWN in row.explains.signs
        )
    )
)

COLUMNS = (
    Column(key="link", title="LINK", flexible=True),
    Column(key="verdict", title="VERDICT", flexible=True),
    Column(key="since", title="SINCE", show=time_of),
    Column(key="suffers", title="SUFFERS", flexible=True),
    Column(key="load_percent", title="LOAD", show=percents, right=True),
    Column(key="wait_percent", title="WAIT", show=percents, right=True),
    Column(key="wait_times_usual", title="WAIT VS PEERS", show=times, right=True),
    Column(key="errors_per_hour", title="ERRORS/H", show=whole, right=True),
    Column(key="losses_per_hour", title="LOST/H", show=whole, right=True),
    Column(key="speed_gbit_per_second", title="GBIT/S", show=whole, right=True),
    Column(key="severity", title="SEVERITY", toned=True),
    Column(key="incident", title="INCIDENT"),
    Column(key="node", title="NODE"),
    Column(key="device", title="DEVICE"),
    Column(key="port", title="PORT"),
    Column(key="switch", title="SWITCH"),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 8
_ROWS_FOR_PEOPLE = 20
# Links without a finding are listed from this wait or load on, in percent, or from this many times the
# waits for credit of their peers [own].
_WORTH_WAIT, _WORTH_LOAD, WORTH_TIMES = 1.0, 50.0, 4.0
_FULL = "Full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The worst values of some links; None is not measured."""

    down: int  # number of links reported down
    wait: float | None  # percent of the time
    load: float | None  # percent of the speed
    times: float | None  # waits for credit, as a multiple of the peers'


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What the page and the command show of the network."""

    answer: str
    summary: str  # text on the worst finding; empty without one
    to_do: str  # the worst finding's action; empty without one
    worst: Incident | None
    findings: Sequence[Incident]  # worst first
    jobs: Sequence[str]  # running jobs that suffer
    links: Links
    grid: Grid
    rails: Sequence[str]
    racks: Mapping[str, Mapping[str, Cell]]  # by rack, then by rail
    unread: int  # number of links that were up once and report nothing now, those of silent nodes included
    unseen: Sequence[str]
    filled: Mapping[Port, Holder]  # links without a finding that one job fills
    wirings: Sequence[Wiring] = ()  # of clusters whose switches are read
    known: LinkInventory | None = None  # to look up a single link


def fetch(hub: Hub, moment: FleetNow, most: int | None = None) -> Network:
    """Ask for the network now; HubUnavailable, HubRefused or StoreError if hub or store do not answer.

    `most`: how many of the links without a finding are listed; None: all.
    """
    shown = {one.name for one in moment.clusters}
    told = store_of(hub).window("port", ASKED, moment.now - SPAN, moment.now)
    switches = hub.records(RecordKind.SWITCH, since=moment.now - OLD, limit=MOST_SWITCHES)
    read = [one for one in readable(switches, Switch.from_record) if one.subject.cluster in shown]
    return network(moment, measured(told, shown), most, read)


def network(
    moment: FleetNow, links: Links, most: int | None = None, switches: Iterable[Switch] = ()
) -> Network:
    """Return the answer and everything around it; `most` is as in `look`."""
    switches = list(switches)
    found = wirings(switches, moment.now)
    findings = _findings(moment)
    jobs = list(dict.fromkeys(job for one in findings for job in _suffering(one)))
    worst = findings[0] if findings else None
    rails, racks = _matrix(moment, links, _down(findings))
    cables = sum(one.links for one in found)
    switch_ports = plugged(moment.inventories, switches)
    filled = _filled(moment, links, findings)
    answer, said = _answer(links, cables, findings, jobs, filled), _summary(findings, switch_ports)
    to_do = "" if worst is None else worst.action
    head = [f"{answer} {said}".strip(), *([f"Do now: {to_do}"] if to_do else [])]
    unread = _unread(moment, links)
    return Network(
        answer=answer,
        summary=said,
        to_do=to_do,
        worst=worst,
        findings=findings,
        jobs=jobs,
        links=links,
        grid=_grid(links, findings, switch_ports, head, most, filled),
        rails=rails,
        racks=racks,
        unread=sum(unread.values()),
        unseen=list(_unseen(moment, links, unread, bool(found))),
        filled=filled,
        wirings=found,
        known=LinkInventory.of(links, moment.inventories, switches),
    )


def _findings(moment: FleetNow) -> list[Incident]:
    """Return the shown clusters' open incidents about links: by severity, then those that affect running jobs."""
    shown = {one.name for one in moment.clusters}
    found = [
        one.incident
        for one in moment.view.attention
        if one.subject.cluster in shown and one.incident.fault in OF_LINKS
    ]
    return sorted(
        found,
        key=lambda one: (one.severity.rank, not (one.impact.running or one.impact.jobs_across)),
    )


def _suffering(one: Incident) -> Sequence[str]:
    """Return the running jobs that an incident affects, or may affect: not those whose pace is unchanged."""
    return one.impact.holders if one.impact.running and one.impact.slower is not False else ()


def _filled(moment: FleetNow, links: Links, findings: Iterable[Incident]) -> Mapping[Port, Holder]:
    if not full_links.full(links).any():
        return {}
    held = full_links.by_node(one for them in moment.allocations.values() for one in them)
    found = full_links.filled(links, held, moment.now)
    bad = {_name(port) for one in findings for port in _ports(one)}
    return {port: holder for port, holder in found.items() if port not in bad}


def _answer(
    links: Links,
    cables: int,
    findings: Sequence[Incident],
    jobs: Sequence[str],
    filled: Mapping[Port, Holder],
) -> str:
    """Say in one sentence whether the network is the bottleneck; `cables` is the number between switches."""
    if findings:
        return f"{_who_suffers(findings, jobs)}; {counted(len(findings), 'finding')}."
    if not len(links):
        return "Not known: no network port was measured in the last five minutes."
    fabric, waits = _fabric(links)
    if fabric.any() and not (fabric & waits).any():
        return (
            "No link has a finding, but congestion is not measured: no fabric port reports waits."
        )
    if len(links) + cables == 1:
        return "No: the only link has no finding."
    fills = full_links.in_words(filled)
    return f"No: none of {counted(len(links) + cables, 'link')} has a finding{f'; {fills}' if fills else ''}."


def across(findings: Iterable[Incident]) -> int | None:
    """Return how many jobs at least may send over links between switches; None if not known of any link."""
    known = [one.impact.jobs_across for one in findings]
    most = max((count for count in known if count), default=0)
    return None if not most and None in known else most


def _who_suffers(findings: Sequence[Incident], jobs: Sequence[str]) -> str:
    felt = {job for one in findings if one.impact.slower for job in _suffering(one)}
    if felt:
        more = len(jobs) - len(felt)
        suffer = "suffers" if len(felt) == 1 else "suffer"
        return f"Yes: {counted(len(felt), 'job')} {suffer}{f', {more:,} more may' if more else ''}"
    sending = across(findings)
    may = max(len(jobs), sending or 0)
    if may:
        return f"Possibly: {counted(may, 'job')} may suffer"
    if sending is None:
        return "Whose jobs suffer is not known"
    kept = {job for one in findings if one.impact.slower is False for job in one.impact.holders}
    return (
        f"No: the pace of {counted(len(kept), 'job')} is unchanged"
        if kept
        else "No job suffers now"
    )


def _fabric(links: Links) -> tuple[Mask, Mask]:
    """Return which links belong to the fabric, and which report waits."""
    fabric = np.array([role == "fabric" for role in links.roles], bool)
    return fabric, np.isfinite(links.wait) | np.isfinite(links.ticks)


def _summary(findings: Sequence[Incident], switches: Mapping[Port, Plug]) -> str:
    if not findings:
        return ""
    worst = findings[0]
    return f"First: {_called(worst, _plugged(worst, switches))}: {worst.title}, since {time_of(worst.since)}; {worst.impact.text}."


def _grid(
    links: Links,
    findings: Sequence[Incident],
    switches: Mapping[Port, Plug],
    head: Sequence[str],
    most: int | None,
    filled: Mapping[Port, Holder],
) -> Grid:
    places = dict(zip(links.names, range(len(links)), strict=True)) if findings else {}
    quiet = np.ones(len(links), bool)
    rows = []
    for one in findings:
        here = sorted({places[port] for port in map(_name, _ports(one)) if port in places})
        quiet[here] = False
        rows.append(_row(links, one, here, switches))
    rest = [place for place in _worst_first(links).tolist() if quiet[place]]
    rows += _quiet(links, rest[:most], switches, filled)
    worth = len(findings) + int((quiet & _is_worth(links)).sum())
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        rows_for_people=min(max(worth, 1), _ROWS_FOR_PEOPLE),
        head=head,
        notes=[AVERAGES] if rows else [],
        empty="",
    )


def _ports(one: Incident) -> Sequence[Subject]:
    """Return the ports that an incident is about; none if it is about whole nodes."""
    known = dict.fromkeys([one.subject, *map(Subject.parse, one.members)])
    return [subject for subject in known if subject.kind == "port"]


def _name(port: Subject) -> Port:
    return port.cluster, port.node, port.device or "", port.port or ""


def _worst_first(links: Links) -> npt.NDArray[np.int64]:
    """Return places sorted by what deserves a look: waits, waits for credit, load, then errors.

    Errors come last, since errors that matter are findings; every link has a few others.
    """
    wait, ticks = (np.nan_to_num(one) for one in (links.wait, links.ticks))
    keys = (
        np.nan_to_num(links.errors),
        np.nan_to_num(links.load),
        np.where(ticks >= WORTH_TIMES, ticks, 0.0),
        np.where(wait >= _WORTH_WAIT, wait, 0.0),
    )
    return np.lexsort([-key for key in keys])


def _is_worth(links: Links) -> Mask:
    waits = (links.wait >= _WORTH_WAIT) | (links.ticks >= WORTH_TIMES)
    found: Mask = waits | (links.load >= _WORTH_LOAD)
    return found


def _row(
    links: Links, one: Incident, here: Sequence[int], switches: Mapping[Port, Plug]
) -> tuple[Value, ...]:
    subject, plug = one.subject, _plugged(one, switches)
    # What ports of a lost switch carried before, and the errors of one of them, are not the switch's.
    lost = one.fault in _ARE_DOWN and len(_ports(one)) > 1
    here = [] if lost else here
    return (
        _called(one, plug),
        one.title,
        one.since,
        _some(() if one.impact.slower is False else one.impact.holders),
        *(_worst(column[here]) for column in _numbers(links)[:-1]),
        _slowest(links.gbits[here]),
        one.severity.value,
        one.id,
        subject.node,
        subject.device,
        subject.port,
        _switch(one, switches),
        subject.cluster,
    )


def _switch(one: Incident, switches: Mapping[Port, Plug]) -> str | None:
    """Return the one switch that the incident's ports are at, as far as that is known."""
    if one.subject.device == SWITCH_DEVICE:
        return one.subject.node
    names = {plug[0] for port in _ports(one) if (plug := switches.get(_name(port))) is not None}
    return names.pop() if len(names) == 1 else None


def _plugged(one: Incident, switches: Mapping[Port, Plug]) -> Plug | None:
    """Return where the incident's port is plugged in; None if it has not exactly one or that is not known."""
    ports = _ports(one)
    return switches.get(_name(ports[0])) if len(ports) == 1 else None


def _called(one: Incident, plug: Plug | None) -> str:
    """Return a short name; a port with a known plug has its current other end, as it may have been moved."""
    if plug is None:
        return short_label(one) or one.subject.key
    port, *_ = _ports(one)
    return link_name(port_name(port), switch_port_name(*plug))


def _some(holders: Sequence[str]) -> str | None:
    """Return `job 1042 and 3 more`; None without holders."""
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"{holders[0]}{more}" if holders else None


def _numbers(links: Links) -> Sequence[Floats]:
    """Return the measured values in the order of the columns."""
    return links.load, links.wait, links.ticks, links.errors, links.losses, links.gbits


def _quiet(
    links: Links,
    places: Sequence[int],
    switches: Mapping[Port, Plug],
    filled: Mapping[Port, Holder],
) -> Iterator[tuple[Value, ...]]:
    numbers = zip(*(_known(column[list(places)]) for column in _numbers(links)), strict=True)
    for place, measured_ in zip(places, numbers, strict=True):
        cluster, node, device, port = name = links.names[place]
        plug = switches.get(name)
        load, job = measured_[0], filled.get(name)
        carries_all = load is not None and load >= full_links.FULL_LOAD
        yield (
            link_name(
                f"{node} {device_name(device, port)}",
                None if plug is None else switch_port_name(*plug),
            ),
            f"{job} fills this link" if job else _FULL if carries_all else None,
            None,
            None,
            *measured_,
            None,
            None,
            node,
            device,
            port,
            None if plug is None else plug[0],
            cluster,
        )


def _known(values: Floats) -> Sequence[float | None]:
    return [
        value if is_known else None
        for value, is_known in zip(values.tolist(), np.isfinite(values).tolist(), strict=True)
    ]


def _worst(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None


def _slowest(speeds: Floats) -> float | None:
    known = speeds[np.isfinite(speeds)]
    return float(known.min()) if len(known) else None


def _down(findings: Sequence[Incident]) -> Set[Port]:
    """Return the ports that findings report down; for a node without any port left, they are its members."""
    return {_name(port) for one in findings if one.fault in _ARE_DOWN for port in _ports(one)}


def _matrix(
    moment: FleetNow, links: Links, down: Set[Port]
) -> tuple[Sequence[str], Mapping[str, Mapping[str, Cell]]]:
    """Return rails (device names) and fabric cells by rack and rail; empty unless there are several of both."""
    racks = {(at.cluster, at.node): one.rack for one in moment.inventories if (at := one.subject)}
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, (name, role) in enumerate(zip(links.names, links.roles, strict=True)):
        rack = racks.get(name[:2])
        if role == "fabric" and rack:
            places[rack, name[2]].append(place)
    rails = sorted({rail for _, rail in places}, key=natural)
    names = sorted({rack for rack, _ in places}, key=natural)
    if len(rails) < 2 or len(names) < 2:
        return (), {}
    return rails, {
        rack: {
            rail: _cell(links, here, down) for rail in rails if (here := places.get((rack, rail)))
        }
        for rack in names
    }


def _cell(links: Links, here: Sequence[int], down: Set[Port]) -> Cell:
    wait, load, times = (_worst(one[here]) for one in (links.wait, links.load, links.ticks))
    lost = sum(links.names[place] in down for place in here) if down else 0
    return Cell(down=lost, wait=wait, load=load, times=times)


def _unread(moment: FleetNow, links: Links) -> Mapping[Subject, int]:
    """Return by node how many links of the shown clusters were up once and reported nothing in the span.

    What a silent node's links reported in it is old.
    """
    shown, seen = {one.name for one in moment.clusters}, set(links.names)
    silent = _silent(moment)
    return Counter(
        at
        for one in moment.inventories
        if (at := one.subject).cluster in shown
        for port in one.ports
        if port.was_up
        and (at in silent or (at.cluster, at.node, port.device, port.port) not in seen)
    )


def _silent(moment: FleetNow) -> Set[Subject]:
    return {node.subject for one in moment.clusters for node in one.silent_nodes}


def _unseen(
    moment: FleetNow, links: Links, unread: Mapping[Subject, int], read: bool
) -> Iterator[str]:
    """Yield lines on what cannot be seen from here and what that may hide."""
    fabric, waits = _fabric(links)
    blind = int((fabric & ~waits).sum())
    if blind:
        yield (
            f"No waits from {blind:,} of {counted(int(fabric.sum()), 'fabric port')}: their counters are"
            " full, or their driver has none. Congestion there shows only as a slower job."
        )
    silent = _silent(moment)
    others = sum(count for node, count in unread.items() if node not in silent)
    if others:
        were = "was" if others == 1 else "were"
        yield (
            f"{counted(others, 'link')} that {were} up before reported nothing in the last five"
            " minutes: faults there are not seen."
        )
    if silent:
        whose = "its" if len(silent) == 1 else "their"
        yield f"{counted(len(silent), 'node')} without data: {whose} ports are not seen."
    if read:
        yield ("Between switches, cables, speeds and errors are read, but not load.")
    elif len(links):
        yield ("Beyond the hosts' ports, full links cannot be seen without switch counters.")
