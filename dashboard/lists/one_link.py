"""One link with both of its ends as far as they are known: a host's port, a switch's port."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from gpuvigil.clock import moment as time_of
from gpuvigil.model import (
    SWITCH_DEVICE,
    ErrorCount,
    Incident,
    Inventory,
    PortIdentity,
    Subject,
    Switch,
    SwitchPort,
    without_domain,
)
from gpuvigil.numbers_in_words import natural
from gpuvigil.topology.link_names import ITSELF, link_name, port_name

from .links import Links, Port, times
from .wiring import gained

Facts = Sequence[tuple[str, str]]
Plug = tuple[str, str]  # a switch and its port; the port is empty if not known
_SPAN = timedelta(minutes=10)
_COUNTED = {
    "symbol_errors": "Symbol errors",
    "receive_errors": "Receive errors",
    "link_recoveries": "Link recoveries",
    "local_integrity_errors": "Integrity errors",
}
# Counters of which only the last minutes are shown.
_OF_TRAFFIC = {
    "transmit_discards": "Packets dropped",
    "pause_frames_received": "Pause frames received",
    "pause_frames_sent": "Pause frames sent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a link; `facts` are the measured values in words."""

    subject: Subject
    name: str
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link's ends, the requested one first, and the open incidents about either end."""

    ends: Sequence[End]
    findings: Sequence[Incident]

    @property
    def name(self) -> str:
        """The link's name, the same from either end."""
        hosts = [end.name for end in self.ends if end.subject.device != SWITCH_DEVICE]
        switches = [end.name for end in self.ends if end.subject.device == SWITCH_DEVICE]
        return link_name(*hosts, *sorted(switches, key=natural))


@dataclass(frozen=True, slots=True)
class LinkInventory:
    """What is known of links: by hosts' collectors, and by whatever reads the switches."""

    links: Links
    inventories: Mapping[tuple[str, str], Inventory]
    switches: Mapping[tuple[str, str], Switch]

    @classmethod
    def of(
        cls, links: Links, hosts: Iterable[Inventory], switches: Iterable[Switch]
    ) -> "LinkInventory":
        return cls(
            links,
            {(it.subject.cluster, it.subject.node): it for it in hosts},
            {(it.subject.cluster, it.subject.node): it for it in switches if it.ports},
        )

    def link(self, asked: Subject, findings: Iterable[Incident]) -> Link | None:
        """Return the link at a port; None if nothing is known of the port."""
        first = self._end(asked)
        if first is None:
            return None
        far = self._other(asked)
        second = None if far is None else self._end(far)
        ends = [first, *([second] if second else [])]
        keys = {end.subject.key for end in ends} | self._at_switch(asked)
        about = [it for it in findings if not keys.isdisjoint((it.subject.key, *it.members))]
        return Link(ends=ends, findings=about)

    def _at_switch(self, asked: Subject) -> set[str]:
        """Return the keys of a switch's ports and of the hosts' ports plugged into it; empty for a single port."""
        switch = self.switches.get((asked.cluster, asked.node))
        if switch is None or asked.device != SWITCH_DEVICE or asked.port != ITSELF:
            return set()
        hosts = plugged(self.inventories.values(), [switch])
        return {replace(asked, port=it.id).key for it in switch.ports} | {
            Subject(cluster=cluster, node=node, device=device, port=port).key
            for (cluster, node, device, port), (name, _) in hosts.items()
            if cluster == asked.cluster and _is_same(name, asked.node)
        }

    def _end(self, port: Subject) -> End | None:
        if port.device == SWITCH_DEVICE:
            return self._of_switch(port)
        identity = self._identity(port)
        place = (port.cluster, port.node, port.device or "", port.port or "")
        here = next((at for at, name in enumerate(self.links.names) if name == place), None)
        if identity is None and here is None:
            return None
        facts = [*_identified(identity), *(_measured(self.links, here) if here is not None else ())]
        return End(subject=port, name=port_name(port), facts=facts)

    def _of_switch(self, port: Subject) -> End | None:
        switch = self.switches.get((port.cluster, port.node))
        if switch is None:
            return None
        if port.port == ITSELF:
            return End(subject=port, name=port.node, facts=list(_switch(switch)))
        found = [it for it in switch.ports if it.id == port.port]
        if not found:
            return None
        facts = list(_port(found[0]))
        return End(subject=port, name=port_name(port), facts=facts)

    def _identity(self, port: Subject) -> PortIdentity | None:
        inventory = self.inventories.get((port.cluster, port.node))
        ports = () if inventory is None else inventory.ports
        found = (it for it in ports if (it.device, it.port) == (port.device, port.port))
        return next(found, None)

    def _other(self, port: Subject) -> Subject | None:
        """Return the port at the other end, as either end reports it, or None."""
        if port.device != SWITCH_DEVICE:
            return self._switch_of(port)
        switch = self.switches.get((port.cluster, port.node))
        found = [it for it in (switch.ports if switch else ()) if it.id == port.port]
        if found and found[0].at_switch:
            return replace(port, node=found[0].peer, port=found[0].peer_id)
        return next(iter(self._hosts_at(port, found)), None)

    def _hosts_at(self, port: Subject, found: Sequence[SwitchPort]) -> Iterator[Subject]:
        """Yield the host's port that the switch port names, or that names the switch port."""
        named = found[0].host if found else None
        for (cluster, node), inventory in self.inventories.items():
            for it in inventory.ports if cluster == port.cluster else ():
                says_so = it.switch_port == port.port and _is_same(it.switch or "", port.node)
                if says_so or named == (_host(node), it.device):
                    yield replace(inventory.subject, device=it.device, port=it.port)

    def _switch_of(self, port: Subject) -> Subject | None:
        """Return the switch port that a host hears, else the one that names the host; by the switch's own name."""
        identity = self._identity(port)
        heard = identity.switch if identity is not None else None
        for (cluster, name), switch in self.switches.items():
            here = cluster == port.cluster
            if here and heard and _is_same(name, heard):
                return replace(
                    port, node=name, device=SWITCH_DEVICE, port=_port_neighbour(identity)
                )
            for it in switch.ports if here and not heard else ():
                if it.up and it.host == (_host(port.node), port.device):
                    return replace(port, node=name, device=SWITCH_DEVICE, port=it.id)
        if not heard:
            return None
        return replace(port, node=heard, device=SWITCH_DEVICE, port=_port_neighbour(identity))


def plugged(hosts: Iterable[Inventory], switches: Iterable[Switch]) -> Mapping[Port, Plug]:
    """Return where hosts' ports are plugged in: as the hosts hear, else as the switches report."""
    ports = [(it.up, it.since, one.subject, it) for one in switches for it in one.ports if it.host]
    # If two switches name a host, as after it was moved, the port that is up now is right.
    told = {
        (switch.cluster, *(port.host or ())): (switch.node, port.id)
        for *_, switch, port in sorted(ports, key=lambda it: it[:2])
    }
    found: dict[Port, Plug] = {}
    for cluster, node, port in (
        (it.subject.cluster, it.subject.node, p) for it in hosts for p in it.ports
    ):
        known = (
            (port.switch, port.switch_port or "")
            if port.switch
            else told.get((cluster, _host(node), port.device))
        )
        if known is not None:
            found[cluster, node, port.device, port.port] = known
    return found


def _port_neighbour(identity: PortIdentity | None) -> str:
    return (identity.switch_port if identity is not None else None) or ""


def _host(node: str) -> str:
    """Return a node's name without its domain, as hosts describe themselves."""
    return node.partition(".")[0]


def _is_same(one: str, other: str) -> bool:
    """Return whether two names are of one switch, with or without a domain."""
    first, second = (without_domain(name.casefold()) for name in (one, other))
    return first == second


def _identified(identity: PortIdentity | None) -> Iterator[tuple[str, str]]:
    if identity is not None:
        yield "Kind", f"{identity.kind}, {identity.role}"
        if identity.firmware:
            yield "Firmware", identity.firmware


def _measured(links: Links, here: int) -> Iterator[tuple[str, str]]:
    """Yield what was measured in the last five minutes."""
    for name, column, shown in (
        ("Speed", links.gbits, "{:,.0f} Gbit/s".format),
        ("Load", links.load, "{:.0f} %".format),
        ("Wait", links.wait, "{:.0f} % of the time".format),
        ("Wait vs peers", links.ticks, times),
        ("Errors", links.errors, "{:,.0f} an hour".format),
        ("Packets lost", links.losses, "{:,.0f} an hour".format),
    ):
        if np.isfinite(column[here]):
            yield name, shown(column[here])


def _switch(switch: Switch) -> Iterator[tuple[str, str]]:
    state = "answers" if switch.lost_at is None else f"silent since {time_of(switch.lost_at)}"
    yield "State", state
    yield "Ports", f"{sum(it.up for it in switch.ports)} of {len(switch.ports)} up"
    yield "To hosts", str(sum(not it.at_switch for it in switch.ports))
    yield "Read at", time_of(switch.at)


def _port(port: SwitchPort) -> Iterator[tuple[str, str]]:
    yield "State", f"{'up' if port.up else 'down'} since {time_of(port.since)}"
    if speed := port_speed(port):
        yield "Speed", speed
    if port.lanes is not None:
        yield "Lanes", str(port.lanes)
    for field, name in _COUNTED.items():
        more = gained(port.counts, field)
        if more is not None:
            yield name, f"{more:,} in the last hour"
    yield from _traffic(port.counts)


def port_speed(port: SwitchPort) -> str:
    """Return a port's speed, and its best one where it was faster once; "" if it is not known."""
    if port.bits_per_second is None:
        return ""
    best = port.best_bits_per_second
    of = f" of {best / 1e9:,.0f}" if best is not None and is_slow(port) else ""
    return f"{port.bits_per_second / 1e9:,.0f}{of} Gbit/s"


def is_slow(port: SwitchPort) -> bool:
    """Return whether a port was faster once."""
    now, best = port.bits_per_second, port.best_bits_per_second
    return now is not None and best is not None and now < best


def _traffic(counts: Sequence[ErrorCount]) -> Iterator[tuple[str, str]]:
    """Yield traffic counts over ten minutes, or longer if the counts lie further apart."""
    if not counts:
        return
    until = counts[-1].at
    start = max((it.at for it in counts if until - it.at >= _SPAN), default=counts[0].at)
    minutes = max(until - start, _SPAN).total_seconds() / 60
    lately = [it for it in counts if it.at >= start]
    for field, name in _OF_TRAFFIC.items():
        more = gained(lately, field)
        if more is not None:
            yield name, f"{more:,} in the last {minutes:.0f} minutes"
