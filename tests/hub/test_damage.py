"""What errors and logs are signs of damage, and what is put away for each."""

from pathlib import Path

import duckdb
import pytest

from hub.embedded import damage
from tests.hub.hours import NOON

BEGINS = b"\x64\x00\x62\x65\x00"
STAMP = "damaged-20260131T120000"


@pytest.mark.parametrize(
    ("said", "is_file"),
    [
        ('The file "x" exists, but it is not a valid DuckDB database file!', True),
        ("Corrupt database file: its checksum is another", True),
        ("Failed to deserialize: field id mismatch", True),
        ("Corrupt database file: in /a/b.lines.parquet", False),
        ("Could not set lock on file", False),
    ],
)
def test_an_error_tells_of_the_file_itself_or_of_other_trouble(said: str, is_file: bool) -> None:
    assert damage.of_file(duckdb.IOException(said)) is is_file


def test_a_question_fails_for_a_sealed_file_but_not_for_what_it_asked_or_for_want_of_memory() -> (
    None
):
    assert damage.of_sealed_file(duckdb.IOException("x"))
    assert damage.of_sealed_file(duckdb.InvalidInputException("x"))
    for other in (duckdb.BinderException, duckdb.OutOfMemoryException, duckdb.InterruptException):
        assert not damage.of_sealed_file(other("x"))


@pytest.mark.parametrize(
    ("begins", "is_well"),
    [
        (None, True),
        (b"", True),
        (BEGINS[:4], True),
        (b"\xa5" * 4, True),
        (b"\xa5" * 5, False),
        (BEGINS[:4] + b"\x01", False),
        (BEGINS, True),
        (BEGINS + b"more", True),
    ],
)
def test_a_log_begins_as_one_or_was_cut_off_before_anything_was_in_it(
    tmp_path: Path, begins: bytes | None, is_well: bool
) -> None:
    path = tmp_path / "t.duckdb"
    if begins is not None:
        (tmp_path / "t.duckdb.wal").write_bytes(begins)
    assert (damage.of_log(path) is None) is is_well


@pytest.mark.parametrize(
    ("reason", "logs", "moved"),
    [
        ("Corrupt database file", ["", "recovery"], ["", ".wal", ".wal.recovery"]),
        ("Corrupt WAL file", ["", "checkpoint"], [".wal", ".wal.checkpoint"]),
        ("Failed to deserialize", ["", "checkpoint"], [".wal", ".wal.checkpoint"]),
        ("Failed to deserialize", ["", "recovery"], ["", ".wal", ".wal.recovery"]),
        ("Corrupt database file", ["", "checkpoint"], ["", ".wal", ".wal.checkpoint"]),
    ],
)
def test_of_a_damaged_log_the_logs_are_put_away_and_of_others_all(
    tmp_path: Path, reason: str, logs: list[str], moved: list[str]
) -> None:
    path = tmp_path / "t.duckdb"
    there = ["", *(f".wal.{it}" if it else ".wal" for it in logs)]
    for suffix in there:
        (tmp_path / f"t.duckdb{suffix}").write_text(suffix)
    found = damage.put_away(path, reason, NOON)
    assert found == {tmp_path / f"t.duckdb{it}": tmp_path / f"t.duckdb{it}.{STAMP}" for it in moved}
    assert all(to.read_text() == it.name.removeprefix("t.duckdb") for it, to in found.items())
    left = {it.name for it in tmp_path.iterdir() if "damaged" not in it.name}
    assert left == {f"t.duckdb{it}" for it in there if it not in moved}


def entry_at(log: Path, position: int) -> str:
    return f'Corrupt WAL file "{log}": entry at byte position {position} has another sum'


# The first entry that is damaged, by where its content begins: 16 bytes after itself.
@pytest.mark.parametrize(("begins", "is_cut"), [(5, False), (6, True), (99, True), (100, False)])
def test_a_log_is_cut_where_its_damage_begins_if_something_is_left_on_either_side(
    tmp_path: Path, begins: int, is_cut: bool
) -> None:
    path, log = tmp_path / "t.duckdb", tmp_path / "t.duckdb.wal"
    path.touch()
    whole = bytes(range(100))
    log.write_bytes(whole)
    found = damage.put_away(path, entry_at(log, begins + 16), NOON)
    assert list(found) == [log]
    assert found[log].read_bytes() == (whole[begins:] if is_cut else whole)
    assert (log.read_bytes() if log.exists() else b"") == (whole[:begins] if is_cut else b"")
    assert path.exists()


@pytest.mark.parametrize("beside", [".wal.checkpoint", ".wal.recovery", None])
def test_a_log_is_cut_only_if_it_is_the_one_that_is_meant(
    tmp_path: Path, beside: str | None
) -> None:
    path, log = tmp_path / "t.duckdb", tmp_path / "t.duckdb.wal"
    log.write_bytes(bytes(100))
    meant = log
    if beside is None:
        meant = tmp_path / "other.wal"
    else:
        (tmp_path / f"t.duckdb{beside}").touch()
    found = damage.put_away(path, entry_at(meant, 60), NOON)
    assert found[log].read_bytes() == bytes(100)
    assert not log.exists()


def test_what_was_put_away_within_a_second_is_numbered(tmp_path: Path) -> None:
    file = tmp_path / "a"
    names = []
    for text in "xyz":
        file.write_text(text)
        names += [to.name for to in damage.moved_away([file, tmp_path / "gone"], NOON).values()]
    assert names == [f"a.{STAMP}", f"a.{STAMP}-2", f"a.{STAMP}-3"]
    assert [(tmp_path / it).read_text() for it in names] == ["x", "y", "z"]
