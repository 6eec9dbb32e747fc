"""The cables between a fabric's switches, as the fabric's reader reports them: leaves by spines."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.hub_client import Hub
from gpuvigil.model import ERROR_COUNTS, ErrorCount, RecordKind, Subject, Switch, SwitchPort
from gpuvigil.model.switch_hosts import hosts_by_switch, neighbour
from gpuvigil.numbers_in_words import natural
from gpuvigil.topology.link_names import switch_link_name, switch_port_name

# A reader reports a fabric at least every five minutes; older reports are ignored.
OLD = timedelta(minutes=15)
MOST_SWITCHES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A cable from a leaf to a spine. Ports are named as on their switch; the spine's may be empty if unknown."""

    leaf: str
    leaf_port: str
    spine: str
    spine_port: str
    up: bool
    bits_per_second: int | None
    best_bits_per_second: int | None
    errors: int | None  # in the last hour, at both ends

    @property
    def is_slow(self) -> bool:
        """Whether the cable is up but was faster once."""
        now, best = self.bits_per_second, self.best_bits_per_second
        return self.up and now is not None and best is not None and now < best

    @property
    def name(self) -> str:
        """The cable's name, as `leaf1 port 40 → spine2 port 3`."""
        near = switch_port_name(self.leaf, self.leaf_port)
        return switch_link_name(near, switch_port_name(self.spine, self.spine_port))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """One cluster's switches: hosts are at leaves, and leaves are at spines."""

    cluster: str
    at: datetime  # time of the newest report
    leaves: Sequence[str]
    spines: Sequence[str]
    hosts: Mapping[str, int]  # ports of hosts that are up, by leaf
    lost: frozenset[str]  # switches that do not answer
    cables: Mapping[tuple[str, str], Sequence[Cable]]  # by leaf and spine

    @property
    def links(self) -> int:
        """The number of cables between switches."""
        return sum(map(len, self.cables.values()))


def switch_names(hub: Hub, now: datetime) -> tuple[Subject, ...]:
    """Ask for the switches that are read now; HubUnavailable or HubRefused if the hub does not answer."""
    told = hub.records(RecordKind.SWITCH, since=now - OLD, limit=MOST_SWITCHES)
    # Without ports, a switch has another name now, or was forgotten.
    return tuple(Subject.parse(one.subject) for one in told if one.body.get("ports"))


def wirings(switches: Iterable[Switch], now: datetime) -> list[Wiring]:
    """Return the wiring of each cluster with recent reports of switches cabled to each other."""
    by_cluster: dict[str, dict[str, Switch]] = defaultdict(dict)
    for switch in switches:
        if switch.ports and now - switch.at < OLD:
            by_cluster[switch.subject.cluster][switch.subject.node] = switch
    found = (_wiring(cluster, them) for cluster, them in sorted(by_cluster.items()))
    return [one for one in found if one.cables]


def _wiring(cluster: str, switches: Mapping[str, Switch]) -> Wiring:
    names = hosts_by_switch(switches.values())
    hosts = {
        name: sum(_may_have_host(port, at_it) for port in it.ports if port.up)
        for name, it in switches.items()
        if (at_it := names[cluster, name])
    }
    cables: dict[tuple[str, str], list[Cable]] = defaultdict(list)
    for name in hosts:
        for port in switches[name].ports:
            if port.at_switch and port.peer not in hosts:
                cables[name, port.peer].append(_cable(switches, name, port))
    return Wiring(
        cluster=cluster,
        at=max(it.at for it in switches.values()),
        leaves=sorted({leaf for leaf, _ in cables}, key=natural),
        spines=sorted({spine for _, spine in cables}, key=natural),
        hosts=hosts,
        lost=frozenset(name for name, it in switches.items() if it.lost_at is not None),
        cables=cables,
    )


def _may_have_host(port: SwitchPort, hosts: frozenset[str]) -> bool:
    """Return whether a host is at the other end, or the other end is not known."""
    return not port.at_switch and (not port.peer or neighbour(port) in hosts)


def _cable(switches: Mapping[str, Switch], leaf: str, port: SwitchPort) -> Cable:
    far = switches.get(port.peer)
    there = [] if far is None else [it for it in far.ports if it.id == port.peer_id]
    counted = [errors for it in (port, *there) if (errors := _errors(it.counts)) is not None]
    lost = any(switches[name].lost_at is not None for name in (leaf, port.peer) if name in switches)
    return Cable(
        leaf=leaf,
        leaf_port=port.id,
        spine=port.peer,
        spine_port=port.peer_id,
        up=port.up and not lost,
        bits_per_second=port.bits_per_second,
        best_bits_per_second=port.best_bits_per_second,
        errors=sum(counted) if counted else None,
    )


def gained(counts: Sequence[ErrorCount], field: str) -> int | None:
    """Return how much a counter grew since the first reported count; None if the switch does not count it."""
    first, last = (getattr(it, field) for it in (counts[0], counts[-1])) if counts else (None, None)
    # A counter that fell was reset.
    return None if first is None or last is None else max(last - first, 0)


def _errors(counts: Sequence[ErrorCount]) -> int | None:
    known = [more for name in ERROR_COUNTS if (more := gained(counts, name)) is not None]
    return sum(known) if known else None
