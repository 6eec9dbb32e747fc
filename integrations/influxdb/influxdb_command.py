"""`gpuvigil influxdb`: follows the hub, and writes incidents, states and usage to a site's InfluxDB.

How far it has come is kept in a file, and moves on only with what InfluxDB has taken: while that is
away nothing more is read from the hub, and a new start begins where the last one was.
"""

import threading
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

from gpuvigil import __version__
from gpuvigil.clock import Clock, SystemClock
from gpuvigil.config import Config, startup
from gpuvigil.errors import ConfigError, StoreError
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.log import Log
from gpuvigil.loop import Persistence, run_steps
from gpuvigil.model import (
    AllocationState,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Subject,
    readable,
)
from gpuvigil.private_files import write_private
from gpuvigil.store.configured import hubs
from gpuvigil.store.external import store_of
from gpuvigil.web.metrics_page import Exporter

from .lines import KINDS, STATE_FIELDS, of_record, of_states
from .target import Target, Waiting

log = Log("influxdb")

_POLL_SECONDS = 2.0
_DRAIN_SECONDS = 4.0
# A row that is older says nothing of now.
_YOUNG = timedelta(minutes=5)
# One less than the hub gives at once, so that it is seen where there are more.
_MOST = 99_999
_PLACE = "sequence"


class Follower:
    """Writes every change of an incident and every quarter of usage, from the hub's oldest on."""

    def __init__(self, hub: Hub, target: Target, config: Config) -> None:
        self._hub, self._target = hub, target
        self._file = config.influxdb.directory / _PLACE
        self._url = config.influxdb.url
        self._sequence = self._read()

    def step(self) -> None:
        """Take what is next; nothing is left behind that could not be written."""
        answer = self._hub.changes(self._sequence, KINDS, wait_seconds=_POLL_SECONDS)
        if answer.sequence < self._sequence:
            log.warning("the hub's records are older than what was written, all are written again")
            self._sequence = 0
            return
        lines: list[str] = []
        for record in answer.records:
            found = of_record(record)
            if found is None:
                self._target.lose(1, f"{record.kind.value} {record.id} cannot be read")
            lines += found or ()
        self._target.write(lines)
        if answer.sequence != self._sequence:
            self._sequence = answer.sequence
            write_private(self._file, f"{self._sequence}\n{self._url}\n")

    def _read(self) -> int:
        """0 for the first time, and where another server is written to."""
        try:
            sequence, url = self._file.read_text(encoding="utf-8").split("\n")[:2]
            return int(sequence) if url == self._url else 0
        except (OSError, ValueError):
            return 0


class States:
    """Writes what state GPUs are in, again and again."""

    def __init__(
        self, hub: Hub, waiting: Waiting, config: Config, clock: Clock, most: int = _MOST
    ) -> None:
        self._most = most
        self._hub, self._store = hub, store_of(hub)
        self._waiting, self._clock = waiting, clock
        self._interval = config.influxdb.interval_seconds
        self._due = clock.monotonic()

    def step(self, stop: threading.Event) -> None:
        """Look where it is time to, and write what waits."""
        if self._clock.monotonic() >= self._due:
            self._due = self._clock.monotonic() + self._interval
            self._waiting.put(self._lines())
        self._waiting.write()
        self._clock.wait(stop, self._due - self._clock.monotonic())

    def _lines(self) -> list[str]:
        now = self._clock.now()
        held = self._records(RecordKind.ALLOCATION, [AllocationState.HELD.value])
        active = self._records(RecordKind.INCIDENT, [state.value for state in ACTIVE])
        rows = self._store.latest("gpu", STATE_FIELDS, now - _YOUNG)
        return of_states(
            list(readable(self._records(RecordKind.INVENTORY), Inventory.from_record)),
            rows.to_pylist(),
            readable(held, lambda one: Subject.parse(one.subject)),
            readable(active, Incident.from_record),
            now,
        )

    def _records(self, kind: RecordKind, states: Sequence[str] = ()) -> tuple[Record, ...]:
        """All of a kind; StoreError where there may be more, as GPUs that were held longest would look free."""
        found = self._hub.records(kind, states=states, limit=self._most + 1)
        if len(found) > self._most:
            raise StoreError(
                f"the hub has more than {self._most} records of kind {kind.value} that count now, so"
                " nobody can say what state GPUs are in; none is written"
            )
        return found


def run(config: Config, _: Namespace, stop: threading.Event) -> None:
    """Write until `stop`."""
    settings, clock = config.influxdb, SystemClock()
    if not settings.url:
        raise ConfigError("influxdb.url is not set, so there is nowhere to write to")
    if settings.interval_seconds < 1:
        raise ConfigError("influxdb.interval_seconds: at least 1")
    settings.directory.mkdir(parents=True, exist_ok=True)
    connect, target = hubs(config), Target(settings, clock)
    waiting = Waiting(target, settings.waiting_count)
    following, looking = connect(), connect()
    follower = Follower(following, target, config)
    states = States(looking, waiting, config, clock)
    steps = {"changes": follower.step, "states": lambda: states.step(stop)}
    threads = [
        threading.Thread(
            target=run_steps,
            args=(Persistence(name=name, clock=clock, stop=stop, log=log), step),
            name=name,
            daemon=True,
        )
        for name, step in steps.items()
    ]
    with _metrics(config, target, waiting):
        for thread in threads:
            thread.start()
        log.info("started", url=settings.url, bucket=settings.bucket, version=__version__)
        stop.wait()
        deadline = clock.monotonic() + _DRAIN_SECONDS
        for thread in threads:
            thread.join(max(deadline - clock.monotonic(), 0.0))
    for hub in (following, looking):
        hub.close()
    log.info("stopped")


def _metrics(config: Config, target: Target, waiting: Waiting) -> AbstractContextManager[object]:
    """Serve `/metrics` where a port is set."""
    settings = config.influxdb
    if settings.metrics_port < 0:
        return nullcontext()
    return Exporter(
        settings.metrics_listen,
        settings.metrics_port,
        lambda: target.text(len(waiting)),
        "influxdb",
    )


def main(arguments: Sequence[str]) -> int:
    """`gpuvigil influxdb`: write until SIGTERM; returns the exit code."""
    parser = startup.parser(
        "influxdb", "Write incidents, states and usage to the site's own InfluxDB."
    )
    return startup.run_service(parser, arguments, run)
