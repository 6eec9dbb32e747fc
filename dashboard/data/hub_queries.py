"""The queries to the hub for every page: the current records and the newest numbers."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import from_text
from gpuvigil.faults import Link, where
from gpuvigil.hub_client import Hub
from gpuvigil.metrics import GPU, NODE, PORT
from gpuvigil.model import AllocationState, RecordKind, Subject
from gpuvigil.model.reporting import silent_after
from gpuvigil.model.selftest_nodes import without_marked
from gpuvigil.store.external import store_of

from ..model.facts import ACTIVE_STATES, Facts, RecordCache
from ..model.newest_rows import NODE_FIELDS, PORT_FIELDS, Row

ALL_FIELDS = tuple(metric.name for metric in GPU.metrics)
# How late a row may arrive after its tick: a commit and a hop.
ARRIVAL = timedelta(seconds=10)
# The most that the hub gives in one answer.
_MOST_RECORDS = 100_000
# The faults whose port's last change is loaded; the book hears of other ports' changes as they come.
PORT_FAULTS = where(lambda row: row.link is not Link.NOTHING)


def load(hub: Hub, *, messages: bool = True) -> RecordCache:
    """Return the current records; with `messages` also each incident's notices, which takes a query each."""
    book = RecordCache()
    book.apply(hub.records(RecordKind.INVENTORY, limit=_MOST_RECORDS))
    held = [AllocationState.HELD]
    book.apply(hub.records(RecordKind.ALLOCATION, states=held, limit=_MOST_RECORDS))
    book.apply(hub.records(RecordKind.PULSE))
    book.apply(hub.records(RecordKind.RETIREMENT, limit=_MOST_RECORDS))
    book.apply(hub.records(RecordKind.SCHEDULER))
    incidents = hub.records(RecordKind.INCIDENT, states=ACTIVE_STATES, limit=_MOST_RECORDS)
    book.apply(incidents)
    told = [
        notice
        for incident in (incidents if messages else ())
        for notice in hub.records(RecordKind.NOTICE, parent=incident.id)
    ]
    # Some notices still wait for a failing receiver though their incident is over.
    due = hub.records(RecordKind.NOTICE, states=["due"], limit=_MOST_RECORDS)
    book.apply([*told, *due])
    for subject in {one.subject for one in incidents if one.body.get("fault") in PORT_FAULTS}:
        book.apply(hub.records(RecordKind.EVENT, subject=subject, limit=10))
    return book


def numbers(
    hub: Hub, facts: Facts, fields: Collection[str], before: Facts | None = None
) -> tuple[Facts, pa.Table]:
    """Return `facts` with the newest rows and the hub's time, and the GPU rows with `fields`.

    The rows of ports and nodes are taken from `before` if it is given.
    """
    status = without_marked(hub.status())
    now = from_text(status["now"])
    slowest = max((one.tick_seconds for one in facts.inventories), default=10.0)
    since = now - silent_after(facts.silent_after_seconds, slowest) - ARRIVAL
    store = store_of(hub)
    gpus = store.latest(GPU.name, fields, since)
    ports = store.latest(PORT.name, PORT_FIELDS, since) if before is None else before.ports
    nodes = store.latest(NODE.name, NODE_FIELDS, since) if before is None else before.nodes
    oldest = status["store"].get("oldest_at")
    found = replace(
        facts,
        now=now,
        gpus=gpus,
        ports=ports,
        nodes=nodes,
        last_seen=_last_seen(status),
        listening_since=from_text(status["started_at"]),
        clocks=clocks(status),
        oldest_at=None if oldest is None else from_text(oldest),
    )
    return found, gpus


def row_of(gpus: pa.Table, subject: Subject) -> Row | None:
    """Return the row of one GPU; None if there is none."""
    named = (("cluster", subject.cluster), ("node", subject.node), ("uuid", subject.gpu))
    rows = gpus
    for name, value in named:
        rows = rows.filter(pc.equal(rows.column(name), pa.scalar(value, pa.string())))
    found: list[Row] = rows.to_pylist()
    return found[0] if found else None


def clocks(status: Mapping[str, Any]) -> dict[tuple[str, str], tuple[float, str]]:
    """Return by node how many seconds its clock is ahead of the hub's, and what the hub does about it."""
    told = [*status["nodes"], *({**it, "clock": "wrong"} for it in status.get("wrong_clocks", ()))]
    return {
        (node["cluster"], node["node"]): (node["offset_seconds"], node["clock"])
        for node in told
        if node.get("clock") is not None and node.get("offset_seconds") is not None
    }


def _last_seen(status: Mapping[str, Any]) -> dict[tuple[str, str], datetime]:
    """Return when each node was last heard live: what it had buffered says nothing about now."""
    heard: dict[tuple[str, str], datetime] = {}
    for node in status["nodes"]:
        live_at = node.get("live_at", node["received_at"])  # not every store tells lanes apart
        if live_at is not None:
            key, at = (node["cluster"], node["node"]), from_text(live_at)
            heard[key] = max(heard.get(key, at), at)
    return heard
