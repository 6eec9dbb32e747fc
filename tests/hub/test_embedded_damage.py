"""Files cut short, garbled, gone, too new, or left by a crash: what the store makes of each."""

import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pytest

from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.body import Body
from hub.committer import commit
from hub.counters import Counters
from hub.embedded import Embedded, Latest, Window, sealing
from hub.embedded.damage import moved_away
from hub.embedded.database import Database
from hub.embedded.units import Unit, units
from hub.embedded.writing import Maker
from hub.keeper import Keeper
from hub.seen import Seen

pytestmark = pytest.mark.slow

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
GPU = MEASUREMENTS["gpu"]
LATER_NS = to_ns(NOON + 1000 * HOUR)
HOURS = 3
LINES = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.duckdb"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Embedded]]:
    stores: list[Embedded] = []

    def open_again() -> Embedded:
        for store in stores:
            store.close()
        stores.append(Embedded(path, 256 * 1024 * 1024, 1))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()


def write(store: Embedded, hour: int, lines: int = LINES) -> None:
    """Lines of as many GPUs, a second apart, in the hour after that many hours from noon."""
    start = NOON + hour * HOUR
    text = "\n".join(
        f"gpu,cluster=c,node=n{n % 3},uuid=GPU-{n},model=H power_watts={n}.5,index={n}i"
        f" {to_ns(start + timedelta(seconds=n))}"
        for n in range(lines)
    )
    body = Body(
        text=text.encode(), precision="ns", received_at=NOON, identity=None, done=lambda _: None
    )
    (outcome,) = commit(store, Seen(), [body])
    assert outcome.lines == lines


def seal(store: Embedded, hours: int) -> int:
    """Seal the hours before that many after noon."""
    return store.seal(LATER_NS, LATER_NS - to_ns(NOON + hours * HOUR))


def samples(store: Embedded, hours: int = HOURS) -> int:
    mean = Aggregate(function=Function.MEAN, field="power_watts")
    question = Window(
        measurement=GPU,
        aggregates=(mean,),
        start_ns=to_ns(NOON),
        end_ns=to_ns(NOON + hours * HOUR),
    )
    return sum(store.answer(question)["samples"].to_pylist())


def latest(store: Embedded) -> int:
    rows: int = store.answer(Latest(measurement=GPU, fields=("index",), since_ns=0)).num_rows
    return rows


def aged(store: Embedded) -> None:
    """Two sealed hours, and one that is hot."""
    for hour in range(HOURS):
        write(store, hour)
    assert seal(store, 2) == 2
    assert samples(store) == HOURS * LINES


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def garble(path: Path, share: float) -> None:
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * share))
        file.write(b"\xa5" * 64)


@pytest.mark.parametrize(("how", "share"), [(cut, 0.0), (cut, 0.5), (garble, 0.0), (garble, 0.002)])
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


def test_a_damaged_log_is_set_aside_alone_and_what_was_sealed_since_is_there_once(
    path: Path, opened: Callable[[], Embedded]
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
        # Within the first entry; a garbled length would look like the torn end of a killed process.
        log.seek(40)
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
connection.execute("CREATE TABLE big AS SELECT range x, hash(range) y FROM range(1000000)")
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


@pytest.mark.server
@pytest.mark.parametrize("hurt", ["", ".wal.checkpoint", ".wal", "main"])
def test_a_log_that_a_kill_during_a_checkpoint_has_left_is_read_or_set_aside_with_the_rest(
    path: Path, opened: Callable[[], Embedded], hurt: str, tmp_path: Path
) -> None:
    aged(opened())
    opened().close()
    with (tmp_path / "acknowledged").open("w+b") as acknowledged:
        words = [sys.executable, "-c", _DIES_IN_A_CHECKPOINT, str(path)]
        assert subprocess.run(words, stdout=acknowledged, check=False).returncode == 9
        acknowledged.seek(0)
        count = int(acknowledged.read() or 0)
    logs = [path.with_name(path.name + suffix) for suffix in (".wal", ".wal.checkpoint")]
    assert all(log.exists() for log in logs)
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
        assert count <= lines <= count + 1  # the last may not have been told
    else:
        assert told >= set(logs) if hurt == "main" else told
        assert not any(log.exists() and log.stat().st_size for log in logs[1:])
    assert samples(store) == (2 if hurt == "main" else HOURS) * LINES
    write(store, 5)
    assert samples(opened(), 6) == samples(store, 6)


@pytest.mark.parametrize("how", [cut, garble])
@pytest.mark.parametrize("suffix", ["lines", "rolled"])
def test_a_damaged_sealed_file_is_set_aside_with_its_hour_alone(
    path: Path, opened: Callable[[], Embedded], how: Callable[[Path, float], None], suffix: str
) -> None:
    aged(opened())
    store = opened()
    unit = store.units()[0]
    file = {"lines": unit.lines_file, "rolled": unit.rolled_file}[suffix](store.folder)
    how(file, 0.5)
    # A file that was cut is seen at the next start; every byte is looked at by `verify`.
    store = opened()
    store.verify()
    assert [(it["file"], it["lines"]) for it in store.damaged()] == [(str(file), LINES)]
    assert samples(store) == 2 * LINES
    write(store, 0)
    assert samples(store) == HOURS * LINES


def join_in_parts(store: Embedded, path: Path, *, committed: bool) -> list[Unit]:
    """The day's hours joined into a part for each node, as a store with more lines would do."""
    hours, folder = store.units(), store.folder
    store.close()
    with duckdb.connect(str(path)) as connection:
        connection.begin()
        maker = Maker(folder=folder, after_step=lambda _step: None, most_lines=1)
        start_ns = to_ns(NOON.replace(hour=0))
        sealing.join(connection, maker, GPU, (start_ns, hours), LATER_NS)
        parts = units(connection, "gpu")
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
    """A crash between two parts, and the manifest is lost with it."""
    store = opened()
    for hour in range(HOURS):
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
    assert [unit.level for unit in store.units()] == [0] * HOURS
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


def test_a_sealed_file_that_is_damaged_while_the_store_is_open_costs_no_answer(
    opened: Callable[[], Embedded],
) -> None:
    aged(opened())
    store = opened()
    cut(store.units()[0].lines_file(store.folder), 0.3)
    assert samples(store) == 2 * LINES
    assert len(store.damaged()) == 1


@pytest.mark.parametrize(("how", "share"), [(cut, 0.3), (garble, 0.01), (garble, 0.5)])
@pytest.mark.parametrize("suffix", ["lines", "rolled"])
def test_a_damaged_sealed_file_stops_no_other_from_being_joined_or_cut(
    opened: Callable[[], Embedded], how: Callable[[Path, float], None], share: float, suffix: str
) -> None:
    store = opened()
    tomorrow = 12
    hours = [*range(HOURS), *range(tomorrow, tomorrow + HOURS)]
    for hour in hours:
        write(store, hour)
    assert seal(store, 24) == len(hours)
    lines = {"lines": True, "rolled": False}[suffix]
    garbled = [
        unit.lines_file(store.folder) if lines else unit.rolled_file(store.folder)
        for unit in store.units()
    ]
    how(garbled[1], share)
    assert store.join(LATER_NS, 0) == 2
    assert [unit.level for unit in store.units()] == [1, 1]
    assert [(it["file"], it["lines"]) for it in store.damaged()] == [(str(garbled[1]), LINES)]
    assert samples(store, 24) == (len(hours) - 1) * LINES
    # Damage that came since, in the day that is cut in the middle.
    unit = store.units()[1]
    how(unit.lines_file(store.folder), share)
    write(store, tomorrow + HOURS)
    store.forget(to_ns(NOON + (tomorrow + 1) * HOUR))
    assert len(store.damaged()) == 2
    assert samples(store, 24) == LINES
    assert [unit.name for unit in store.units()] == []


def test_a_day_of_which_nothing_is_left_but_one_piece_is_not_joined(
    opened: Callable[[], Embedded],
) -> None:
    aged(opened())
    store = opened()
    cut(store.units()[0].lines_file(store.folder), 0.5)
    assert store.join(LATER_NS, 0) == 0
    assert (len(store.units()), len(store.damaged())) == (1, 1)


def test_what_cannot_be_sealed_or_joined_keeps_nothing_else_from_it(
    path: Path, opened: Callable[[], Embedded], tmp_path: Path
) -> None:
    """A file where a measurement's folder belongs stands for what the system refuses."""
    store = opened()
    for hour in range(HOURS):
        write(store, hour)
    seal(store, 2)
    (store.folder / "node").write_text("in the way")
    text = f"node,cluster=c,node=n load_average=1 {to_ns(NOON)}"
    body = Body(
        text=text.encode(), precision="ns", received_at=NOON, identity=None, done=lambda _: None
    )
    commit(store, Seen(), [body])
    clock = SystemClock()
    counters = Counters()
    settings = HubSettings(telemetry_days=40_000.0, rollup_days=40_000.0, hot_hours=1.0)
    Keeper(store, settings, clock, counters).tidy()
    assert [unit.level for unit in store.units()] == [1]
    assert counters.registry.get_sample_value("gpuvigil_hub_failed_tidying_total") == 1
    (store.folder / "node").unlink()
    Keeper(store, settings, clock, counters).tidy()
    assert {unit.measurement for unit in store.units()} == {"gpu", "node"}


def test_files_that_cannot_be_opened_at_the_moment_are_not_damaged(
    opened: Callable[[], Embedded],
) -> None:
    aged(opened())
    store = opened()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Below what is open already: nothing can be opened any more.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(StoreError, match="Too many open files"):
            store.verify()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert store.damaged() == []
    assert (store.verify().damaged, samples(store)) == (0, HOURS * LINES)


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


def test_a_store_of_a_newer_version_is_refused_in_one_line(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    opened().close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE schema_version SET version = 1000")
    with pytest.raises(StoreError, match="newer gpuvigil"):
        Embedded(path, 256 * 1024 * 1024, 1)


def test_a_store_of_the_first_version_is_taken_over_and_sealed(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER)")
        connection.execute("INSERT INTO schema_version VALUES (1)")
        connection.execute(
            'CREATE TABLE gpu ("at" TIMESTAMP_NS, node VARCHAR, uuid VARCHAR, power_watts DOUBLE)'
        )
        connection.execute(
            "INSERT INTO gpu SELECT make_timestamp_ns(?::BIGINT + i * 60000000000), 'n', 'u', i"
            " FROM range(180) r(i)",
            [to_ns(NOON)],
        )
    store = opened()
    assert samples(store) == 180
    assert seal(store, 2) == 2
    assert samples(store) == 180
    assert latest(store) == 1


def test_hours_sealed_before_a_field_was_known_answer_beside_those_after(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    write(store, 0)
    folder = store.folder
    store.close()
    names = {"power_watts"}
    before = replace(GPU, metrics=tuple(it for it in GPU.metrics if it.name not in names))
    with duckdb.connect(str(path)) as connection:
        connection.begin()
        maker = Maker(folder=folder, after_step=lambda _step: None)
        sealing.seal(connection, maker, before, to_ns(NOON), LATER_NS)
        connection.commit()
    store = opened()
    write(store, 1)
    seal(store, 2)
    assert samples(store, 2) == 2 * LINES
    store.join(LATER_NS, HOUR // timedelta(microseconds=1) * 1000)
    assert len(store.units()) == 1
    assert samples(opened(), 2) == 2 * LINES


def test_a_full_disk_stops_sealing_and_nothing_else_and_it_goes_on_by_itself(
    opened: Callable[[], Embedded],
) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the same places."""
    store = opened()
    write(store, 0, 3000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(StoreError):
            seal(store, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(store.folder.rglob("*.parquet*"))
    assert samples(store) == 3000
    assert seal(store, 1) == 1
    assert samples(store) == 3000


def test_sealing_is_broken_off_at_any_step_and_leaves_no_file(path: Path) -> None:
    opened: list[Embedded] = []
    for steps in range(8):
        left = iter(range(steps))

        def stop_then(_name: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                opened[-1].stop_tidying()

        store = Embedded(path, 256 * 1024 * 1024, 1, after_step=stop_then)
        opened.append(store)
        if not steps:
            write(store, 0)
            write(store, 1)
        known = store.units()
        with suppress(StoreError):
            seal(store, 2)
        files = {file for unit in store.units() for file in unit.files(store.folder)}
        assert set(store.folder.rglob("*.parquet*")) == files
        assert samples(store) == 2 * LINES
        assert len(store.units()) - len(known) <= 1
        store.close()


def test_files_of_a_commit_that_is_told_to_have_failed_stay_when_the_manifest_names_them(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    def commit_then_fail(name: str) -> None:
        if name == "moved":
            assert store._busy is not None
            store._busy.commit()
            raise StoreError("the commit failed")

    store = Embedded(path, 256 * 1024 * 1024, 1, after_step=commit_then_fail)
    write(store, 0)
    with pytest.raises(StoreError, match="the commit failed"):
        seal(store, 1)
    (unit,) = store.units()
    assert all(file.exists() for file in unit.files(store.folder))
    assert samples(store) == LINES
    store.close()
    assert samples(opened()) == LINES


def test_sealing_that_is_stopped_about_its_commit_loses_nothing(path: Path) -> None:
    opened: list[Embedded] = []
    stoppers: list[threading.Timer] = []

    def stop_soon(name: str) -> None:
        if name == "moved":
            stoppers.append(threading.Timer(len(opened) * 0.001, opened[-1].stop_tidying))
            stoppers[-1].start()

    for turn in range(4):
        store = Embedded(path, 256 * 1024 * 1024, 1, after_step=stop_soon)
        opened.append(store)
        write(store, turn)
        with suppress(StoreError):
            store.seal(LATER_NS, 0)
        stoppers[-1].join()
        assert samples(store, 4) == (turn + 1) * LINES
        files = {file for unit in store.units() for file in unit.files(store.folder)}
        assert set(store.folder.rglob("*.parquet*")) == files
        store.close()


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


def test_damage_that_several_threads_meet_is_set_aside_once(tmp_path: Path) -> None:
    opened: list[bool] = []
    path = tmp_path / "some.duckdb"
    database = Database(
        path,
        (256 * 1024 * 1024, 1),
        SystemClock(),
        lambda: None,
        lambda went_back, _lost: opened.append(went_back),
    )
    together = threading.Barrier(3)

    def meet() -> None:
        with database.cursor():
            together.wait(60)
        database.after(duckdb.IOException("Corrupt database file: seen by all"))

    threads = [threading.Thread(target=meet) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [True, True]
    assert len(list(tmp_path.glob("some.duckdb.damaged-*"))) == 1
    # Later damage is set aside beside it, also within the same second.
    with database.cursor():
        pass
    database.after(duckdb.IOException("Corrupt database file: once more"))
    assert len(list(tmp_path.glob("some.duckdb.damaged-*"))) == 2
    database.close()


def test_two_files_set_aside_within_a_second_are_both_kept(tmp_path: Path) -> None:
    moved: list[Path] = []
    for text in ("one", "two", "three"):
        (tmp_path / "file").write_text(text)
        moved += moved_away([tmp_path / "file"], NOON).values()
    assert [it.read_text() for it in moved] == ["one", "two", "three"]
