"""The queries for the pipeline page: what the hub, the collectors and the services report of themselves."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from gpuvigil.clock import from_text
from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import NODE
from gpuvigil.model import SELFTEST_CLUSTER, Inventory, Record, RecordKind, Retirement, readable
from gpuvigil.model.selftest_nodes import without_marked
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.external import store_of
from gpuvigil.store.hub import HubStore

# The span of coverage and increases; a node that is silent for longer has no row.
WINDOW = timedelta(minutes=15)
FIELDS = (
    "driver_answering",
    "driver_silent_seconds",
    "reader_restarts",
    "sweep_seconds",
    "spool_bytes",
    "spool_oldest_seconds",
    "spool_writable",
    "dropped_bodies",
    "load_average",
)
INCREASES = ("reader_restarts", "dropped_bodies", "cpu_milliseconds")
_AGGREGATES = [Aggregate(function=Function.INCREASE, field=name) for name in INCREASES]
_MOST_NODES = 100_000
# The most pending messages, and the most of those that were given up.
_MOST_DUE, _MOST_DEAD = 2_000, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The pipeline at one moment, as the hub reports it."""

    now: datetime  # the hub's clock
    status: Mapping[str, Any]
    nodes: tuple[Mapping[str, Any], ...]  # newest rows of measurement `node` in the window
    spans: tuple[Mapping[str, Any], ...]  # of the window: samples, first_at, last_at, increases
    pulses: tuple[Record, ...]
    notices: tuple[Record, ...]  # due and dead
    inventories: tuple[Inventory, ...]
    retirements: tuple[Retirement, ...] = ()
    silent_after_seconds: float = AnalyzerSettings().silent_after_seconds
    elsewhere: bool = False  # whether numbers are in the store of [store], not in the hub's own


def read(hub: Hub, inventories: tuple[Inventory, ...], silent_after_seconds: float) -> Sources:
    """Read everything in seven queries; `inventories` are passed in, as they are large and change rarely."""
    status = without_marked(hub.status())
    now = from_text(status["now"])
    store = store_of(hub)
    return Sources(
        now=now,
        status=status,
        nodes=_unmarked(store.latest(NODE.name, FIELDS, now - WINDOW)),
        spans=_unmarked(store.window(NODE.name, _AGGREGATES, now - WINDOW, now)),
        pulses=hub.records(RecordKind.PULSE),
        notices=(
            *hub.records(RecordKind.NOTICE, states=["due"], limit=_MOST_DUE),
            *hub.records(RecordKind.NOTICE, states=["dead"], limit=_MOST_DEAD),
        ),
        inventories=inventories,
        retirements=tuple(
            readable(hub.records(RecordKind.RETIREMENT, limit=_MOST_NODES), Retirement.from_record)
        ),
        silent_after_seconds=silent_after_seconds,
        elsewhere=is_elsewhere(hub),
    )


def is_elsewhere(hub: Hub) -> bool:
    """Return whether numbers are in a store beside the hub."""
    return not isinstance(store_of(hub), HubStore)


def _unmarked(rows: pa.Table) -> tuple[Mapping[str, Any], ...]:
    """Return the rows without the selftest's."""
    return tuple(row for row in rows.to_pylist() if row["cluster"] != SELFTEST_CLUSTER)


def inventories(hub: Hub) -> tuple[Inventory, ...]:
    """Return the inventory of every node, without the selftest's."""
    records = hub.records(RecordKind.INVENTORY, limit=_MOST_NODES)
    found = readable(records, Inventory.from_record)
    return tuple(one for one in found if not one.subject.marked)


def token_list(hub: Hub) -> tuple[Mapping[str, Any], ...]:
    """Return what may be shown of each token that the hub has issued."""
    return tuple(hub.tokens()["tokens"])
