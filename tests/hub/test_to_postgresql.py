"""What cannot be moved to PostgreSQL stays where it is."""

from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from gpuvigil.model import Record, RecordKind
from hub.http.bearer import Scope
from hub.records import IssuedTokens, RecordBook, move_records, open_records
from tests.postgresql import Postgresql

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def fill(settings: HubSettings, name: str) -> None:
    book = RecordBook(open_records(settings))
    book.write([Record(kind=RecordKind.EVENT, id=name, at=NOON, subject="c")])
    book.close()


def test_there_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no records to move"):
        move_records(HubSettings(data_directory=tmp_path))


def test_sqlite_is_no_place_to_move_to(tmp_path: Path) -> None:
    settings = HubSettings(data_directory=tmp_path)
    fill(settings, "stays")
    with pytest.raises(StoreError, match="names no PostgreSQL"):
        move_records(settings)
    assert (tmp_path / "records.sqlite").exists()


@pytest.mark.server
def test_records_are_never_mixed_with_others(tmp_path: Path, postgresql: Postgresql) -> None:
    shared = HubSettings(data_directory=tmp_path, records_url=postgresql.database())
    fill(HubSettings(data_directory=tmp_path), "mine")
    fill(shared, "another's")
    with pytest.raises(StoreError, match="there are some already"):
        move_records(shared)
    assert (tmp_path / "records.sqlite").exists()
    book = RecordBook(open_records(shared))
    assert [it["id"] for it in book.changes(0, [RecordKind.EVENT])[0]] == ["another's"]
    book.close()


@pytest.mark.server
def test_issued_tokens_are_taken_along(tmp_path: Path, postgresql: Postgresql) -> None:
    shared = HubSettings(data_directory=tmp_path, records_url=postgresql.database())
    fill(HubSettings(data_directory=tmp_path), "mine")
    with closing(RecordBook(open_records(HubSettings(data_directory=tmp_path)))) as old:
        _, token = IssuedTokens(old.transactions, lambda: NOON).create(Scope.READER, "grafana")
    move_records(shared)
    with closing(RecordBook(open_records(shared))) as new:
        bearer = IssuedTokens(new.transactions, lambda: NOON).bearer(token.encode())
    assert bearer is not None
    assert bearer.name == "grafana"
