"""The fabric as its readers report it: the switches that answer, the cables, and their ends."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from gpuvigil.model import Inventory, Subject, Switch, SwitchPort, without_domain
from gpuvigil.model.switch_hosts import Place, hosts_by_switch, neighbour
from gpuvigil.numbers_in_words import natural
from gpuvigil.topology.link_names import port_name, switch_port_name

from ..window.window import Window

# A fabric is read once a minute; nothing is concluded from one that is no longer read.
_OLD = timedelta(minutes=15)
# A second look must confirm the first: looks are at least five seconds apart.
_CONFIRMED = timedelta(seconds=4)
_NOT_KNOWN = "not known"
DISABLED = "Disabled"  # the physical state of a port that somebody switched off
Key = tuple[Subject, str]  # a switch, and the name of its port


@dataclass(frozen=True, slots=True)
class End:
    """One end of a cable, at a switch."""

    switch: Switch
    port: SwitchPort

    @property
    def subject(self) -> Subject:
        return self.switch.port_subject(self.port.id)

    @property
    def name(self) -> str:
        """The end's name, such as `leaf1 port 40`."""
        return port_name(self.subject)

    @property
    def is_confirmed(self) -> bool:
        """Whether more than one look saw the port in its present state."""
        return self.switch.at - self.port.since >= _CONFIRMED


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable from a switch to another one, with two ends, or to a host, with one.

    `host`: the host's port, if it has a collector. `guessed`: which of several ends at the other
    switch belongs to this cable is unknown.
    """

    ends: tuple[End, ...]
    host: Subject | None = None
    guessed: bool = False

    @property
    def near(self) -> End:
        """The end that the cable is named by."""
        return self.ends[0]

    @property
    def far(self) -> str:
        """The name of what is at the end opposite to the near one."""
        port = self.near.port
        if len(self.ends) > 1 and not self.guessed:
            return self.ends[1].name
        if port.at_switch and port.peer_id:
            return switch_port_name(port.peer, port.peer_id)
        if self.host is not None and not port.peer:
            return port_name(self.host)
        return port.peer or _NOT_KNOWN

    def beyond(self, end: Subject) -> str:
        """Return the name of what is opposite to an end; empty if unknown."""
        if end != self.near.subject:
            return self.near.name
        return "" if self.far == _NOT_KNOWN else self.far

    @property
    def at_switches(self) -> bool:
        return self.near.port.at_switch

    @property
    def between(self) -> tuple[str, frozenset[str]]:
        """The cable's cluster, and the names of what it connects."""
        near = self.near.switch.subject
        return near.cluster, frozenset({near.node, self.near.port.peer})


def answering(window: Window) -> Mapping[str, Switch]:
    """Return the switches that were read lately and answered, by key."""
    return window.once(_answering, None)


def lost_switches(window: Window) -> Sequence[Switch]:
    """Return the switches that did not answer to more than one look, while others did."""
    return [
        switch
        for switch in window.switches.values()
        if switch.lost_at is not None
        and is_fresh(window, switch)
        and switch.at - switch.lost_at >= _CONFIRMED
    ]


def is_taken_out(window: Window, switch: Switch) -> bool:
    """Tell whether all cables to a switch are disabled at the others, and no host is plugged in."""
    name, cluster = switch.subject.node, switch.subject.cluster
    ends = [
        port.physical_state
        for it in answering(window).values()
        if it.subject.cluster == cluster
        for port in it.ports
        if port.at_switch and port.peer == name
    ]
    return set(ends) == {DISABLED} and not plugged_hosts(window, switch)


def is_fresh(window: Window, switch: Switch) -> bool:
    """Tell whether the fabric of a switch is still read; times far in the future do not count."""
    return abs(window.now - switch.at) < _OLD


def cables(window: Window) -> Sequence[Cable]:
    """Return every cable at a switch that answers, once."""
    return window.once(_cables, None)


def far_end(window: Window, port: Subject) -> tuple[str, str] | None:
    """Return the switch and its port that a host's port is plugged into, None if unknown."""
    return plugged(window).get(port)


def plugged(window: Window) -> Mapping[Subject, tuple[str, str]]:
    """Return by host port the switch and its port that it is plugged into."""
    return window.once(_by_host, None)


def cable_at(window: Window, end: Subject) -> Cable | None:
    """Return the cable at a switch's port, None if there is none."""
    return window.once(_by_end, None).get(end)


def hosts_of(window: Window, switch: Switch) -> list[Subject]:
    """Return the host ports with a collector that are, or were last, plugged into a switch."""
    found = (_host(window, switch, port) for port in switch.ports if port.up)
    return sorted(port for port in found if port is not None)


def plugged_hosts(window: Window, switch: Switch) -> set[str]:
    """Return all host ports that are, or were last, plugged into a switch, as `host device`."""
    found = ((port, _host(window, switch, port)) for port in switch.ports if port.up)
    names = window.once(_hosts, None)[switch.subject.cluster, switch.subject.node]
    return {
        port.peer if host is None else f"{host.node} {host.device}"
        for port, host in found
        if host is not None or (port.host is not None and neighbour(port) in names)
    }


def has_collector(window: Window, cable: Cable) -> bool:
    """Tell whether the host at the far end has a collector, even if its port is unknown.

    In LLDP a host may give its port's address as the port's name.
    """
    name, cluster = neighbour(cable.near.port), cable.near.switch.subject.cluster
    return cable.host is not None or (cluster, name) in window.once(_by_short_name, None)


def end_of(window: Window, port: Subject) -> End | None:
    """Return the switch's end of a host's cable, as the switch reports it now, None if unknown."""
    return window.once(_ends_by_host, None).get(port)


def _hosts(window: Window, _: None) -> Mapping[Place, frozenset[str]]:
    return hosts_by_switch(window.switches.values())


def _answering(window: Window, _: None) -> Mapping[str, Switch]:
    return {
        key: switch
        for key, switch in sorted(window.switches.items(), key=lambda it: natural(it[0]))
        if switch.lost_at is None and is_fresh(window, switch)
    }


def _cables(window: Window, _: None) -> Sequence[Cable]:
    there = answering(window)
    ends = {
        (switch.subject, port.id): End(switch, port)
        for switch in there.values()
        for port in switch.ports
    }
    pairs = _mutual_pairs(ends)
    untold = _untold_pairs(ends, pairs)
    pairs |= {key: far for key, (far, _) in untold.items()}
    second: set[Key] = set()
    found = []
    for key, end in ends.items():
        if key in second:
            continue
        far = pairs.get(key)
        both = (end,) if far is None else (end, ends[far])
        if far is not None:
            second.add(far)
        # A guessed cable is named by its end that is down.
        guessed = key in untold and untold[key][1]
        order = sorted(both, key=lambda it: it.port.up) if guessed else both
        found.append(Cable(tuple(order), _host(window, end.switch, end.port), guessed))
    return found


def _named(ends: Mapping[Key, End], end: End) -> Key | None:
    """Return the end at the other switch that this end names, None if there is no such port."""
    key = Subject(cluster=end.switch.subject.cluster, node=end.port.peer), end.port.peer_id
    return key if end.port.at_switch and key in ends else None


def _mutual_pairs(ends: Mapping[Key, End]) -> dict[Key, Key]:
    """Return the opposite end of each end, where both ends name each other.

    In LLDP a switch may name its port otherwise than people do, as SONiC does. Then the word of the
    one end that names a port is enough, if no other end names the same port.
    """
    named = {key: far for key, end in ends.items() if (far := _named(ends, end)) is not None}
    claims = Counter(named.values())
    found: dict[Key, Key] = {}
    for key, far in named.items():
        unread = far not in named and claims[far] == 1 and _is_at(ends[far], key[0].node)
        if named.get(far) == key or unread:
            found |= {key: far, far: key}
    return found


def _is_at(end: End, switch: str) -> bool:
    return end.port.at_switch and end.port.peer == switch


def _untold_pairs(
    ends: Mapping[Key, End], told: Mapping[Key, Key]
) -> Mapping[Key, tuple[Key, bool]]:
    """Pair the ends that name no existing port, if two switches have equally many left.

    One end at each is a pair. With several, pairing is a guess, which is marked: ends that are down
    or slow are paired first.
    """
    left: dict[tuple[str, frozenset[str]], dict[str, list[Key]]] = {}
    for key, end in ends.items():
        if end.port.at_switch and end.port.name and key not in told and not _named(ends, end):
            between = key[0].cluster, frozenset({key[0].node, end.port.peer})
            left.setdefault(between, {}).setdefault(key[0].node, []).append(key)
    found: dict[Key, tuple[Key, bool]] = {}
    for here, there in (them.values() for them in left.values() if len(them) == len(("a", "b"))):
        if len(here) == len(there):
            guessed, by = len(here) > 1, partial(_order, ends)
            for near, far in zip(sorted(here, key=by), sorted(there, key=by), strict=True):
                found |= {near: (far, guessed), far: (near, guessed)}
    return found


def _order(ends: Mapping[Key, End], key: Key) -> tuple[bool, int, list[tuple[int, str]]]:
    port = ends[key].port
    return port.up, port.bits_per_second or 0, natural(port.id)


def _host(window: Window, switch: Switch, port: SwitchPort) -> Subject | None:
    """Return a host's port at a switch's port, as its own collector knows it, None if unknown.

    Hosts describe themselves without a domain. If the switch does not know what is plugged in, a
    host that heard the switch by LLDP does.
    """
    described = None if port.host is None else _described(window, switch, port, port.host)
    if described is not None or not port.name:
        return described
    place = (switch.subject.cluster, switch.subject.node, port.id)
    return window.once(_by_own_word, None).get(place)


def _described(
    window: Window, switch: Switch, port: SwitchPort, host: tuple[str, str]
) -> Subject | None:
    name, device = host
    inventory = window.once(_by_short_name, None).get((switch.subject.cluster, name))
    known = () if inventory is None else inventory.ports
    ports = [
        it.port for it in known if it.device == device and port.peer_port in {0, _number(it.port)}
    ]
    if inventory is None or len(ports) != 1:
        return None
    node = inventory.subject
    return Subject(cluster=node.cluster, node=node.node, device=device, port=ports[0])


def _number(port: str) -> int | None:
    return int(port) if port.isdecimal() else None


def _by_own_word(window: Window, _: None) -> Mapping[tuple[str, str, str], Subject]:
    """Return host ports by cluster, switch and its port, as heard by LLDP, where only one host did.

    A switch is the one with the whole name that was heard, or the only one of that name without a
    domain. A port that is down keeps what it heard last, so a place may have two after a host was
    moved.
    """
    names = _switch_names(window)
    heard: dict[tuple[str, str, str], set[Subject]] = defaultdict(set)
    for it in window.inventories.values() if window.switches else ():
        for known in it.ports:
            if known.switch and known.switch_port:
                cluster, whole = it.subject.cluster, known.switch.casefold()
                switch = names.get((cluster, whole)) or names.get(
                    (cluster, without_domain(whole.casefold()))
                )
                if switch:
                    port = replace(it.subject, device=known.device, port=known.port)
                    heard[cluster, switch, known.switch_port].add(port)
    return {place: min(them) for place, them in heard.items() if len(them) == 1}


def _switch_names(window: Window) -> Mapping[Place, str]:
    """Return switch names by cluster and lower-case name, whole and, if unique, without a domain."""
    read = [(it.subject.cluster, it.subject.node) for it in window.switches.values()]
    times = Counter((cluster, without_domain(name.casefold())) for cluster, name in read)
    places = [((cluster, without_domain(name.casefold())), name) for cluster, name in read]
    alone = {place: name for place, name in places if times[place] == 1}
    return alone | {(cluster, name.casefold()): name for cluster, name in read}


def _by_short_name(window: Window, _: None) -> Mapping[tuple[str, str], Inventory]:
    """Return inventories by cluster and host name, whole and, if unique, without a domain."""
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
    # If two switches name one host port, as after a host was moved, the one that is up now is
    # right.
    for _, _, switch, port in sorted(ports, key=lambda it: it[:2]):
        host = _host(window, switch, port)
        if host is not None:
            yield host, (switch.subject.node, port.id)


def _ends_by_host(window: Window, _: None) -> Mapping[Subject, End]:
    return {it.host: it.near for it in cables(window) if it.host is not None}


def _by_end(window: Window, _: None) -> Mapping[Subject, Cable]:
    return {end.subject: cable for cable in cables(window) for end in cable.ends}
