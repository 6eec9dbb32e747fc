"""The switches of a simulated fabric: their cabling, and what a scan of them sees.

The fabric is rail-optimised (NVIDIA, "DGX SuperPOD reference architecture"): the ports of one name on 32
nodes share a leaf, and each leaf has cables to every spine. What is seen goes through the same code as
readings of a real fabric, so records carry the same start times, best speeds and counters.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gpuvigil.model import SWITCH_DEVICE, Subject
from integrations.fabric.seen import SeenPort, SeenSwitch

# The number of nodes whose ports of one name share a leaf.
AT_LEAF = 32
FABRIC_BITS_PER_SECOND = 400_000_000_000  # NDR InfiniBand
# Spines, and cables from each leaf to each of them: half the bandwidth of the leaf's host ports [chosen].
SPINES, CABLES = 4, 4
UPLINKS = SPINES * CABLES
# Ports of each switch without any cable [chosen].
_UNUSED = 2
LANES = 4
_UP, _POLLING, _DISABLED = "LinkUp", "Polling", "Disabled"
_OF_TRAFFIC = ("transmit_discards", "pause_frames_received", "pause_frames_sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of a switch; its other end is a host's port, as `host device`, or a switch port by its place."""

    switch: int
    number: int
    host: str = ""
    far: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortDeviation:
    """How a port differs from a healthy one; counters are since its switch started."""

    up: bool = True
    disabled: bool = False  # by a person
    speed: float = 1.0  # share of its rated speed
    lanes: int = LANES
    counted: Mapping[str, int] = field(default_factory=dict)  # by the field of `ErrorCount`


_WELL = PortDeviation()


@dataclass(frozen=True, kw_only=True)
class Cabling:
    """The cabling: leaves first, rail by rail of each pod, then spines.

    A port's place is its index in `ports`. With `is_ethernet`, ports have names and count drops and pauses.
    """

    cluster: str
    names: tuple[str, ...]
    guids: tuple[str, ...]
    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    bits_per_second: int
    is_ethernet: bool = False

    @cached_property
    def leaves(self) -> int:
        return leaves_of(len(self.hosts), len(self.devices))

    def leaf(self, host: int, rail: int) -> int:
        """Return the leaf of a host's port on a rail."""
        return host // AT_LEAF * len(self.devices) + rail

    def spine(self, number: int) -> int:
        return self.leaves + number

    def downlink(self, host: int, rail: int) -> int:
        """Return the place of a leaf's port to a host."""
        return self.places[self.leaf(host, rail), host % AT_LEAF + 1]

    def uplink(self, leaf: int, number: int) -> int:
        """Return the place of a leaf's port to a spine; `number` is below `UPLINKS`."""
        return self.places[leaf, AT_LEAF + number + 1]

    def far(self, place: int) -> int:
        """Return the place at the other end of a cable between switches."""
        far = self.ports[place].far
        assert far is not None
        return far

    def of(self, switch: int) -> list[int]:
        """Return the places of a switch's ports that have a cable."""
        return [place for place, port in enumerate(self.ports) if port.switch == switch]

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        return tuple(self._ports())

    @cached_property
    def places(self) -> Mapping[tuple[int, int], int]:
        """The place of each port by switch and port number."""
        return {(port.switch, port.number): place for place, port in enumerate(self.ports)}

    def _ports(self) -> Iterator[Port]:
        rails = len(self.devices)
        first_of: list[int] = []  # the place of each leaf's first uplink
        count = 0
        for leaf in range(self.leaves):
            pod, rail = divmod(leaf, rails)
            hosts = self.hosts[pod * AT_LEAF : (pod + 1) * AT_LEAF]
            first_of.append(count + len(hosts))
            count += len(hosts) + UPLINKS
        spines = count
        for leaf in range(self.leaves):
            pod, rail = divmod(leaf, rails)
            for slot, host in enumerate(self.hosts[pod * AT_LEAF : (pod + 1) * AT_LEAF]):
                yield Port(switch=leaf, number=slot + 1, host=f"{host} {self.devices[rail]}")
            for number in range(UPLINKS):
                spine, cable = divmod(number, CABLES)
                far = spines + (spine * self.leaves + leaf) * CABLES + cable
                yield Port(switch=leaf, number=AT_LEAF + number + 1, far=far)
        for spine in range(SPINES):
            for leaf in range(self.leaves):
                for cable in range(CABLES):
                    yield Port(
                        switch=self.spine(spine),
                        number=leaf * CABLES + cable + 1,
                        far=first_of[leaf] + spine * CABLES + cable,
                    )

    def subject(self, switch: int) -> Subject:
        """Return the subject of a switch itself, as incidents name it."""
        return self._called(switch, 0)

    def port_subject(self, place: int) -> Subject:
        port = self.ports[place]
        return self._called(port.switch, self._name(port) or port.number)

    def _called(self, switch: int, port: str | int) -> Subject:
        return Subject(
            cluster=self.cluster, node=self.names[switch], device=SWITCH_DEVICE, port=str(port)
        )

    def _name(self, port: Port) -> str:
        return f"Ethernet{port.number}" if self.is_ethernet else ""

    def seen(
        self, odd: Mapping[int, PortDeviation], lost: Collection[int]
    ) -> dict[str, SeenSwitch]:
        """Return what a scan sees: all ports healthy except `odd`, by place, and all switches except those lost."""
        ports = [dict(them) for them in self._well]
        changed = set(odd) | {self.far(place) for place in odd if self.ports[place].far is not None}
        for switch in lost:
            changed |= {far for it in self.of(switch) if (far := self.ports[it].far) is not None}
        for place in changed:
            port = self.ports[place]
            ports[port.switch][port.number] = self._seen(place, odd, lost)
        return {
            name: SeenSwitch(guid=self.guids[switch], ports=ports[switch])
            for switch, name in enumerate(self.names)
            if switch not in lost
        }

    @cached_property
    def _well(self) -> list[dict[int, SeenPort]]:
        """What is seen of healthy and unused ports, by switch and port number."""
        found: list[dict[int, SeenPort]] = [{} for _ in self.names]
        for place, port in enumerate(self.ports):
            found[port.switch][port.number] = self._seen(place, {}, ())
        for switch, them in enumerate(found):
            for number in range(max(them, default=0) + 1, max(them, default=0) + 1 + _UNUSED):
                unused = Port(switch=switch, number=number)
                them[number] = SeenPort(up=False, name=self._name(unused), physical_state=_POLLING)
        return found

    def _seen(
        self, place: int, odd: Mapping[int, PortDeviation], lost: Collection[int]
    ) -> SeenPort:
        port, own = self.ports[place], odd.get(place, _WELL)
        far = None if port.far is None else self.ports[port.far]
        other = _WELL if port.far is None else odd.get(port.far, _WELL)
        name = self._name(port)
        counted = dict.fromkeys(_OF_TRAFFIC, 0) if self.is_ethernet else {}
        counters = {**counted, **{it: n for it, n in own.counted.items() if self._counts(it)}}
        gone = far is not None and far.switch in lost
        if gone or not (own.up and other.up) or own.disabled or other.disabled:
            state = _DISABLED if own.disabled else _POLLING
            return SeenPort(up=False, name=name, physical_state=state, counters=counters)
        seen = SeenPort(
            up=True,
            name=name,
            physical_state=_UP,
            bits_per_second=int(self.bits_per_second * min(own.speed, other.speed)),
            lanes=None if self.is_ethernet else min(own.lanes, other.lanes),
            counters=counters,
        )
        if far is None:
            number = 0 if self.is_ethernet else 1
            return replace(seen, peer=port.host, peer_guid=f"host {port.host}", peer_port=number)
        return replace(
            seen,
            peer=self.names[far.switch],
            peer_guid=self.guids[far.switch],
            peer_port=0 if self.is_ethernet else far.number,
            peer_port_name=self._name(far),
            at_switch=True,
        )

    def _counts(self, name: str) -> bool:
        """Return whether a counter is printed: for InfiniBand switches, the fabric's tools print errors only."""
        return self.is_ethernet or name not in _OF_TRAFFIC


def leaves_of(hosts: int, rails: int) -> int:
    """Return the number of leaves for that many hosts."""
    return -(-hosts // AT_LEAF) * rails


def names_of(hosts: int, rails: int) -> tuple[str, ...]:
    """Return switch names that tell the switch's place: `leaf-01-0`, `spine-1`."""
    leaves = (divmod(leaf, rails) for leaf in range(leaves_of(hosts, rails)))
    return (
        *(f"leaf-{pod + 1:02d}-{rail}" for pod, rail in leaves),
        *(f"spine-{spine + 1}" for spine in range(SPINES)),
    )


def guids_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return GUIDs that never change, as those from makers."""
    return tuple(hashlib.sha256(name.encode()).hexdigest()[:16] for name in names)
