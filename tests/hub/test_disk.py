"""The hub as a process on a disk that is full, and on files that were cut short."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.errors import HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind
from gpuvigil.store.hub import HubStore
from tests.disk import Disk
from tests.hub.talk import ask, identity
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOON_SECONDS = int(NOON.timestamp())
DISK_KIB = 64 * 1024
DAYS, LINES = 3, 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", DISK_KIB)
    try:
        if not disk.is_there:
            pytest.skip("no file system may be mounted here")
        yield disk
    finally:
        disk.end()


def fill(file: Path) -> None:
    """Leave no byte of room beside `file`."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(os.urandom(4096))


def lines(day: int) -> bytes:
    """Lines of one node in an hour of that day, a second apart."""
    first = NOON_SECONDS + day * 86_400
    rows = (f"node,cluster=c,node=n1 load_average={n} {first + n}" for n in range(LINES))
    return "\n".join(rows).encode()


def samples(client: Hub, first: int = 0, last: int = DAYS) -> int:
    """Lines of the node from the day `first` to before `last`."""
    span = (NOON + timedelta(days=first), NOON + timedelta(days=last))
    found = HubStore(client).window("node", [], *span)["samples"].to_pylist()
    return sum(found)


def test_a_disk_without_room_refuses_for_the_time_being_and_room_cures_it(
    disk: Disk, tmp_path: Path
) -> None:
    process = HubProcess(tmp_path / "hub", {"data_directory": tmp_path / "disk/hub-data"})
    process.within, process.data = disk.within, disk.seen / "hub-data"
    with process:
        client, token = process.hub(), process.collector_token
        url = f"{process.url}/api/v2/write?precision=s"
        assert ask(url, lines(0), token=token, headers=identity(1)).status == 204
        ballast = disk.seen / "ballast"
        fill(ballast)
        answers = [ask(url, lines(1), token=token, headers=identity(2)) for _ in range(2)]
        assert [it.status for it in answers] == [503, 503]
        assert all(int(it.headers["retry-after"]) > 0 for it in answers)
        event = Record(kind=RecordKind.EVENT, id="e1", at=NOON, subject="c/n1")
        with pytest.raises(HubUnavailable):
            client.write_records([event])
        assert ask(f"{process.url}/healthz").status == 200
        assert samples(client) == LINES
        ballast.unlink()
        again = ask(url, lines(1), token=token, headers=identity(2))
        assert (again.status, again.headers.get("gpuvigil-duplicate")) == (204, None)
        client.write_records([event])
        assert samples(client) == 2 * LINES
        process.kill()
        process.restart()
        assert samples(client) == 2 * LINES
        assert [it.id for it in client.changes(0, [RecordKind.EVENT]).records] == ["e1"]


def test_files_cut_short_are_named_and_set_aside_and_the_hub_keeps_taking_writes(
    tmp_path: Path,
) -> None:
    with HubProcess(tmp_path) as process:
        url = f"{process.url}/api/v2/write?precision=s"
        for day in range(DAYS):
            assert ask(url, lines(day), token=process.collector_token).status == 204
        process.restart()  # what is over is sealed at the start
        wait_until("sealed days", lambda: sealed_lines(process.hub()) == DAYS * LINES, 60.0)
        process.stop()
        cut(units(process)[0])
        process.start()
        client = process.hub()
        wait_until("two days of three", lambda: samples(client) == (DAYS - 1) * LINES)
        (damaged,) = client.status()["store"]["damaged"]
        assert (Path(damaged["file"]).name, damaged["lines"]) == (units_name(damaged), LINES)
        assert Path(damaged["moved_to"]).exists()
        assert ask(url, lines(0), token=process.collector_token).status == 204
        assert samples(client) == DAYS * LINES
        process.stop()
        cut(process.data / "telemetry.duckdb")
        process.start()
        client = process.hub()
        # The day that was written again lay in the file that was cut; what is sealed is not in it.
        assert samples(client, 1) == (DAYS - 1) * LINES
        assert ask(url, lines(DAYS), token=process.collector_token).status == 204
        assert samples(client, DAYS, DAYS + 1) == LINES
        files = [Path(it["file"]).name for it in client.status()["store"]["damaged"]]
        assert "telemetry.duckdb" in files
        log = process.log.read_text(encoding="utf-8")
        assert log.count("damaged file set aside") >= 2
        assert "Traceback" not in log


def sealed_lines(client: Hub) -> int:
    """Lines of nodes in files that the hub's manifest names: a file is there a moment earlier."""
    told = json.loads(client.request("GET", "/api/v1/store").body)
    lines: int = told["measurements"]["node"]["sealed_lines"]
    return lines


def units(process: HubProcess) -> list[Path]:
    """Files with lines of sealed hours, the oldest first by name."""
    return sorted(process.data.glob("telemetry.sealed/node/*.lines.parquet"))


def units_name(damaged: dict[str, str]) -> str:
    """A file's name before it was moved away."""
    return Path(damaged["moved_to"]).name.partition(".damaged-")[0]


def cut(file: Path) -> None:
    """Leave the first half of a file."""
    os.truncate(file, file.stat().st_size // 2)
