"""Facts for tests: a small fleet at noon."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from dashboard.model.facts import Facts
from dashboard.model.newest_rows import Row, gpu_table
from gpuvigil.clock import to_text
from gpuvigil.model import (
    Allocation,
    GpuIdentity,
    Holder,
    Impact,
    Incident,
    Inventory,
    PortIdentity,
    Record,
    RecordKind,
    Severity,
    Subject,
    fingerprint,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TICK = 1.0
LONG_AGO = NOON - timedelta(seconds=60)


def node(name: str = "sim-001", cluster: str = "simulated") -> Subject:
    return Subject(cluster=cluster, node=name)


def gpu(index: int, of: Subject | None = None) -> Subject:
    of = of or node()
    return Subject(cluster=of.cluster, node=of.node, gpu=f"GPU-{of.cluster}-{of.node}-{index}")


def row(subject: Subject, index: int | None = 0, at: datetime = NOON, **values: Any) -> Row:
    """A healthy GPU's row with `values` over it; a value of None is not measured."""
    healthy = {
        "up": 1,
        "unmeasured_reason": None,
        "index": index,
        "utilization_percent": 90,
        "compute_processes": 1,
        "power_watts": 500.0,
        "power_limit_watts": 700.0,
        "temperature_celsius": 60,
    }
    tags = {"cluster": subject.cluster, "node": subject.node, "uuid": subject.gpu, "model": "H100"}
    return {**tags, "at": at, **healthy, **values}


def inventory(of: Subject, gpus: int = 8, rack: str | None = None, **values: Any) -> Inventory:
    identities = tuple(
        GpuIdentity(uuid=gpu(i, of).gpu or "", index=i, pci_address=None, model="H100")
        for i in range(gpus)
    )
    given: dict[str, Any] = {
        "boot": "b",
        "tick_seconds": TICK,
        "version": "1",
        "at": NOON,
        **values,
    }
    return Inventory(subject=of, gpus=identities, rack=rack, **given)


def port(device: str, was_up: bool) -> PortIdentity:
    return PortIdentity(device=device, port="1", kind="ethernet", role="management", was_up=was_up)


def port_row(of: Subject, device: str, up: int | None, at: datetime = NOON) -> Row:
    return {
        "cluster": of.cluster,
        "node": of.node,
        "device": device,
        "port": "1",
        "kind": "ethernet",
        "role": "management",
        "at": at,
        "up": up,
        "speed_bits_per_second": 10_000_000_000,
    }


def allocation(subject: Subject, holder: str = "pid 7", user: str | None = "ann") -> Allocation:
    return Allocation(
        subject=subject,
        holder=Holder.parse(holder),
        user=user,
        command="python",
        started_at=LONG_AGO,
    )


def incident(
    fault: str, subject: Subject, severity: Severity, gpus: int = 1, **values: Any
) -> Incident:
    mark = fingerprint(fault, subject)
    given: dict[str, Any] = {"since": LONG_AGO, "state": "open", "label": subject.node, **values}
    return Incident(
        id=f"{mark}-1",
        fingerprint=mark,
        fault=fault,
        subject=subject,
        severity=severity,
        title=fault,
        updated_at=NOON,
        impact=Impact(gpus=gpus),
        members=(subject.key,),
        **given,
    )


def notice(about: Incident, at: datetime = NOON, **body: Any) -> Record:
    given = {"channel": "ops", "state": "sent", "reason": "first", "sent_at": to_text(at), **body}
    return Record(
        kind=RecordKind.NOTICE,
        id=f"{about.id}:{given['channel']}:{at.timestamp()}",
        at=at,
        subject=about.subject.key,
        parent=about.id,
        body=given,
    )


def pulses(at: datetime = NOON) -> tuple[Record, ...]:
    return tuple(
        Record(kind=RecordKind.PULSE, id=name, at=at, subject=name)
        for name in ("analyzer", "alerts")
    )


def heard(nodes: Iterable[Subject], at: datetime = NOON) -> dict[tuple[str, str], datetime]:
    return {(one.cluster, one.node): at for one in nodes}


def busy_fleet(nodes: Sequence[Subject], gpus: int = 8) -> Facts:
    """Every node reports and every GPU is busy."""
    return Facts(
        now=NOON,
        gpus=gpu_table(row(gpu(i, one), i) for one in nodes for i in range(gpus)),
        last_seen=heard(nodes),
        inventories=tuple(inventory(one, gpus) for one in nodes),
        pulses=pulses(),
    )
