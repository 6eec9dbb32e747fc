"""The samples of all holders of idle GPUs, in one query of the store."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from accounting.efficiency.idle_query import (
    ASKED,
    ASKED_OF_SERVERS,
    Excuses,
    Measurements,
    Row,
    excuses,
    with_requests,
)
from accounting.efficiency.idle_reason import Idleness
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, Inventory, Subject, readable
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.external import store_of

from .idle_notice import IdleHolding, reasons

_DEFAULT_TICK_SECONDS = 10.0  # of a node without an inventory, as the detectors have it
_USED = tuple(
    Aggregate(function=function, field="utilization_percent")
    for function in (Function.MEAN, Function.COUNT)
)
# What a holder used is queried in these parts of the last day, each once for all holders, whenever
# they began: nothing is known of the time before the oldest part that is all theirs.
_AGES = tuple(
    timedelta(minutes=one) for one in (0, 15, 30, 60, 90, 120, 180, 240, 360, 480, 720, 960, 1440)
)
_LATELY_SECONDS, _LATELY_TICKS = 120.0, 3.0
_Question = tuple[Sequence[Aggregate], datetime, datetime]


class IdleSamples(ABC):
    """One look: the incidents at a moment, and the measurements of the holders' GPUs until then."""

    def __init__(self, stood: Sequence[Incident], now: datetime) -> None:
        """`stood`: incidents that stand, or that ended within the longest time that is asked about."""
        self.now = now
        self._stood = stood
        self._excuses: dict[timedelta, Excuses] = {}

    @abstractmethod
    def tick_seconds(self, node: Subject) -> float:
        """Return the seconds between two samples of a node."""

    @abstractmethod
    def rows(
        self, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> Mapping[str, Row]:
        """Return the aggregates of the holders' GPUs, by key."""

    @abstractmethod
    def servers(self, start: datetime) -> Sequence[Row]:
        """Return what inference servers reported since `start`."""

    def why(
        self, held: IdleHolding, length: timedelta, below_percent: float
    ) -> dict[str, Idleness]:
        """Return why the holder's idle GPUs were so over the last `length`, by key; see `reasons`."""
        start = self.now - length
        nodes = {gpu.of_node() for gpu in held.gpus if gpu.key in held.idle}
        span = Measurements(
            start=start,
            end=self.now,
            rows=with_requests(self.rows(ASKED, start, self.now), self.servers(start)),
            expected={node.key: length.total_seconds() / self.tick_seconds(node) for node in nodes},
            excuses=self._excused(length),
            below_percent=below_percent,
        )
        return reasons(held, span)

    def _excused(self, length: timedelta) -> Excuses:
        """Return what excuses holders that were idle for `length`."""
        if length not in self._excuses:
            self._excuses[length] = excuses(self._stood, self.now - length)
        return self._excuses[length]

    def used_share(self, held: IdleHolding) -> float | None:
        """Return the share of its GPUs that a holder used in its last day; None if not measured."""
        ages = pairwise(self.now - age for age in _AGES if held.started_at <= self.now - age)
        return used_share(held, [self.rows(_USED, start, end) for end, start in ages])


class StoreIdleSamples(IdleSamples):
    """A look that queries the store, each thing once."""

    def __init__(
        self, hub: Hub, stood: Sequence[Incident], now: datetime, holders: Iterable[IdleHolding]
    ) -> None:
        super().__init__(stood, now)
        self._hub = hub
        gpus = (gpu for held in holders for gpu in held.gpus)
        self._keys = {(gpu.cluster, gpu.node, gpu.gpu): gpu.key for gpu in gpus}
        self._known: dict[_Question, dict[str, Row]] = {}
        self._served: dict[datetime, Sequence[Row]] = {}
        self._ticks: dict[str, float] = {}  # by the node's key

    def tick_seconds(self, node: Subject) -> float:
        """Return the seconds between two samples of a node, as its inventory says."""
        if node.key not in self._ticks:
            record = self._hub.inventory(node)
            known = readable([record] if record else [], Inventory.from_record)
            seconds = next((one.tick_seconds for one in known), 0.0)
            self._ticks[node.key] = seconds or _DEFAULT_TICK_SECONDS
        return self._ticks[node.key]

    def rows(
        self, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> dict[str, Row]:
        """Return the aggregates of the holders' GPUs, by key."""
        asked = (aggregates, start, end)
        if asked not in self._known:
            found = store_of(self._hub).window("gpu", aggregates, start, end).to_pylist()
            tags = [(row["cluster"], row["node"], row["uuid"]) for row in found]
            self._known[asked] = {
                self._keys[tag]: row
                for tag, row in zip(tags, found, strict=True)
                if tag in self._keys
            }
        return self._known[asked]

    def servers(self, start: datetime) -> Sequence[Row]:
        """Return what inference servers reported since `start`; nothing without any in the store."""
        if start not in self._served:
            found = store_of(self._hub).window("inference", ASKED_OF_SERVERS, start, self.now)
            self._served[start] = found.to_pylist()
        return self._served[start]

    def seen_lately(self, held: IdleHolding, length: timedelta) -> bool:
        """Return whether each GPU of the holder was measured until now, but for a few ticks."""
        rows = self.rows(ASKED, self.now - length, self.now)
        return all(
            gpu.key in rows
            and (self.now - rows[gpu.key]["last_at"]).total_seconds()
            <= max(_LATELY_SECONDS, _LATELY_TICKS * self.tick_seconds(gpu.of_node()))
            for gpu in held.gpus
        )


def used_share(held: IdleHolding, parts: Iterable[Mapping[str, Row]]) -> float | None:
    """Return the share of its GPUs that a holder used in these parts of its time, or None."""
    mean, count = (one.column for one in _USED)
    mine = [rows[one.key] for rows in parts for one in held.gpus if one.key in rows]
    known = [(row[mean], row[count]) for row in mine if row[mean] is not None]
    samples = sum(many for _, many in known)
    return sum(percent * many for percent, many in known) / samples / 100.0 if samples else None
