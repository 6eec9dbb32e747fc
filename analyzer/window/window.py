"""The input of detectors: one frozen view of the fleet at one moment."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

from gpuvigil.config import AnalyzerSettings, IdleSettings
from gpuvigil.model import (
    Allocation,
    Ended,
    Event,
    EventKind,
    Incident,
    Inventory,
    Subject,
    Switch,
)
from gpuvigil.model.equipment import Equipment
from gpuvigil.store import Aggregate

from .absences import Absence
from .driver_since import DriverSince
from .holdings import Holding
from .index import Numbers
from .out_of_service import NOBODY, Away
from .rows import Row, Rows
from .usual import Usual

# A node whose tick is not known yet sends at the collector's default.
DEFAULT_TICK_SECONDS = 10.0


class Span(Enum):
    """How far back a detector looks."""

    NOW = "the newest line of each subject"
    RECENT = "window_seconds"
    IDLE = "idle_after_seconds"
    UNDERUSED = "underused_after_seconds"
    FLAP = "port_flap_window_seconds"
    STEADY = "steady_seconds"
    TREND = "trend_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a detector reads from one measurement.

    With `Span.NOW` these are the fields of the newest line, else the aggregates over the span.
    """

    measurement: str
    span: Span
    fields: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()


Key = tuple[str, Span]
Value = TypeVar("Value")
Asked = TypeVar("Asked")
_EMPTY = Rows(pa.table({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The fleet as a pass sees it. Mappings by node or subject use `Subject.key`."""

    now: datetime
    settings: AnalyzerSettings
    rows: Mapping[Key, Rows] = field(default_factory=dict)
    # By node, oldest first; without cured events older than a day.
    events: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    late: Collection[str] = frozenset()  # ids of events that arrived late
    came: Mapping[str, datetime] = field(
        default_factory=dict
    )  # when young events came, by their id
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    drivers: Mapping[str, DriverSince] = field(default_factory=dict)  # by node
    switches: Mapping[str, Switch] = field(default_factory=dict)  # of fabrics that are read
    # By node or rack, what powers and cools it, if the site's Prometheus is asked.
    equipment: Mapping[str, Equipment] = field(default_factory=dict)
    # By GPU, recently ended ones included.
    allocations: Mapping[str, tuple[Allocation, ...]] = field(default_factory=dict)
    holdings: Mapping[str, Holding] = field(default_factory=dict)  # by `holder_key`
    # By node: how many seconds a clock that the hub calls wrong is ahead of the hub's.
    clocks: Mapping[str, float] = field(default_factory=dict)
    # Active incidents and those over in the last hours: work they stopped may resume only later.
    recent_incidents: tuple[Incident, ...] = ()
    # Holders that wait for work on purpose, as the site declares.
    declared: tuple[IdleSettings, ...] = ()
    # When a body of the node last reached the hub, by the hub's clock turned into ours.
    last_seen: Mapping[str, datetime] = field(default_factory=dict)
    # By node: the second longest recent gap between its bodies, where it had more than one; see `Waits`.
    usual_gap_seconds: Mapping[str, float] = field(default_factory=dict)
    # By node: when it was away in the last days and came back by itself.
    absences: Mapping[str, tuple[Absence, ...]] = field(default_factory=dict)
    # How far GPUs were beyond their peers, as earlier passes saw it.
    usual: Mapping[str, Usual] = field(default_factory=dict, repr=False, compare=False)
    # Since when the hub would have heard a node; earlier silence is the hub's own.
    listening_since: datetime | None = None
    # Which nodes are out of service on purpose; detectors treat them like any other.
    away: Away = NOBODY
    # By node that is not expected any more: who retired it and when, in words.
    retired: Mapping[str, Ended] = field(default_factory=dict)
    # The view of all nodes, if this one was cut down to a single node.
    whole: "Window | None" = field(default=None, repr=False, compare=False)
    # The cache of `once`; a copy with other contents begins with an empty one.
    _worked_out: dict[object, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def active_incidents(self) -> tuple[Incident, ...]:
        """The recent incidents that are not over."""
        return tuple(it for it in self.recent_incidents if it.resolved_at is None)

    def once(self, of: Callable[["Window", Asked], Value], asked: Asked) -> Value:
        """Return `of(self, asked)`, computed once and cached; `of` is a module-level function."""
        key = of, asked
        if key not in self._worked_out:
            self._worked_out[key] = of(self, asked)
        found: Value = self._worked_out[key]
        return found

    def get(self, measurement: str, span: Span) -> Rows:
        """Return the answer to a `Need`, without rows when nothing was asked or nothing came."""
        return self.rows.get((measurement, span), _EMPTY)

    def has(self, subject: Subject) -> bool:
        """Tell whether the node still has the GPU or port; without an inventory it has any."""
        inventory = self.inventories.get(subject.of_node().key)
        if inventory is None or subject.kind == "node":
            return True
        if subject.kind == "gpu":
            return any(gpu.uuid == subject.gpu for gpu in inventory.gpus)
        return any((p.device, p.port) == (subject.device, subject.port) for p in inventory.ports)

    def newest(self, subject: Subject) -> Row | None:
        """Return the newest line of a subject, None when it has none within the recent span."""
        return self.get(subject.kind, Span.NOW).get(subject)

    def node_events(self, node: Subject, *kinds: EventKind) -> Iterator[Event]:
        """Yield a node's events of these kinds, with its GPUs' and ports', oldest first."""
        return (e for e in self.events.get(node.key, ()) if e.kind in kinds)

    def all_events(self, *kinds: EventKind) -> Iterator[Event]:
        """Yield all events of these kinds, oldest first within a node."""
        for events in self.events.values():
            yield from (event for event in events if event.kind in kinds)

    def tick_seconds(self, node: Subject) -> float:
        """Return the interval at which the node sends numbers, in seconds."""
        return _tick_seconds(node, self.inventories.get(node.key))

    def ticks(self, rows: Rows) -> Numbers:
        """Return for each row the interval at which its node sends numbers, in seconds."""
        return self.of_inventories(rows, _tick_seconds)

    def of_inventories(
        self, rows: Rows, of: Callable[[Subject, Inventory | None], float]
    ) -> Numbers:
        """Return a number for each row from its node's inventory.

        `of` must be a pure module-level function; it is called again only if an inventory changed.
        """
        return rows.index.facts(of, self.inventories, by_node=True)

    def of_allocations(
        self, rows: Rows, of: Callable[[Subject, tuple[Allocation, ...] | None], float]
    ) -> Numbers:
        """Return a number for each GPU's row from its allocations; see `of_inventories`."""
        return rows.index.facts(of, self.allocations)

    def held(self, gpu: Subject) -> tuple[Allocation, ...]:
        """Return the allocations that hold a GPU now."""
        return tuple(a for a in self.allocations.get(gpu.key, ()) if a.ended_at is None)

    def came_late(self, events: Iterable[Event]) -> bool:
        """Tell whether there are events and each of them arrived late."""
        seen = list(events)
        return bool(seen) and all(event.id in self.late for event in seen)

    def of_node(self, node: Subject) -> "Window":
        """Return the same moment with this node alone. Allocations stay: a job spans nodes."""

        def only(values: Mapping[str, Value]) -> dict[str, Value]:
            return {node.key: values[node.key]} if node.key in values else {}

        return replace(
            self,
            whole=self.whole or self,
            rows={key: rows.of_node(node) for key, rows in self.rows.items()},
            events=only(self.events),
            inventories=only(self.inventories),
            switches={},
            equipment={},
            last_seen=only(self.last_seen),
            clocks=only(self.clocks),
        )


def _tick_seconds(_: Subject, inventory: Inventory | None) -> float:
    return DEFAULT_TICK_SECONDS if inventory is None else inventory.tick_seconds
