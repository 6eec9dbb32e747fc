"""The hub's status: for people, for probes, for Prometheus."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpuvigil import __version__
from gpuvigil.clock import Clock, from_ns, to_text
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError

from ..bodies.deduplication import Arrival, Node
from ..embedded import DroppedLines, Embedded
from ..http.limits import FairQueue, SharedRun
from ..http.responses import failure
from ..records import BackupJob, RecordBook
from ..telemetry.clocks import Clocks
from ..telemetry.committer import Committer
from ..telemetry.counters import Counters

# The oldest row is looked up no more often than this.
OLDEST_SECONDS = 60.0

# Shorter than the timeout that probes usually have.
_READY_SECONDS = 4


class Status:
    """The status endpoints of one hub."""

    def __init__(  # noqa: PLR0913 - the parts of a hub
        self,
        store: Embedded,
        book: RecordBook,
        committer: Committer,
        counters: Counters,
        settings: HubSettings,
        clock: Clock,
        *,
        backups: BackupJob | None,
    ) -> None:
        self._backups = backups
        self._store = store
        self._book = book
        self._committer = committer
        self._counters = counters
        self._settings = settings
        self._clock = clock
        self._started_at = clock.now()
        self._oldest_at: datetime | None = None
        self._oldest_read_at = -OLDEST_SECONDS
        self._reading = FairQueue(2)
        # Open to everybody, so many requests at a time cost no more than one.
        self._ready = SharedRun(self._ready_state)
        self._numbers = SharedRun(partial(generate_latest, counters.registry))
        self._checking = "the hub"

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/status", self.status, methods=["GET"]),
            Route("/ping", self.ping, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/healthz", self.alive, methods=["GET"]),
            Route("/readyz", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    async def status(self, request: Request) -> Response:
        async with self._reading.turn(request.state.bearer):
            return await _answered(partial(run_in_threadpool, self._status_json))

    async def ping(self, _request: Request) -> Response:
        return Response(status_code=204)

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"name": "gpuvigil", "status": "pass", "version": __version__})

    async def alive(self, _request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(self, _request: Request) -> Response:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                return await _answered(self._ready)
        except TimeoutError:
            text = f"{self._checking} did not answer within {_READY_SECONDS} s"
            return failure(503, text, 5)

    async def metrics(self, _request: Request) -> Response:
        return Response(await self._numbers(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _ready_state(self) -> str:
        self._checking = "the store of telemetry"
        self._store.ask("SELECT 1")
        self._checking = "the records' database"
        self._book.sequence()
        if self._committer.stopping:
            raise StoreError("the hub stops")
        if self._committer.failing:
            raise StoreError("telemetry cannot be committed; see the hub's log")
        return _json({"status": "ready"})

    def _oldest(self) -> datetime | None:
        """Return the time of the oldest row, cached: it is asked for often and moves slowly."""
        now = self._clock.monotonic()
        if self._oldest_at is None or now - self._oldest_read_at >= OLDEST_SECONDS:
            self._oldest_at, self._oldest_read_at = self._store.oldest(), now
        return self._oldest_at

    def _status_json(self) -> str:
        """Return the status as JSON, written node by node: thousands at once block all threads."""
        clocks, seen = self._committer.clocks, self._committer.seen
        live_at = seen.live_at()
        nodes = ",".join(_json(_node(it, live_at, clocks)) for it in seen.nodes())
        return f'{_json(self._describe())[:-1]},"nodes":[{nodes}]}}'

    def _describe(self) -> dict[str, Any]:
        tables, size = self._store.sizes()
        oldest = self._oldest()
        bodies, waiting = self._committer.waiting()
        return {
            "version": __version__,
            "now": to_text(self._clock.now()),
            "sequence": self._book.sequence(),
            "started_at": to_text(self._started_at),
            "store": {
                "rows": sum(tables.values()),
                "bytes": size,
                "recent_bytes": self._store.held_bytes(),
                "tables": tables,
                "oldest_at": None if oldest is None else to_text(oldest),
                "most_bytes": self._settings.store_bytes,
                "dropped": _dropped(self._store.dropped),
                "damaged": [_damaged(row) for row in self._store.damaged()],
            },
            "records": self._kept_records(),
            "wrong_clocks": [
                {"cluster": cluster, "node": node, "offset_seconds": ahead.total_seconds()}
                for (cluster, node), ahead in sorted(self._committer.clocks.wrong().items())
            ],
            "retention": {
                "telemetry_hours": self._settings.telemetry_days * 24.0,
                "rollup_days": self._settings.rollup_days,
                "records_days": self._settings.records_days,
            },
            "queue": {
                "bodies": bodies,
                "bytes": waiting,
                "most_bytes": self._settings.queue_bytes,
            },
            "refused_lines": self._counters.refused_lines,
            "series": {
                "known": self._committer.series.count,
                "most_per_node": self._settings.series_per_node_count,
                "floods": [
                    {
                        "cluster": it.cluster,
                        "node": it.node,
                        "refused_lines": it.lines,
                        "since": to_text(it.since),
                    }
                    for it in self._committer.series.floods()
                ],
            },
        }

    def _kept_records(self) -> dict[str, Any]:
        """Return what is known of the records' backups; nothing where somebody else backs them up."""
        if self._backups is None:
            return {"backup_at": None, "repairs": []}
        newest = self._backups.newest()
        return {
            "backup_at": None if newest is None else to_text(newest.at),
            "repairs": [it.to_json() for it in self._backups.pending()],
        }


async def _answered(work: Callable[[], Awaitable[str]]) -> Response:
    """Answer with the JSON that `work` returns, or 503 when the store fails."""
    try:
        return Response(await work(), media_type="application/json")
    except StoreError as error:
        return failure(503, str(error), 5)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _dropped(dropped: DroppedLines) -> dict[str, Any]:
    until_ns = dropped.until_ns
    return {
        "lines": dropped.lines,
        "until": None if until_ns is None else to_text(from_ns(until_ns)),
    }


def _damaged(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"at": to_text(from_ns(row["at_ns"])), **{k: row[k] for k in row if k != "at_ns"}}


def _node(arrival: Arrival, live_at: Mapping[Node, datetime], clocks: Clocks) -> dict[str, Any]:
    sent_at = arrival.sent_at
    node = (arrival.lane.cluster, arrival.lane.node)
    live = live_at.get(node)
    ahead, state = clocks.offset(node), clocks.state(node)
    if ahead is None and sent_at is not None:
        # No live body has come since the hub started: the last body before is all there is.
        ahead = sent_at - arrival.received_at
    return {
        "cluster": arrival.lane.cluster,
        "node": arrival.lane.node,
        "boot": arrival.lane.boot,
        "lane": arrival.lane.lane,
        "sequence": arrival.last,
        "sent_at": None if sent_at is None else to_text(sent_at),
        "received_at": to_text(arrival.received_at),
        "live_at": None if live is None else to_text(live),
        "offset_seconds": None if ahead is None else ahead.total_seconds(),
        "clock": None if state is None else state.value,
        "version": arrival.version,
    }
