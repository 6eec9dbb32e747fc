"""Fleets that tests play, and what they look at."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from simulator.fleet import Block, Fleet, FleetSettings, build

QUIET = FleetSettings(seed=11, nodes=10, days=0.25, nodes_per_rack=2, life=False)
TICK_SECONDS = 60.0


def with_settings(**changes: Any) -> FleetSettings:
    return replace(QUIET, **changes)


@cache
def planned(settings: FleetSettings) -> Fleet:
    return build(settings)


# The last few only: a fleet has many numbers.
@lru_cache(maxsize=4)
def played(settings: FleetSettings, tick_seconds: float = TICK_SECONDS) -> tuple[Block, ...]:
    return tuple(planned(settings).blocks(tick_seconds=tick_seconds))


def whole(blocks: Iterable[Block], measurement: str = "gpu") -> pa.Table:
    """All rows, with the tags as plain text."""
    tables = [block.tables[measurement] for block in blocks]
    table = pa.concat_tables(tables, promote_options="default")
    columns = {
        name: table[name].cast(pa.string())
        if pa.types.is_dictionary(table[name].type)
        else table[name]
        for name in table.column_names
    }
    return pa.table(columns)


def grid(fleet: Fleet, blocks: Iterable[Block], field: str) -> Any:
    """[ticks x GPUs] of a field of a fleet in which no sample is lost."""
    values = whole(blocks)[field].to_numpy(zero_copy_only=False).astype(np.float64)
    return values.reshape(-1, fleet.plan.topology.gpus)


def digest(blocks: Iterable[Block]) -> str:
    """A hash of everything that blocks hold, cut into blocks as they may be."""
    hasher = hashlib.sha256()
    kept = tuple(blocks)
    for measurement in ("gpu", "port", "node", "nvlink"):
        table = whole(kept, measurement)
        for name in sorted(table.column_names):
            _hash(hasher, name, table[name].combine_chunks())
        arrivals = pa.chunked_array([block.arrivals[measurement] for block in kept])
        _hash(hasher, "arrivals", arrivals.combine_chunks())
    for block in kept:
        records = [one.to_record() for one in block.events]
        records += [one.to_record() for one in block.inventories]
        records += [one.to_record() for one in block.allocations]
        for record in records:
            hasher.update(repr(record.to_json()).encode())
        for arrival in block.event_arrivals:
            hasher.update(arrival.isoformat().encode())
    return hasher.hexdigest()


def _hash(hasher: Any, name: str, column: Any) -> None:
    hasher.update(name.encode())
    if pa.types.is_string(column.type):
        hasher.update("\n".join(column.to_pylist()).encode())
        return
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    hasher.update(nulls.tobytes())
    hasher.update(column.fill_null(0).to_numpy(zero_copy_only=False).astype("<f8").tobytes())
