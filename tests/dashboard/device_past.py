"""A node's past of half an hour: with a gap in which it was silent, and a GPU that fell off the bus."""

from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Allocation, Event, EventKind, Holder, Inventory, Severity
from gpuvigil.store.hub import HubStore
from tests.servers import HubProcess

from .scene import gpu, incident, inventory, node, port

TICK = timedelta(seconds=10)
SPAN = timedelta(minutes=30)
GPUS = 3
NODE = node("sim-001")
# When nothing was heard from the node, and what its GPU 1 suffered, after the start.
SILENT = (timedelta(minutes=10), timedelta(minutes=15))
LOST_AT = timedelta(minutes=20)


def write_past(hub: HubProcess, start: datetime) -> None:
    """Half an hour of the node's GPUs, its port and itself, with a gap and a GPU that is lost."""
    client = hub.hub()
    lines = []
    for number in range(SPAN // TICK):
        after = number * TICK
        if not SILENT[0] <= after < SILENT[1]:
            at = to_ns(start + after)
            lines += [
                gpu_line(index, number, at, lost=index == 1 and after >= LOST_AT)
                for index in range(GPUS)
            ]
            lines += [port_line(number, at), node_line(number, at)]
    HubStore(client).write("\n".join(lines).encode())
    lost = replace(
        incident("gpu_lost", gpu(1, NODE), Severity.CRITICAL, label="sim-001 GPU 1"),
        title="GPU fell off the bus",
        state="resolved",
        since=start + LOST_AT,
        resolved_at=start + SPAN - TICK,
    )
    xid = Event(
        kind=EventKind.XID,
        subject=gpu(1, NODE),
        at=start + LOST_AT,
        id="x",
        xid=79,
        message="<b>gone",
    )
    held = Allocation(
        subject=gpu(0, NODE),
        holder=Holder.parse("job 77"),
        user="zoe",
        command="<i>train",
        started_at=start + 2 * TICK,
        ended_at=start + SPAN / 2,
    )
    client.write_records([lost.to_record(), xid.to_record(), held.to_record()])


def known(at: datetime) -> Inventory:
    return inventory(
        NODE,
        GPUS,
        rack="rack-7",
        at=at,
        tick_seconds=10.0,
        ports=(port("mlx5_0", True),),
        driver="580.95.05",
        driver_state="loaded",
    )


def gpu_line(index: int, number: int, at: int, *, lost: bool) -> str:
    tags = {
        "cluster": NODE.cluster,
        "node": NODE.node,
        "uuid": gpu(index, NODE).gpu or "",
        "model": "H100",
    }
    if lost:
        return encode("gpu", tags, {"up": 0, "unmeasured_reason": 3}, at) or ""
    fields = {
        "up": 1,
        "index": index,
        "utilization_percent": 50 + index,
        "compute_processes": 1,
        "power_watts": 400.0 + number,
        "power_limit_watts": 700.0,
        "temperature_celsius": 60,
        "nvlink_receive_bytes": 20_000_000_000 * number,
        "ecc_corrected_errors": 5,
    }
    return encode("gpu", tags, fields, at) or ""


def port_line(number: int, at: int) -> str:
    tags = {"cluster": NODE.cluster, "node": NODE.node, "device": "mlx5_0", "port": "1"}
    tags |= {"kind": "infiniband", "role": "fabric"}
    fields = {"up": 1, "receive_bytes": 10_000_000_000 * number, "receive_errors": number // 100}
    return encode("port", tags, fields, at) or ""


def node_line(number: int, at: int) -> str:
    tags = {"cluster": NODE.cluster, "node": NODE.node}
    fields = {"gpus_expected": 3, "gpus_answering": 3, "load_average": 2.0, "dropped_bodies": 0}
    return encode("node", tags, {**fields, "sweep_seconds": 0.01 + number * 1e-6}, at) or ""
