"""Every backend that keeps the store protocol; the contract runs on each."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from gpuvigil.config import StoreSettings
from gpuvigil.store import Aggregate, Store
from gpuvigil.store.hub import HubStore
from gpuvigil.store.influxdb import InfluxStore
from gpuvigil.store.memory import MemoryStore
from gpuvigil.store.victoriametrics import VictoriaMetricsStore
from tests.servers import QuickHub
from tests.timeseries import InfluxDB, VictoriaMetrics

AFTER_ALL = datetime(2300, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Backend:
    """How to get an empty store, and what `docs/stores.md` says that this one cannot."""

    empty: Callable[[], Store]
    limits: frozenset[str] = field(default_factory=frozenset)


class Flushed:
    """A VictoriaMetrics whose lines are found at once: it acknowledges before they are."""

    def __init__(self, server: VictoriaMetrics, store: Store) -> None:
        self._server = server
        self._store = store

    def write(self, lines: bytes) -> None:
        try:
            self._store.write(lines)
        finally:
            self._server.flush()

    def window(
        self, measurement: str, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> pa.Table:
        return self._store.window(measurement, aggregates, start, end)

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        return self._store.series(measurement, fields, where, span, step)

    def latest(self, measurement: str, fields: Collection[str], since: datetime) -> pa.Table:
        return self._store.latest(measurement, fields, since)

    def forget(self, before: datetime) -> None:
        self._store.forget(before)


def _memory(_: Path) -> Iterator[Backend]:
    yield Backend(MemoryStore, frozenset({"again"}))


def _embedded(directory: Path) -> Iterator[Backend]:
    with QuickHub(directory, {"commit_seconds": 0.001}) as hub:
        store = HubStore(hub.hub())

        def empty() -> Store:
            store.forget(AFTER_ALL)
            return store

        yield Backend(empty, frozenset({"again"}))


def _victoriametrics(directory: Path) -> Iterator[Backend]:
    numbers = count()
    with VictoriaMetrics(directory) as server:

        def empty() -> Store:
            bucket = f"test{next(numbers)}"
            settings = StoreSettings(kind="victoriametrics", url=server.url, bucket=bucket)
            return Flushed(server, VictoriaMetricsStore(settings))

        yield Backend(empty, frozenset({"forget", "integers"}))


def _influxdb(directory: Path) -> Iterator[Backend]:
    numbers = count()
    with InfluxDB(directory) as server:

        def empty() -> Store:
            bucket = f"test{next(numbers)}"
            server.create(bucket)
            # Short pieces, so that what is asked is put together from several.
            return InfluxStore(
                StoreSettings(kind="influxdb", url=server.url, bucket=bucket, span_hours=0.3)
            )

        yield Backend(empty)


_BACKENDS = {
    "memory": _memory,
    "embedded": _embedded,
    "victoriametrics": _victoriametrics,
    "influxdb": _influxdb,
}


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        *(pytest.param(name, marks=pytest.mark.server) for name in _BACKENDS if name != "memory"),
    ],
)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    yield from _BACKENDS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture
def store(backend: Backend) -> Store:
    """An empty store."""
    return backend.empty()
