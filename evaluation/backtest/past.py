"""The past that a hub keeps, in blocks for `evaluation.replay`.

No longer known are: when a line or an event arrived (it is assumed to have come at once), what an
inventory said before it last changed, and what schedulers reported about nodes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from accounting.usage.allocations import MOST_RECORDS, held_since
from analyzer.correlation.all_detectors import DETECTORS, questions
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import MEASUREMENTS, Measurement
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    UNREADABLE,
    Allocation,
    Event,
    Inventory,
    Record,
    RecordKind,
    Subject,
)
from gpuvigil.store import Store
from gpuvigil.store.schema import latest_schema
from simulator.fleet import Block

# The lines of a thousand GPUs at ten seconds fit into one answer.
BLOCK = timedelta(minutes=30)
# Shorter than any tick, so that a step has one line and its mean is the line's value.
_STEP = timedelta(seconds=1)

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The hub's records of a span, beside its lines."""

    start: datetime
    end: datetime
    events: tuple[Event, ...]  # oldest first
    inventories: tuple[Inventory, ...]
    allocations: tuple[Allocation, ...]
    unreadable: int  # records written by another version
    cut: bool  # whether the hub has more records than it returns


def past(hub: Hub, start: datetime, end: datetime) -> Past:
    """Return the records of a span; only the newest where there are too many."""
    told = hub.records(RecordKind.EVENT, since=start, until=end, limit=MOST_RECORDS)
    nodes = hub.records(RecordKind.INVENTORY, limit=MOST_RECORDS)
    held = [one for one in held_since(hub, None, start) if one.at < end]
    unreadable: list[str] = []
    allocations = _all(Allocation.from_record, held, unreadable)
    return Past(
        start=start,
        end=end,
        events=tuple(sorted(_all(Event.from_record, told, unreadable), key=lambda it: it.at)),
        inventories=tuple(_all(Inventory.from_record, nodes, unreadable)),
        allocations=tuple(it for it in allocations if it.ended_at is None or it.ended_at > start),
        unreadable=len(unreadable),
        cut=max(map(len, (told, nodes, held))) >= MOST_RECORDS,
    )


def blocks(store: Store, past: Past) -> Iterator[Block]:
    """Yield the whole past, one block after the other."""
    start, unheard = past.start, {it.subject.key: it for it in past.inventories}
    while start < past.end:
        end = min(start + BLOCK, past.end)
        tables = {
            name: lines(store, name, fields, (start, end), {}) for name, fields in _FIELDS.items()
        }
        events = tuple(event for event in past.events if start <= event.at < end)
        yield Block(
            start=start,
            end=end,
            tables=tables,
            arrivals={name: it["at"].combine_chunks() for name, it in tables.items()},
            events=events,
            event_arrivals=tuple(event.at for event in events),
            # A node without any line so far is not silent.
            inventories=tuple(
                replace(unheard.pop(key), at=at)
                for key, at in _first_heard(tables["node"])
                if key in unheard
            ),
            allocations=tuple(_told(past, start, end)),
        )
        start = end


def _fields() -> Mapping[str, Sequence[str]]:
    """Return, by measurement, the fields that any detector asks for."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for (measurement, _), need in questions(DETECTORS).items():
        wanted[measurement] |= {*need.fields, *(it.field for it in need.aggregates)}
    return {name: sorted(fields) for name, fields in sorted(wanted.items())}


def _told(past: Past, start: datetime, end: datetime) -> Iterator[Allocation]:
    """Yield each allocation when it began, as far as it was known then, and when it ended."""
    for one in past.allocations:
        began = max(one.started_at, past.start)
        if start <= began < end:
            yield replace(one, ended_at=None, exit_code=None)
        if one.ended_at is not None and start <= one.ended_at < end:
            yield one


def _first_heard(lines: pa.Table) -> Iterator[tuple[str, datetime]]:
    """Yield each node with the time of its first line."""
    named = lines.group_by(["cluster", "node"]).aggregate([("at", "min")])
    for row in named.sort_by([("cluster", "ascending"), ("node", "ascending")]).to_pylist():
        yield Subject(cluster=row["cluster"], node=row["node"]).key, row["at_min"]


def lines(
    store: Store,
    name: str,
    fields: Sequence[str],
    span: tuple[datetime, datetime],
    where: Mapping[str, str],
) -> pa.Table:
    """Return the lines of a measurement as they were measured, without those of a selftest."""
    measurement = MEASUREMENTS[name]
    found = store.series(name, fields, where, span, _STEP)
    found = found.filter(pc.not_equal(found["cluster"], SELFTEST_CLUSTER))
    late = pc.multiply(found["offset_seconds"], 1e6)
    late = pc.round(late).cast(pa.int64()).cast(pa.duration("us"))
    columns = {tag: found[tag] for tag in measurement.tags}
    columns["at"] = pc.add(found["at"], late)
    columns |= {field: _whole(found[field], measurement, field) for field in fields}
    table = pa.table(columns)
    return table.cast(latest_schema(measurement, fields))


def _whole(values: pa.ChunkedArray, measurement: Measurement, field: str) -> pa.ChunkedArray:
    """Return the mean of one whole number as a whole number."""
    if not measurement.metric(field).integer:
        return values
    return pc.round(values).cast(pa.int64(), safe=False)


def _all(
    read: Callable[[Record], _Read], records: Sequence[Record], unreadable: list[str]
) -> list[_Read]:
    """Return the readable records, without the selftest's."""
    found = []
    for record in records:
        if record.marked:
            continue
        try:
            found.append(read(record))
        except UNREADABLE:
            unreadable.append(record.id)
    return found


_FIELDS = _fields()
