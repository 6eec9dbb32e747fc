"""Collectors of the version before and of the one after are served: what they send, played back.

`tests/fixtures/wire` holds bodies and headers as they went over the wire. `0.1.0` is what that
version sends; `next` is made up: headers, tags, fields, a measurement and record keys that this
version has never heard of.
"""

import gzip
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import RecordKind, Subject
from gpuvigil.store.hub import HubStore
from tests.hub.talk import Reply, ask
from tests.servers import HubProcess

pytestmark = pytest.mark.server

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"
NODES = {"0.1.0": "old", "next": "new"}


def play(hub: HubProcess, version: str, path: str, name: str, times: int = 1) -> Reply:
    """A body of the fixture, its lines repeated, as its collector sends it."""
    headers = json.loads((WIRE / version / "headers.json").read_text())
    headers |= {"Gpuvigil-Sequence": str(times), "Content-Encoding": "gzip"}
    # The clock of a fixture stands still: a node of today would be told that it is wrong.
    del headers["Gpuvigil-Sent-At"]
    body = gzip.compress((WIRE / version / name).read_bytes() * times, 1)
    return ask(hub.url + path, body, token=hub.collector_token, headers=headers)


@pytest.mark.parametrize("version", NODES)
# Few lines of a schema go through the parser, many are read as columns.
@pytest.mark.parametrize("times", [1, 20])
def test_telemetry_of_another_version_is_kept(hub: HubProcess, version: str, times: int) -> None:
    lines = (WIRE / version / "telemetry.lines").read_text().splitlines()
    seconds = int(lines[0].rpartition(" ")[2]) // 10**9
    at = datetime.fromtimestamp(seconds, timezone.utc)
    store, node = HubStore(hub.hub()), NODES[version]

    def counted() -> dict[str, int]:
        found = {}
        for measurement in ("gpu", "port", "node"):
            rows = store.window(measurement, [], at, at + timedelta(seconds=1)).to_pylist()
            found[measurement] = sum(row["samples"] for row in rows if row["node"] == node)
        return found

    before = counted()
    answer = play(hub, version, "/api/v2/write?precision=ns", "telemetry.lines", times)
    assert (answer.status, answer.body) == (204, b"")
    for measurement, count in counted().items():
        sent = sum(line.startswith(f"{measurement},") for line in lines)
        assert count - before[measurement] == times * sent > 0
    again = play(hub, version, "/api/v2/write?precision=ns", "telemetry.lines", times)
    assert again.headers["gpuvigil-duplicate"] == "1"


def test_every_field_that_0_1_0_sends_is_still_known() -> None:
    known = {
        name: {metric.name for metric in measurement.metrics}
        for name, measurement in MEASUREMENTS.items()
    }
    for line in (WIRE / "0.1.0" / "telemetry.lines").read_text().splitlines():
        fields = {pair.partition("=")[0] for pair in line.rsplit(" ", 2)[1].split(",")}
        assert fields <= known[line.partition(",")[0]]


@pytest.mark.parametrize("version", NODES)
def test_records_of_another_version_are_kept_and_read(hub: HubProcess, version: str) -> None:
    answer = play(hub, version, "/api/v1/records", "records.jsonl")
    assert answer.status == 200, answer.body
    node = Subject(cluster="wire", node=NODES[version])
    inventory = hub.collector_hub().inventory(node)
    assert inventory is not None
    assert inventory.body["tick_seconds"] == 10.0
    (event,) = hub.hub().records(RecordKind.EVENT, subject=node.key)
    assert event.body["code"] == 79
