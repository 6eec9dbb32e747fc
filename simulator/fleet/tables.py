"""From numbers to Arrow tables in the columns of the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gpuvigil.metrics import MEASUREMENTS

from .delivery import Delivered
from .links import LinkRows, dictionary
from .topology import LINKS, Index, Topology

# The rows that an extra scan is made of come at most this much later.
_NEXT_SECONDS = 30.0
_TIME = pa.timestamp("us", "UTC")


class Shape:
    """The tags of one measurement's subjects, made once."""

    def __init__(self, measurement: str, topology: Topology) -> None:
        self.measurement = measurement
        self.node = _nodes_of(measurement, topology)
        self.per_node = len(self.node) // topology.nodes
        self._tags = _tags(measurement, topology)

    def tags(self, rows: "Rows") -> dict[str, pa.Array]:
        """Return the tag columns of these rows."""
        return {
            name: pa.DictionaryArray.from_arrays(pa.array(rows.of(index)), pa.array(values))
            for name, (index, values) in self._tags.items()
        }


def _nodes_of(measurement: str, topology: Topology) -> Index:
    if measurement == "gpu":
        return topology.gpu_node
    return topology.port_node if measurement == "port" else np.arange(topology.nodes)


def _tags(measurement: str, topology: Topology) -> dict[str, tuple[Index, list[str]]]:
    nodes = _nodes_of(measurement, topology).astype(np.int32)
    tags: dict[str, tuple[Any, list[str]]] = {
        "cluster": (np.zeros(len(nodes), dtype=np.int32), [topology.settings.cluster]),
        "node": (nodes, [place.name for place in topology.places]),
    }
    if measurement == "gpu":
        models = list(dict.fromkeys(place.model.name for place in topology.places))
        by_node = np.array([models.index(p.model.name) for p in topology.places], dtype=np.int32)
        tags["uuid"] = (np.arange(topology.gpus, dtype=np.int32), topology.uuids)
        tags["model"] = (by_node[nodes], models)
    if measurement == "port":
        slot = np.tile(np.arange(topology.ports_per_node, dtype=np.int32), topology.nodes)
        for name in ("device", "port", "kind", "role"):
            values = [str(getattr(port, name)) for port in topology.port_identities()]
            unique = list(dict.fromkeys(values))
            which = np.array([unique.index(value) for value in values], dtype=np.int32)
            tags[name] = (which[slot], unique)
    return tags


class Rows:
    """The rows of [ticks x things] that exist, and how often; most exist for whole nodes."""

    def __init__(self, copies: Index, per_node: int) -> None:
        self._size = copies.shape
        self._per_node = per_node
        self._all = bool((copies == 1).all())
        self.count = int(copies.sum())
        by_node = copies.reshape(-1, per_node)
        self._whole = bool((by_node == by_node[:, :1]).all())
        if self._whole:
            times = by_node[:, 0]
            self._chosen = np.repeat(np.arange(len(times), dtype=np.int64), times)
            twice = np.flatnonzero(times == 2)
            self._twice = twice, np.cumsum(times)[twice] - 2
        else:
            self._chosen = np.repeat(np.arange(copies.size, dtype=np.int64), copies.ravel())

    def of(self, values: Any) -> NDArray[Any]:
        """Return a value for each row, from a scalar, one per thing, or one per tick and thing."""
        array = np.asarray(values)
        if array.ndim == 0:
            return np.full(self.count, array)
        flat = np.broadcast_to(array, self._size).reshape(-1)
        if self._all:
            return flat
        if not self._whole:
            return flat[self._chosen]
        # Copying a node's rows at once is several times faster than row by row.
        nodes = flat.reshape(-1, self._per_node)
        taken = np.take(nodes, self._chosen, axis=0)
        twice, place = self._twice
        if len(twice):
            # Each row of a doubled body is there twice, one after the other.
            doubled = np.repeat(nodes[twice], 2, axis=1).reshape(-1, 2, self._per_node)
            taken[place], taken[place + 1] = doubled[:, 0], doubled[:, 1]
        return taken.reshape(-1)


def table(
    shape: Shape,
    numbers: Mapping[str, Any],
    absent: Mapping[str, NDArray[np.bool_]],
    copies: Index,
    way: Delivered,
    ticks: tuple[datetime, NDArray[np.float64]],
) -> tuple[pa.Table, pa.Array]:
    """Return the rows, and when each arrives.

    `absent[name]` (or `absent[""]`, for every field) is where nothing was measured; `copies` is
    how often each row [ticks x things] is there.
    """
    origin, seconds = ticks
    rows = Rows(copies, shape.per_node)
    epoch = int(origin.timestamp()) * 1_000_000
    at = np.floor(seconds * 1e6 + 0.5).astype(np.int64)[:, None] + way.phase[shape.node]
    at = at + way.clock[:, shape.node] + epoch
    columns: dict[str, pa.Array] = shape.tags(rows)
    columns["at"] = pa.array(rows.of(at)).view(_TIME)
    everywhere = absent.get("")
    for metric in MEASUREMENTS[shape.measurement].metrics:
        if metric.name in numbers:
            hidden = absent.get(metric.name, everywhere)
            column = _column(numbers[metric.name], rows, metric.integer, hidden)
            if column is not None:
                columns[metric.name] = column
    arrival = pa.array(rows.of(way.arrival[:, shape.node] + epoch)).view(_TIME)
    return pa.table(columns), arrival


def _column(
    values: Any, rows: Rows, integer: bool, hidden: NDArray[np.bool_] | None
) -> pa.Array | None:
    """Return a column; None when no row [ticks x things] has a value, lost ones included."""
    kind = np.int64 if integer else np.float64
    array = np.asarray(values)
    mask = hidden
    if array.dtype.kind == "f":
        nothing = np.isnan(array)
        if nothing.any():
            array = np.where(nothing, 0.0, array)
            mask = nothing if mask is None else mask | nothing
    full = rows.of(array.astype(kind, copy=False))
    if mask is None:
        return pa.array(full)
    if bool(mask.all()):
        return None
    return pa.array(full, mask=rows.of(mask))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraScan:
    """An extra scan of a node between its ticks, for ranks that have gone."""

    node: str
    seconds: float  # since the fleet's start
    gone: tuple[str, ...]  # GPUs, by their UUIDs
    gone_seconds: float


_LOOK_WAY = timedelta(seconds=0.6)


def with_a_look(
    rows: pa.Table, arrivals: pa.Array, look: ExtraScan, origin: datetime
) -> tuple[pa.Table, pa.Array]:
    """Return the GPU rows with those of one more scan, which equal the next ones except for the steps' age."""
    at = origin + timedelta(seconds=look.seconds)
    here = pc.and_(
        pc.equal(rows["node"].cast(pa.string()), look.node), pc.greater_equal(rows["at"], at)
    )
    mine = rows.filter(here)
    first = pc.min(mine["at"]).as_py()
    if first is None or (first - at).total_seconds() > _NEXT_SECONDS:
        return rows, arrivals
    mine = mine.filter(pc.equal(mine["at"], pa.scalar(first, _TIME)))
    before = (first - at).total_seconds()
    changed = {"at": pa.array([at] * len(mine), _TIME)}
    for name in ("step_age_seconds", "step_phase_seconds"):
        if name in mine.column_names:
            changed[name] = pc.max_element_wise(pc.subtract(mine[name], before), 0.0)
    if "rank_gone_seconds" in mine.column_names:
        is_gone = pc.is_in(mine["uuid"].cast(pa.string()), pa.array(look.gone))
        changed["rank_gone_seconds"] = pc.if_else(is_gone, look.gone_seconds, None)
    for name, values in changed.items():
        place = mine.column_names.index(name)
        mine = mine.set_column(place, name, values)
    arrived = pa.array([at + _LOOK_WAY] * len(mine), _TIME)
    both = pa.concat_tables([rows, mine.cast(rows.schema)])
    order = pc.sort_indices(both, sort_keys=[("at", "ascending")])
    all_arrivals = pa.concat_arrays([arrivals, arrived])
    return both.take(order), all_arrivals.take(order)


def link_table(
    links: LinkRows,
    topology: Topology,
    copies: Index,
    unread: NDArray[np.bool_] | None,
    way: Delivered,
    ticks: tuple[datetime, NDArray[np.float64]],
) -> tuple[pa.Table, pa.Array]:
    """Return the rows of single NVLinks; `copies` [ticks x GPUs], `unread` where a GPU does not answer."""
    times = copies[links.tick, links.gpu]
    if unread is not None:
        times = np.where(unread[links.tick, links.gpu], 0, times)
    chosen = np.repeat(np.arange(len(links.tick)), times)
    tick, gpu = links.tick[chosen], links.gpu[chosen]
    node = topology.gpu_node[gpu]
    origin, seconds = ticks
    epoch = int(origin.timestamp()) * 1_000_000
    at = np.floor(seconds[tick] * 1e6 + 0.5).astype(np.int64) + way.phase[node] + epoch
    models = list(dict.fromkeys(place.model.name for place in topology.places))
    by_node = np.array([models.index(place.model.name) for place in topology.places])
    columns: dict[str, Any] = {
        "cluster": dictionary(np.zeros_like(tick), [topology.settings.cluster]),
        "node": dictionary(node, [place.name for place in topology.places]),
        "uuid": dictionary(gpu, topology.uuids),
        "model": dictionary(by_node[node], models),
        "link": dictionary(links.link[chosen], [str(link) for link in range(LINKS)]),
        "at": pa.array(at + way.clock[tick, node]).view(_TIME),
    }
    for name, values in links.fields.items():
        columns[name] = pa.array(values[chosen])
    arrival = pa.array(way.arrival[tick, node] + epoch).view(_TIME)
    return pa.table(columns), arrival
