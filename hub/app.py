"""The hub process: open everything, serve until told to stop, close."""

import argparse
import gc
import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import Config, HubSettings
from gpuvigil.config.startup import parser, run_service
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.log import Log
from gpuvigil.store.without_pandas import go_without_pandas
from gpuvigil.web.connections import Limits, Places, most_connections, raise_open_files
from gpuvigil.web.http_server import limited

from .auth.authentication import WRITE, App, Authentication
from .auth.tokens import Tokens
from .auth.viewing import RecordFilter
from .bodies.deduplication import Node
from .embedded import Embedded
from .endpoints.authority import authority
from .endpoints.query import Telemetry
from .endpoints.records import RecordsEndpoint
from .endpoints.starting import StartupApp
from .endpoints.status import Status
from .endpoints.store import StoreEndpoint
from .endpoints.tokens import TokensEndpoint
from .endpoints.write import Ingest
from .http.bearer import tokens_file
from .http.long_poll import CommitNotifier
from .http.responses import EXCEPTION_HANDLERS, MemoryBudget, failure
from .http.tls import ServerTls, server_tls
from .records import (
    BackupJob,
    IssuedTokens,
    RecordBook,
    RevocationFile,
    TokenRefresher,
    ends_file,
    in_postgresql,
    move_records,
    open_kept,
    open_records,
)
from .telemetry.committer import Committer
from .telemetry.counters import Counters
from .telemetry.retention import Retention

_LOG = Log("hub")

# Grace period for requests in flight after the last commit; the whole shutdown stays under 10 s.
_DRAIN_SECONDS = 3

# New objects that trigger a garbage collection: the thousands of bodies that wait for their commit
# are not garbage, and scanning them for each 700 new objects takes a tenth of the processor time of
# a busy hub.
_COLLECTED_AFTER = 50_000

# Thread switch interval: the event loop may wait this long, several times per answer, for every
# other busy Python thread; Python's own 5 ms add up to a tenth of a second and more.
_SWITCH_SECONDS = 0.0005

# Longer than a collector's tick, so that each collector keeps its connection.
_KEEP_ALIVE_SECONDS = 75


# Limit on large answers that their clients have not taken yet, in total.
_MOST_LEAVING_BYTES = 512 * 1024 * 1024


class Worker(Protocol):
    """A thread of the hub."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End, and wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one hub."""

    store: Embedded
    book: RecordBook
    workers: Sequence[Worker]  # the committer first
    news: CommitNotifier
    app: App


def main(arguments: Sequence[str]) -> int:
    """Run the hub until it is told to stop; returns the exit code."""
    go_without_pandas()
    options = parser("hub", "Run the hub: it keeps telemetry and records and answers queries.")
    options.add_argument(
        "--move-records",
        action="store_true",
        help="move the records of this hub's SQLite file into hub.records_url, and exit",
    )
    return run_service(options, arguments, run)


def run(config: Config, chosen: argparse.Namespace, stop: threading.Event) -> None:
    """Serve until `stop` is set, then drain; or move the records, and end."""
    settings = config.hub
    if chosen.move_records:
        _move_records(settings)
        return
    _make_directory(settings.data_directory)
    clock = SystemClock()
    tokens = Tokens(settings)
    tls = server_tls(settings)
    raise_open_files()
    with _listen(settings) as listener:
        startup = StartupApp()
        http = _Http(_server(startup, settings, tls), listener)
        try:
            parts = build(settings, tokens, clock, startup.waits_for)
        except BaseException:
            http.stop()
            raise
        startup.opened(parts.app)
        try:
            _serve(parts, settings, http, tls, stop)
        finally:
            parts.book.close()
            parts.store.close()
    _LOG.info("stopped")


class _Http:
    """uvicorn in its own thread, where it leaves signals to the main thread."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self.listener = listener
        self.server = server
        self._thread = threading.Thread(target=server.run, args=([listener],), name="http")
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def end_kept_connections(self) -> None:
        """Close each connection after its answer in flight, so that its client reconnects."""
        for one in list(self.server.server_state.connections):
            one.loop.call_soon_threadsafe(one.shutdown)

    def stop(self) -> None:
        while self.running and not self.server.started:
            time.sleep(0.01)  # uvicorn does not look at `should_exit` before it has started
        self.server.should_exit = True
        self._thread.join()


def _move_records(settings: HubSettings) -> None:
    # Fails while a hub runs on this directory: what it writes during the move would be lost.
    store = _opened(settings)
    try:
        _LOG.info("records moved", count=move_records(settings))
    finally:
        store.close()


def _opened(settings: HubSettings) -> Embedded:
    return Embedded(
        settings.data_directory / "telemetry.duckdb",
        settings.memory_limit_bytes,
        settings.threads,
    )


def build(
    settings: HubSettings, tokens: Tokens, clock: Clock, waits_for: Callable[[str], None]
) -> Parts:
    """Open the store and the records and return the hub's parts, with no worker started yet.

    `waits_for` is called with the name of whatever is opened next.
    """
    waits_for("its store of telemetry")
    store = _opened(settings)
    waits_for("its records")
    book, backups = _records(settings, clock)
    issued_tokens = IssuedTokens(
        book.transactions, clock.now, RevocationFile(ends_file(settings.data_directory))
    )
    issued_tokens.import_file(tokens_file(settings))
    tokens.issued_tokens = issued_tokens
    counters, news = Counters(), CommitNotifier()
    book.follow(news.notify_from_thread)
    committer = Committer(store, settings, clock, counters, book.forget)
    counters.watch_queue(committer.waiting)
    retention = Retention(store, settings, clock, counters)
    counters.watch_series(committer.series)
    counters.watch_clocks(committer.clocks)
    ingest = Ingest(committer, settings, clock, counters)

    def sent(node: Node, ahead: timedelta) -> None:
        committer.clocks.update(node, ahead, ingest.is_prompt())

    viewing = RecordFilter(book, clock, tokens.service_secret)
    leaving = MemoryBudget(_MOST_LEAVING_BYTES, what="answers are on their way out")
    routes = [
        *Telemetry(store, leaving).routes(),
        *authority(settings),
        Route(WRITE[1], ingest, methods=[WRITE[0]]),
        *TokensEndpoint(issued_tokens).routes(),
        *StoreEndpoint(store, settings).routes(),
        *RecordsEndpoint(
            book, news, settings, clock, counters, leaving=leaving, sent=sent, viewing=viewing
        ).routes(),
        *Status(store, book, committer, counters, settings, clock, backups=backups).routes(),
    ]
    inner = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
    return Parts(
        store=store,
        book=book,
        workers=[
            committer,
            retention,
            TokenRefresher(issued_tokens),
            *([] if backups is None else [backups]),
        ],
        news=news,
        app=Authentication(inner, ingest, tokens),
    )


def _records(settings: HubSettings, clock: Clock) -> tuple[RecordBook, BackupJob | None]:
    """Open the records, with their backup job; PostgreSQL has none: its operator backs it up."""
    if in_postgresql(settings):
        return RecordBook(open_records(settings)), None
    opened = open_kept(settings, clock)
    book = RecordBook(opened.engine, opened.journal)
    return book, BackupJob(opened, book, clock)


def _serve(
    parts: Parts,
    settings: HubSettings,
    http: _Http,
    tls: ServerTls | None,
    stop: threading.Event,
) -> None:
    # Objects that exist now live as long as the hub.
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER, 20, 20)
    sys.setswitchinterval(_SWITCH_SECONDS)
    for worker in parts.workers:
        worker.start()
    records = parts.book.transactions
    try:
        while not http.server.started and http.running:
            stop.wait(0.01)
        if http.server.started:
            _announce(settings, http.listener, tls is not None)
        while not stop.wait(0.5) and http.running and records.damaged is None:
            if tls is not None and tls.renew():
                http.end_kept_connections()
    finally:
        # First answer every request that waits for news or for a commit.
        parts.news.close()
        for worker in parts.workers:
            worker.stop()
        http.stop()
    if why := _ended_because(stop, records.damaged):
        raise GpuvigilError(why)


def _ended_because(stop: threading.Event, damaged: str | None) -> str | None:
    """Return why the hub ended by itself; None when it was told to stop."""
    if damaged is not None:
        return f"the records are damaged: {damaged}; the next start of the hub repairs them"
    return None if stop.is_set() else "hub: the HTTP server ended; its log says why"


def _server(app: App, settings: HubSettings, tls: ServerTls | None) -> uvicorn.Server:
    most = most_connections(settings.connections_count)
    # No limit per address: a whole cluster may share one, that of a proxy or of its network's edge.
    places = Places(most, exempt=lambda _: True, log=_LOG)
    config = uvicorn.Config(
        app,
        http=limited(places, Limits(), _crowded(most)),
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    config.load()
    if tls is not None:
        config.ssl = tls.context
    return uvicorn.Server(config)


def _crowded(most: int) -> Response:
    answer = failure(
        503,
        f"the hub has {most} connections, and takes no more (hub.connections_count, or what"
        " the system grants as open files); come again",
        1,
    )
    answer.headers["Connection"] = "close"
    return answer


def _announce(settings: HubSettings, listener: socket.socket, secure: bool) -> None:
    """Log the address the hub listens on, and write it to a file for whoever started the hub."""
    port = listener.getsockname()[1]
    host = f"[{settings.listen}]" if ":" in settings.listen else settings.listen
    file = settings.data_directory / "hub.url"
    draft = file.with_suffix(".new")
    scheme = "https" if secure else "http"
    draft.write_text(f"{scheme}://{host}:{port}\n", encoding="utf-8")
    draft.replace(file)
    _LOG.info("listening", address=settings.listen, port=port, scheme=scheme)
    if not secure and not _is_loopback(settings.listen):
        _LOG.warning(
            "no TLS",
            address=settings.listen,
            why="tokens can be read on the way: set hub.tls_certificate_file, or listen on the"
            " loopback behind a proxy that has it",
        )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            (path / "hub.url").unlink()
    except OSError as error:
        raise ConfigError(f"hub.data_directory: cannot use {path}: {error.strerror}") from None


def _listen(settings: HubSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
    try:
        return socket.create_server((settings.listen, settings.port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"hub.port: cannot listen on {settings.listen}:{settings.port}: {reason};"
            " choose another port, or 0 for a free one"
        ) from None
