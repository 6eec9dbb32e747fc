"""A past of the simulated cluster: what it is of, what went wrong in it, and its records."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from gpuvigil import __version__
from gpuvigil.model import Inventory, Record
from simulator.cluster import DRIVER, Cluster, Node, allocations, build, node_name
from simulator.faults import InjectedFault
from simulator.sensors import events

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is written: which cluster, from when on, how finely, and what went wrong in it."""

    nodes: int
    seed: int
    origin: datetime
    tick_seconds: float
    faults: tuple[InjectedFault, ...]

    def cluster(self) -> Cluster:
        return build(self.nodes, GPUS_PER_NODE, self.seed)

    def ticks(self, until: datetime) -> int:
        """How many ticks are over at `until`; a node's turn may be anywhere in its tick."""
        return int((until - self.origin).total_seconds() // self.tick_seconds)


def begin(nodes: int, span: timedelta, tick_seconds: float, seed: int = 1) -> Past:
    """A past of that length that ends now."""
    origin = datetime.now(timezone.utc) - span
    return Past(
        nodes=nodes,
        seed=seed,
        origin=origin,
        tick_seconds=tick_seconds,
        faults=faults(nodes, origin, span),
    )


def faults(nodes: int, origin: datetime, span: timedelta) -> tuple[InjectedFault, ...]:
    """What went wrong: a GPU lost, a port down, a memory error, and every 32nd node silent."""

    def fault(
        name: str, node: int, start: float, length: float, gpu: int | None = None
    ) -> InjectedFault:
        port = {"device": "mlx5_0", "port": "1"} if name == "port-down" else {}
        at = origin + start * span
        return InjectedFault(
            name=name,
            node=node_name(node % nodes),
            at=at,
            gpu=gpu,
            cleared_at=at + length * span,
            **port,
        )

    silent = [
        fault("node-silent", node, 0.2 + node % 7 * 0.08, 0.05) for node in range(5, nodes, 32)
    ]
    return (
        *silent,
        fault("xid79", 3, 0.35, 0.1, gpu=5),
        fault("xid48", 9, 0.7, 0.03, gpu=2),
        fault("port-down", 6, 0.55, 0.02),
    )


def inventory(past: Past, node: Node, at: datetime) -> Inventory:
    return Inventory(
        subject=node.subject,
        at=at,
        boot="past",
        tick_seconds=past.tick_seconds,
        version=__version__,
        gpus=node.gpus,
        ports=node.ports,
        driver=DRIVER,
        driver_state="loaded",
        rack=node.rack,
    )


def records(past: Past, until: datetime) -> Iterator[Record]:
    """Inventories, allocations and events, from its origin to `until`."""
    built = past.cluster()
    yield from (inventory(past, node, until).to_record() for node in built.nodes)
    yield from held(built, past.origin, until)
    yield from happened(built, past, until)


def held(cluster: Cluster, origin: datetime, until: datetime) -> Iterator[Record]:
    """Who held every GPU from `origin` to `until`: a job ends when the next takes its place."""
    for slot in cluster.slots:
        last = slot.run((until - origin).total_seconds())
        for run in range(slot.run(0.0), last + 1):
            next_at = origin + timedelta(seconds=slot.started_seconds(run + 1))
            ended = next_at if run < last else None
            for allocation in allocations(cluster, slot, run, origin):
                yield replace(allocation, ended_at=ended).to_record()


def happened(cluster: Cluster, past: Past, until: datetime) -> Iterator[Record]:
    """The events of the faults."""
    nodes = {node.subject.node: node for node in cluster.nodes}
    for fault in past.faults:
        for event in events(nodes[fault.node], fault, past.origin, until):
            yield event.to_record()
