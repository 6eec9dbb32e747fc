"""The manifest is lost, or a process died at any step: what the sealed files say for themselves."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from gpuvigil.clock import to_ns
from gpuvigil.errors import StoreError
from hub.embedded import Embedded, segments
from hub.embedded.recovery import mark
from hub.embedded.sealed_files import Unit, units
from hub.embedded.segment_writer import DAY, SegmentWriter
from tests.hub.hours import (
    GPU,
    HOUR,
    HOURS,
    LATER_NS,
    LINES,
    NOON,
    aged,
    cut,
    garble,
    latest,
    samples,
    seal,
    write,
)

pytestmark = pytest.mark.slow


def garble_headers(path: Path, _: float) -> None:
    """Both of a DuckDB file's headers of 4 KiB: which is the newer one, its checkpoints decide."""
    for place in (4096, 8192):
        garble(path, place / path.stat().st_size)


def test_a_store_just_opened_has_read_its_manifest_before_the_first_question(
    opened: Callable[[], Embedded],
) -> None:
    aged(opened())
    store = opened()
    # Behind its back: a question that read the table now would miss both sealed hours.
    store.ask("DELETE FROM sealed RETURNING name")
    assert samples(store) == HOURS * LINES


@pytest.mark.parametrize(
    ("how", "share"), [(cut, 0.0), (cut, 0.5), (garble, 0.0), (garble_headers, 0.0)]
)
def test_a_damaged_main_file_is_set_aside_and_the_sealed_hours_stay(
    path: Path,
    opened: Callable[[], Embedded],
    how: Callable[[Path, float], None],
    share: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    aged(opened())
    opened().close()
    how(path, share)
    store = opened()
    (told,) = store.damaged()
    assert told["file"] == str(path)
    assert Path(told["moved_to"]).exists()
    assert ".damaged-" in told["moved_to"]
    assert "damaged file set aside" in caplog.text
    assert samples(store) == 2 * LINES
    assert latest(store) == LINES
    write(store, 2)
    assert samples(opened()) == HOURS * LINES


@pytest.mark.parametrize("at", [0, 40])
def test_a_damaged_log_is_set_aside_alone_and_what_was_sealed_since_is_there_once(
    path: Path, opened: Callable[[], Embedded], at: int
) -> None:
    first = opened()
    for hour in range(HOURS):
        write(first, hour)
    # Written into the main file, so that sealing is in the log only.
    store = opened()
    seal(store, 2)
    write(store, 3)
    for file in (path, path.with_name(path.name + ".wal")):
        shutil.copy(file, file.with_name(f"kept-{file.name}"))
    store.close()
    for file in (path, path.with_name(path.name + ".wal")):
        file.with_name(f"kept-{file.name}").rename(file)
    with path.with_name(path.name + ".wal").open("r+b") as log:
        # Its beginning, without which DuckDB passes all of it over without a word; within the first
        # entry, since a garbled length would look like the torn end of a killed process.
        log.seek(at)
        log.write(b"\xa5" * 8)
    store = opened()
    (told,) = store.damaged()
    assert told["file"] == f"{path}.wal"
    assert samples(store, HOURS + 1) == HOURS * LINES
    assert len(store.units()) == 2
    assert samples(opened(), HOURS + 1) == HOURS * LINES


_DIES_IN_A_CHECKPOINT = """
import os, sys, threading, duckdb
path = sys.argv[1]
connection = duckdb.connect(path, config={"threads": "1"})
connection.execute("SET wal_autocheckpoint = '10GB'")
connection.execute("CREATE OR REPLACE TABLE big AS SELECT range x, hash(range) y FROM range(1000000)")
def watch():
    while True:
        try:
            if os.path.getsize(path + ".wal.checkpoint"):
                os._exit(9)
        except OSError:
            pass
def write():
    cursor, number = connection.cursor(), 0
    while True:
        cursor.execute("INSERT INTO extra (measurement) VALUES ('x')")
        number += 1
        os.pwrite(1, b"%9d" % number, 0)
for work in (watch, write):
    threading.Thread(target=work, daemon=True).start()
for _ in range(1000):
    connection.execute("INSERT INTO big SELECT range, hash(range) FROM range(300000)")
    connection.execute("CHECKPOINT")
"""


def _killed_in_a_checkpoint(path: Path, out: Path) -> int:
    """Write lines until a checkpoint ends the process; return how many were acknowledged."""
    with out.open("w+b") as acknowledged:
        words = [sys.executable, "-c", _DIES_IN_A_CHECKPOINT, str(path)]
        assert subprocess.run(words, stdout=acknowledged, check=False).returncode == 9
        acknowledged.seek(0)
        return int(acknowledged.read() or 0)


@pytest.mark.server
@pytest.mark.parametrize("hurt", ["", ".wal.checkpoint", ".wal", "main"])
def test_a_log_that_a_kill_during_a_checkpoint_has_left_is_read_or_set_aside_with_the_rest(
    path: Path, opened: Callable[[], Embedded], hurt: str, tmp_path: Path
) -> None:
    aged(opened())
    opened().close()
    logs = [path.with_name(path.name + suffix) for suffix in (".wal", ".wal.checkpoint")]
    count = kills = 0
    # A checkpoint may be over before the process that saw it begin is.
    while not all(log.exists() for log in logs):
        count += _killed_in_a_checkpoint(path, tmp_path / "acknowledged")
        kills += 1
    if hurt:
        damaged = path if hurt == "main" else path.with_name(path.name + hurt)
        with damaged.open("r+b") as file:
            file.seek(60 if hurt == ".wal" else 0)
            file.write(b"\xa5" * 64)
    store = opened()
    told = {Path(it["file"]) for it in store.damaged()}
    lines = store.sizes()[0]["extra"]
    if not hurt:
        assert told == set()
        assert count <= lines <= count + kills  # the last of each may not have been told
    else:
        # What was hurt may have held nothing that counts.
        assert told >= set(logs) if hurt == "main" else told or lines >= count
        assert not any(log.exists() and log.stat().st_size for log in logs[1:])
    assert samples(store) == (2 if hurt == "main" else HOURS) * LINES
    write(store, 5)
    assert samples(opened(), 6) == samples(store, 6)


def join_in_parts(store: Embedded, path: Path, *, committed: bool) -> list[Unit]:
    """The day's hours joined into a part for each node, as a store with more lines would do."""
    hours, folder = [it for it in store.units() if it.first_ns >= to_ns(NOON)], store.folder
    store.close()
    with duckdb.connect(str(path)) as connection:
        connection.begin()
        writer = SegmentWriter(folder=folder, after_step=lambda _step: None, most_lines=1)
        start_ns = to_ns(NOON.replace(hour=0))
        segments.join(connection, writer, GPU, (start_ns, hours), LATER_NS)
        parts = [it for it in units(connection, "gpu") if it.level == DAY]
        if committed:
            connection.commit()
        else:
            connection.rollback()
    if committed:
        for file in (file for hour in hours for file in hour.files(folder)):
            file.unlink()
    return parts


@pytest.mark.parametrize("how", ["gone", "garbled"])
def test_a_day_of_which_a_part_is_missing_does_not_take_the_place_of_its_hours(
    path: Path, opened: Callable[[], Embedded], how: str
) -> None:
    """A crash between two parts, and the manifest is lost with it; of another day nothing is missing."""
    store = opened()
    for hour in (-24, *range(HOURS)):
        write(store, hour)
    seal(store, HOURS)
    parts = join_in_parts(store, path, committed=False)
    assert len(parts) == 3
    last = parts[-1]
    for file in last.files(store.folder):
        file.unlink() if how == "gone" else cut(file, 0.5)
    garble(path, 0.0)
    store = opened()
    assert samples(store) == HOURS * LINES
    assert [unit.level for unit in store.units()] == [0] * (1 + HOURS)
    told = {Path(it["file"]) for it in store.damaged()}
    assert told == {path} | (set(last.files(store.folder)) if how == "garbled" else set())


@pytest.mark.parametrize("damaged", [False, True])
def test_parts_of_a_day_whose_hours_are_gone_are_taken_as_far_as_they_are_there(
    path: Path, opened: Callable[[], Embedded], damaged: bool
) -> None:
    store = opened()
    for hour in range(HOURS):
        write(store, hour)
    seal(store, HOURS)
    parts = join_in_parts(store, path, committed=True)
    if damaged:
        cut(parts[-1].lines_file(store.folder), 0.5)
    garble(path, 0.0)
    store = opened()
    lost = parts[-1].lines if damaged else 0
    assert samples(store) == HOURS * LINES - lost
    assert len(store.units()) == len(parts) - damaged


def test_a_recovery_that_cannot_open_a_file_leaves_the_sealed_hours_where_they_are(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    aged(opened())
    store = opened()
    folder = store.folder / "gpu"
    known = set(folder.iterdir())
    hidden = min(known)
    opened().close()
    garble(path, 0.0)
    # A link to itself stands for a file that the system does not open at the moment.
    rolled = hidden.with_name(hidden.name.replace(".lines.", ".rolled."))
    rolled.rename(rolled.with_name("kept"))
    rolled.symlink_to(rolled.name)
    with pytest.raises(StoreError, match="symbolic links"):
        Embedded(path, 256 * 1024 * 1024, 1)
    rolled.unlink()
    rolled.with_name("kept").rename(rolled)
    store = opened()
    assert set(folder.iterdir()) == known
    assert samples(store) == 2 * LINES


def test_what_a_crash_has_left_is_removed_at_the_start_and_nothing_else(
    opened: Callable[[], Embedded],
) -> None:
    aged(opened())
    store = opened()
    folder = store.folder / "gpu"
    known = set(folder.iterdir())
    orphans = [folder / "2026-01-31T09.0000aaaa.lines.parquet", folder / "x.rolled.parquet.draft"]
    for orphan in orphans:
        orphan.write_bytes(b"PAR1")
    aside = folder / "x.lines.parquet.damaged-20260131T120000"
    aside.write_bytes(b"PAR1")
    store = opened()
    assert set(folder.iterdir()) == {*known, aside}


_CHILD = """
import os, sys
from pathlib import Path
from hub.embedded import Embedded
left = int(sys.argv[2])
def step(_name):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
store = Embedded(Path(sys.argv[1]), 256 * 1024 * 1024, 1, after_step=step)
store.seal(int(sys.argv[3]), int(sys.argv[4]))
store.join(int(sys.argv[3]), int(sys.argv[4]))
"""


@pytest.mark.server
def test_a_process_that_dies_at_any_step_of_sealing_or_joining_loses_and_doubles_nothing(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    for hour in range(HOURS):
        write(store, hour)
    store.close()
    until = LATER_NS - to_ns(NOON + 20 * HOUR)
    died = 0
    for steps in range(2, 40, 3):
        arguments = [str(path), str(steps), str(LATER_NS), str(until)]
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, *arguments], cwd=Path(__file__).parents[2], check=False
        )
        assert child.returncode in {0, 9}
        died += child.returncode == 9
        store = opened()
        assert samples(store) == HOURS * LINES
        store.close()
        if child.returncode == 0:
            break
    assert died > 3
    assert [unit.level for unit in opened().units()] == [1]


@pytest.mark.server
def test_a_recovery_that_is_cut_off_at_any_step_goes_on_at_the_next_start(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    """0: the tables are new, and no sealed file is entered; 1: one is; 2: both, and no more."""
    aged(opened())
    for steps in range(3):
        opened().close()
        garble(path, 0.0)
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path), str(steps), "0", "0"],
            cwd=Path(__file__).parents[2],
            check=False,
        )
        assert child.returncode == 9
        store = opened()
        assert (len(store.units()), samples(store), latest(store)) == (2, 2 * LINES, LINES)
        assert not (store.folder / ".adopting").exists()


def test_lines_that_came_while_their_hour_was_sealed_stay_when_its_entry_is_lost(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    """The files are whole, the commit that enters them is torn: what it was made of is there twice,
    what came meanwhile once.
    """

    class PowerLoss(BaseException):
        pass

    def come_late_then_stop(name: str) -> None:
        if name == "written":
            write(store, 0.5, 7)  # lines of the same hour, half an hour later
        if name == "moved":
            raise PowerLoss

    store = Embedded(path, 256 * 1024 * 1024, 1, after_step=come_late_then_stop)
    write(store, 0)
    with pytest.raises(PowerLoss):
        seal(store, 1)
    mark(store.folder)
    store.close()
    store = opened()
    assert [unit.lines for unit in store.units()] == [LINES]
    assert samples(store) == LINES + 7
    assert samples(opened()) == LINES + 7


@pytest.mark.parametrize("how", ["zeros", "bits"])
def test_a_log_that_is_damaged_from_some_entry_on_keeps_what_was_committed_before_it(
    path: Path, opened: Callable[[], Embedded], how: str
) -> None:
    """As a power loss leaves the end of a log: as long as it was to be, and nothing in it."""
    store = opened()
    log = path.with_name(path.name + ".wal")
    for hour in range(HOURS):
        write(store, hour)
        whole = log.stat().st_size
    copy = path.with_name("copy")
    copy.mkdir()
    write(store, HOURS)
    for file in (path, log):
        shutil.copy(file, copy / file.name)
    with (copy / log.name).open("r+b") as end:
        end.seek(whole + (0 if how == "zeros" else 100))
        rest = end.read()
        end.seek(-len(rest), 2)
        end.write(bytes(len(rest)) if how == "zeros" else bytes(255 - it for it in rest))
    again = Embedded(copy / path.name, 256 * 1024 * 1024, 1)
    try:
        assert samples(again, HOURS + 1) == HOURS * LINES
        (told,) = again.damaged()
        assert told["file"] == str(copy / log.name)
        assert 0 < Path(told["moved_to"]).stat().st_size <= log.stat().st_size - whole
        write(again, HOURS)
        assert samples(again, HOURS + 1) == (HOURS + 1) * LINES
    finally:
        again.close()
