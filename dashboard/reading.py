"""What the hub is asked for: the records that stand, and the newest numbers."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from gpuvigil.clock import from_text
from gpuvigil.hub import Hub
from gpuvigil.metrics import GPU, NODE, PORT
from gpuvigil.model import AllocationState, RecordKind, Subject
from gpuvigil.store.hub import HubStore

from .facts import STANDING_STATES, Book, Facts, Row
from .fleet import ARRIVAL, TICKS_BEFORE_STALE

# What the map and the strip need of every GPU; all other metrics are asked for when one is opened.
CELL_FIELDS = (
    "up",
    "unmeasured_reason",
    "index",
    "utilization_percent",
    "compute_processes",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
)
PORT_FIELDS = ("up", "speed_bits_per_second")
ALL_FIELDS = tuple(metric.name for metric in GPU.metrics)
# The most that the hub gives in one answer.
_MOST_RECORDS = 100_000
# Whose last change is shown; of the others the book hears when they change.
PORT_FAULTS = frozenset({"port_down", "port_flapping"})
NODE_FIELDS = tuple(metric.name for metric in NODE.metrics)[:1]


def load(hub: Hub) -> Book:
    """The records that stand now."""
    book = Book()
    book.apply(hub.records(RecordKind.INVENTORY, limit=_MOST_RECORDS))
    held = [AllocationState.HELD]
    book.apply(hub.records(RecordKind.ALLOCATION, states=held, limit=_MOST_RECORDS))
    book.apply(hub.records(RecordKind.PULSE))
    incidents = hub.records(RecordKind.INCIDENT, states=STANDING_STATES)
    book.apply(incidents)
    for incident in incidents:
        book.apply(hub.records(RecordKind.NOTICE, parent=incident.id))
    # Some wait for a receiver that fails although their incident is over.
    book.apply(hub.records(RecordKind.NOTICE, states=["due"]))
    for subject in {one.subject for one in incidents if one.body.get("fault") in PORT_FAULTS}:
        book.apply(hub.records(RecordKind.EVENT, subject=subject, limit=10))
    return book


def numbers(hub: Hub, facts: Facts, fields: Collection[str]) -> tuple[Facts, pa.Table]:
    """`facts` with the newest rows and the hub's time, and the GPUs' rows with `fields`."""
    status = hub.status()
    now = from_text(status["now"])
    slowest = max((one.tick_seconds for one in facts.inventories), default=10.0)
    since = now - TICKS_BEFORE_STALE * timedelta(seconds=slowest) - 5 * ARRIVAL
    store = HubStore(hub)
    gpus = store.latest(GPU.name, fields, since)
    found = replace(
        facts,
        now=now,
        gpus=_rows(gpus, (*GPU.tags, "at", *CELL_FIELDS)),
        ports=_rows(store.latest(PORT.name, PORT_FIELDS, since)),
        nodes=_rows(store.latest(NODE.name, NODE_FIELDS, since)),
        heard=_heard(status),
    )
    return found, gpus


def row_of(gpus: pa.Table, subject: Subject) -> Row | None:
    """The row of one GPU; None when there is none."""
    for number, uuid in enumerate(gpus.column("uuid").to_pylist()):
        if uuid == subject.gpu:
            row: Row = gpus.slice(number, 1).to_pylist()[0]
            if (row["cluster"], row["node"]) == (subject.cluster, subject.node):
                return row
    return None


def _rows(table: pa.Table, columns: Collection[str] = ()) -> tuple[Row, ...]:
    """The rows as mappings, with times in Python's form."""
    if columns:
        table = table.select(list(columns))
    return tuple(table.to_pylist())


def _heard(status: Mapping[str, Any]) -> dict[tuple[str, str], datetime]:
    heard: dict[tuple[str, str], datetime] = {}
    for node in status["nodes"]:
        if node.get("lane", "live") == "live":
            key = (node["cluster"], node["node"])
            at = from_text(node["received_at"])
            heard[key] = max(heard.get(key, at), at)
    return heard
