"""Playing the cluster: which node is read when, what its collector would send, and who holds what."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from collector.spool.batches import Sender
from collector.spool.body import Body
from gpuvigil import __version__
from gpuvigil.clock import from_text, to_text
from gpuvigil.config import SimulatorSettings
from gpuvigil.model import Allocation, Inventory, Record

from .cluster import DRIVER, KERNEL, Cluster, Node, allocations, build, node_name
from .fabric.cabling import FABRIC_BITS_PER_SECOND, Cabling, guids_of, names_of
from .fabric.reader import Reader
from .faults import InjectedFault
from .injected_switches import lost, odd_ports, with_drops
from .sensors import Moment, NodeSensors, events

# An injected fault is dated before its file is written, so the file may be read between the two.
_LOOK_BACK = timedelta(seconds=5)
# What happened while the simulator was away is reported when it starts.
_FIRST_LOOK_BACK = timedelta(hours=1)
_RECORDS_PER_BODY = 500
# A real fabric is read once a minute; a person who tries out a fault sees it sooner.
_LOOKS_APART, SWITCHES_PER_BODY = timedelta(seconds=10), 20
_SWITCHES_NAME = "switches.jsonl"
# The sender of the switches' reader; no node has its name.
READER = "fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The state that outlives a simulator: its settings, when the simulation began, when jobs were reported."""

    nodes: int
    gpus_per_node: int
    seed: int
    origin: datetime
    told_at: datetime

    @classmethod
    def begin(cls, settings: SimulatorSettings, now: datetime) -> "Story":
        return cls(
            nodes=settings.nodes,
            gpus_per_node=settings.gpus_per_node,
            seed=settings.seed,
            origin=now,
            told_at=now,
        )

    def is_of_cluster(self, before: "Story | None") -> bool:
        """Return whether `before` is of the same cluster, and so of the same switches."""
        return (
            before is not None and replace(before, origin=self.origin, told_at=self.told_at) == self
        )

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the story of the file; None when there is none, or when it cannot be read."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            for name in ("origin", "told_at"):
                values[name] = from_text(values[name])
            return cls(**values)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        values = {**asdict(self), "origin": to_text(self.origin), "told_at": to_text(self.told_at)}
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(values), encoding="utf-8")
        draft.replace(path)

    def held(self) -> dict[str, Allocation]:
        """Return the reported allocations by id."""
        cluster = build(self.nodes, self.gpus_per_node, self.seed)
        return _held(cluster, _runs(cluster, self.origin, self.told_at), self.origin)


class Player:
    """The cluster over time; every method yields bodies, and the caller ships them."""

    def __init__(
        self, settings: SimulatorSettings, cluster: Cluster, origin: datetime, boot: str
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._origin = origin
        self._boot = boot
        self._sensors = [NodeSensors(node) for node in cluster.nodes]
        self._beside = [beside(node) for node in cluster.nodes]
        self._faults = FaultReporter(cluster.nodes, boot)
        self._senders = [_sender(node, boot) for node in cluster.nodes]
        self._turn: int | None = None
        self._runs: list[int] = []

    def opening(self, now: datetime, before: Mapping[str, Allocation]) -> Iterator[Body]:
        """Yield every node's inventory and allocations; allocations of `before` that are gone are ended."""
        self._runs = _runs(self._cluster, self._origin, now)
        held = _held(self._cluster, self._runs, self._origin)
        yield from self._in_bodies(
            [self._inventory(node, now).to_record() for node in self._cluster.nodes], now
        )
        ended = [replace(a, ended_at=now) for key, a in before.items() if key not in held]
        yield from self._in_bodies([a.to_record() for a in [*ended, *held.values()]], now)

    def jobs(self, now: datetime) -> Iterator[Body]:
        """Yield the jobs that ended and those that took their places since the last call."""
        runs = _runs(self._cluster, self._origin, now)
        if runs == self._runs:
            return
        before = _held(self._cluster, self._runs, self._origin)
        held = _held(self._cluster, runs, self._origin)
        self._runs = runs
        ended = [replace(a, ended_at=now) for key, a in before.items() if key not in held]
        begun = [a for key, a in held.items() if key not in before]
        yield from self._in_bodies([a.to_record() for a in ended + begun], now)

    def telemetry(
        self,
        now: datetime,
        faults: Iterable[InjectedFault],
        spool_oldest_seconds: float = 0.0,
        spool_bytes: int = 0,
    ) -> Iterator[Body]:
        """Yield the bodies of all nodes whose turn has come since the last call.

        Turns are spread evenly over the tick. Turns missed for longer than a tick are left out.
        `spool_bytes` wait on disk for all nodes together.
        """
        count, tick_seconds = len(self._cluster.nodes), self._settings.tick_seconds
        turn = math.floor((now - self._origin).total_seconds() / tick_seconds * count)
        first = turn - count + 1 if self._turn is None else max(self._turn + 1, turn - count + 1)
        self._turn = turn if self._turn is None else max(turn, self._turn)
        by_node = _by_node(faults)
        for each in range(first, turn + 1):
            tick, number = divmod(each, count)
            moment = Moment(
                origin=self._origin,
                elapsed_seconds=each / count * tick_seconds,
                tick=tick,
                spool_oldest_seconds=spool_oldest_seconds,
                spool_bytes=spool_bytes // count,
            )
            felt = [f for name in self._beside[number] for f in by_node.get(name, ())]
            lines = self._sensors[number].body(moment, felt)
            if lines is not None:
                yield self._senders[number].telemetry([lines], moment.at)

    def events(self, now: datetime, faults: Iterable[InjectedFault]) -> Iterator[Body]:
        """Yield the faults' events; see `FaultReporter.bodies`."""
        return self._faults.bodies(now, faults)

    def _inventory(self, node: Node, now: datetime) -> Inventory:
        return Inventory(
            subject=node.subject,
            at=now,
            boot=self._boot,
            tick_seconds=self._settings.tick_seconds,
            version=__version__,
            gpus=node.gpus,
            ports=node.ports,
            driver=DRIVER,
            driver_state="loaded",
            kernel=KERNEL,
            rack=node.rack,
        )

    def _in_bodies(self, records: Sequence[Record], now: datetime) -> Iterator[Body]:
        for start in range(0, len(records), _RECORDS_PER_BODY):
            # One body carries records of many nodes; the hub does not check the sender of records.
            yield self._senders[0].records(records[start : start + _RECORDS_PER_BODY], now)


def beside(node: Node) -> Sequence[str]:
    """Return the node, and the other nodes with ranks of its jobs."""
    others = {place for slot in node.slots if slot is not None for place, _ in slot.places}
    return list(dict.fromkeys([node.subject.node, *map(node_name, sorted(others))]))


def _runs(cluster: Cluster, origin: datetime, now: datetime) -> list[int]:
    elapsed_seconds = (now - origin).total_seconds()
    return [slot.run(elapsed_seconds) for slot in cluster.slots]


def _held(cluster: Cluster, runs: list[int], origin: datetime) -> dict[str, Allocation]:
    return {
        allocation.id: allocation
        for slot, run in zip(cluster.slots, runs, strict=True)
        for allocation in allocations(cluster, slot, run, origin)
    }


def _by_node(faults: Iterable[InjectedFault]) -> dict[str, list[InjectedFault]]:
    grouped: dict[str, list[InjectedFault]] = defaultdict(list)
    for fault in faults:
        grouped[fault.node].append(fault)
    return grouped


def switches_file(directory: Path, before: Story | None, story: Story) -> Path:
    """Return where the reader of switches keeps what it knows; empty if another cluster was played before."""
    file = directory / _SWITCHES_NAME
    if not story.is_of_cluster(before):
        file.unlink(missing_ok=True)
    return file


class SwitchReporter:
    """A reader of the cluster's switches: leaves, spines and their cables."""

    def __init__(self, cluster: Cluster, boot: str, file: Path | None = None) -> None:
        first = cluster.nodes[0]
        hosts = tuple(node.subject.node for node in cluster.nodes)
        devices = tuple(port.device for port in first.ports if port.role == "fabric")
        names = names_of(len(hosts), len(devices))
        self._cabling = Cabling(
            cluster=first.subject.cluster,
            names=names,
            guids=guids_of(names),
            hosts=hosts,
            devices=devices,
            bits_per_second=FABRIC_BITS_PER_SECOND,
        )
        self._reader = Reader(first.subject.cluster, file)
        self._sender = Sender(cluster=first.subject.cluster, node=READER, boot=boot)
        self._looked: datetime | None = None

    def bodies(self, now: datetime, faults: Sequence[InjectedFault]) -> Iterator[Body]:
        """Yield the news since the last scan, once one is due again."""
        if self._looked is not None and now - self._looked < _LOOKS_APART:
            return
        self._looked = now
        seen = self._cabling.seen(
            odd_ports(self._cabling, faults, now), lost(self._cabling, faults, now)
        )
        counted = with_drops(self._cabling, seen, faults, now)
        records = [switch.to_record() for switch in self._reader.look(counted, now)]
        for start in range(0, len(records), SWITCHES_PER_BODY):
            yield self._sender.records(records[start : start + SWITCHES_PER_BODY], now)


class FaultReporter:
    """Reports what injected faults do at these nodes, as events."""

    def __init__(self, nodes: Iterable[Node], boot: str) -> None:
        self._nodes = {node.subject.node: (node, _sender(node, boot)) for node in nodes}
        self._told: frozenset[str] = frozenset()
        self._began = False

    def bodies(self, now: datetime, faults: Iterable[InjectedFault]) -> Iterator[Body]:
        """Yield what happened since the last call, a body per node; a silent node reports nothing."""
        after = now - (_LOOK_BACK if self._began else _FIRST_LOOK_BACK)
        self._began = True
        told = set()
        for name, of_node in _by_node(faults).items():
            if name not in self._nodes:  # the file belongs to a larger cluster
                continue
            node, sender = self._nodes[name]
            found = [event for fault in of_node for event in events(node, fault, after, now)]
            told |= {event.id for event in found}
            fresh = [event.to_record() for event in found if event.id not in self._told]
            silent = any(f.name == "node-silent" and f.active(now) for f in of_node)
            if fresh and not silent:
                yield sender.records(fresh, now)
        self._told = frozenset(told)


def _sender(node: Node, boot: str) -> Sender:
    return Sender(cluster=node.subject.cluster, node=node.subject.node, boot=boot)
