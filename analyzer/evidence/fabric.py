"""What whoever reads the fabric says: which switches answer, which cables there are, what is at their ends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gpuvigil.model import Subject, Switch, SwitchPort
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
    """Whether somebody still reads the fabric that it is in."""
    return window.now - switch.at < _OLD


def cables(window: Window) -> Sequence[Cable]:
    """Every cable at a switch that answers, once."""
    return window.once(_cables, None)


def far_end(window: Window, port: Subject) -> tuple[str, str] | None:
    """The switch and its port that a host's port is plugged into."""
    return window.once(_by_host, None).get(port)


def hosts_of(window: Window, switch: Switch) -> list[Subject]:
    """The ports of hosts with a collector that are plugged into it."""
    found = (_host(window, switch, port) for port in switch.ports)
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
    """The port of a host that its own collector tells of."""
    if port.host is None:
        return None
    name, device = port.host
    node = Subject(cluster=switch.subject.cluster, node=name)
    inventory = window.inventories.get(node.key)
    number = str(port.peer_port)
    if inventory is None or not any(
        (known.device, known.port) == (device, number) for known in inventory.ports
    ):
        return None
    return Subject(cluster=node.cluster, node=name, device=device, port=number)


def _by_host(window: Window, _: None) -> Mapping[Subject, tuple[str, str]]:
    return dict(_plugged(window))


def _plugged(window: Window) -> Iterator[tuple[Subject, tuple[str, str]]]:
    for switch in window.switches.values():
        for port in switch.ports:
            host = _host(window, switch, port)
            if host is not None:
                yield host, (switch.subject.node, str(port.number))
