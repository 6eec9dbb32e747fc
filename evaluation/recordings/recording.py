"""A recording in the form that the analyzer's replay takes: blocks of an hour."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import EPOCH
from gpuvigil.metrics import MEASUREMENTS, NODE, NVLINK
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
from simulator.fleet import Block, Truth

from . import derived, kernel_lines, records
from .files import KERNEL, kinds, raws, without_numbers
from .layout import RECORDS, TELEMETRY
from .problems import BadRecording, Problems
from .telemetry import Measured, measured

HOUR, DELAY = timedelta(hours=1), timedelta(milliseconds=200)
# Blocks begin at whole minutes. A pass soon after the last row reads it; a later pass would only find silence.
_GRID, _LAST_PASS = timedelta(minutes=1), timedelta(seconds=10)
_LAST_WORDS = timedelta(minutes=1)
_USUAL_TICK = 10.0
# A gap of all nodes is longer than this, and than three ticks.
_SHORTEST_GAP = timedelta(minutes=1)
_ANSWERS = "driver_answering"
Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything that was read, checked and sorted by time."""

    tables: Mapping[str, pa.Table]  # by measurement; `node` has a row for each time a node reported
    start: datetime  # whole minutes
    end: datetime
    tick_seconds: float  # the median over nodes
    slowest_seconds: float  # of the measurement with the longest interval
    gaps: tuple[Span, ...]  # without a row of any node
    inventories: tuple[Inventory, ...]
    allocations: tuple[Allocation, ...]
    events: tuple[Event, ...]
    kernel_lines: int
    truths: tuple[Truth, ...] | None  # None: no truth is given
    given: frozenset[str]  # what the recording has, as `gpu.power_watts`, `events`
    notes: tuple[str, ...]

    @property
    def nodes(self) -> tuple[Subject, ...]:
        """All nodes, sorted by name."""
        return tuple(sorted({it.subject for it in self.inventories}))

    @property
    def gpus(self) -> tuple[Subject, ...]:
        """All GPUs, sorted by name."""
        found = {replace(it.subject, gpu=gpu.uuid) for it in self.inventories for gpu in it.gpus}
        return tuple(sorted(found))

    def blocks(self) -> Iterator[Block]:
        """Yield the whole recording in blocks of an hour."""
        start = self.start
        while start < self.end:
            end = min(start + HOUR, self.end)
            tables = {name: _between(table, start, end) for name, table in self.tables.items()}
            told = tuple(it for it in self.events if start <= it.at < end)
            yield Block(
                start=start,
                end=end,
                tables=tables,
                arrivals={
                    name: pc.add(it["at"].combine_chunks(), pa.scalar(DELAY))
                    for name, it in tables.items()
                },
                events=told,
                event_arrivals=tuple(kernel_lines.arrival(event) for event in told),
                inventories=tuple(it for it in self.inventories if start <= it.at < end),
                allocations=tuple(self._told(start, end)),
            )
            start = end

    def _told(self, start: datetime, end: datetime) -> Iterator[Allocation]:
        """Yield each allocation when it began, as far as it was known then, and when it ended."""
        for one in self.allocations:
            if start <= max(one.started_at, self.start) < end:
                yield replace(one, ended_at=None, exit_code=None)
            if one.ended_at is not None and start <= one.ended_at < end:
                yield one


def read(directory: Path, causes: frozenset[str], zone: ZoneInfo | None = None) -> Recording:
    """Read the recording in a directory; BadRecording names everything that is wrong with it.

    `causes` are what a truth may name; `zone` applies to times without one.
    """
    problems = Problems()
    paths = kinds(directory, problems)
    given = {kind: list(raws(kind, them, problems)) for kind, them in paths.items()}
    found = {
        kind: one
        for kind in TELEMETRY
        if (one := measured(kind, given.get(kind, []), problems, zone)) is not None
    }
    problems.check()
    if set(found) <= {NVLINK.name}:
        raise BadRecording("\n".join([*problems.notes, without_numbers(directory, paths)]))
    logs = sorted(it for it in (directory / KERNEL).glob("*.log"))
    logs += [it for it in [directory / "kernel.log"] if it.exists()]
    return _Reader(directory, problems, zone, causes).assembled(found, given, logs)


@dataclass(frozen=True, slots=True)
class _Reader:
    directory: Path
    problems: Problems
    zone: ZoneInfo | None
    causes: frozenset[str]

    def assembled(
        self,
        found: Mapping[str, Measured],
        given: Mapping[str, Sequence[Any]],
        logs: Sequence[Path],
    ) -> Recording:
        tables = {kind: one.table for kind, one in found.items() if kind != "nvlink"}
        given_ = _given(tables)
        start, end = _span(tables.values())
        apart = _apart(tables)
        ticks = _ticks(apart)
        if "gpu" in tables:
            links = found.get(NVLINK.name)
            tables["gpu"] = derived.gpu(
                tables["gpu"],
                ticks,
                links and links.table,
                names_holders=bool(given.get("jobs")),
            )
            given_ |= _given({"gpu": tables["gpu"]})
        if "port" in tables:
            tables["port"] = derived.port(tables["port"])
            given_ |= _given({"port": tables["port"]})
        told = records.inventories(self.directory, self.problems)
        inventories = _inventories(found, told, ticks)
        gpus = records.Gpus({it.subject: it.gpus for it in inventories})
        nodes = records.Nodes(sorted({it.subject for it in inventories}))
        rows = {
            kind: records.rows(kind, given.get(kind, []), nodes, self.problems, self.zone)
            for kind in RECORDS
        }
        self.problems.check()
        events = records.events(rows["events"], gpus, self.problems)
        allocations = records.jobs(rows["jobs"], gpus, self.problems)
        forms = kernel_lines.Forms(zone=self.zone, near=start)
        lines = records.kernel(rows["kernel"], logs, nodes, self.problems, forms)
        every = sorted(self._events(events, lines, gpus), key=lambda it: it.at)
        end = _with_last_words(end, every)
        truths = records.truths(rows["truth"], gpus, (start, end), self.causes, self.problems)
        self.problems.check()
        table = _heard(tables, ticks)
        return Recording(
            tables={**tables, "node": table},
            start=start,
            end=end,
            tick_seconds=float(np.median(list(ticks.values()))),
            slowest_seconds=_slowest(apart),
            gaps=_gaps(table, max(_SHORTEST_GAP, timedelta(seconds=3 * max(ticks.values())))),
            inventories=tuple(_as_told(inventories, every)),
            allocations=tuple(allocations),
            events=tuple(every),
            kernel_lines=len(lines),
            truths=tuple(truths) if "truth" in given else None,
            given=frozenset(
                {*given_, *(it for it in RECORDS if rows[it]), *(["kernel"] if lines else [])}
            ),
            notes=tuple(self.problems.notes),
        )

    def _events(
        self,
        told: Sequence[Event],
        lines: Sequence[kernel_lines.Line],
        gpus: records.Gpus,
    ) -> Iterator[Event]:
        nodes = {it.subject.of_node() for it in told} | {line.node for line in lines}
        for node in sorted(nodes):
            yield from kernel_lines.events(
                [line for line in lines if line.node == node],
                gpus.by_node.get(node, ()),
                [event for event in told if event.subject.of_node() == node],
                self.directory,
            )


def _span(tables: Any) -> Span:
    times = [(pc.min(it["at"]).as_py(), pc.max(it["at"]).as_py()) for it in tables]
    first, last = min(it for it, _ in times), max(it for _, it in times)
    return _floor(first), _floor(last + DELAY, _LAST_PASS) + _LAST_PASS


def _with_last_words(end: datetime, events: Iterable[Event]) -> datetime:
    """Return the recording's end, extended to include events soon after its last numbers.

    A machine that dies reports it after its last numbers. A log that continues for long without numbers is not part of
    the recording: the silence of every node would be judged in it.
    """
    heard = (kernel_lines.arrival(event) for event in events if event.at < end + _LAST_WORDS)
    return max([end, *(_floor(at, _LAST_PASS) + _LAST_PASS for at in heard)])


def _floor(at: datetime, grid: timedelta = _GRID) -> datetime:
    return EPOCH + (at - EPOCH) // grid * grid


def _between(table: pa.Table, start: datetime, end: datetime) -> pa.Table:
    inside = pc.and_(pc.greater_equal(table["at"], start), pc.less(table["at"], end))
    return table.filter(inside)


def _apart(tables: Mapping[str, pa.Table]) -> dict[tuple[Subject, str], list[float]]:
    """Return, by node and measurement, the usual interval between rows of each subject, in seconds."""
    apart: dict[tuple[Subject, str], list[float]] = defaultdict(list)
    for kind, table in tables.items():
        tags = [tag for tag in MEASUREMENTS[kind].tags if tag != "model"]
        for row in table.group_by(tags).aggregate([("at", "list")]).to_pylist():
            times = np.unique(np.array([it.timestamp() for it in row["at_list"]]))
            node = Subject(cluster=row["cluster"], node=row["node"])
            apart[node, kind] += [float(np.median(np.diff(times)))] if len(times) > 1 else []
    return apart


def _ticks(apart: Mapping[tuple[Subject, str], Sequence[float]]) -> dict[Subject, float]:
    """Return each node's usual interval between rows of one subject, in seconds."""
    of_nodes: dict[Subject, list[float]] = defaultdict(list)
    for (node, _), them in apart.items():
        of_nodes[node] += them
    return {
        # Scrapes are late by parts of a second.
        node: max(float(round(np.median(them))), 1.0) if them else _USUAL_TICK
        for node, them in of_nodes.items()
    }


def _slowest(apart: Mapping[tuple[Subject, str], Sequence[float]]) -> float:
    """Return the usual interval between rows of the measurement with the longest one, in seconds."""
    of_kinds: dict[str, list[float]] = defaultdict(list)
    for (_, kind), them in apart.items():
        of_kinds[kind] += them
    return max((float(round(np.median(it))) for it in of_kinds.values() if it), default=_USUAL_TICK)


def _inventories(
    found: Mapping[str, Measured], told: Sequence[Inventory], ticks: Mapping[Subject, float]
) -> list[Inventory]:
    """Return the inventories that the recording has, and for other nodes ones made from their numbers."""
    begins = _begins(found)
    own = {it.subject for it in told}
    made = []
    for one in told:
        start = min((at for at, _ in begins.get(one.subject, ())), default=one.at)
        tick = one.tick_seconds or ticks.get(one.subject, _USUAL_TICK)
        made.append(replace(one, at=max(one.at, start), tick_seconds=tick))
    for node, parts in begins.items():
        gpus: list[GpuIdentity] = []
        ports: list[PortIdentity] = []
        for minute in sorted({_floor(at) for at, _ in parts}) if node not in own else ():
            new = [(since, it) for since, it in parts if _floor(since) == minute]
            gpus += [it for _, it in new if isinstance(it, GpuIdentity)]
            ports += [it for _, it in new if isinstance(it, PortIdentity)]
            made.append(
                Inventory(
                    subject=node,
                    # Not before its first row, or it would be silent until then.
                    at=min(since for since, _ in new),
                    boot="recorded",
                    tick_seconds=ticks.get(node, _USUAL_TICK),
                    version=records.RECORDED,
                    gpus=tuple(sorted(gpus, key=records.place)),
                    ports=tuple(ports),
                    driver_state="loaded" if gpus else "no driver",
                )
            )
    return sorted(made, key=lambda it: (it.at, it.subject))


def _as_told(inventories: Iterable[Inventory], events: Iterable[Event]) -> Iterator[Inventory]:
    """Yield inventories that say whether boots are told: that none was, says nothing where none ever is.

    Exporters tell of none, and their inventories have no version of a collector.
    """
    boots = any(event.kind is EventKind.BOOT for event in events)
    for one in inventories:
        yield one if boots or one.version != records.RECORDED else replace(one, version="")


def _begins(
    found: Mapping[str, Measured],
) -> dict[Subject, list[tuple[datetime, GpuIdentity | PortIdentity | None]]]:
    """Return each node's parts, each with the time of its first row."""
    made: dict[Subject, list[tuple[datetime, GpuIdentity | PortIdentity | None]]] = defaultdict(
        list
    )
    for kind, one in found.items():
        values = {"gpu": "index", "port": "up"}.get(kind)
        asked = [("at", "min")]
        if values is not None and values in one.table.column_names:
            asked.append((values, "max"))
        grouped = one.table.group_by(list(MEASUREMENTS[kind].tags)).aggregate(asked)
        for row in grouped.to_pylist():
            node = Subject(cluster=row["cluster"], node=row["node"])
            part = _part(kind, row, one.addresses) if kind in {"gpu", "port"} else None
            made[node].append((row["at_min"], part))
    return made


def _part(
    kind: str, row: Mapping[str, Any], addresses: Mapping[tuple[str, str, str], str]
) -> GpuIdentity | PortIdentity:
    if kind == "port":
        names = {name: row[name] for name in ("device", "port", "kind", "role")}
        # A port that was never up was never in use.
        return PortIdentity(**names, was_up=row.get("up_max", 1) == 1)
    address = addresses.get((row["cluster"], row["node"], row["uuid"]))
    return GpuIdentity(
        uuid=row["uuid"],
        index=row.get("index_max"),
        pci_address=records.same_place(address),
        model=row["model"],
    )


def _heard(tables: Mapping[str, pa.Table], ticks: Mapping[Subject, float]) -> pa.Table:
    """Return the rows of nodes; a node without rows gets one per tick in which its parts have rows.

    A driver that reports GPUs counts as answering, unless the recording states otherwise.
    """
    own = tables.get(NODE.name, latest_schema(NODE, ()).empty_table())
    if _ANSWERS not in own.column_names and "gpu" in tables:
        own = own.append_column(_ANSWERS, pa.array([1] * len(own), pa.int64()))
    named = set(zip(own["cluster"].to_pylist(), own["node"].to_pylist(), strict=True))
    told: dict[tuple[str, str, int], tuple[datetime, int | None]] = {}
    for kind in sorted({"gpu", "port"} & set(tables)):
        rows = tables[kind].group_by(["cluster", "node", "at"]).aggregate([])
        answers = 1 if kind == "gpu" else None
        for row in rows.sort_by("at").to_pylist():
            cluster, node, at = row["cluster"], row["node"], row["at"]
            if (cluster, node) not in named:
                tick = ticks[Subject(cluster=cluster, node=node)]
                bucket = (cluster, node, int(at.timestamp() // tick))
                told.setdefault(bucket, (at, answers))
    if told:
        others = [(cluster, node, *rest) for (cluster, node, _), rest in told.items()]
        columns = [list(column) for column in zip(*others, strict=True)]
        schema = latest_schema(NODE, (_ANSWERS,))
        own = pa.concat_tables([own, pa.table(columns, schema)], promote_options="default")
    fields = [metric.name for metric in NODE.metrics if metric.name in own.column_names]
    schema = latest_schema(NODE, fields)
    return own.select(schema.names).cast(schema).sort_by([("at", "ascending")])


def _gaps(heard: pa.Table, longest: timedelta) -> tuple[Span, ...]:
    """Return the times without a row of any node: nothing was recorded then."""
    times = np.unique(heard["at"].cast(pa.int64()).to_numpy())
    wide = np.flatnonzero(np.diff(times) > longest // timedelta(microseconds=1))
    return tuple(
        (EPOCH + timedelta(microseconds=int(a)), EPOCH + timedelta(microseconds=int(b)))
        for a, b in zip(times[wide], times[wide + 1], strict=True)
    )


def _given(tables: Mapping[str, pa.Table]) -> frozenset[str]:
    """Return what was measured at least once: `gpu`, and each of its fields as `gpu.power_watts`."""
    found = {
        f"{kind}.{name}"
        for kind, table in tables.items()
        for name in table.column_names
        if len(table) > table[name].null_count
    }
    return frozenset({*found, *tables})
