"""What whoever reads the fabric says: which switches answer, which cables there are, what is at their ends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gpuvigil.model import Inventory, Subject, Switch, SwitchPort
from gpuvigil.numbers_in_words import natural

from ..window.window import Window

# A fabric is read once a minute; of one that nobody reads any more nothing is said.
_OLD = timedelta(minutes=15)
# What one look saw, the next one must have seen, too: they are at least five seconds apart.
_CONFIRMED = timedelta(seconds=4)


@dataclass(frozen=True, slots=True)
class End:
    """One end of a cable, at a switch."""

    switch: Switch
    port: SwitchPort

    @property
    def subject(self) -> Subject:
        return self.switch.port_subject(self.port.number)

    @property
    def name(self) -> str:
        """`leaf1 port 40`."""
        return f"{self.switch.subject.node} port {self.port.number}"

    @property
    def is_confirmed(self) -> bool:
        """Whether more than one look saw it as it is."""
        return self.switch.at - self.port.since >= _CONFIRMED


@dataclass(frozen=True, slots=True)
class Cable:
    """From a switch to another one, or to a host: then there is one end, and `host` where it has a collector."""

    ends: tuple[End, ...]
    host: Subject | None = None

    @property
    def near(self) -> End:
        """By which it is called."""
        return self.ends[0]

    @property
    def far(self) -> str:
        """What is at the other end of the near one."""
        port = self.near.port
        if len(self.ends) > 1:
            return self.ends[1].name
        return f"{port.peer} port {port.peer_port}" if port.at_switch else port.peer

    @property
    def at_switches(self) -> bool:
        return self.near.port.at_switch

    @property
    def between(self) -> tuple[str, frozenset[str]]:
        """Its cluster, and the names of what it connects."""
        near = self.near.switch.subject
        return near.cluster, frozenset({near.node, self.near.port.peer})


def answering(window: Window) -> Mapping[str, Switch]:
    """By key the switches of which somebody told lately, but those that do not answer."""
    return window.once(_answering, None)


def lost(window: Window) -> Sequence[Switch]:
    """Those that have not answered to more than one look, while others did."""
    return [
        switch
        for switch in window.switches.values()
        if switch.lost_at is not None
        and is_fresh(window, switch)
        and switch.at - switch.lost_at >= _CONFIRMED
    ]


def is_fresh(window: Window, switch: Switch) -> bool:
    """Whether somebody still reads the fabric that it is in; nobody reads it tomorrow."""
    return abs(window.now - switch.at) < _OLD


def cables(window: Window) -> Sequence[Cable]:
    """Every cable at a switch that answers, once."""
    return window.once(_cables, None)


def far_end(window: Window, port: Subject) -> tuple[str, str] | None:
    """The switch and its port that a host's port is plugged into."""
    return window.once(_by_host, None).get(port)


def hosts_of(window: Window, switch: Switch) -> list[Subject]:
    """The ports of hosts with a collector that are, or were at the end, plugged into it."""
    found = (_host(window, switch, port) for port in switch.ports if port.up)
    return sorted(port for port in found if port is not None)


def _answering(window: Window, _: None) -> Mapping[str, Switch]:
    return {
        key: switch
        for key, switch in sorted(window.switches.items(), key=lambda it: natural(it[0]))
        if switch.lost_at is None and is_fresh(window, switch)
    }


def _cables(window: Window, _: None) -> Sequence[Cable]:
    there = answering(window)
    ends = {
        (switch.subject, port.number): End(switch, port)
        for switch in there.values()
        for port in switch.ports
    }
    done: set[tuple[Subject, int]] = set()
    found = []
    for key, end in ends.items():
        if key in done:
            continue
        there_too = _other(ends, end)
        done |= {key, *([(there_too.switch.subject, there_too.port.number)] if there_too else [])}
        both = (end, there_too) if there_too else (end,)
        found.append(Cable(both, _host(window, end.switch, end.port)))
    return found


def _other(ends: Mapping[tuple[Subject, int], End], end: End) -> End | None:
    """The end at the other switch, where both say so of each other."""
    port, here = end.port, end.switch.subject
    if not port.at_switch:
        return None
    far = ends.get((Subject(cluster=here.cluster, node=port.peer), port.peer_port))
    if far is None or (far.port.peer, far.port.peer_port) != (here.node, port.number):
        return None
    return far


def _host(window: Window, switch: Switch, port: SwitchPort) -> Subject | None:
    """The port of a host that its own collector tells of; hosts describe themselves without a domain."""
    if port.host is None:
        return None
    name, device = port.host
    inventory = window.once(_by_short_name, None).get((switch.subject.cluster, name))
    number = str(port.peer_port)
    if inventory is None or not any(
        (known.device, known.port) == (device, number) for known in inventory.ports
    ):
        return None
    node = inventory.subject
    return Subject(cluster=node.cluster, node=node.node, device=device, port=number)


def _by_short_name(window: Window, _: None) -> Mapping[tuple[str, str], Inventory]:
    """Inventories by cluster and host name, whole and without its domain where only one is called so."""
    short: dict[tuple[str, str], list[Inventory]] = {}
    for it in window.inventories.values() if window.switches else ():
        name = it.subject.node.partition(".")[0]
        short.setdefault((it.subject.cluster, name), []).append(it)
    alone = {key: them[0] for key, them in short.items() if len(them) == 1}
    whole = {(it.subject.cluster, it.subject.node): it for it in window.inventories.values()}
    return alone | whole


def _by_host(window: Window, _: None) -> Mapping[Subject, tuple[str, str]]:
    return dict(_plugged(window))


def _plugged(window: Window) -> Iterator[tuple[Subject, tuple[str, str]]]:
    ports = [
        (port.up, port.since, switch, port)
        for switch in window.switches.values()
        for port in switch.ports
        if is_fresh(window, switch)
    ]
    # Where two say so, as after a host was moved, the one that is up now is right.
    for _, _, switch, port in sorted(ports, key=lambda it: it[:2]):
        host = _host(window, switch, port)
        if host is not None:
            yield host, (switch.subject.node, str(port.number))
