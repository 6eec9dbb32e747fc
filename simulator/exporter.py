"""One `/metrics` page for all simulated nodes, as their collectors would show it.

The page is made from what the nodes send, when it is requested: a node that sends nothing is missing.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from collector.agent.exporter import exposition
from collector.rows.catalogue_rows import Row
from collector.rows.info_rows import Page
from collector.spool.body import RECORDS_PATH, Body
from collector.spool.queue import Spool
from gpuvigil.clock import Clock, from_ns
from gpuvigil.lineprotocol import parse
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import Event, GpuIdentity, Inventory, Record, RecordKind, Subject

# Older data was not read in the last ticks: a scrape of such a node would have failed.
FRESH_TICKS, _LEAST_FRESH = 5, timedelta(seconds=5)


class Nodes:
    """The last body of every node; one thread adds bodies, others request the page."""

    def __init__(self, clock: Clock, tick_seconds: float) -> None:
        self._clock = clock
        self._fresh = max(timedelta(seconds=FRESH_TICKS * tick_seconds), _LEAST_FRESH)
        self._lock = threading.Lock()
        self._bodies: dict[Subject, Body] = {}
        self._pages: dict[Subject, Page] = {}
        self._gpus: defaultdict[Subject, dict[str, GpuIdentity]] = defaultdict(dict)
        self._drivers: dict[Subject, str | None] = {}

    def take(self, body: Body) -> None:
        """Take a body on its way to the hub."""
        with self._lock:
            if body.path == RECORDS_PATH:
                self._take_records(body.content)
                return
            headers = body.headers
            node = Subject(cluster=headers["Gpuvigil-Cluster"], node=headers["Gpuvigil-Node"])
            before = self._bodies.get(node)
            if before is None or before.at <= body.at:
                self._bodies[node] = body

    def text(self) -> str:
        """Return the page of all nodes that were read recently."""
        now = self._clock.now()
        with self._lock:
            rows = [
                row
                for node, body in sorted(self._bodies.items(), key=lambda it: it[0])
                if now - body.at <= self._fresh
                for row in self._page(node).rows(
                    list(_rows(body)), self._drivers.get(node), body.at
                )
            ]
        return exposition(rows).decode()

    def _page(self, node: Subject) -> Page:
        if node not in self._pages:
            self._pages[node] = Page(node, self._gpus[node], links=False, calls=False)
        return self._pages[node]

    def _take_records(self, content: bytes) -> None:
        for line in content.decode().splitlines():
            record = Record.from_json(json.loads(line))
            if record.kind is RecordKind.EVENT:
                event = Event.from_record(record)
                self._page(event.subject.of_node()).count([event])
            elif record.kind is RecordKind.INVENTORY:
                said = Inventory.from_record(record)
                node = said.subject
                self._gpus[node].update((gpu.uuid, gpu) for gpu in said.gpus)
                self._drivers[node] = said.driver


def _rows(body: Body) -> Iterator[Row]:
    for line in parse(body.content).lines:
        measurement = MEASUREMENTS[line.measurement]
        fields: Mapping[str, float | int] = {
            name: value for name, value in line.fields if isinstance(value, int | float)
        }
        at: datetime = body.at if line.at_ns is None else from_ns(line.at_ns)
        yield Row(measurement=measurement, tags=dict(line.tags), fields=fields, at=at)


class ShownSpool(Spool):
    """A spool whose newest bodies are shown on the page as well."""

    def __init__(self, directory: Path, limit_bytes: int, shown: Nodes) -> None:
        super().__init__(directory, limit_bytes)
        self._shown = shown

    def put(self, body: Body) -> None:
        self._shown.take(body)
        super().put(body)
