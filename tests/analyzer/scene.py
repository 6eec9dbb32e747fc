"""A small fleet of samples, and the window that a pass would see of it."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cache
from operator import attrgetter
from typing import Any

import pyarrow as pa

from analyzer.correlation.all_detectors import DETECTORS, Detector, questions
from analyzer.hub_queries import span_of
from analyzer.window.holdings import Holdings
from analyzer.window.rows import Rows
from analyzer.window.window import Need, Span, Window
from gpuvigil.config import AnalyzerSettings, IdleSettings
from gpuvigil.faults import FAULTS
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import (
    Allocation,
    Event,
    EventKind,
    Evidence,
    Finding,
    GpuIdentity,
    Holder,
    Incident,
    Inventory,
    PortIdentity,
    Subject,
    fingerprint,
)
from gpuvigil.store import Function
from gpuvigil.store.schema import aggregate_type, type_of

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TICK = 10.0
SETTINGS = AnalyzerSettings(
    idle_after_seconds=300.0,
    underused_after_seconds=390.0,
    port_flap_window_seconds=200.0,
    port_down_seconds=0.0,
    silent_verdict_seconds=0.0,
    steady_seconds=300.0,
    trend_seconds=300.0,
)

GPU_FIELDS: Mapping[str, Any] = {
    "up": 1,
    "index": 0,
    "utilization_percent": 93,
    "memory_utilization_percent": 40,
    "memory_used_bytes": 8 * 1024**3,
    "compute_processes": 1,
    "clock_event_reasons": 0,
    "sram_threshold_exceeded": 0,
    "remap_failure": 0,
    "remap_pending": 0,
    "remap_banks_none": 0,
    "retired_pages_corrected": 2,
    "retired_pages_uncorrected": 1,
    "retired_pages_pending": 0,
    "ecc_corrected_errors": 7,
    "ecc_uncorrected_errors": 2,
    "ecc_mode": 1,
    "mig_mode": 0,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_replays": 40,
    "pcie_naks_sent": 7,
    "pcie_receive_bytes_per_second": 2e8,
    "nvlink_links_up": 18,
    "nvlink_crc_errors": 3,
    "nvlink_replay_errors": 1,
    "nvlink_recovery_errors": 0,
    "nvlink_receive_bytes": 10**12,
    "fabric_state": 3,
    "temperature_celsius": 60,
    "power_watts": 550.0,
    "power_limit_watts": 700.0,
    "power_limit_default_watts": 700.0,
    "sm_clock_hertz": 1_980_000_000,
    "sm_clock_max_hertz": 1_980_000_000,
    "power_cap_seconds": 12.0,
    "power_brake_seconds": 0.0,
    "hardware_thermal_slowdown_seconds": 0.0,
    "software_thermal_slowdown_seconds": 0.0,
}
PORT_FIELDS: Mapping[str, Any] = {
    "up": 1,
    "physical_state": 5,
    "speed_bits_per_second": 400_000_000_000,
    "link_downed": 3,
    "symbol_errors": 5,
    "receive_errors": 1,
    "transmit_discards": 0,
    "receive_bytes": 10**12,
    "transmit_bytes": 10**12,
    "width_lanes": 4,
    "link_recoveries": 1,
    "local_integrity_errors": 2,
    "transmit_wait_ticks": 10**9,
    "receive_pause_microseconds": 5_000_000,
    "transmit_pause_microseconds": 4_000_000,
    "pause_storms": 1,
    "out_of_buffer": 30,
    "receive_discards": 3,
    "retransmits": 12,
    "ecn_marked_packets": 5,
    "cnp_sent": 5,
    "module_celsius": 55,
    "module_faults": 0,
}
NODE_FIELDS: Mapping[str, Any] = {
    "driver_answering": 1,
    "driver_silent_seconds": 0.0,
    "gpus_answering": 2,
    "gpus_expected": 2,
    "dropped_bodies": 2,
    "spool_writable": 1,
    "memory_errors_corrected": 4,
    "memory_errors_uncorrected": 0,
    "power_supplies_failed": 0,
    "fans_failed": 0,
    "mounts_hung": 0,
    "space_used_share": 0.6,
    "cpu_throttled_milliseconds": 5_000,
    "cpu_throttles": 40,
}


def node(number: int = 1, cluster: str = "c") -> Subject:
    return Subject(cluster=cluster, node=f"node-{number}")


def gpu(number: int = 1, index: int = 0, cluster: str = "c") -> Subject:
    return Subject(cluster=cluster, node=f"node-{number}", gpu=f"GPU-{number}-{index}")


def port(number: int = 1, cluster: str = "c") -> Subject:
    return Subject(cluster=cluster, node=f"node-{number}", device="mlx5_0", port="1")


def event(kind: EventKind, subject: Subject, at: datetime, xid: int | None = None) -> Event:
    identifier = f"{kind.value} {subject.key} {at.isoformat()} {xid}"
    message = "" if xid is None else f"NVRM: Xid: {xid}"
    return Event(kind=kind, subject=subject, at=at, id=identifier, xid=xid, message=message)


def allocation(
    subject: Subject,
    holder: str = "pid 4711",
    user: str | None = "alice",
    started_at: datetime = NOON - timedelta(hours=2),
    ended_at: datetime | None = None,
) -> Allocation:
    return Allocation(
        subject=subject,
        holder=Holder.parse(holder),
        user=user,
        command="train.py",
        started_at=started_at,
        ended_at=ended_at,
    )


def inventory(subject: Subject, gpus: int = 2) -> Inventory:
    number = int(subject.node.rpartition("-")[2])
    return Inventory(
        subject=subject,
        at=NOON - timedelta(days=1),
        boot="b",
        tick_seconds=TICK,
        version="1",
        gpus=tuple(
            GpuIdentity(uuid=f"GPU-{number}-{i}", index=i, pci_address=None, model="H100")
            for i in range(gpus)
        ),
        ports=(
            PortIdentity(device="mlx5_0", port="1", kind="infiniband", role="fabric", was_up=True),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    subject: Subject
    at: datetime
    fields: Mapping[str, Any]


# Samples by measurement and subject, oldest first.
Seen = dict[str, dict[Subject, list[Sample]]]
_at = attrgetter("at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    now: datetime = NOON
    samples: tuple[Sample, ...] = ()
    of_servers: tuple[Sample, ...] = ()  # inference servers' samples, by the GPU that serves
    events: tuple[Event, ...] = ()
    late: frozenset[str] = frozenset()
    inventories: tuple[Inventory, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    heard: Mapping[str, datetime] = field(default_factory=dict)
    listening_since: datetime | None = NOON - timedelta(hours=1)
    clocks: Mapping[str, float] = field(default_factory=dict)
    recent_incidents: tuple[Incident, ...] = ()
    declared: tuple[IdleSettings, ...] = ()
    settings: AnalyzerSettings = SETTINGS

    def with_events(self, *events: Event) -> "Scene":
        return replace(self, events=(*self.events, *events))

    def changed(self, subject: Subject, fields: Mapping[str, Any], seconds: float = 1e9) -> "Scene":
        """Return the scene with other fields in a subject's samples of the last `seconds`; None removes a field.

        An idle GPU also draws little power, unless `fields` gives another value.
        """
        since = self.now - timedelta(seconds=seconds)
        if fields.get("utilization_percent") == 0:
            fields = {"power_watts": 75.0, **fields}

        def change(sample: Sample) -> Sample:
            if sample.subject != subject or sample.at < since:
                return sample
            return replace(sample, fields={**sample.fields, **fields})

        return replace(self, samples=tuple(map(change, self.samples)))

    def rising(self, subject: Subject, field: str, per_second: float) -> "Scene":
        """Return the scene with a subject's counter growing from the first sample on."""
        begin = min((s.at for s in self.samples), default=self.now)

        def rise(sample: Sample) -> Sample:
            if sample.subject != subject:
                return sample
            gained = per_second * (sample.at - begin).total_seconds()
            value = sample.fields[field] + gained
            whole = MEASUREMENTS[subject.kind].metric(field).integer
            return replace(sample, fields={**sample.fields, field: int(value) if whole else value})

        return replace(self, samples=tuple(map(rise, self.samples)))

    def turned(
        self, subject: Subject, field: str, before: float, after: float, seconds: float
    ) -> "Scene":
        """Return the scene with a subject's counter growing by `before` a second, and by `after` in the last `seconds`."""
        begin = min(s.at for s in self.samples)
        turn = self.now - timedelta(seconds=seconds)

        def grow(sample: Sample) -> Sample:
            if sample.subject != subject:
                return sample
            gained = before * (min(sample.at, turn) - begin).total_seconds()
            gained += after * max((sample.at - turn).total_seconds(), 0.0)
            return replace(
                sample, fields={**sample.fields, field: sample.fields[field] + int(gained)}
            )

        return replace(self, samples=tuple(map(grow, self.samples)))

    def without(self, out: Callable[[Sample], bool]) -> "Scene":
        return replace(self, samples=tuple(s for s in self.samples if not out(s)))

    def shifted(self, by: timedelta) -> "Scene":
        return replace(
            self,
            now=self.now + by,
            samples=tuple(replace(s, at=s.at + by) for s in self.samples),
            events=tuple(replace(e, at=e.at + by) for e in self.events),
            allocations=tuple(
                replace(
                    a,
                    started_at=a.started_at + by,
                    ended_at=None if a.ended_at is None else a.ended_at + by,
                )
                for a in self.allocations
            ),
            inventories=tuple(_later(i, by) for i in self.inventories),
            heard={key: at + by for key, at in self.heard.items()},
            listening_since=None if self.listening_since is None else self.listening_since + by,
        )

    def window(self, detectors: Iterable[Detector] = DETECTORS) -> Window:
        """Return the window with what these detectors ask for."""
        seen = self._seen()
        return Window(
            now=self.now,
            settings=self.settings,
            rows={key: self._answer(need, seen) for key, need in questions(detectors).items()},
            events=_grouped(sorted(self.events, key=lambda e: e.at)),
            late=self.late,
            inventories={i.subject.key: i for i in self.inventories},
            allocations=_held(self.allocations),
            holdings=Holdings(self.allocations).by_holder(),
            last_seen=self.heard,
            listening_since=self.listening_since,
            clocks=self.clocks,
            recent_incidents=self.recent_incidents,
            declared=self.declared,
        )

    def rows(self, need: Need) -> Rows:
        """Return the rows that answer one need."""
        return self._answer(need, self._seen())

    def _seen(self) -> Seen:
        """Return the samples before now, which answer all needs."""
        seen: Seen = {}
        for sample in self.samples:
            seen.setdefault(sample.subject.kind, {}).setdefault(sample.subject, []).append(sample)
        for sample in self.of_servers:
            seen.setdefault("inference", {}).setdefault(sample.subject, []).append(sample)
        for subjects in seen.values():
            for subject, samples in subjects.items():
                before = (sample for sample in samples if sample.at < self.now)
                subjects[subject] = sorted(before, key=_at)
        return seen

    def _answer(self, need: Need, seen: Seen) -> Rows:
        start = self.now - span_of(need.span, self.settings)
        rows = []
        for subject, samples in seen.get(need.measurement, {}).items():
            inside = samples[bisect_left(samples, start, key=_at) :]
            if inside:
                rows.append({**_tags(subject), **_row(need, inside)})
        return Rows(pa.Table.from_pylist(rows, schema=_schema(need)))


def _later(one: Inventory, by: timedelta) -> Inventory:
    since = one.driverless_since
    return replace(one, at=one.at + by, driverless_since=since and since + by)


def healthy(
    nodes: int = 2,
    seconds: float = 400.0,
    now: datetime = NOON,
    cluster: str = "c",
    gpus: int = 2,
) -> Scene:
    """Return a fleet of busy GPUs, ports that are up and drivers that answer, with a sample every tick."""
    samples = []
    for step in range(1, int(seconds / TICK) + 1):
        at = now - timedelta(seconds=step * TICK)
        for number in range(1, nodes + 1):
            samples.append(Sample(subject=node(number, cluster), at=at, fields=NODE_FIELDS))
            samples.append(Sample(subject=port(number, cluster), at=at, fields=PORT_FIELDS))
            for index in range(gpus):
                fields = {**GPU_FIELDS, "index": index}
                samples.append(Sample(subject=gpu(number, index, cluster), at=at, fields=fields))
    names = [node(number, cluster) for number in range(1, nodes + 1)]
    return Scene(
        now=now,
        samples=tuple(samples),
        inventories=tuple(inventory(name, gpus) for name in names),
        heard={name.key: now - timedelta(seconds=4) for name in names},
    )


def in_one_job(scene: Scene, gpus: Iterable[Subject], lost: float, seconds: float = 65.0) -> Scene:
    """Put these GPUs in one job, which moves the share `lost` less over NVLink since `seconds` ago."""
    them, rate = frozenset(gpus), 10**9
    begin = min(sample.at for sample in scene.samples)
    turn = scene.now - timedelta(seconds=seconds)

    def moved(sample: Sample) -> Sample:
        if sample.subject not in them:
            return sample
        before = (min(sample.at, turn) - begin).total_seconds()
        after = max((sample.at - turn).total_seconds(), 0.0)
        total = int(rate * (before + (1.0 - lost) * after))
        return replace(sample, fields={**sample.fields, "nvlink_receive_bytes": total})

    return replace(
        scene,
        samples=tuple(map(moved, scene.samples)),
        allocations=(*scene.allocations, *(allocation(gpu, "job 7") for gpu in sorted(them))),
    )


def carrying(scene: Scene, ports: Iterable[Subject], lost: float, seconds: float = 70.0) -> Scene:
    """Run one job over these ports' nodes, with each port carrying the share `lost` less for `seconds`."""
    for one in ports:
        for way in ("receive_bytes", "transmit_bytes"):
            scene = scene.turned(one, way, 1e9, 1e9 * (1.0 - lost), seconds)
    nodes = sorted({one.of_node() for one in ports})
    job = [allocation(replace(at, gpu=f"GPU-{at.node[5:]}-0"), "job 7") for at in nodes]
    return replace(scene, allocations=(*scene.allocations, *job))


def with_port_down(scene: Scene, number: int) -> Scene:
    """Take the node's port down; the node has another one that is up."""
    other = replace(port(number), device="mlx5_1")
    up = [replace(s, subject=other) for s in scene.samples if s.subject == port(number)]
    inventories = tuple(
        replace(i, ports=(*i.ports, replace(i.ports[0], device="mlx5_1")))
        if i.subject == node(number)
        else i
        for i in scene.inventories
    )
    scene = replace(scene, samples=(*scene.samples, *up), inventories=inventories)
    scene = scene.changed(port(number), {"up": 0, "physical_state": 2}, 25)
    down = event(EventKind.PORT_DOWN, port(number), scene.now - timedelta(seconds=25))
    return scene.with_events(down)


def incident(
    fault: str, subject: Subject, since: timedelta = -timedelta(minutes=1), **more: Any
) -> Incident:
    return Incident(
        id=f"{fault}-1",
        fingerprint=fingerprint(fault, subject),
        fault=fault,
        subject=subject,
        severity=FAULTS[fault].severity,
        state="open",
        title=FAULTS[fault].title,
        since=NOON + since,
        updated_at=NOON,
        **{"label": "node-1 GPU 0", **more},
    )


def told(finding: Finding) -> str:
    """Format a finding as it is read: its severity, and each evidence with its limit and peers."""
    return "; ".join([finding.severity.value, *map(said, finding.evidence)])


def said(item: Evidence) -> str:
    against = [
        *([f"limit {item.limit}"] if item.limit else []),
        *([f"peers {item.peers}"] if item.peers else []),
    ]
    return f"{item.name}: {item.value}" + (f" ({', '.join(against)})" if against else "")


def _tags(subject: Subject) -> dict[str, Any]:
    tags: dict[str, Any] = {"cluster": subject.cluster, "node": subject.node}
    if subject.kind == "gpu":
        return {**tags, "uuid": subject.gpu, "model": "H100"}
    if subject.kind == "port":
        return {
            **tags,
            "device": subject.device,
            "port": subject.port,
            "kind": "infiniband",
            "role": "fabric",
        }
    return tags


def _row(need: Need, samples: Sequence[Sample]) -> dict[str, Any]:
    if need.span is Span.NOW:
        newest = samples[-1]
        return {"at": newest.at, **{name: newest.fields.get(name) for name in need.fields}}
    seen = {
        field: [value for s in samples if (value := s.fields.get(field)) is not None]
        for field in {aggregate.field for aggregate in need.aggregates}
    }
    return {
        "samples": len(samples),
        "first_at": samples[0].at,
        "last_at": samples[-1].at,
        **{a.column: _aggregate(a.function, seen[a.field]) for a in need.aggregates},
    }


_FUNCTIONS: Mapping[Function, Callable[[Sequence[Any]], Any]] = {
    Function.MIN: min,
    Function.MAX: max,
    Function.FIRST: lambda them: them[0],
    Function.LAST: lambda them: them[-1],
    Function.INCREASE: lambda them: max(them) - min(them),
    Function.MEAN: lambda them: sum(them) / len(them),
}


def _aggregate(function: Function, seen: Sequence[Any]) -> Any:
    if function is Function.COUNT:
        return len(seen)
    return _FUNCTIONS[function](seen) if seen else None


@cache
def _schema(need: Need) -> pa.Schema:
    measurement = MEASUREMENTS[need.measurement]
    time = pa.timestamp("us", "UTC")
    columns = [(tag, pa.string()) for tag in measurement.tags]

    if need.span is Span.NOW:
        columns += [("at", time), *((name, type_of(measurement, name)) for name in need.fields)]
    else:
        columns += [("samples", pa.int64()), ("first_at", time), ("last_at", time)]
        columns += [(it.column, aggregate_type(measurement, it)) for it in need.aggregates]
    return pa.schema(columns)


def _grouped(events: Iterable[Event]) -> dict[str, tuple[Event, ...]]:
    nodes: dict[str, list[Event]] = {}
    for one in events:
        nodes.setdefault(one.subject.of_node().key, []).append(one)
    return {key: tuple(them) for key, them in nodes.items()}


def _held(allocations: Iterable[Allocation]) -> dict[str, tuple[Allocation, ...]]:
    gpus: dict[str, list[Allocation]] = {}
    for one in allocations:
        gpus.setdefault(one.subject.key, []).append(one)
    return {key: tuple(them) for key, them in gpus.items()}
