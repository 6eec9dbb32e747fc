"""Damaged records: set aside, put back from the hub's own backup and journal, and nobody revived."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuvigil.errors import HubRefused, HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = pytest.mark.server

UNAUTHORIZED = 401
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def event(name: str) -> Record:
    # Large enough that the file has pages of its own for what is damaged.
    body = {"text": name * 200}
    return Record(kind=RecordKind.EVENT, id=name, at=NOON, subject="c/n1", body=body)


def events(client: Hub) -> list[str]:
    return sorted(it.id for it in client.records(RecordKind.EVENT))


def cut(data: Path) -> None:
    os.truncate(data / "records.sqlite", (data / "records.sqlite").stat().st_size // 2)


def emptied(data: Path) -> None:
    os.truncate(data / "records.sqlite", 0)


def gone(data: Path) -> None:
    (data / "records.sqlite").unlink()


def garbled_head(data: Path) -> None:
    garble(data / "records.sqlite", 0, 100)


def garbled_pages(data: Path) -> None:
    size = (data / "records.sqlite").stat().st_size
    garble(data / "records.sqlite", size // 4, size // 2)


def garbled_log(data: Path) -> None:
    log = data / "records.sqlite-wal"
    garble(log, 0, log.stat().st_size)


def garble(file: Path, begin: int, length: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(begin)
        opened.write(b"\xa5" * length)


def backed_up(hub: HubProcess) -> bool:
    return hub.hub().status()["records"]["backup_at"] is not None


@pytest.mark.parametrize(
    "damage",
    [cut, emptied, gone, garbled_head, garbled_pages, garbled_log],
    ids=lambda it: it.__name__,
)
def test_damaged_records_come_up_with_all_that_was_acknowledged(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        client = hub.hub()
        client.write_records([event(f"before-{n}") for n in range(50)])
        wait_until("there is a backup", lambda: backed_up(hub), 30.0)
        sequence = client.write_records([event(f"after-{n}") for n in range(50)])
        client.write_records([event("claimed")])
        # A log is left by a kill alone; with it SQLite itself mends what the file lacks.
        hub.kill() if damage is garbled_log else hub.stop()
        damage(hub.data)
        hub.start()
        client = hub.hub()
        assert len(events(client)) == 101
        changes = client.changes(sequence, [RecordKind.EVENT])
        assert [it.id for it in changes.records] == ["claimed"]
        assert changes.sequence > sequence + 1000
        assert client.write_records([event("new")]) > changes.sequence
        (repair,) = client.status()["records"]["repairs"]
        assert repair["missing_since"] is None
        if damage is not gone:
            assert Path(repair["moved_to"]).exists()
        assert "gpuvigil store restore" in hub.log.read_text()
        hub.restart()
        assert len(events(hub.hub())) == 102
        assert len(hub.hub().status()["records"]["repairs"]) == 1


def test_damage_that_is_found_while_the_hub_runs_ends_it_and_its_next_start_mends_it(
    tmp_path: Path,
) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        hub.hub().write_records([event(f"before-{n}") for n in range(50)])
        wait_until("there is a backup", lambda: backed_up(hub), 30.0)
        hub.restart()
        garbled_pages(hub.data)
        with pytest.raises(HubUnavailable):
            hub.hub().records(RecordKind.EVENT)
        process = hub.process
        assert process is not None
        assert process.wait(30) == 1
        assert "the records are damaged: database disk image is malformed" in hub.log.read_text()
        hub.start()
        assert len(events(hub.hub())) == 50
        (repair,) = hub.hub().status()["records"]["repairs"]
        assert "malformed" in repair["reason"]


def test_without_backup_and_journal_the_hub_says_so_and_comes_up_empty(tmp_path: Path) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        sequence = hub.hub().write_records([event("lost")])
        hub.stop()
        for file in (hub.data / "records.backups").iterdir():
            file.unlink()
        garbled_head(hub.data)
        hub.start()
        assert events(hub.hub()) == []
        (repair,) = hub.hub().status()["records"]["repairs"]
        assert repair["empty"]
        assert repair["backup"] is None
        # Who follows changes hears of what comes now.
        hub.hub().write_records([event("new")])
        assert [it.id for it in hub.hub().changes(sequence, [RecordKind.EVENT]).records] == ["new"]


def test_of_a_backup_without_its_journal_the_missing_span_is_named_and_no_token_revived(
    tmp_path: Path,
) -> None:
    with HubProcess(tmp_path / "hub") as hub:
        tokens = [asked(hub, "", {"scope": "reader", "name": name}) for name in "abc"]
        revoked, rotated, kept = ((it["issued"]["id"], it["token"]) for it in tokens)
        hub.hub().write_records([event("old")])
        back_up(hub)
        asked(hub, f"/{revoked[0]}/revoke", {})
        asked(hub, f"/{rotated[0]}/rotate", {"overlap_seconds": 0})
        hub.hub().write_records([event("lost")])
        hub.stop()
        for file in (hub.data / "records.backups").glob("*.journal"):
            file.unlink()
        garbled_head(hub.data)
        hub.start()
        assert events(hub.hub()) == ["old"]
        (repair,) = hub.hub().status()["records"]["repairs"]
        assert repair["missing_since"] == repair["backup_at"]
        assert [comes_in(hub, it[1]) for it in (revoked, rotated, kept)] == [False, False, True]
        # Nor does a copy that somebody puts there by hand.
        hub.stop()
        (oldest, *_) = sorted((hub.data / "records.backups").glob("*.sqlite"))
        shutil.copy(oldest, hub.data / "records.sqlite")
        shutil.rmtree(hub.data / "records.backups")
        hub.start()
        assert [comes_in(hub, it[1]) for it in (revoked, rotated, kept)] == [False, False, True]
        assert revoked[1] not in (hub.data / "tokens.ended").read_text()
        assert revoked[0] not in (hub.data / "tokens.ended").read_text()


def back_up(hub: HubProcess) -> None:
    """Have the hub make a backup now: it makes one when there is none."""
    hub.stop()
    shutil.rmtree(hub.data / "records.backups")
    hub.start()
    wait_until("there is a backup", lambda: backed_up(hub), 30.0)


def asked(hub: HubProcess, place: str, body: dict[str, object]) -> dict[str, Any]:
    answer = hub.hub().request("POST", f"/api/v1/tokens{place}", json.dumps(body).encode()).body
    found: dict[str, Any] = json.loads(answer)
    return found


def comes_in(hub: HubProcess, token: str) -> bool:
    with closing(Hub(hub.url, lambda: token)) as client:
        try:
            client.records(RecordKind.EVENT, limit=1)
        except HubRefused as error:
            return error.status != UNAUTHORIZED
        return True
