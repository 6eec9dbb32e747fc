"""A block of telemetry on the wire: the bodies that collectors would have sent.

A block is one of the simulated fleet's, or anything of the same shape. Nothing here depends on how a
fleet is made: a block brings its own tables.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from collector.spool.batches import Sender
from collector.spool.body import Body
from gpuvigil.clock import EPOCH, to_text
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import Allocation, Event, Inventory, Record

# A body that arrives this much later than its measurement waited in the spool.
_LATE = timedelta(seconds=60)
_MICROSECOND = timedelta(microseconds=1)


class Table(Protocol):
    """Rows by their columns, as in Arrow."""

    def to_pylist(self) -> list[dict[str, Any]]: ...


class Telemetry(Protocol):
    """A block; `arrivals` and `event_arrivals` have when each row and event reaches the hub."""

    @property
    def tables(self) -> Mapping[str, Table]: ...
    @property
    def arrivals(self) -> Mapping[str, Any]: ...
    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def event_arrivals(self) -> Sequence[datetime]: ...
    @property
    def inventories(self) -> Sequence[Inventory]: ...
    @property
    def allocations(self) -> Sequence[Allocation]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """A body and the time at which it reaches the hub."""

    arrival: datetime
    body: Body


@dataclass(frozen=True, slots=True)
class _Key:
    """The rows of one node at one moment that arrive together."""

    node: str
    at: datetime
    arrival: datetime


class Posting:
    """The mail of a whole cluster, block after block; bodies get the numbers that spools would give."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._boots: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
        self._numbers: dict[tuple[str, str, str], int] = defaultdict(int)

    def bodies(self, block: Telemetry) -> list[MemoryBudget]:
        """Return every body of the block, in order of arrival.

        A body that arrives twice carries the same number both times, so that the hub can tell.
        """
        for inventory in block.inventories:
            self._boots[inventory.subject.node].append((inventory.at, inventory.boot))
        found = [*self._telemetry(block), *self._records(block)]
        return sorted(found, key=lambda one: one.arrival)

    def _telemetry(self, block: Telemetry) -> Iterator[MemoryBudget]:
        lines: dict[_Key, list[str]] = defaultdict(list)
        for measurement, table in block.tables.items():
            arrivals = block.arrivals[measurement].to_pylist()
            for row, arrival in zip(table.to_pylist(), arrivals, strict=True):
                line = _line(measurement, row)
                if line is not None:
                    lines[_Key(row["node"], row["at"], arrival)].append(line)
        for key in sorted(lines, key=lambda key: (key.arrival, key.at, key.node)):
            # Copies of a body arrive together, so their lines occur several times.
            unique = list(dict.fromkeys(lines[key]))
            body = self._numbered(key, self._sender(key).telemetry(unique, key.at))
            for _ in range(len(lines[key]) // len(unique)):
                yield MemoryBudget(arrival=key.arrival, body=body)

    def _sender(self, key: _Key) -> Sender:
        boots = [boot for since, boot in self._boots[key.node] if since <= key.at]
        boot = boots[-1] if boots else "boot-0"
        return Sender(cluster=self._cluster, node=key.node, boot=boot)

    def _numbered(self, key: _Key, body: Body) -> Body:
        late = key.arrival - key.at > _LATE
        lane = "backlog" if late else "live"
        place = (key.node, body.headers["Gpuvigil-Boot"], lane)
        self._numbers[place] += 1
        headers = {
            **body.headers,
            "Gpuvigil-Lane": lane,
            "Gpuvigil-Sequence": str(self._numbers[place]),
            "Gpuvigil-Sent-At": to_text(key.arrival if late else key.at),
        }
        return replace(body, headers=headers)

    def _records(self, block: Telemetry) -> Iterator[MemoryBudget]:
        for event, arrival in zip(block.events, block.event_arrivals, strict=True):
            yield self._told(event.subject.node, [event.to_record()], arrival)
        for inventory in block.inventories:
            yield self._told(inventory.subject.node, [inventory.to_record()], inventory.at)
        turns: dict[tuple[datetime, str], list[Record]] = defaultdict(list)
        for allocation in block.allocations:
            at = allocation.ended_at or allocation.started_at
            turns[at, allocation.subject.node].append(allocation.to_record())
        for (at, node), records in turns.items():
            yield self._told(node, records, at)

    def _told(self, node: str, records: Iterable[Record], at: datetime) -> MemoryBudget:
        sender = self._sender(_Key(node, at, at))
        return MemoryBudget(arrival=at, body=sender.records(records, at))


def _line(measurement: str, row: Mapping[str, Any]) -> str | None:
    tags = MEASUREMENTS[measurement].tags
    at_ns = (row["at"] - EPOCH) // _MICROSECOND * 1000
    fields = {name: value for name, value in row.items() if name not in tags and name != "at"}
    return encode(measurement, {name: row[name] for name in tags}, fields, at_ns)
