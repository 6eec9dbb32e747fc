"""Telemetry straight to a real VictoriaMetrics or InfluxDB, while records go to the hub."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.doctor.store import diagnose
from collector.rows.catalogue_rows import Number, Row
from collector.spool.batches import Sender
from collector.spool.queue import Spool
from collector.spool.remote_write import direct_store
from collector.spool.shipper import Shipper
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import StoreSettings
from gpuvigil.metrics import GPU
from gpuvigil.model import Event, EventKind, Subject
from gpuvigil.store import Aggregate, Function, Store
from gpuvigil.store.influxdb import InfluxStore
from gpuvigil.store.victoriametrics import VictoriaMetricsStore
from tests.collector.receiver import Receiver
from tests.polling import wait_until
from tests.timeseries import InfluxDB, TimeSeriesServer, VictoriaMetrics, VMAuth

pytestmark = pytest.mark.server

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
SENDER = Sender(cluster="c", node="n1", boot="b1")
Reader = Callable[[StoreSettings], Store]


def line(second: int, **values: Number) -> str:
    tags = {"cluster": "c", "node": "n 1", "uuid": "GPU-0", "model": "H200"}
    row = Row(measurement=GPU, tags=tags, fields=values, at=NOON + second * SECOND)
    text = row.line()
    assert text is not None
    return text


class Place:
    """A server, the settings that name it, and what flushes it."""

    def __init__(self, server: TimeSeriesServer, settings: StoreSettings, store: Store) -> None:
        self.server, self.settings, self.store = server, settings, store

    def rows(self) -> list[dict[str, object]]:
        if isinstance(self.server, VictoriaMetrics):
            self.server.flush()
        asked = [Aggregate(function=Function.LAST, field=name) for name in ("index", "power_watts")]
        table = self.store.window("gpu", asked, NOON, NOON + 100 * SECOND)
        found: list[dict[str, object]] = table.to_pylist()
        return found


@pytest.fixture(params=["victoriametrics", "influxdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "influxdb":
        with InfluxDB(tmp_path / "server") as influx:
            influx.create("gpuvigil")
            settings = StoreSettings(kind="influxdb", url=influx.url)
            yield Place(influx, settings, InfluxStore(settings))
        return
    with VictoriaMetrics(tmp_path / "server") as server:
        # As addresses of a cluster are: one for writes, one for reads.
        settings = StoreSettings(
            kind="victoriametrics",
            url=f"{server.url}/prometheus",
            write_url=f"{server.url}/influx",
        )
        yield Place(server, settings, VictoriaMetricsStore(settings))


def test_telemetry_goes_to_the_store_and_records_to_the_hub(place: Place, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1024 * 1024)
    event = Event(
        kind=EventKind.XID,
        subject=Subject(cluster="c", node="n1"),
        at=NOON,
        id="e1",
        xid=79,
        message="x",
    )
    stop = threading.Event()
    with Receiver() as hub:
        shipper = Shipper(
            spool, hub.url, lambda: "t", SystemClock(), direct_store=direct_store(place.settings)
        )
        thread = threading.Thread(target=shipper.run, args=(stop,))
        thread.start()
        try:
            spool.put(SENDER.records([event.to_record()], NOON))
            spool.put(SENDER.telemetry([line(0, index=1), line(1, power_watts=300)], NOON))
            wait_until("the lines are in the store", lambda: samples(place) == 2, 30.0)
            wait_until("the event is on the hub", lambda: hub.attempts)
            place.server.stop()
            spool.put(SENDER.telemetry([line(2, index=2)], NOON))
            wait_until("it is seen that the store is away", lambda: not shipper.reachable, 30.0)
            place.server.start()
            wait_until("what waited is in the store", lambda: samples(place) == 3, 30.0)
        finally:
            stop.set()
            thread.join()
        assert all(request.is_records for request in hub.attempts)
    (row,) = place.rows()
    assert (row["node"], row["index_last"], row["power_watts_last"]) == ("n 1", 2, 300.0)
    assert (row["first_at"], row["last_at"]) == (NOON, NOON + 2 * SECOND)


@pytest.mark.parametrize("place", ["victoriametrics"], indirect=True)
@pytest.mark.parametrize("connections", [1, 3])
def test_what_a_store_had_in_memory_when_it_was_killed_is_sent_again(
    place: Place, tmp_path: Path, connections: int
) -> None:
    spool, stop = Spool(tmp_path / "spool", 1024 * 1024), threading.Event()
    shipper = Shipper(
        spool,
        "http://127.0.0.1:1",
        lambda: "t",
        SystemClock(),
        direct_store=direct_store(place.settings),
        connections=connections,
    )
    thread = threading.Thread(target=shipper.run, args=(stop,))
    thread.start()

    def put(seconds: range) -> None:
        for second in seconds:
            spool.put(SENDER.telemetry([line(second, index=second)], NOON + second * SECOND))
            wait_until("the store has acknowledged it", lambda: not waits(spool))

    try:
        put(range(20))
        place.server.kill()
        place.server.start()
        put(range(20, 22))
        wait_until("all are there, once", lambda: samples(place) == 22, 30.0)
    finally:
        stop.set()
        thread.join()


def waits(spool: Spool) -> bool:
    return spool.oldest_seconds(NOON + 3600 * SECOND) > 0


def samples(place: Place) -> object:
    rows = place.rows()
    return rows[0]["samples"] if rows else 0


def test_lines_that_influxdb_refuses_for_good_are_counted_and_hold_up_nothing(
    tmp_path: Path,
) -> None:
    with InfluxDB(tmp_path / "server") as server:
        server.create("gpuvigil")
        settings = StoreSettings(kind="influxdb", url=server.url)
        # Somebody else has made the column one of another type.
        server.write("gpuvigil", f"gpu,cluster=c,node=n power_watts=true {to_ns(NOON)}")
        spool, stop = Spool(tmp_path / "spool", 1024 * 1024), threading.Event()
        shipper = Shipper(
            spool,
            "http://127.0.0.1:1",
            lambda: "t",
            SystemClock(),
            direct_store=direct_store(settings),
        )
        thread = threading.Thread(target=shipper.run, args=(stop,))
        thread.start()
        try:
            spool.put(SENDER.telemetry([line(0, power_watts=1), line(1, index=2)], NOON))
            wait_until("the refusal is counted", lambda: shipper.refused_lines, 30.0)
            spool.put(SENDER.telemetry([line(2, index=3)], NOON))
            place = Place(server, settings, InfluxStore(settings))
            wait_until("what comes after it is kept", lambda: samples(place) == 2, 30.0)
            assert shipper.refused_lines == 1
            # What it cannot parse it calls `dropped=0`, and keeps the others.
            spool.put(SENDER.telemetry([line(3, index=4), "gpu,node=n", line(4, index=5)], NOON))
            wait_until("the lines beside the bad one", lambda: samples(place) == 4, 30.0)
            wait_until("the count", lambda: shipper.refused_lines > 1, 30.0)
            assert shipper.refused_lines == 2
        finally:
            stop.set()
            thread.join()


def test_threads_that_read_together_fill_no_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    together = threading.Barrier(16)

    def read(_: int) -> None:
        together.wait()
        place.rows()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(read, range(16)))
    assert "pool is full" not in caplog.text


def test_the_doctor_says_whether_the_store_answers(place: Place) -> None:
    (said,) = diagnose(place.settings)
    assert said.state.value == "ok"
    assert place.server.url in said.text
    place.server.stop()
    (said,) = diagnose(place.settings)
    assert said.state.value == "missing"
    assert "does not answer" in said.text
    assert diagnose(StoreSettings()) == []


def test_the_doctor_says_when_the_store_has_no_such_database(tmp_path: Path) -> None:
    with InfluxDB(tmp_path / "server") as server:
        (said,) = diagnose(StoreSettings(kind="influxdb", url=server.url, bucket="nowhere"))
        assert said.state.value == "missing"
        assert "database not found" in said.text


def test_the_doctor_says_when_the_proxy_before_the_store_does_not_know_the_token(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "token"
    with (
        VictoriaMetrics(tmp_path / "server") as server,
        VMAuth(tmp_path / "proxy", server.url, "right-word") as proxy,
    ):
        settings = StoreSettings(kind="victoriametrics", url=proxy.url, token_file=secret)
        for word, state in (("wrong-word", "missing"), ("right-word", "ok")):
            secret.write_text(word)
            (said,) = diagnose(settings)
            assert said.state.value == state
            assert word not in said.text
