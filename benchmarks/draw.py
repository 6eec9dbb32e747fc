"""What one refresh of an open page costs the dashboard before Streamlit: reading and drawing.

`python -m benchmarks.draw` prints the median CPU time at 1,000 and 10,000 GPUs. The hub's answers
are made up, in the form in which they arrive: Arrow streams of rows and the JSON of its status.
"""

import json
import statistics
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.spine import say
from dashboard.data.hub_queries import numbers
from dashboard.data.views import fleet_view
from dashboard.fleet import Fleet
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import CELL_FIELDS, gpu_table, node_table, port_table
from gpuvigil.clock import to_text
from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    Allocation,
    GpuIdentity,
    Impact,
    Incident,
    Inventory,
    PortIdentity,
    Severity,
    Subject,
    fingerprint,
    job_holder,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
GPUS, PORTS = 8, 3
TICK_SECONDS, REFRESH_SECONDS = 10.0, 2.0
RUNS = 40


def main() -> None:
    """Measure both sizes."""
    for nodes in (125, 1250):
        hub, fleet, facts = MadeUp(nodes), Fleet(), active(nodes)
        reading, drawing = [], []
        for number in range(RUNS):
            hub.prepare(NOON + timedelta(seconds=REFRESH_SECONDS * number))
            started = time.process_time()
            facts, _ = numbers(hub, facts, CELL_FIELDS)
            read = time.process_time()
            fleet_view(facts, AnalyzerSettings(), facts.now, fleet)
            reading.append(1000 * (read - started))
            drawing.append(1000 * (time.process_time() - read))
        say(
            f"{nodes * GPUS:,} GPUs: reading {statistics.median(reading):.1f} ms,"
            f" drawing {statistics.median(drawing):.1f} ms (CPU, median of {RUNS});"
            f" the first drawing {drawing[0]:.1f} ms"
        )


class MadeUp(Hub):
    """Answers as a hub with that many nodes does."""

    def __init__(self, nodes: int) -> None:
        super().__init__("http://127.0.0.1:1", lambda: "")
        self._nodes = [node_subject(number) for number in range(nodes)]
        self._random = np.random.default_rng(1)
        self._status = b""
        self._streams: dict[str, bytes] = {}

    def prepare(self, now: datetime) -> None:
        """Write what it will say at `now`."""
        told = [
            {
                **tags(node),
                "boot": "2f3c7a9e-5b1d-4c52-9a35-0c8f1f0a7d11",
                "lane": "live",
                "received_at": to_text(sent_at(number, now)),
            }
            for number, node in enumerate(self._nodes)
        ]
        began = to_text(NOON - timedelta(hours=1))
        status = {"now": to_text(now), "started_at": began, "store": {}, "nodes": told}
        self._status = json.dumps(status).encode()
        tables = {"gpu": self._gpus(now), "port": self._ports(now), "node": self._own(now)}
        self._streams = {name: stream(table) for name, table in tables.items()}

    def status(self) -> Mapping[str, Any]:
        """See `Hub.status`."""
        found: Mapping[str, Any] = json.loads(self._status)
        return found

    def telemetry(self, verb: str, question: Mapping[str, Any]) -> bytes:
        """See `Hub.telemetry`."""
        return self._streams[question["measurement"]]

    def _gpus(self, now: datetime) -> pa.Table:
        """The last of every node's GPUs is free, the others work."""
        shape = (len(self._nodes), GPUS)
        used = self._random.integers(0, 101, shape).tolist()
        power = self._random.uniform(90, 700, shape).tolist()
        return gpu_table(
            {
                **tags(node),
                "uuid": uuid(node, index),
                "model": "H100",
                "at": sent_at(number, now),
                "up": 1,
                "index": index,
                "utilization_percent": used[number][index] if index < GPUS - 1 else 0,
                "compute_processes": 1 if index < GPUS - 1 else 0,
                "power_watts": power[number][index],
                "power_limit_watts": 700.0,
                "temperature_celsius": 40 + used[number][index] // 4,
            }
            for number, node in enumerate(self._nodes)
            for index in range(GPUS)
        )

    def _ports(self, now: datetime) -> pa.Table:
        return port_table(
            {
                **tags(node),
                "device": f"mlx5_{device}",
                "port": "1",
                "kind": "infiniband",
                "role": "fabric",
                "at": sent_at(number, now),
                "up": 1,
                "speed_bits_per_second": 400_000_000_000,
            }
            for number, node in enumerate(self._nodes)
            for device in range(PORTS)
        )

    def _own(self, now: datetime) -> pa.Table:
        return node_table(
            {**tags(node), "at": sent_at(number, now)} for number, node in enumerate(self._nodes)
        )


def active(nodes: int) -> Facts:
    """The records of a cluster: every inventory, 1.2 allocations and 0.04 incidents per node."""
    subjects = [node_subject(number) for number in range(nodes)]
    held = [node for number, node in enumerate(subjects) if number % 5 < 3]
    return Facts(
        now=NOON,
        inventories=tuple(inventory(node) for node in subjects),
        allocations=tuple(
            Allocation(
                subject=gpu(node, index),
                holder=job_holder(number // 4),
                user="ann",
                command=None,
                started_at=NOON,
            )
            for number, node in enumerate(held)
            for index in range(2)
        ),
        incidents=tuple(lost(gpu(node, 5)) for node in subjects[::25]),
    )


def inventory(node: Subject) -> Inventory:
    """What one node has."""
    gpus = (
        GpuIdentity(uuid=uuid(node, index), index=index, pci_address=None, model="H100")
        for index in range(GPUS)
    )
    ports = (
        PortIdentity(device=f"mlx5_{n}", port="1", kind="infiniband", role="fabric", was_up=True)
        for n in range(PORTS)
    )
    return Inventory(
        subject=node,
        at=NOON,
        boot="b",
        tick_seconds=TICK_SECONDS,
        version="1",
        gpus=tuple(gpus),
        ports=tuple(ports),
        driver_state="loaded",
    )


def lost(subject: Subject) -> Incident:
    """An incident of a GPU that is gone."""
    mark = fingerprint("gpu_lost", subject)
    return Incident(
        id=f"{mark}-1",
        fingerprint=mark,
        fault="gpu_lost",
        subject=subject,
        severity=Severity.CRITICAL,
        title="GPU fell off the bus",
        since=NOON,
        updated_at=NOON,
        state="open",
        label=subject.node,
        impact=Impact(gpus=1),
        members=(subject.key,),
    )


def node_subject(number: int) -> Subject:
    """One node of the cluster."""
    return Subject(cluster="simulated", node=f"sim-{number + 1:04d}")


def gpu(node: Subject, index: int) -> Subject:
    """One GPU of a node."""
    return Subject(cluster=node.cluster, node=node.node, gpu=uuid(node, index))


def uuid(node: Subject, index: int) -> str:
    """A UUID in NVML's form."""
    return f"GPU-00000000-0000-4000-8000-{node.node[4:]:0>8}{index:04d}"


def tags(node: Subject) -> dict[str, str]:
    """The tags that name a node."""
    return {"cluster": node.cluster, "node": node.node}


def sent_at(number: int, now: datetime) -> datetime:
    """When a node sent last: each once a tick, one after the other."""
    return now - timedelta(seconds=(now.timestamp() + number * 0.1) % TICK_SECONDS)


def stream(table: pa.Table) -> bytes:
    """The table as the hub sends it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


if __name__ == "__main__":
    main()
