"""Telemetry made by hand: small blocks in the form of the simulated fleet's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    GpuIdentity,
    Inventory,
    PortIdentity,
    Subject,
)
from gpuvigil.store.schema import latest_schema
from simulator.fleet import Block

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TICK = timedelta(seconds=10)
# What a line says that nobody changed.
USUAL: Mapping[str, Mapping[str, Any]] = {
    "gpu": {
        "up": 1,
        "index": 0,
        "utilization_percent": 97,
        "memory_utilization_percent": 40,
        "memory_used_bytes": 60 * 1024**3,
        "compute_processes": 1,
        "clock_event_reasons": 0,
        "power_watts": 600.0,
        "temperature_celsius": 61,
        "sm_clock_hertz": 1_900_000_000,
    },
    "port": {"up": 1, "physical_state": 5, "link_downed": 0, "speed_bits_per_second": 400 * 10**9},
    "node": {"driver_answering": 1, "driver_silent_seconds": 0.0, "gpus_answering": 2},
}
# What a subject's line says at a moment instead; None is no line at all.
Change = Callable[[Subject, datetime], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A fleet of nodes with GPUs and a port each, usual but for the changes."""

    nodes: int = 2
    gpus: int = 2
    change: Change = lambda subject, at: {}
    events: tuple[Event, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    delay: Mapping[str, timedelta] = field(default_factory=dict)  # of a node's bodies
    event_delay: timedelta = timedelta(milliseconds=100)

    def blocks(self, minutes: int, start: datetime = NOON) -> Sequence[Block]:
        """One block for every ten minutes."""
        return [self._block(start + timedelta(minutes=m), start) for m in range(0, minutes, 10)]

    def subjects(self) -> list[Subject]:
        return [it for n in range(self.nodes) for it in (node(n), port(n), *gpus(n, self.gpus))]

    def _block(self, start: datetime, beginning: datetime) -> Block:
        end = start + timedelta(minutes=10)
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in USUAL}
        arrivals: dict[str, list[datetime]] = {name: [] for name in USUAL}
        at = start + timedelta(seconds=3)
        while at < end:
            for subject in self.subjects():
                change = self.change(subject, at)
                if change is None:
                    continue
                rows[subject.kind].append(
                    {**tags(subject), "at": at, **USUAL[subject.kind], **change}
                )
                late = self.delay.get(subject.node, timedelta(milliseconds=200))
                arrivals[subject.kind].append(at + late)
            at += TICK
        events = [e for e in self.events if start <= e.at < end]
        times = {name: pa.array(them, pa.timestamp("us", "UTC")) for name, them in arrivals.items()}
        return Block(
            start=start,
            end=end,
            tables={name: _table(name, them) for name, them in rows.items()},
            arrivals=times,
            events=tuple(events),
            event_arrivals=tuple(e.at + self.event_delay for e in events),
            inventories=tuple(inventory(n, self.gpus) for n in range(self.nodes))
            if start == beginning
            else (),
            allocations=tuple(
                it for it in self.allocations if start <= (it.ended_at or it.started_at) < end
            ),
        )


def node(number: int) -> Subject:
    return Subject(cluster="c", node=f"n{number}")


def gpu(number: int, index: int = 0) -> Subject:
    return Subject(cluster="c", node=f"n{number}", gpu=f"G{number}-{index}")


def gpus(number: int, count: int) -> list[Subject]:
    return [gpu(number, index) for index in range(count)]


def port(number: int) -> Subject:
    return Subject(cluster="c", node=f"n{number}", device="mlx5_0", port="1")


def tags(subject: Subject) -> dict[str, str | None]:
    named = {"cluster": subject.cluster, "node": subject.node}
    if subject.kind == "gpu":
        return {**named, "uuid": subject.gpu, "model": "H100"}
    if subject.kind == "port":
        role = {"kind": "infiniband", "role": "fabric"}
        return {**named, "device": subject.device, "port": subject.port, **role}
    return dict(named)


def event(kind: EventKind, subject: Subject, at: datetime, xid: int | None = None) -> Event:
    return Event(kind=kind, subject=subject, at=at, id=f"{kind.value} {subject.key} {at}", xid=xid)


def inventory(number: int, count: int) -> Inventory:
    return Inventory(
        subject=node(number),
        at=NOON,
        boot="b",
        tick_seconds=TICK.total_seconds(),
        version="1",
        gpus=tuple(
            GpuIdentity(uuid=f"G{number}-{i}", index=i, pci_address=None, model="H100")
            for i in range(count)
        ),
        ports=(
            PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric", was_up=True),
        ),
    )


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    measurement = MEASUREMENTS[name]
    known = [it.name for it in measurement.metrics]
    fields = [it for it in known if any(it in row for row in rows)]
    return pa.Table.from_pylist(list(rows), schema=latest_schema(measurement, fields))
