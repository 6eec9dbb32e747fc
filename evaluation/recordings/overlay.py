"""Faults laid over recorded numbers: the values that sensors would have read, in place of those they did read.

Each fault changes the rows of one GPU, or of its whole node, from its start to its end, and adds the events that
come with it. Names, severity and advice are those of the simulated fleet's kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.metrics import GPU
from gpuvigil.model import Event, EventKind, Subject, Unmeasured
from gpuvigil.store.schema import latest_schema
from simulator.fleet import Truth
from simulator.fleet.kinds import KINDS

from ..judge.claims import Claim
from ..judge.matching import Outcome, judge
from ..tables import Numbers
from .play import played
from .problems import BadRecording
from .recording import Recording

# A recording needs some time before a fault, and some time with it.
SHORTEST, _LONGEST_FAULT = timedelta(minutes=20), timedelta(hours=2)
_TAGS = ("cluster", "node", "uuid", "model", "at")
# nvmlClocksEventReasonHwSlowdown, ...HwThermalSlowdown and ...HwPowerBrakeSlowdown.
_HW_SLOWDOWN, _HW_THERMAL, _HW_POWER_BRAKE = 0x8, 0x40, 0x80


@dataclass(slots=True)
class Sheet:
    """The rows of a recording as writable columns; NaN stands for not measured."""

    columns: dict[str, Numbers]
    chosen: Numbers  # rows that the fault changes
    seconds: Numbers  # since the fault began
    kept: Numbers  # rows that reached the hub
    codes: list[tuple[EventKind, int | None]] = field(default_factory=list)

    def put(self, name: str, value: float) -> None:
        """Set a value in every chosen row."""
        self._column(name)[self.chosen] = value

    def scale(self, name: str, factor: float) -> None:
        """Multiply the chosen rows by a factor, where they were measured."""
        if name in self.columns:
            self.columns[name][self.chosen] *= factor

    def grow(self, name: str, per_second: float) -> None:
        """Let a counter grow; one that was not recorded starts at 0."""
        column = self._column(name, 0.0)
        column[self.chosen] += np.floor(per_second * self.seconds[self.chosen])

    def bits(self, mask: int) -> None:
        """Add reasons that keep the clocks down."""
        column = self._column("clock_event_reasons", 0.0)
        whole = np.nan_to_num(column[self.chosen]).astype(np.int64)
        column[self.chosen] = whole | mask

    def silent(self, reason: Unmeasured) -> None:
        """Remove all values of the chosen rows, and set the reason why they are missing."""
        for name, column in self.columns.items():
            if name != "index":
                column[self.chosen] = np.nan
        self.put("unmeasured_reason", float(reason))
        self._column("unmeasured_seconds")[self.chosen] = self.seconds[self.chosen]

    def _column(self, name: str, otherwise: float = np.nan) -> Numbers:
        return self.columns.setdefault(name, np.full(len(self.chosen), otherwise))


def _off_the_bus(sheet: Sheet, size: float) -> None:
    sheet.silent(Unmeasured.LOST)
    sheet.put("up", 0.0)
    sheet.codes += [(EventKind.XID, 79), (EventKind.GPU_LOST, None)]


def _gsp_hang(sheet: Sheet, size: float) -> None:
    sheet.silent(Unmeasured.DRIVER_NOT_ANSWERING)
    sheet.codes.append((EventKind.XID, 119))


def _uncontained(sheet: Sheet, size: float) -> None:
    sheet.grow("ecc_uncorrected_errors", 0.0)
    sheet.columns["ecc_uncorrected_errors"][sheet.chosen] += 1.0
    sheet.codes.append((EventKind.XID, 95))


def _storm(sheet: Sheet, size: float) -> None:
    sheet.grow("ecc_corrected_errors", size)


def _brake(sheet: Sheet, size: float) -> None:
    sheet.bits(_HW_SLOWDOWN | _HW_POWER_BRAKE)
    sheet.scale("sm_clock_hertz", 0.5)
    sheet.scale("power_watts", 0.6)
    sheet.grow("power_brake_seconds", 1.0)


def _hot(sheet: Sheet, size: float) -> None:
    sheet.bits(_HW_SLOWDOWN | _HW_THERMAL)
    sheet.put("temperature_celsius", 90.0)
    sheet.scale("sm_clock_hertz", 0.5)
    sheet.scale("power_watts", 0.6)
    sheet.grow("hardware_thermal_slowdown_seconds", 1.0)


def _stuck(sheet: Sheet, size: float) -> None:
    sheet.scale("sm_clock_hertz", size)
    sheet.scale("power_watts", 0.3 + 0.7 * size)


def _hung(sheet: Sheet, size: float) -> None:
    sheet.put("utilization_percent", 100.0)
    sheet.scale("power_watts", 0.4)


def _replays(sheet: Sheet, size: float) -> None:
    sheet.grow("pcie_replays", size / 60.0)


def _crc(sheet: Sheet, size: float) -> None:
    sheet.grow("nvlink_crc_errors", size)


def _dead(sheet: Sheet, size: float) -> None:
    sheet.kept &= ~sheet.chosen


OVERLAYS: Mapping[str, Callable[[Sheet, float], None]] = {
    "off the bus": _off_the_bus,
    "GSP hang": _gsp_hang,
    "ECC uncontained": _uncontained,
    "SBE storm": _storm,
    "power brake": _brake,
    "HW thermal": _hot,
    "stuck clocks": _stuck,
    "hung process": _hung,
    "PCIe replays": _replays,
    "NVLink CRC": _crc,
    "dead collector": _dead,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault to lay over a recording."""

    kind: str
    gpu: Subject
    start: datetime
    end: datetime
    magnitude: float | None = None

    def truth(self) -> Truth:
        """Return the truth about this fault, for the judge."""
        known = KINDS[self.kind]
        whole = known.target == "node"
        return Truth(
            id=f"{self.kind} {self.gpu.key}",
            fault=self.kind,
            subject=self.gpu.of_node() if whole else self.gpu,
            start=self.start,
            end=self.end,
            detectable_from=self.start,
            cause=known.cause,
            symptoms=known.symptoms,
            severity=known.severity,
            action=known.action,
            magnitude=self.magnitude,
            unit=known.unit,
        )


def injections(recording: Recording, kinds: Sequence[str], seed: int) -> list[Injection]:
    """Return one injection of each kind, at a random place after the first quarter of the recording.

    BadRecording is raised when the recording is too short, or has no GPU.
    """
    chance, span = Random(seed), recording.end - recording.start
    if span < SHORTEST or not recording.gpus:
        minutes = span.total_seconds() / 60.0
        raise BadRecording(
            f"an overlay needs {SHORTEST.seconds // 60} min of GPUs; the recording has"
            f" {len(recording.gpus)} GPUs over {minutes:.0f} min"
        )
    found = []
    for kind in kinds:
        start = recording.start + span * chance.uniform(0.25, 0.5)
        sizes = KINDS[kind].sizes
        size = sizes[0] * (sizes[-1] / sizes[0]) ** chance.random() if sizes else None
        found.append(
            Injection(
                kind=kind,
                gpu=chance.choice(recording.gpus),
                start=start,
                end=start + min(span * 0.4, _LONGEST_FAULT),
                magnitude=size,
            )
        )
    return found


def with_fault(recording: Recording, injection: Injection) -> Recording:
    """Return the recording with one fault in it; rows that show its node was reporting follow from its GPUs."""
    table, events = lay(recording.tables["gpu"], injection)
    tables = {**recording.tables, "gpu": table}
    if injection.kind == "dead collector":
        at = recording.tables["node"]["at"]
        inside = pc.and_(
            pc.greater_equal(at, injection.start), pc.less(at, injection.end)
        ).to_numpy()
        gone = of_subject(recording.tables["node"], injection.gpu.of_node()) & inside
        tables["node"] = recording.tables["node"].filter(pa.array(~gone))
    told = sorted([*recording.events, *events], key=lambda event: event.at)
    return replace(recording, tables=tables, events=tuple(told))


def held_against(recording: Recording, injection: Injection, before: Sequence[Claim]) -> Outcome:
    """Return the outcome of an injected fault; claims that the recording raises anyway have not found it."""
    known = {(claim.fault, claim.subject, claim.opened_at) for claim in before}
    after = played(with_fault(recording, injection))
    new = [claim for claim in after if (claim.fault, claim.subject, claim.opened_at) not in known]
    (outcome,), _ = judge([injection.truth()], new)
    return outcome


def lay(table: pa.Table, injection: Injection) -> tuple[pa.Table, tuple[Event, ...]]:
    """Return the table with the fault in it, and the events that come with it."""
    at = table["at"].to_numpy()
    begin = np.datetime64(injection.start.replace(tzinfo=None), "us")
    end = np.datetime64(injection.end.replace(tzinfo=None), "us")
    fields = [name for name in table.column_names if name not in _TAGS]
    sheet = Sheet(
        columns={name: _floats(table[name]) for name in fields},
        chosen=of_subject(table, injection.truth().subject) & (at >= begin) & (at < end),
        seconds=(at - begin) / np.timedelta64(1, "s"),
        kept=np.ones(len(table), bool),
    )
    OVERLAYS[injection.kind](sheet, injection.magnitude or 0.0)
    events = tuple(
        Event(
            kind=kind,
            subject=injection.gpu,
            at=injection.start + timedelta(milliseconds=number),
            id=f"injected {injection.kind} {number}",
            xid=code,
            message="" if code is None else f"NVRM: Xid: {code} (injected)",
        )
        for number, (kind, code) in enumerate(sheet.codes)
    )
    return _table(table, sheet).filter(pa.array(sheet.kept)), events


def of_subject(table: pa.Table, subject: Subject) -> Numbers:
    """Return which rows are of a node, or of one of its GPUs: without UUIDs, GPUs are numbered by node."""
    here = pc.equal(table["node"], subject.node)
    if subject.gpu is not None:
        here = pc.and_(here, pc.equal(table["uuid"], subject.gpu))
    mask: Numbers = here.to_numpy()
    return mask


def _table(table: pa.Table, sheet: Sheet) -> pa.Table:
    names = [metric.name for metric in GPU.metrics if metric.name in sheet.columns]
    schema = latest_schema(GPU, names)
    arrays = [table[tag] for tag in schema.names if tag in _TAGS]
    for name in names:
        missing = np.isnan(sheet.columns[name])
        values = np.where(missing, 0.0, sheet.columns[name])
        whole = GPU.metric(name).integer
        arrays.append(
            pa.array(np.round(values).astype(np.int64) if whole else values, mask=missing)
        )
    return pa.Table.from_arrays(arrays, schema=schema)


def _floats(column: pa.ChunkedArray) -> Numbers:
    values: Numbers = column.cast(pa.float64()).to_numpy().copy()
    return values
