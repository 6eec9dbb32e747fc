"""The write path, with the official InfluxDB client and with bare requests."""

import gzip
import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.domain.write_precision import WritePrecision
from influxdb_client.rest import ApiException

from gpuvigil.clock import from_text, to_text
from gpuvigil.store import Store
from gpuvigil.store.hub import HubStore
from tests.hub.talk import Reply, ask, identity
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = pytest.mark.server

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOON_SECONDS = int(NOON.timestamp())


def line(node: str, value: float = 1.0, second: int = 0) -> str:
    return f"node,cluster=test,node={node} load_average={value} {NOON_SECONDS + second}"


def loads(store: Store, node: str) -> list[tuple[datetime, float]]:
    span = (NOON, NOON + timedelta(hours=1))
    found = store.series("node", ["load_average"], {"node": node}, span, timedelta(seconds=1))
    return [(row["at"], row["load_average"]) for row in found.to_pylist()]


@pytest.fixture
def store(hub: HubProcess) -> Store:
    return HubStore(hub.hub())


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def influx(hub: HubProcess, request: pytest.FixtureRequest) -> Iterator[InfluxDBClient]:
    with InfluxDBClient(
        hub.url, hub.collector_token, org="any", enable_gzip=request.param
    ) as client:
        yield client


def send(influx: InfluxDBClient, lines: list[str], bucket: str = "gpuvigil") -> None:
    with influx.write_api(write_options=SYNCHRONOUS) as api:
        api.write(bucket=bucket, record=lines, write_precision=WritePrecision.S)


def put(hub: HubProcess, body: bytes, **more: Any) -> Reply:
    return ask(f"{hub.url}/api/v2/write?precision=s", body, token=hub.collector_token, **more)


def test_the_official_client_writes_and_pings(influx: InfluxDBClient, store: Store) -> None:
    node = f"official-{influx.api_client.configuration.enable_gzip}"
    assert influx.ping()
    send(influx, [line(node, 1.5), line(node, 2.5, second=1)])
    assert loads(store, node) == [(NOON, 1.5), (NOON + timedelta(seconds=1), 2.5)]


def test_a_bad_body_keeps_its_good_lines_and_names_the_bad(
    influx: InfluxDBClient, store: Store
) -> None:
    node = f"bad-{influx.api_client.configuration.enable_gzip}"
    wrong_type = f'node,cluster=test,node={node} load_average="x" {NOON_SECONDS}'
    with pytest.raises(ApiException) as caught:
        send(influx, [line(node), "no line", wrong_type, line(node, 3.0, second=2)])
    assert caught.value.status == 400
    assert "2 of 4 lines refused" in caught.value.message
    assert '"number":2' in caught.value.body
    assert '"number":3' in caught.value.body
    assert len(loads(store, node)) == 2


def test_a_wrong_token_is_401_and_an_unknown_bucket_404(
    hub: HubProcess, influx: InfluxDBClient
) -> None:
    with pytest.raises(ApiException) as caught:
        send(influx, [line("nobody")], bucket="elsewhere")
    assert caught.value.status == 404
    assert "elsewhere" in caught.value.message
    with (
        InfluxDBClient(hub.url, "wrong", org="any") as stranger,
        pytest.raises(ApiException) as caught,
    ):
        send(stranger, [line("nobody")])
    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("precision", "time"),
    [("ns", "000000000"), ("us", "000000"), ("ms", "000"), ("s", "")],
)
def test_times_are_read_in_the_precision_that_was_named(
    hub: HubProcess, store: Store, precision: str, time: str
) -> None:
    url = f"{hub.url}/api/v2/write?precision={precision}"
    body = line(f"precise-{precision}") + time
    assert ask(url, body.encode(), token=hub.service_token).status == 204
    assert loads(store, f"precise-{precision}") == [(NOON, 1.0)]


def test_an_unknown_precision_is_400(hub: HubProcess) -> None:
    url = f"{hub.url}/api/v2/write?precision=h"
    assert ask(url, line("n").encode(), token=hub.collector_token).status == 400


def test_a_body_that_is_sent_again_is_acknowledged_and_stored_once(
    hub: HubProcess, store: Store
) -> None:
    body = line("again").encode()
    first = put(hub, body, headers=identity(1, node="again"))
    again = put(hub, body, headers=identity(1, node="again"))
    assert (first.status, "gpuvigil-duplicate" in first.headers) == (204, False)
    assert (again.status, again.headers["gpuvigil-duplicate"]) == (204, "1")
    rows = store.window("node", [], NOON, NOON + timedelta(hours=1)).to_pylist()
    assert [row["samples"] for row in rows if row["node"] == "again"] == [1]


def test_lanes_and_bodies_out_of_order_are_told_apart(hub: HubProcess, store: Store) -> None:
    for second, (sequence, lane) in enumerate([(3, "live"), (1, "live"), (1, "backlog")]):
        body = line("lanes", second=second).encode()
        answer = put(hub, body, headers=identity(sequence, lane, node="lanes"))
        assert "gpuvigil-duplicate" not in answer.headers
    assert len(loads(store, "lanes")) == 3


def test_a_body_in_part_at_fault_is_also_known_when_it_comes_again(hub: HubProcess) -> None:
    body = (line("part") + "\nno line").encode()
    assert put(hub, body, headers=identity(1, node="part")).status == 400
    again = put(hub, body, headers=identity(1, node="part"))
    assert (again.status, again.headers["gpuvigil-duplicate"]) == (204, "1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"Gpuvigil-Sequence": "0"},
        {"Gpuvigil-Sequence": "one"},
        {"Gpuvigil-Sequence": str(2**63)},
        {"Gpuvigil-Lane": "fast"},
        {"Gpuvigil-Boot": ""},
    ],
)
def test_headers_that_name_no_body_are_400(hub: HubProcess, wrong: dict[str, str]) -> None:
    answer = put(hub, line("n").encode(), headers={**identity(1), **wrong})
    assert answer.status == 400
    assert "Gpuvigil-" in answer.json["message"]


def test_the_status_names_every_node_and_its_last_body(hub: HubProcess) -> None:
    headers = identity(7, node="known")
    put(hub, line("known").encode(), headers=headers)
    status = hub.hub().status()
    (node,) = (it for it in status["nodes"] if it["node"] == "known")
    assert (node["cluster"], node["boot"], node["lane"], node["sequence"]) == (
        "test",
        "b1",
        "live",
        7,
    )
    assert node["sent_at"] == headers["Gpuvigil-Sent-At"]
    assert -10 < node["offset_seconds"] < 0
    assert node["clock"] == "right"
    assert status["store"]["tables"]["node"] > 0
    assert from_text(status["store"]["oldest_at"]) <= from_text(status["now"])


def test_the_status_says_when_a_node_was_last_heard_live_also_after_its_backlog(
    hub: HubProcess,
) -> None:
    def of(name: str) -> dict[str, Any]:
        return next(it for it in hub.hub().status()["nodes"] if it["node"] == name)

    put(hub, line("silent").encode(), headers=identity(1, node="silent"))
    live = of("silent")
    assert live["live_at"] == live["received_at"]
    put(hub, line("silent").encode(), headers=identity(1, "backlog", node="silent"))
    after = of("silent")
    assert (after["lane"], after["live_at"]) == ("backlog", live["received_at"])
    assert from_text(after["received_at"]) > from_text(live["received_at"])
    put(hub, line("buffered").encode(), headers=identity(1, "backlog", node="buffered"))
    assert of("buffered")["live_at"] is None


def test_a_clock_that_is_an_hour_ahead_is_named_and_its_lines_count_from_their_arrival(
    hub: HubProcess, store: Store
) -> None:
    now = datetime.now(timezone.utc)
    ahead = now + timedelta(hours=1)
    body = f"node,cluster=test,node=ahead load_average=1 {int(ahead.timestamp())}"
    headers = {**identity(1, node="ahead"), "Gpuvigil-Sent-At": to_text(ahead)}
    assert put(hub, body.encode(), headers=headers).status == 204
    (node,) = (it for it in hub.hub().status()["nodes"] if it["node"] == "ahead")
    assert node["clock"] == "wrong"
    assert 3590 < node["offset_seconds"] <= 3600
    rows = store.latest("node", ["load_average"], now - timedelta(minutes=1)).to_pylist()
    (at,) = (row["at"] for row in rows if row["node"] == "ahead")
    assert abs(at - now) < timedelta(seconds=20)
    assert 'gpuvigil_hub_clocks{state="wrong"} 1.0' in ask(f"{hub.url}/metrics").body.decode()
    assert "clock wrong" in hub.log.read_text(encoding="utf-8")


def test_records_tell_of_a_clock_where_telemetry_goes_elsewhere(hub: HubProcess) -> None:
    subject = "test/elsewhere"
    event = {"kind": "event", "id": f"{subject}|1", "at": to_text(NOON), "subject": subject}
    headers = {
        "Gpuvigil-Cluster": "test",
        "Gpuvigil-Node": "elsewhere",
        "Gpuvigil-Sent-At": to_text(datetime.now(timezone.utc) - timedelta(hours=1)),
    }
    url = f"{hub.url}/api/v1/records"
    body = json.dumps(event).encode()
    assert ask(url, body, token=hub.collector_token, headers=headers).status == 200
    told = {it["node"]: it["offset_seconds"] for it in hub.hub().status()["wrong_clocks"]}
    assert -3700 < told["elsewhere"] < -3599


def test_a_body_that_inflates_beyond_all_bounds_is_413(hub: HubProcess) -> None:
    bomb = gzip.compress(b"\n" * 100_000_000)
    assert len(bomb) < 1_000_000
    answer = put(hub, bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status == 413
    assert put(hub, b"\n" * 1_000_001).status == 413
    assert put(hub, b" " * 1_000_000).status == 204


def test_a_body_of_more_lines_than_allowed_is_413(hub: HubProcess) -> None:
    assert put(hub, b"#\n" * 50_000).status == 204
    answer = put(hub, b"#\n" * 50_001)
    assert answer.status == 413
    assert "more than 50000 lines" in answer.json["message"]


def test_a_gzip_body_of_endless_members_is_refused_at_once(hub: HubProcess) -> None:
    answer = put(hub, gzip.compress(b"") * 1000, headers={"Content-Encoding": "gzip"})
    assert answer.status == 400
    assert "100 members" in answer.json["message"]


def test_a_gzip_body_of_several_members_is_read_whole(hub: HubProcess, store: Store) -> None:
    packed = gzip.compress(line("members").encode() + b"\n")
    packed += gzip.compress(line("members", second=1).encode())
    assert put(hub, packed, headers={"Content-Encoding": "gzip"}).status == 204
    assert len(loads(store, "members")) == 2


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"not gzip", "gzip"),
        (gzip.compress(line("cut").encode())[:-9], "gzip"),
        (b"", "br"),
    ],
    ids=["not gzip", "cut off", "unknown"],
)
def test_a_body_that_is_not_what_its_header_says_is_400(
    hub: HubProcess, body: bytes, encoding: str
) -> None:
    assert put(hub, body, headers={"Content-Encoding": encoding}).status == 400


def test_bytes_that_are_no_text_are_refused_line_by_line(hub: HubProcess, store: Store) -> None:
    answer = put(hub, line("bytes").encode() + b'\nnode,node=x l="\x80"\n\x00\xff\n')
    assert answer.status == 400
    assert [it["number"] for it in answer.json["lines"]] == [2, 3]
    assert len(loads(store, "bytes")) == 1


def test_an_empty_body_is_committed_as_nothing(hub: HubProcess) -> None:
    assert put(hub, b"").status == 204


def test_a_full_queue_is_429_and_a_stop_commits_what_waits(tmp_path: Path) -> None:
    with HubProcess(tmp_path, {"commit_seconds": 3600.0, "queue_bytes": 100}) as hub:
        assert put(hub, line("first").encode()).status == 204
        answers: list[Reply] = []
        waiting = threading.Thread(target=lambda: answers.append(put(hub, line("second").encode())))
        waiting.start()
        client = hub.hub()
        wait_until("the second body waits", lambda: client.status()["queue"]["bodies"] == 1)
        full = put(hub, line("third" * 10).encode())
        assert full.status == 429
        assert int(full.headers["retry-after"]) > 0
        assert hub.stop() == 0
        waiting.join(timeout=10)
        assert [answer.status for answer in answers] == [204]
        hub.start()
        assert hub.hub().status()["store"]["tables"]["node"] == 2
