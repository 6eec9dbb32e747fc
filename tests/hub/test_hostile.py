"""Hostile bodies get 4xx, cost no memory that stays, and the next good write works."""

import contextlib
import http.client
import json
import random
import re
from pathlib import Path

import pytest

from tests.hub.hostile import GOOD, Hostile, hostile
from tests.servers import HubProcess

pytestmark = pytest.mark.server

ROUNDS = 10
BODIES = 20
# Of a body that may be 16 MiB as text the parser makes ten times as much, for a moment.
MOST_MIB = 700


def send(connection: http.client.HTTPConnection, hub: HubProcess, it: Hostile) -> int:
    headers = {"Authorization": f"Token {hub.collector_token}", **it.headers}
    connection.request("POST", f"/api/v2/write?{it.query}", it.body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def peak_mib(hub: HubProcess) -> float:
    """The most memory that the hub ever had."""
    assert hub.process is not None
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def bombard(hub: HubProcess, seeds: range) -> None:
    """Send the bodies of some seeds; AssertionError names the seed at fault."""
    host, _, port = hub.url.removeprefix("http://").partition(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=60)) as connection:
        for seed in seeds:
            it = hostile(seed)
            status = send(connection, hub, it)
            right = status in {204, 400} if it.harmless else 400 <= status < 500
            assert right, f"seed {seed}, {it.kind}: {status}"
        assert send(connection, hub, Hostile("good", GOOD.encode())) == 204


def test_hostile_bodies_are_4xx_with_bounded_memory_and_the_next_good_write_works(
    tmp_path: Path,
) -> None:
    first = random.randrange(10**9)
    print(f"seeds from {first}")  # noqa: T201 - what a failure is repeated with
    with HubProcess(tmp_path) as hub:
        for number in range(ROUNDS):
            bombard(hub, range(first + number * BODIES, first + (number + 1) * BODIES))
        assert peak_mib(hub) < MOST_MIB
        assert "Traceback" not in hub.log.read_text(encoding="utf-8")
        assert "failed" not in hub.log.read_text(encoding="utf-8")


def test_the_same_seed_makes_the_same_body() -> None:
    assert [hostile(seed) for seed in range(50)] == [hostile(seed) for seed in range(50)]


ABSURD: tuple[object, ...] = (
    *(None, True, -1, 10**400, 1e308, 2**63, "", "x", "\ud800", "a\0b", "9" * 5000, [], {}, [[]]),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", ["x"] * 500, {"x": {"y": "z"}}),
)
SPAN = {"start": "2026-01-31T00:00:00Z", "end": "2026-02-01T00:00:00Z"}
NODE = {"measurement": "node", "fields": ["load_average"]}
RECORD = {"kind": "event", "id": "c/n|1", "at": SPAN["start"], "subject": "c/n", "version": 1}
QUESTIONS: dict[str, dict[str, object]] = {
    "telemetry/window": {**SPAN, "measurement": "node", "aggregates": [["mean", "load_average"]]},
    "telemetry/series": {**SPAN, **NODE, "where": {"node": "n"}, "step_seconds": 1},
    "telemetry/latest": {**NODE, "since": SPAN["start"]},
    "claim": {"kind": "notice", "owner": "o", "lease_seconds": 1, "limit": 5},
    "finish": {"kind": "notice", "owner": "o", "ids": [], "records": []},
    "tokens": {"scope": "reader", "name": "x"},
    "records": {**RECORD, "body": {"state": "x"}, "parent": "p", "due_at": SPAN["start"]},
}


def test_absurd_questions_are_answered_and_never_with_a_failure(hub: HubProcess) -> None:
    host, _, port = hub.url.removeprefix("http://").partition(":")
    headers = {"Authorization": f"Token {hub.service_token}"}
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=60)) as connection:
        for path, question in QUESTIONS.items():
            odd_ones = [{**question, key: odd} for key in question for odd in ABSURD]
            odd_ones += [{**question, "where": {"node": odd}} for odd in ABSURD]
            odd_ones += [
                {**question, "where": {odd: "n"}} for odd in ABSURD if isinstance(odd, str)
            ]
            bodies = [json.dumps(it).encode() for it in odd_ones]
            for body in (*bodies, b"[" * 100_000, b'{"a":' * 10_000, b"\xff", b"9" * 100_000):
                connection.request("POST", f"/api/v1/{path}", body, headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status < 500, f"{path}: {body[:200]!r}"
    assert "Traceback" not in hub.log.read_text(encoding="utf-8")
