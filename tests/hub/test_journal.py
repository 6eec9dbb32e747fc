"""The records' journal: what it gives back, whatever was done to it, and what a repair makes of it."""

import os
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuvigil.clock import SystemClock
from gpuvigil.config import HubSettings
from gpuvigil.model import Record, RecordKind
from hub.records import (
    RecordBook,
    RevocationFile,
    ends_file,
    mark_restored,
    merge_ends,
    open_kept,
    set_records_aside,
)
from hub.records.backups import FOLDER, back_up, backups, prune, put_back
from hub.records.journal import Changes, Journal, newest_sequence, segments

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
LINEAGE = 7


def transition(name: str, version: int = 1) -> Record:
    return Record(
        kind=RecordKind.TRANSITION, id=name, at=NOON, subject="c", version=version, due_at=NOON
    )


def opened(folder: Path) -> RecordBook:
    kept = open_kept(HubSettings(data_directory=folder), SystemClock())
    return RecordBook(kept.engine, kept.journal)


def state(book: RecordBook) -> list[tuple[object, ...]]:
    with book.transactions.read() as connection:
        query = "SELECT kind, id, sequence, version, body, due_at FROM record ORDER BY sequence"
        return [tuple(row) for row in connection.exec_driver_sql(query)]


# A write of one of few records in a version, or a claim that is finished with such a write.
STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=25
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(steps=STEPS, backup_after=st.integers(0, 25))
def test_a_backup_and_its_journal_give_the_records_as_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[bool, int, int]],
    backup_after: int,
) -> None:
    """Whenever the copy was taken: the journal may hold again what the copy has."""
    folder = tmp_path_factory.mktemp("records")
    with closing(opened(folder)) as book:
        path = folder / "records.sqlite"
        now = datetime.now(timezone.utc)
        for number, (finishes, which, version) in enumerate(steps):
            if number == backup_after:
                assert back_up(path, folder / FOLDER, 1, lambda _seconds: None) is None
            write = [transition(f"t{which}", version)]
            if finishes:
                claimed = [
                    it["id"]
                    for it in book.claim(RecordKind.TRANSITION, "me", now, timedelta(seconds=60), 2)
                ]
                book.finish(RecordKind.TRANSITION, "me", claimed, write, now)
            else:
                book.write(write)
        before, sequence = state(book), book.sequence()
    os.truncate(path, 0)
    with closing(opened(folder)) as book:
        assert state(book) == before
        assert book.sequence() > sequence


def appended(folder: Path, count: int) -> Path:
    journal = Journal(folder, LINEAGE, SystemClock())
    journal.begin(0)
    for number in range(count):
        row = {"kind": "event", "id": str(number), "sequence": number + 1}
        journal.append(Changes(before=number, after=number + 1, rows=[row]))
    journal.close()
    return segments(folder)[-1].path


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_a_line_that_is_garbled_costs_itself_alone(tmp_path: Path, share: float) -> None:
    path = appended(tmp_path, 50)
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * share))
        file.write(b"\xa5\xa5")
    (one,) = segments(tmp_path)
    lines = list(one.lines())
    assert lines.count(None) == (0 if share == 0.0 else 1)
    assert one.lineage == (None if share == 0.0 else LINEAGE)
    assert len([line for line in lines if line]) == 50 - lines.count(None)


def test_a_line_cut_short_is_no_commit_and_the_one_before_is_the_newest(tmp_path: Path) -> None:
    path = appended(tmp_path, 50)
    os.truncate(path, path.stat().st_size - 3)
    (one,) = segments(tmp_path)
    assert [line["to"] for line in one.lines() if line] == list(range(1, 50))
    assert newest_sequence([one], LINEAGE) == 49
    assert newest_sequence([one], LINEAGE + 1) == 0


def test_a_garbled_commit_in_the_middle_is_a_missing_span_and_the_rest_is_there(
    tmp_path: Path,
) -> None:
    with closing(opened(tmp_path)) as book:
        for name in "abc":
            book.write([transition(name * 500)])
    (one,) = segments(tmp_path / FOLDER)
    text = one.path.read_bytes()
    one.path.write_bytes(text.replace(b"bbbb", b"bbxb", 1))
    os.truncate(tmp_path / "records.sqlite", 0)
    kept = open_kept(HubSettings(data_directory=tmp_path), SystemClock())
    with closing(RecordBook(kept.engine, kept.journal)) as book:
        assert [str(row[1])[:1] for row in state(book)] == ["a", "c"]
    (repair,) = kept.repairs
    assert repair.missing_since is not None
    assert repair.missing_until is not None
    assert repair.missing_since <= repair.missing_until


@pytest.mark.parametrize(("by_hand", "is_garbled"), [(True, False), (False, False), (True, True)])
def test_what_a_person_restored_is_told_as_damage_only_if_something_is_missing(
    tmp_path: Path, by_hand: bool, is_garbled: bool
) -> None:
    path = tmp_path / "records.sqlite"
    with closing(opened(tmp_path)) as book:
        book.write([transition("a")])
        with sqlite3.connect(path) as here, closing(sqlite3.connect(tmp_path / "copy")) as there:
            here.backup(there)
        for name in "bc":
            book.write([transition(name * 500)])
    set_records_aside(path)
    (tmp_path / "copy").rename(path)
    if by_hand:
        mark_restored(path)
    if is_garbled:
        (one,) = segments(tmp_path / FOLDER)
        one.path.write_bytes(one.path.read_bytes().replace(b"bbbb", b"bbxb", 1))
    kept = open_kept(HubSettings(data_directory=tmp_path), SystemClock())
    with closing(RecordBook(kept.engine, kept.journal)) as book:
        names = [str(row[1])[:1] for row in state(book)]
    assert names == (["a", "c"] if is_garbled else ["a", "b", "c"])
    assert len(kept.repairs) == (by_hand == is_garbled)
    assert not list(tmp_path.glob("*.restored"))


def test_records_of_another_hub_take_nothing_from_this_ones_journal(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        with closing(opened(tmp_path / name)) as book:
            book.write([transition(f"{name}-{n}") for n in range(3 if name == "one" else 1)])
    path = tmp_path / "one" / "records.sqlite"
    (tmp_path / "other" / "records.sqlite").replace(path)
    with closing(opened(tmp_path / "one")) as book:
        assert [row[1] for row in state(book)] == ["other-0"]


@pytest.mark.medium
def test_of_backups_the_newest_whole_one_is_taken_and_few_are_kept(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as book:
        folder, path = tmp_path / FOLDER, tmp_path / "records.sqlite"
        for number in range(1, 7):
            book.write([transition(f"t{number}")])
            book.transactions.journal.begin(book.sequence())  # type: ignore[union-attr]
            assert back_up(path, folder, number, lambda _seconds: None) is None
    prune(folder, 4)
    assert [it.number for it in backups(folder)] == [3, 4, 5, 6]
    assert [it.number for it in segments(folder)] == [3, 4, 5, 6, 7]
    os.truncate(backups(folder)[-1].path, 5000)
    found = put_back(folder, tmp_path / "again.sqlite")
    assert found is not None
    assert found.number == 5
    with closing(sqlite3.connect(tmp_path / "again.sqlite")) as copy:
        assert copy.execute("SELECT count(*) FROM record").fetchall() == [(5,)]
    assert [it.number for it in backups(folder)] == [3, 4, 5]


def test_commits_go_on_while_the_records_are_copied_and_the_copy_is_of_one_moment(
    tmp_path: Path,
) -> None:
    with closing(opened(tmp_path)) as book:
        body = {"text": "x" * 2000}
        many = [
            Record(kind=RecordKind.EVENT, id=str(n), at=NOON, subject="c", body=body)
            for n in range(500)
        ]
        book.write(many)
        written: list[int] = []

        def meanwhile(_seconds: float) -> None:
            written.append(book.write([transition(f"t{len(written)}")])[0])

        assert back_up(tmp_path / "records.sqlite", tmp_path / FOLDER, 1, meanwhile) is None
        (copy,) = backups(tmp_path / FOLDER)
        assert len(written) >= 3
    with closing(sqlite3.connect(copy.path)) as found:
        assert found.execute("SELECT count(*) FROM record").fetchall() == [(500,)]


def test_ends_of_tokens_are_never_later_and_a_torn_line_costs_itself_alone(tmp_path: Path) -> None:
    path = ends_file(tmp_path)
    early, late = "2026-01-31T12:00:00.000000Z", "2026-01-31T13:00:00.000000Z"
    RevocationFile(path).add([("one", late), ("two", late)])
    with path.open("ab") as file:
        file.write(b"torn")
    RevocationFile(path).add([("one", early), ("two", late), ("three", early)])
    RevocationFile(path).add([("one", late)])
    found = RevocationFile(path)
    assert [found.of(it) for it in ("one", "two", "three", "four")] == [early, late, early, None]
    assert path.stat().st_mode & 0o777 == 0o600
    other = ends_file(tmp_path / "backup")
    other.parent.mkdir()
    RevocationFile(other).add([("two", early), ("four", early)])
    merge_ends(other, path)
    found = RevocationFile(path)
    assert [found.of(it) for it in ("two", "four")] == [early, early]
