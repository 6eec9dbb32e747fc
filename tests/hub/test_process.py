"""How the hub starts, refuses to start, and stops."""

import contextlib
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest

from gpuvigil.clock import EPOCH, from_ns
from gpuvigil.model import RecordKind
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.hub import HubStore
from tests.analyzer.process import Analyzer, running
from tests.hub.talk import ask
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

pytestmark = pytest.mark.server


def start(config: Path) -> tuple[int, str]:
    """The exit code of a hub that does not start, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuvigil", "hub", "--config", str(config)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def stopped(tmp_path: Path) -> HubProcess:
    """A hub that ran once."""
    with HubProcess(tmp_path) as process:
        pass
    return process


def test_without_a_token_file_it_says_what_to_do(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text('[hub]\nport = 0\ndata_directory = "data"\n', encoding="utf-8")
    code, said = start(config)
    assert code == 2
    assert said.count("\n") == 1
    assert "hub.service_token_file is not set" in said
    assert "GPUVIGIL_HUB_SERVICE_TOKEN_FILE" in said


def test_one_token_for_both_is_refused_and_not_shown(stopped: HubProcess) -> None:
    stopped.collector_token_file.write_text(stopped.service_token, encoding="utf-8")
    code, said = start(stopped.config)
    assert code == 2
    assert "hold the same token" in said
    assert stopped.service_token not in said


def test_a_port_that_is_taken_is_one_line(stopped: HubProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        stopped.settings["port"] = taken.getsockname()[1]
        stopped.write_config()
        code, said = start(stopped.config)
    assert code == 2
    assert "cannot listen" in said
    assert said.count("\n") == 1


def test_a_second_hub_on_the_same_data_does_not_start(tmp_path: Path) -> None:
    with HubProcess(tmp_path) as process:
        config = tmp_path / "second.toml"
        text = process.config.read_text(encoding="utf-8")
        port = process.url.rpartition(":")[2]
        config.write_text(text.replace(f"port = {port}", "port = 0"), encoding="utf-8")
        code, said = start(config)
        assert code == 1
        assert "telemetry.duckdb" in said
        assert said.count("\n") == 1
        assert process.running


def test_a_store_of_a_newer_version_is_not_opened(stopped: HubProcess) -> None:
    with duckdb.connect(str(stopped.data / "telemetry.duckdb")) as connection:
        connection.execute("INSERT INTO schema_version VALUES (99)")
    code, said = start(stopped.config)
    assert code == 1
    assert "schema 99" in said


def test_records_of_a_newer_version_are_not_opened(stopped: HubProcess) -> None:
    connection = sqlite3.connect(stopped.data / "records.sqlite")
    connection.execute("UPDATE alembic_version SET version_num = '99'")
    connection.commit()
    connection.close()
    code, said = start(stopped.config)
    assert code == 1
    assert "schema 99" in said


def test_a_field_that_is_new_in_the_catalogue_becomes_a_column(stopped: HubProcess) -> None:
    with duckdb.connect(str(stopped.data / "telemetry.duckdb")) as connection:
        connection.execute("ALTER TABLE node DROP COLUMN load_average")
        connection.execute("ALTER TABLE node DROP COLUMN cluster")
        connection.execute("INSERT INTO node (\"at\", node) VALUES (make_timestamp_ns(5), 'old')")
    with stopped as process:
        url = f"{process.url}/api/v2/write"
        ask(url, b"node,cluster=c,node=new load_average=1 6", token=process.service_token)
        store = HubStore(process.hub())
        mean = Aggregate(function=Function.MEAN, field="load_average")
        rows = store.window("node", [mean], EPOCH, from_ns(10**9)).to_pylist()
        found = [(row["cluster"], row["node"], row["load_average_mean"]) for row in rows]
        assert found == [("", "old", None), ("c", "new", 1.0)]


def packages(log: Path) -> set[str]:
    """Of which packages modules were loaded, as Python told in the log of a process."""
    lines = log.read_text(encoding="utf-8").splitlines()
    names = [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]
    # One that was looked for in vain is told of as well, but nothing in it.
    return {name.partition(".")[0] for name in names if "." in name}


def test_hub_and_analyzer_load_no_large_library_that_they_do_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    large = {"alembic", "mako", "pandas", "scipy", "sklearn", "streamlit", "altair"}
    with HubProcess(tmp_path) as process:
        url = f"{process.url}/api/v2/write"
        line = f"node,cluster=c,node=n driver_answering=1i {time.time_ns()}"
        assert ask(url, line.encode(), token=process.service_token).status == 204
        analyzer = Analyzer(process)
        with contextlib.contextmanager(running)(analyzer):
            pass
        process.restart()
        assert "duckdb" in packages(process.log)
        assert not large & packages(process.log)
        assert "pyarrow" in packages(analyzer.log)
        assert not large & packages(analyzer.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_soon_and_cleanly_with_a_long_poll_open(
    tmp_path: Path, number: signal.Signals
) -> None:
    with HubProcess(tmp_path) as process:
        client = process.hub()
        answers: list[int] = []
        waiting = threading.Thread(
            target=lambda: answers.append(client.changes(0, [RecordKind.EVENT]).sequence)
        )
        waiting.start()
        wait_until("the poll is sent", lambda: client._connection is not None)
        time.sleep(0.1)
        started = time.monotonic()
        assert process._end(number) == 0
        assert time.monotonic() - started < 10
        waiting.join(timeout=5)
        assert answers == [0]
        log = process.log.read_text(encoding="utf-8")
        assert "listening" in log
        assert log.rstrip().endswith("hub stopped")
        assert "Traceback" not in log


def test_it_listens_where_it_was_told_and_keeps_its_data_to_its_owner(tmp_path: Path) -> None:
    with HubProcess(tmp_path, {"listen": "127.0.0.2"}) as process:
        assert process.url.startswith("http://127.0.0.2:")
        port = int(process.url.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        assert f"port={port}" in process.log.read_text(encoding="utf-8")
        assert stat.S_IMODE(process.data.stat().st_mode) == 0o700


def test_a_client_in_the_middle_of_a_body_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    with HubProcess(tmp_path) as process:
        port = int(process.url.rpartition(":")[2])
        head = (
            "POST /api/v2/write HTTP/1.1\r\nHost: hub\r\nContent-Length: 1000\r\n"
            f"Authorization: Token {process.collector_token}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
            slow.sendall(head.encode() + b"node,node=n load")
            assert ask(f"{process.url}/ping").status == 204
            started = time.monotonic()
            assert process.stop() == 0
            assert time.monotonic() - started < 10
        assert "Traceback" not in process.log.read_text(encoding="utf-8")


def test_a_connection_too_many_is_answered_503_and_the_hub_goes_on(tmp_path: Path) -> None:
    most = 3
    with HubProcess(tmp_path, {"connections_count": most}) as process:
        port = int(process.url.rpartition(":")[2])
        ping = b"GET /ping HTTP/1.1\r\nHost: hub\r\n\r\n"
        with contextlib.ExitStack() as stack:
            kept = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
                for _ in range(most)
            ]
            for one in kept:
                one.sendall(ping)
                assert one.recv(4096).startswith(b"HTTP/1.1 204 ")
            refused = ask(f"{process.url}/ping")
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert f"the hub has {most} connections" in refused.json["message"]
            assert ask(f"{process.url}/healthz").status == 200
            assert refused.headers["connection"] == "close"
            for one in kept:
                one.sendall(ping)
                assert one.recv(4096).startswith(b"HTTP/1.1 204 "), "one that stands goes on"
        wait_until("there is room again", lambda: ask(f"{process.url}/ping").status == 204)
