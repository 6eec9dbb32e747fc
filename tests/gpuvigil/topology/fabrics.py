"""Random rail-optimised fabrics, with what is true of them and what their nodes' collectors tell."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from gpuvigil.model import Event, EventKind, Inventory, PortIdentity, Subject

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
Port = tuple[str, str]  # node and device


def inventory(node: str, ports: Sequence[PortIdentity], rack: str | None = None) -> Inventory:
    return Inventory(
        subject=Subject(cluster="c", node=node),
        at=NOON,
        boot="b",
        tick_seconds=10.0,
        version="1",
        ports=tuple(ports),
        rack=rack,
    )


def port(
    device: str, switch: str | None = None, *, role: str = "fabric", was_up: bool = True
) -> PortIdentity:
    return PortIdentity(
        device=device,
        port="1",
        kind="roce",
        role=role,
        was_up=was_up,
        switch=switch,
        switch_port=None if switch is None else "Ethernet1",
    )


def went_down(node: str, device: str, seconds: float = 0.0) -> Event:
    subject = Subject(cluster="c", node=node, device=device, port="1")
    at = NOON + timedelta(seconds=seconds)
    return Event(kind=EventKind.PORT_DOWN, subject=subject, at=at, id=f"{subject.key} {seconds}")


@dataclass(slots=True)
class Fabric:
    """`leaf` and `rail` of every port that is plugged in; `pods`: hosts by pod."""

    inventories: list[Inventory] = field(default_factory=list)
    leaf: dict[Port, str] = field(default_factory=dict)
    rail: dict[Port, str] = field(default_factory=dict)
    told: set[Port] = field(default_factory=set)  # by LLDP

    def swap(self, rng: random.Random) -> tuple[Port, Port]:
        """Swap two cables of one host that tells where they are."""
        hosts = sorted({node for node, _ in self.told})
        rng.shuffle(hosts)
        for node in hosts:
            ports = sorted(it for it in self.told if it[0] == node and it in self.rail)
            if len(ports) >= 2:
                a, b = rng.sample(ports, 2)
                self.leaf[a], self.leaf[b] = self.leaf[b], self.leaf[a]
                self._tell_anew(node)
                return a, b
        raise AssertionError("no host has two cables that are told of")

    def _tell_anew(self, node: str) -> None:
        for number, one in enumerate(self.inventories):
            if one.subject.node == node:
                ports = tuple(
                    replace(it, switch=self.leaf[node, it.device])
                    if (node, it.device) in self.told and it.role == "fabric"
                    else it
                    for it in one.ports
                )
                self.inventories[number] = replace(one, ports=ports)


def name(rng: random.Random) -> str:
    """As sites name things: with a word, a number and sometimes a place."""
    word = rng.choice(("leaf", "tor", "sw", "qfx", "sn5600", "g"))
    return f"{word}-{rng.randrange(16**4):04x}{rng.choice(('', '.fab.example'))}"


def draw(seed: int) -> Fabric:
    """One to four pods of 8 to 32 hosts with 2, 4 or 8 rails; what is missing is drawn, too."""
    rng = random.Random(seed)
    fabric, rails = Fabric(), rng.choice((2, 4, 8))
    # A first device of storage moves the numbers of all others.
    first, form = rng.choice((0, 1)), rng.choice(("mlx5_{}", "mlx5_bond_{}", "bnxt_re{}"))
    devices = [form.format(first + rail) for rail in range(rails)]
    with_racks, silent_share = rng.random() < 0.5, rng.uniform(0.02, 0.2)
    used: set[str] = set()
    for pod in range(rng.randint(1, 4)):
        leaves: list[str] = []
        while len(leaves) < rails:
            leaf = name(rng)
            if leaf not in used:
                used.add(leaf)
                leaves.append(leaf)
        for host in range(rng.randint(8, 32)):
            node = f"{rng.choice(('gpu', 'n', 'dgx'))}{rng.randrange(10**6)}-{pod}-{host}"
            order = list(range(rails))
            if rails > 2 and rng.random() < 0.03:
                order = order[1:] + order[:1]  # a driver that counts otherwise
            if rails > 2 and rng.random() < 0.05:
                order = order[: rails - 1]  # a ragged node
            _add(fabric, rng, node, devices, leaves, order, told=rng.random() > silent_share)
            if with_racks:
                last = fabric.inventories[-1]
                fabric.inventories[-1] = replace(last, rack=f"r{pod}-{host // 8}")
    return fabric


def _add(
    fabric: Fabric,
    rng: random.Random,
    node: str,
    devices: Sequence[str],
    leaves: Sequence[str],
    order: Sequence[int],
    *,
    told: bool,
) -> None:
    ports = [port("eno1", "mgmt" if told else None, role="management")]
    for device, rail in zip(devices, order, strict=False):
        if rng.random() < 0.01:
            ports.append(port(device, was_up=False))
            continue
        heard = told and rng.random() > 0.02
        ports.append(port(device, leaves[rail] if heard else None))
        fabric.leaf[node, device] = leaves[rail]
        fabric.rail[node, device] = devices[rail]
        if heard:
            fabric.told.add((node, device))
    fabric.inventories.append(inventory(node, ports))
