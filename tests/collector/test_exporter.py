"""`/metrics` as Prometheus reads it."""

import gzip
import http.client
import json
import socket
import threading
import time
import urllib.request
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector.agent.exporter import Exporter
from collector.rows.catalogue_rows import Row, Steady, lines_of
from gpuvigil.errors import ConfigError
from gpuvigil.lineprotocol import parse
from gpuvigil.metrics import EXPORTED, GPU, NODE
from gpuvigil.model import Unmeasured
from tests.polling import wait_until
from tests.shortage import shortage
from tests.timeseries import Prometheus

pytestmark = pytest.mark.server

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
TAGS = {"cluster": "c", "node": "n1", "uuid": "GPU-1", "model": 'H100 "80GB"'}


def scrape(exporter: Exporter) -> dict[str, list[tuple[dict[str, str], float]]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {
        sample.name: [(dict(s.labels), s.value) for s in family.samples if s.name == sample.name]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def exporter() -> Exporter:
    exporter = Exporter()
    exporter.serve("127.0.0.1", 0)
    return exporter


def test_rows_are_shown_and_what_was_not_measured_is_absent(exporter: Exporter) -> None:
    fields = {"up": 1, "power_watts": 71.5, "energy_joules": 9.0, "temperature_celsius": None}
    exporter.show([Row(measurement=GPU, tags=TAGS, fields=fields, at=NOW)])
    assert scrape(exporter) == {
        "gpuvigil_gpu_up": [(TAGS, 1.0)],
        "gpuvigil_gpu_power_watts": [(TAGS, 71.5)],
        "gpuvigil_gpu_energy_joules_total": [(TAGS, 9.0)],
    }


def test_a_scraper_keeps_its_connection_and_other_paths_are_not_found(exporter: Exporter) -> None:
    exporter.show([Row(measurement=GPU, tags=TAGS, fields={"up": 1}, at=NOW)])
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=5)
    found = []
    for path in ("/metrics", "/", "/metrics?name[]=up"):
        connection.request("GET", path)
        answer = connection.getresponse()
        found.append((answer.status, answer.getheader("Content-Type"), b"_up" in answer.read()))
        assert connection.sock is not None
    kind = "text/plain; version=0.0.4; charset=utf-8"
    assert found == [(200, kind, True), (404, kind, False), (200, kind, True)]
    connection.close()


@pytest.mark.parametrize(
    ("request_text", "answer"),
    [
        (b"GET /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /metrics HTTP/1.1\r\nconnection: Close\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\n" + 200 * b"a: b\r\n" + b"\r\n", b""),
    ],
)
def test_the_connection_ends_where_the_client_says_or_errs(
    exporter: Exporter, request_text: bytes, answer: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", exporter.port or 0), timeout=5) as client:
        client.sendall(request_text)
        with client.makefile("rb") as file:
            assert file.read().partition(b"\r\n")[0] == answer


def test_twenty_connections_that_ask_nothing_keep_no_scraper_out(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    scraper = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=5)
    scraper.request("GET", "/metrics")
    scraper.getresponse().read()
    before = threading.active_count()
    with ExitStack() as silent:
        for _ in range(20):
            silent.enter_context(socket.create_connection(("127.0.0.1", exporter.port or 0)))
        assert scrape(exporter) == {}  # a new one
        assert threading.active_count() <= before + 15
        scraper.request("GET", "/metrics")  # and one that scraped before
        assert scraper.getresponse().read() == b""
    scraper.close()
    wait_until("room", lambda: threading.active_count() < before)
    assert "no more connections" not in caplog.text


def test_a_prometheus_scrapes_beside_twenty_idle_connections(
    exporter: Exporter, tmp_path: Path
) -> None:
    exporter.show([Row(measurement=GPU, tags=TAGS, fields={"up": 1}, at=NOW)])
    with ExitStack() as idle:
        for _ in range(20):
            idle.enter_context(socket.create_connection(("127.0.0.1", exporter.port or 0)))
        address = f"127.0.0.1:{exporter.port}"
        with Prometheus(tmp_path, address, {"/metrics": {}}) as server:
            question = f"{server.url}/api/v1/query?query=gpuvigil_gpu_up"

            def answer() -> list[object]:
                with urllib.request.urlopen(question, timeout=5) as said:
                    return list(json.load(said)["data"]["result"])

            wait_until("a sample", answer, 20.0)


def test_where_all_are_in_the_middle_of_asking_the_newest_is_closed_and_the_log_has_it_once(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    before = threading.active_count()
    with ExitStack() as asking:
        for _ in range(20):
            one = socket.create_connection(("127.0.0.1", exporter.port or 0))
            asking.enter_context(one).sendall(b"GET /met")
        wait_until("the limit", lambda: "no more connections" in caplog.text)
        assert threading.active_count() <= before + 16
    wait_until("room", lambda: threading.active_count() <= before)
    assert scrape(exporter) == {}
    assert caplog.text.count("no more connections") == 1


@pytest.mark.parametrize(
    ("accepts", "zipped"),
    [("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False)],
)
def test_who_takes_gzip_gets_it(exporter: Exporter, accepts: str, zipped: bool) -> None:
    exporter.show([Row(measurement=GPU, tags=TAGS, fields={"up": 1}, at=NOW)])
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=5)
    connection.request("GET", "/metrics", headers={"Accept-Encoding": accepts})
    answer = connection.getresponse()
    page = answer.read()
    assert (answer.getheader("Content-Encoding") == "gzip") == zipped
    assert b"gpuvigil_gpu_up{" in (gzip.decompress(page) if zipped else page)
    connection.close()


@pytest.mark.parametrize("lacks", ["descriptors", "threads"])
def test_without_room_for_a_scraper_the_next_one_is_answered(
    exporter: Exporter, lacks: str
) -> None:
    early = [socket.socket() for _ in range(3)]  # as many as wait without being taken
    with ExitStack() as sockets, shortage(lacks):
        for one in early:
            sockets.enter_context(one)
        began = time.process_time()
        for one in early:
            one.connect(("127.0.0.1", exporter.port or 0))
        time.sleep(0.5)
        assert time.process_time() - began < 0.25  # it does not try all the time
    assert scrape(exporter) == {}


def test_labels_and_numbers_survive_as_they_are(exporter: Exporter) -> None:
    tags = {**TAGS, "model": 'H"1\\00\n'}
    reason = {"unmeasured_reason": Unmeasured.LOST, "up": 0, "read_seconds": 1e-07}
    exporter.show([Row(measurement=GPU, tags=tags, fields=reason, at=NOW)])
    found = scrape(exporter)
    assert found["gpuvigil_gpu_unmeasured_reason"] == [(tags, 3.0)]
    assert found["gpuvigil_gpu_read_seconds"] == [(tags, 1e-07)]


def test_every_metric_of_the_catalogue_has_its_name(exporter: Exporter) -> None:
    rows = [
        Row(
            measurement=measurement,
            tags=dict.fromkeys(measurement.tags, "x"),
            fields={metric.name: 1 for metric in measurement.metrics},
            at=NOW,
        )
        for measurement in EXPORTED
    ]
    exporter.show(rows)
    names = [m.prometheus for each in EXPORTED for m in each.metrics]
    assert len(names) == len(set(names))
    assert scrape(exporter).keys() == set(names)


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"/metrics on 127\.0\.0\.1:{port}: Address already"):
            Exporter().serve("127.0.0.1", port)


def test_a_host_that_is_not_here_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"collector\.metrics_listen"):
        Exporter().serve("192.0.2.1", 0)
    with pytest.raises(ConfigError, match=r"collector\.metrics_listen"):
        Exporter().serve("no.such.host.invalid", 0)


def test_a_row_is_written_in_the_types_of_its_columns() -> None:
    fields = {"gpus_expected": 8.0, "load_average": 1, "sweep_seconds": None}
    row = Row(measurement=NODE, tags={"cluster": "c", "node": "n"}, fields=fields, at=NOW)
    line = row.line()
    # A number without an ending is a float to whoever reads it.
    assert line == "node,cluster=c,node=n gpus_expected=8i,load_average=1 1769817600000000000"
    assert Row(measurement=NODE, tags={}, fields={"up": 1}, at=NOW).line() is None


def test_a_row_that_line_protocol_cannot_carry_costs_no_other_row() -> None:
    def row(node: str, **fields: float) -> Row:
        return Row(measurement=NODE, tags={"cluster": "c", "node": node}, fields=fields, at=NOW)

    bad = [row(node, load_average=1.0) for node in ("a\0", "a\nb", "a\r", "a\\", "\ud800")]
    nothing, good = row("n"), row("n", load_average=2.0)
    assert lines_of([*bad, nothing, good]) == [good.line()]


numbers = st.integers(-(2**40), 2**40) | st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.dictionaries(st.sampled_from([m.name for m in NODE.metrics if not m.integer]), numbers),
    st.sets(st.sampled_from([m.name for m in NODE.metrics])),
)
def test_what_is_written_once_reads_as_what_is_written_each_time(
    fields: dict[str, float], steady: set[str]
) -> None:
    tags = {"cluster": "c", "node": "n"}
    kept = Steady(NODE, {name: value for name, value in fields.items() if name in steady})
    plain = Row(measurement=NODE, tags=tags, fields=fields, at=NOW).line()
    moving = {name: value for name, value in fields.items() if name not in steady}
    quick = Row(measurement=NODE, tags=tags, fields=moving, at=NOW, steady=kept).line()
    assert (plain is None) == (quick is None)
    if plain is not None and quick is not None:
        (expected,), (found,) = parse(plain.encode()).lines, parse(quick.encode()).lines
        assert dict(found.fields) == dict(expected.fields)
        assert (found.tags, found.at_ns) == (expected.tags, expected.at_ns)
