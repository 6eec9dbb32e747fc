"""Files cut short, garbled, gone or too new: what the store makes of each."""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from hub.bodies.deduplication import Deduplicator
from hub.embedded import Embedded, segments
from hub.embedded.damage import moved_away
from hub.embedded.database import Database
from hub.embedded.sealed_files import sha256
from hub.embedded.segment_writer import SegmentWriter
from hub.telemetry.body import Body
from hub.telemetry.committer import commit
from hub.telemetry.counters import Counters
from hub.telemetry.retention import Retention
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


@pytest.mark.parametrize("suffix", ["lines", "rolled"])
@pytest.mark.parametrize("manifest", ["lost", "of what is garbled"])
def test_a_file_that_was_garbled_before_its_sum_was_taken_stops_no_other(
    path: Path, opened: Callable[[], Embedded], suffix: str, manifest: str
) -> None:
    """Nothing but decoding it tells: its size and sum are as they are known."""
    store = opened()
    for hour in range(2 * HOURS):
        write(store, hour, 500)
    seal(store, 2 * HOURS)
    unit = store.units()[1]
    file = unit.lines_file(store.folder) if suffix == "lines" else unit.rolled_file(store.folder)
    garble(file, 0.3)
    store.close()
    if manifest == "lost":
        path.unlink()
    else:
        with duckdb.connect(str(path)) as direct:
            values = [sha256(file), unit.name]
            direct.execute(f"UPDATE sealed SET {suffix}_sha256 = ? WHERE name = ?", values)
    store = opened()
    if suffix == "rolled" and manifest != "lost":
        assert store.verify().damaged == 1  # lines are put together without the roll-ups
    assert store.join(LATER_NS, 0) == 1
    assert [unit.level for unit in store.units()] == [1]
    assert str(file) in {it["file"] for it in store.damaged()}
    assert {it["lines"] for it in store.damaged() if "lines.parquet" in it["file"]} <= {500}
    assert samples(store, 2 * HOURS) == (2 * HOURS - 1) * 500


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
    commit(store, Deduplicator(), [body])
    clock = SystemClock()
    counters = Counters()
    settings = HubSettings(telemetry_days=40_000.0, rollup_days=40_000.0, hot_hours=1.0)
    Retention(store, settings, clock, counters).apply()
    assert [unit.level for unit in store.units()] == [1]
    assert counters.registry.get_sample_value("gpuvigil_hub_failed_tidying_total") == 1
    (store.folder / "node").unlink()
    Retention(store, settings, clock, counters).apply()
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
        writer = SegmentWriter(folder=folder, after_step=lambda _step: None)
        segments.seal(connection, writer, before, to_ns(NOON), LATER_NS)
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
                opened[-1].stop_retention()

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
            stoppers.append(threading.Timer(len(opened) * 0.001, opened[-1].stop_retention))
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


def test_a_backup_is_whole_and_tells_what_was_damaged_before_it(
    opened: Callable[[], Embedded], tmp_path: Path
) -> None:
    store = opened()
    aged(store)
    garbled = store.units()[0].lines_file(store.folder)
    garble(garbled, 0.5)
    (tmp_path / "copy").mkdir()
    store.backup(tmp_path / "copy")
    copy = Embedded(tmp_path / "copy/telemetry.duckdb", 256 * 1024 * 1024, 1)
    try:
        assert (copy.verify().damaged, samples(copy)) == (0, 2 * LINES)
        assert [it["file"] for it in copy.damaged()] == [str(garbled)]
    finally:
        copy.close()
