"""The queries to the hub for the page of a node or a GPU: numbers on a grid, and what happened."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from gpuvigil.hub_client import Hub
from gpuvigil.metrics import GPU, NODE, PORT, Measurement
from gpuvigil.model import (
    Allocation,
    AllocationState,
    Event,
    Incident,
    RecordKind,
    Subject,
    readable,
)
from gpuvigil.store.external import store_of

from ..data.annotations import Note, done, notes
from .grid import Floats, Grid, grid, laid
from .window import Window

MOST_EVENTS = 500
MOST_INCIDENTS = 500
MOST_HELD, MOST_ENDED = 5_000, 2_000
# A step so short that every row stays a row of its own.
_LINE_BY_LINE = timedelta(milliseconds=1)

GPU_FIELDS = tuple(metric.name for metric in GPU.metrics if metric.name != "read_seconds")
PORT_FIELDS = tuple(metric.name for metric in PORT.metrics)
NODE_FIELDS = tuple(metric.name for metric in NODE.metrics)

# A field that says how many seconds after its start each step was measured on average.
OFFSETS = "offset_seconds"

Fields = Mapping[str, Floats]
Key = tuple[str, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Means per step of the grid; NaN is not measured."""

    grid: Grid
    gpus: Mapping[str, Fields] = field(default_factory=dict)  # by UUID
    models: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[tuple[str, str], Fields] = field(default_factory=dict)
    kinds: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # kind, role
    node: Fields = field(default_factory=dict)

    def of(self, uuid: str, name: str) -> Floats:
        """Return one field of a GPU; all NaN if the store has none."""
        return self.gpus.get(uuid, {}).get(name, self.nothing)

    @property
    def nothing(self) -> Floats:
        return np.full(self.grid.count, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHistory:
    """Records of a node and its parts that overlap the window, oldest first."""

    events: tuple[Event, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    incidents: tuple[Incident, ...] = ()
    notes: tuple[Note, ...] = ()  # what was done to the node
    cut: tuple[str, ...] = ()  # texts about kinds of records of which not all are read


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceData:
    """The answer to a page's question; `now` is when it was asked."""

    window: Window
    now: datetime
    numbers: Numbers
    history: DeviceHistory


def device_data(
    hub: Hub, node: Subject, window: Window, step: timedelta, now: datetime, *, whole: bool
) -> DeviceData:
    """Return everything about a node's GPUs in the window; `whole`: also about its ports and itself."""
    return DeviceData(
        window=window,
        now=now,
        numbers=numbers(hub, node, window, step, whole=whole),
        history=device_history(hub, node, window),
    )


def numbers(
    hub: Hub, node: Subject, window: Window, step: timedelta, *, whole: bool = False
) -> Numbers:
    """Return the node's numbers; for a GPU that was in another node then, use `moved`."""
    onto = grid(window.start, window.end, step)
    span, store = (onto.start, window.end), store_of(hub)
    where = {"cluster": node.cluster, "node": node.node}
    gpus = store.series(GPU.name, GPU_FIELDS, where, span, step)
    found = _by(gpus, GPU, ("uuid",), GPU_FIELDS, onto)
    ports = store.series(PORT.name, PORT_FIELDS, where, span, step) if whole else None
    host = store.series(NODE.name, NODE_FIELDS, where, span, step) if whole else None
    of_node = {} if host is None else _by(host, NODE, ("node",), NODE_FIELDS, onto)
    return Numbers(
        grid=onto,
        gpus={uuid: fields for (uuid,), fields in found.items()},
        models=dict(zip(gpus["uuid"].to_pylist(), gpus["model"].to_pylist(), strict=True)),
        ports={}
        if ports is None
        else {
            (k[0], k[1]): v
            for k, v in _by(ports, PORT, ("device", "port"), PORT_FIELDS, onto).items()
        },
        kinds={} if ports is None else _kinds(ports),
        node=of_node.get((node.node,), {}),
    )


def of_nodes(
    hub: Hub, nodes: Iterable[Subject], window: Window, step: timedelta, gpu_fields: Sequence[str]
) -> tuple[Numbers, ...]:
    """Return these fields of each node's GPUs, and the node's own numbers, without ports."""
    onto, store = grid(window.start, window.end, step), store_of(hub)
    span, found = (onto.start, window.end), []
    for node in nodes:
        where = {"cluster": node.cluster, "node": node.node}
        gpus = _by(
            store.series(GPU.name, gpu_fields, where, span, step), GPU, ("uuid",), gpu_fields, onto
        )
        host = _by(
            store.series(NODE.name, NODE_FIELDS, where, span, step),
            NODE,
            ("node",),
            NODE_FIELDS,
            onto,
        )
        found.append(
            Numbers(
                grid=onto,
                gpus={uuid: fields for (uuid,), fields in gpus.items()},
                node=host.get((node.node,), {}),
            )
        )
    return tuple(found)


def moved(hub: Hub, gpu: Subject, window: Window, step: timedelta) -> Numbers:
    """Return a GPU's numbers in any node of its cluster, since it may have been moved."""
    onto = grid(window.start, window.end, step)
    where = {"cluster": gpu.cluster, "uuid": gpu.gpu or ""}
    found = store_of(hub).series(GPU.name, GPU_FIELDS, where, (onto.start, window.end), step)
    fields = _by(found, GPU, ("uuid",), GPU_FIELDS, onto)
    return Numbers(
        grid=onto,
        gpus={uuid: values for (uuid,), values in fields.items()},
        models=dict(zip(found["uuid"].to_pylist(), found["model"].to_pylist(), strict=True)),
    )


def newest(hub: Hub, gpu: Subject, since: datetime, until: datetime) -> Mapping[str, Any] | None:
    """Return a GPU's newest row in the range, with every metric and `at`; None without one."""
    where = {"cluster": gpu.cluster, "node": gpu.node, "uuid": gpu.gpu or ""}
    fields = tuple(metric.name for metric in GPU.metrics)
    found = store_of(hub).series(GPU.name, fields, where, (since, until), _LINE_BY_LINE)
    if not found.num_rows:
        return None
    row: Mapping[str, Any] = found.slice(found.num_rows - 1, 1).to_pylist()[0]
    return row


def device_history(hub: Hub, node: Subject, window: Window) -> DeviceHistory:
    """Return the records of the node, its GPUs and its ports in the window."""
    key, start, end = node.key, window.start, window.end
    held, ended = AllocationState.HELD, AllocationState.ENDED
    kind = RecordKind.ALLOCATION
    said = (
        hub.records(RecordKind.EVENT, subject=key, since=start, until=end, limit=MOST_EVENTS),
        hub.records(kind, subject=key, until=end, states=[held], limit=MOST_HELD),
        hub.records(kind, subject=key, until=end, states=[ended], limit=MOST_ENDED),
        hub.records(RecordKind.INCIDENT, subject=key, until=end, limit=MOST_INCIDENTS),
    )
    events = list(readable(said[0], Event.from_record))
    holding, past = (list(readable(records, Allocation.from_record)) for records in said[1:3])
    incidents = list(readable(said[3], Incident.from_record))
    cut = (
        _cut("events", MOST_EVENTS, [one.at for one in events], start),
        _cut("jobs and processes", MOST_ENDED, [one.ended_at for one in past], start),
        _cut("incidents", MOST_INCIDENTS, [one.resolved_at for one in incidents], start),
    )
    return DeviceHistory(
        events=_sorted(events, lambda one: (one.at, one.id)),
        allocations=_sorted(
            (one for one in (*holding, *past) if one.ended_at is None or one.ended_at > start),
            lambda one: (one.started_at, one.id),
        ),
        incidents=_sorted(
            (one for one in incidents if one.resolved_at is None or one.resolved_at > start),
            lambda one: (one.since, one.id),
        ),
        notes=notes(done(hub, node.cluster, start, end, node), start, end, [node]),
        cut=tuple(text for text in cut if text),
    )


def _cut(what: str, most: int, ended: Sequence[datetime | None], start: datetime) -> str:
    """Return a line if the newest `most` do not reach back to the window's start, else ""."""
    reaches = len(ended) < most or (ended[0] is not None and ended[0] <= start)
    return "" if reaches else f"Only the newest {most:,} {what} are shown: the window has more."


def _sorted(values: Iterable[_T], key: Callable[[_T], Any]) -> tuple[_T, ...]:
    return tuple(sorted(values, key=key))


def _by(
    table: pa.Table, of: Measurement, tags: Sequence[str], fields: Sequence[str], onto: Grid
) -> dict[Key, dict[str, Floats]]:
    """Return the table's fields on the grid, by the values of these tags."""
    assert set(tags) <= set(of.tags)
    at = table["at"].cast(pa.int64()).to_numpy()
    names = list(zip(*(table[tag].to_pylist() for tag in tags), strict=True))
    rows: dict[Key, list[int]] = {}
    for number, name in enumerate(names):
        rows.setdefault(name, []).append(number)
    columns = {name: table[name].to_numpy().astype(np.float64) for name in (*fields, OFFSETS)}
    return {
        name: {it: laid(at[mine], values[mine], onto) for it, values in columns.items()}
        for name, mine in ((name, np.array(numbers)) for name, numbers in rows.items())
    }


def _kinds(ports: pa.Table) -> dict[tuple[str, str], tuple[str, str]]:
    columns = (ports[tag].to_pylist() for tag in ("device", "port", "kind", "role"))
    return {(it[0], it[1]): (it[2], it[3]) for it in set(zip(*columns, strict=True))}
