"""Two hubs on one PostgreSQL: one order of commits, one owner of each claim, and either may go."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.config import HubSettings
from gpuvigil.errors import HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind
from hub.records import RecordBook, open_records
from tests.alerts.examples import a_transition
from tests.alerts.process import AlertsProcess
from tests.hub.talk import ask
from tests.polling import wait_until
from tests.postgresql import Postgresql
from tests.receiver import Receiver
from tests.servers import ROOT, HubProcess
from tests.timeseries import VictoriaMetrics

pytestmark = pytest.mark.server

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
EVENT, NOTICE, TRANSITION = RecordKind.EVENT, RecordKind.NOTICE, RecordKind.TRANSITION


@pytest.fixture(scope="module")
def hubs(
    tmp_path_factory: pytest.TempPathFactory, postgresql: Postgresql
) -> Iterator[tuple[HubProcess, HubProcess]]:
    directory = tmp_path_factory.mktemp("hubs")
    url = directory / "records-url"
    url.write_text(postgresql.database(), encoding="utf-8")
    settings = {"records_url_file": str(url)}
    first = HubProcess(directory / "first", settings)
    tokens = {
        "service_token_file": str(first.service_token_file),
        "collector_token_file": str(first.collector_token_file),
    }
    second = HubProcess(directory / "second", {**settings, **tokens})
    second.service_token_file = first.service_token_file
    second.collector_token_file = first.collector_token_file
    with first, second:
        yield first, second


@pytest.fixture
def both(hubs: tuple[HubProcess, HubProcess]) -> Iterator[str]:
    """Both addresses, as `hub.url`; both hubs run before and after."""
    yield ",".join(hub.url for hub in hubs)
    for hub in hubs:
        if not hub.running:
            hub.start()


def a_record(name: str, kind: RecordKind = EVENT, **more: Any) -> Record:
    return Record(**{"kind": kind, "id": name, "at": NOON, "subject": "c/n1", **more})


def names(records: Sequence[Record]) -> list[str]:
    return [it.id for it in records]


def test_a_commit_at_one_hub_wakes_who_waits_at_the_other(
    hubs: tuple[HubProcess, HubProcess],
) -> None:
    first, second = hubs
    for writing, waiting in ((first, second), (second, first)):
        writer, reader = writing.hub(), waiting.hub()
        after = reader.changes(-1, [NOTICE]).sequence
        woken: list[tuple[float, list[str]]] = []

        def follow(reader: Hub = reader, after: int = after, woken: Any = woken) -> None:
            found = reader.changes(after, [NOTICE], wait_seconds=20)
            woken.append((time.monotonic(), names(found.records)))

        thread = threading.Thread(target=follow)
        thread.start()
        time.sleep(0.5)
        sent = time.monotonic()
        writer.write_records([a_record(f"from {writing.url}", NOTICE)])
        thread.join(timeout=30)
        ((at, found),) = woken
        assert found == [f"from {writing.url}"]
        assert at - sent < 10.0  # of the twenty that it would have waited


def test_a_token_is_issued_and_revoked_at_both_hubs_at_whichever_it_is_asked(
    hubs: tuple[HubProcess, HubProcess],
) -> None:
    first, second = hubs
    asked = json.dumps({"scope": "reader", "name": "both"}).encode()
    made = ask(f"{first.url}/api/v1/tokens", asked, token=first.service_token).json
    token, id_ = made["token"], made["issued"]["id"]

    def status(hub: HubProcess) -> int:
        return ask(f"{hub.url}/api/v1/status", token=token).status

    assert status(first) == 200
    wait_until("the other knows it", lambda: status(second) == 200)
    revoked = f"{second.url}/api/v1/tokens/{id_}/revoke"
    assert ask(revoked, b"{}", token=first.service_token).status == 200
    assert status(second) == 401
    wait_until("the first knows it", lambda: status(first) == 401)


def test_followers_at_both_hubs_see_every_commit_in_one_order(
    hubs: tuple[HubProcess, HubProcess],
) -> None:
    after = hubs[0].hub().changes(-1, [EVENT]).sequence
    seen: list[list[tuple[int, str]]] = [[], []]
    wanted = {f"order-{w}-{n}" for w in range(4) for n in range(25)}

    def write(writer: int) -> None:
        hub = hubs[writer % 2].hub()
        for number in range(25):
            hub.write_records([a_record(f"order-{writer}-{number}")])

    def follow(number: int) -> None:
        hub, at = hubs[number].hub(), after
        while len(seen[number]) < len(wanted):
            found = hub.changes(at, [EVENT], wait_seconds=20)
            at = found.sequence
            seen[number] += [(it.sequence or 0, it.id) for it in found.records]

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    threads += [threading.Thread(target=follow, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert seen[0] == seen[1] == sorted(seen[0])
    assert {name for _, name in seen[0]} == wanted


def test_each_transition_has_one_owner_whatever_is_killed(
    hubs: tuple[HubProcess, HubProcess], both: str, postgresql: Postgresql
) -> None:
    first, second = hubs
    count = 200
    records = [a_record(f"step-{n}", TRANSITION, due_at=NOON) for n in range(count)]
    second.hub().write_records(records)
    orders = [both, f"{second.url},{first.url}"]
    workers = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.hub.claimant"),
                *(orders[n % 2], str(first.service_token_file), f"owner-{n}"),
            ],
            cwd=ROOT,
        )
        for n in range(4)
    ]
    reader = second.hub()

    def done() -> list[Record]:
        return list(reader.records(NOTICE, since=datetime(2026, 2, 1, tzinfo=timezone.utc)))

    try:
        wait_until("a quarter is done", lambda: len(done()) >= count // 4, 60.0)
        first.kill()
        workers[1].kill()
        wait_until("half is done", lambda: len(done()) >= count // 2, 60.0)
        first.start()
        postgresql.stop(signal.SIGQUIT)
        postgresql.start()
        codes = [worker.wait(timeout=90) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert codes == [0, -9, 0, 0]
    finished = [it.parent for it in done()]
    assert len(finished) == len(set(finished)), "one was worked off by two"
    assert set(finished) == {it.id for it in records}


def test_a_hub_whose_clock_is_ahead_takes_nobodys_lease(
    tmp_path: Path, postgresql: Postgresql
) -> None:
    settings = HubSettings(data_directory=tmp_path, records_url=postgresql.database())
    book = RecordBook(open_records(settings))
    lease, now = timedelta(seconds=60), datetime.now(timezone.utc)
    book.write([a_record("leased", TRANSITION, due_at=NOON)])
    assert book.claim(TRANSITION, "a", now, lease, 1)
    assert book.claim(TRANSITION, "b", now + timedelta(days=1), lease, 1) == []
    left = book.due_in(TRANSITION, now + timedelta(days=1))
    assert left is not None
    assert timedelta() < left <= lease
    book.finish(TRANSITION, "a", ["leased"], [], now + timedelta(days=1))
    book.close()


def test_two_alert_services_tell_everything_once_though_a_hub_goes(
    hubs: tuple[HubProcess, HubProcess], both: str, tmp_path: Path
) -> None:
    first, second = hubs
    client = Hub(both, lambda: first.service_token)
    told = [f"told-{n}" for n in range(40)]
    with Receiver() as receiver:
        channel = {"pager": {"url": receiver.url}}
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        with (
            AlertsProcess(first, tmp_path / "a", both, **channel),
            AlertsProcess(first, tmp_path / "b", f"{second.url},{first.url}", **channel),
        ):
            now = datetime.now(timezone.utc)
            for part in (told[:20], told[20:]):
                client.write_records(a_transition(at=now, id=name).to_record() for name in part)
                receiver.wait_for_accepted(len(part) // 2, 60.0)
                if first.running:
                    first.kill()
            wait_until(
                "every notice is sent",
                lambda: [_states(client, name) for name in told] == [["sent"]] * len(told),
                60.0,
            )
        posts = [it.headers["Idempotency-Key"] for it in receiver.accepted()]
    client.close()
    # Who was told while the hub was killed may hear it again, by the same key.
    assert len(set(posts)) == len(told)


def _states(client: Hub, incident: str) -> list[str]:
    found = client.records(NOTICE, parent=incident)
    return [it.body["state"] for it in found if not it.body["repeat"]]


def test_a_client_goes_on_at_the_other_hub(hubs: tuple[HubProcess, HubProcess], both: str) -> None:
    first, second = hubs
    client = Hub(both, lambda: first.service_token)
    client.write_records([a_record("before it went")])
    assert client.status()["started_at"] == first.hub().status()["started_at"]
    first.kill()
    client.write_records([a_record("after it went")])
    assert client.status()["started_at"] == second.hub().status()["started_at"]
    first.start()
    second.kill()
    assert client.record(EVENT, "after it went") is not None
    first.kill()
    with pytest.raises(HubUnavailable):
        client.record(EVENT, "after it went")
    client.close()


SERVICES = """
[hub]
url = "{hubs}"
service_token_file = "{service_token}"
collector_token_file = "{collector_token}"
[store]
kind = "victoriametrics"
url = "{store}"
[simulator]
nodes = 2
gpus_per_node = 2
tick_seconds = 0.5
faults_file = "{directory}/faults.json"
spool_directory = "{directory}/spool"
[analyzer]
tick_seconds = 0.5
"""


def test_a_fault_is_found_though_the_hub_that_everybody_used_is_gone(
    hubs: tuple[HubProcess, HubProcess], both: str, tmp_path: Path
) -> None:
    first, second = hubs
    file = tmp_path / "services.toml"
    with ExitStack() as stack:
        store = stack.enter_context(VictoriaMetrics(tmp_path / "store"))
        text = SERVICES.format(
            hubs=both,
            service_token=first.service_token_file,
            collector_token=first.collector_token_file,
            store=store.url,
            directory=tmp_path,
        )
        file.write_text(text, encoding="utf-8")
        for service in ("simulate", "analyze"):
            stack.enter_context(running(service, file))
        client = first.hub()
        wait_until("the nodes", lambda: len(client.records(RecordKind.INVENTORY)) == 2, 60.0)
        wait_until("the analyzer's pulse", lambda: client.records(RecordKind.PULSE), 60.0)
        first.kill()
        inject = ["inject", "xid79", "--node", "sim-001", "--gpu", "1", "--config", str(file)]
        subprocess.run([sys.executable, "-m", "gpuvigil", *inject], cwd=ROOT, check=True)
        wait_until("the lost GPU is told", lambda: "gpu_lost" in faults(second.hub()), 60.0)
        # Numbers never went through a hub.
        assert faults(second.hub()) == ["gpu_lost"]


def faults(hub: Hub) -> list[str]:
    return [it.body["fault"] for it in hub.records(RecordKind.INCIDENT, states={"open"})]


@contextmanager
def running(command: str, file: Path) -> Iterator[None]:
    with (file.parent / f"{command}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuvigil", command, "--config", str(file)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def test_postgresql_that_goes_and_comes_back_is_two_lines_and_503_meanwhile(
    hubs: tuple[HubProcess, HubProcess], postgresql: Postgresql
) -> None:
    first, second = hubs
    reader, writer = second.hub(), first.hub()
    after = reader.changes(-1, [EVENT]).sequence
    said = first.log.stat().st_size
    # A crash, as far as a server's users can tell.
    postgresql.stop(signal.SIGQUIT)
    for path in ("/readyz", f"/api/v1/changes?kinds=event&after={after}"):
        answer = ask(f"{first.url}{path}", token=first.service_token)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "the hub's log" in answer.json["message"]
    with pytest.raises(HubUnavailable) as caught:
        writer.write_records([a_record("while it was away")])
    assert caught.value.retry_after_seconds
    assert ask(f"{first.url}/healthz").status == 200
    postgresql.start()
    wait_until("the hub is ready", lambda: ask(f"{first.url}/readyz").status == 200, 30.0)
    wait_until("the other, too", lambda: ask(f"{second.url}/readyz").status == 200, 30.0)
    writer.write_records([a_record("since it is back")])
    found = reader.changes(after, [EVENT], wait_seconds=20)
    assert names(found.records) == ["since it is back"]
    lines = first.log.read_bytes()[said:].decode().splitlines()
    away, back = (line for line in lines if '"records ' in line)
    assert "records away" in away
    assert "records back" in back
    assert f"PostgreSQL at 127.0.0.1:{postgresql.port}" in away
    assert postgresql.password not in first.log.read_text(encoding="utf-8")


def test_a_hub_takes_its_records_along_to_postgresql(
    tmp_path: Path, postgresql: Postgresql
) -> None:
    with HubProcess(tmp_path) as hub:
        client = hub.hub()
        client.write_records(a_record(f"kept-{n}", TRANSITION, due_at=NOON) for n in range(2_500))
        client.write_records([a_record("kept-7", TRANSITION, version=2, body={"n": 7})])
        client.claim(TRANSITION, "before", lease_seconds=3600, limit=100)
        before = client.changes(0, [TRANSITION])
        hub.settings["records_url"] = postgresql.database()
        hub.write_config()
        code, said = move(hub)
        assert code == 1
        assert "telemetry.duckdb" in said  # it still runs
        hub.stop()
        code, said = move(hub)
        assert (code, "count=2500" in said) == (0, True)
        hub.start()
        client = hub.hub()
        assert client.changes(0, [TRANSITION]) == before
        assert len(client.claim(TRANSITION, "after", lease_seconds=60, limit=5_000)) == 2_399
        assert client.write_records([a_record("new")]) == before.sequence + 1


def move(hub: HubProcess) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpuvigil", "hub", "--config", str(hub.config), "--move-records"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr
