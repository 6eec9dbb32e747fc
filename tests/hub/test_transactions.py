"""Transactions on the records: what is said when the database cannot do one, and what the journal hears."""

from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from gpuvigil.clock import SystemClock
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from gpuvigil.model import Record, RecordKind
from hub.records import RecordBook, open_kept
from hub.records.backups import FOLDER
from hub.records.journal import segments
from hub.records.transactions import Transactions

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def read(transactions: Transactions) -> str | None:
    """Why nothing can be read; None when something can."""
    try:
        with transactions.read() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
    except StoreError as error:
        return str(error)
    return None


def test_a_postgresql_that_is_away_is_told_in_the_log_once_and_its_address_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Nobody listens on port 1.
    engine = create_engine("postgresql+psycopg://ada:secret@127.0.0.1:1/records")
    with closing(Transactions(engine)) as transactions:
        assert transactions.shared
        for _ in range(2):
            said = read(transactions)
            assert said == "the records: PostgreSQL cannot do it; see the hub's log"
    assert caplog.text.count("records away") == 1
    assert "PostgreSQL at 127.0.0.1:1, database records" in caplog.text
    assert "secret" not in caplog.text


def test_a_file_that_can_be_read_was_never_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Transactions(create_engine(f"sqlite:///{tmp_path}/records"))) as transactions:
        assert read(transactions) is None
        assert not transactions.shared
        with (
            pytest.raises(StoreError, match="the records: no such table: counter"),
            transactions.write(),
        ):
            pass
    assert "records" not in caplog.text


def test_a_file_that_is_no_database_is_made_anew_at_the_next_start(tmp_path: Path) -> None:
    kept = open_kept(HubSettings(data_directory=tmp_path), SystemClock())
    file = tmp_path / "spoilt"
    file.write_bytes(b"nothing of a database" * 100)
    for journal in (None, kept.journal):
        with closing(Transactions(create_engine(f"sqlite:///{file}"), journal)) as transactions:
            assert read(transactions) == "the records: file is not a database"
            why = None if journal is None else "file is not a database"
            assert transactions.damaged == why
            transactions.found_damaged("something else")
            assert transactions.damaged == why
    assert any("spoilt" in it.name and it != file for it in tmp_path.iterdir())
    kept.engine.dispose()


def test_the_journal_hears_of_each_commit_from_where_to_where(tmp_path: Path) -> None:
    kept = open_kept(HubSettings(data_directory=tmp_path), SystemClock())
    with closing(RecordBook(kept.engine, kept.journal)) as book:
        start = book.sequence()
        for name in ("a", "b"):
            book.write([Record(kind=RecordKind.EVENT, id=name, at=NOON, subject="c")])
        book.write([])
        told = [it for it in segments(tmp_path / FOLDER)[-1].lines() if it is not None]
    assert [(it["from"] - start, it["to"] - start) for it in told] == [(0, 1), (1, 2)]


def open_below(folder: Path) -> set[str]:
    """The names of this process's open files there."""
    links = (it for it in Path("/proc/self/fd").iterdir() if it.is_symlink())
    return {it.name for it in map(Path.resolve, links) if it.is_relative_to(folder)}


def test_a_book_that_is_closed_holds_no_file(tmp_path: Path) -> None:
    kept = open_kept(HubSettings(data_directory=tmp_path), SystemClock())
    book = RecordBook(kept.engine, kept.journal)
    book.write([Record(kind=RecordKind.EVENT, id="a", at=NOON, subject="c")])
    assert {"records.sqlite", segments(tmp_path / FOLDER)[-1].path.name} <= open_below(tmp_path)
    book.close()
    assert open_below(tmp_path) == set()


def test_a_turn_is_over_also_when_something_fails_in_it(tmp_path: Path) -> None:
    kept = open_kept(HubSettings(data_directory=tmp_path), SystemClock())
    with closing(RecordBook(kept.engine, kept.journal)) as book:
        for turn in (book.transactions.turn, book.transactions.write):
            with pytest.raises(KeyError), turn():
                raise KeyError
        assert book.write([Record(kind=RecordKind.EVENT, id="a", at=NOON, subject="c")])[1] == 1


@pytest.mark.parametrize("journal", [True, False])
def test_a_critical_step_is_kept_with_a_journal_and_without(tmp_path: Path, journal: bool) -> None:
    kept = open_kept(HubSettings(data_directory=tmp_path), SystemClock())
    with closing(RecordBook(kept.engine, kept.journal if journal else None)) as book:
        step = Record(kind=RecordKind.TRANSITION, id="a", at=NOON, subject="c", due_at=NOON)
        assert book.write([step])[1] == 1
