"""What a store tells of itself, and what it lets go."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpuvigil.clock import SystemClock, from_ns, to_ns
from gpuvigil.errors import StoreError
from gpuvigil.store import Aggregate, Function
from hub.bodies.deduplication import Arrival, Lane
from hub.bodies.tables import TIME
from hub.embedded import DroppedLines, Embedded, Series, Window
from hub.embedded.database import Database
from hub.embedded.newest import Newest
from hub.embedded.statistics import held_bytes, reclaim
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
from tests.hub.test_embedded_boundaries import FIELD, NODE, newest_of, table
from tests.hub.test_embedded_boundaries import write as write_nodes

MIB = 1024 * 1024
HOUR_NS = to_ns(NOON + HOUR) - to_ns(NOON)
NOON_NS = to_ns(NOON)


def held(path: Path) -> bool:
    """Whether this process has a file open."""
    links = (Path("/proc/self/fd") / it for it in os.listdir("/proc/self/fd"))
    return str(path) in [os.readlink(it) for it in links if it.is_symlink()]


def files_bytes(folder: Path) -> int:
    return sum(it.stat().st_size for it in folder.rglob("*") if it.is_file())


@pytest.mark.slow
def test_it_tells_how_much_it_holds_and_since_when(
    tmp_path: Path, path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    assert store.oldest() is None
    assert store.verify().lines == 0
    aged(store)
    lines, size = store.sizes()
    assert {name for name, count in lines.items() if count} == {"gpu"}
    assert lines["gpu"] == HOURS * LINES
    assert size == files_bytes(tmp_path)
    assert path.with_name(path.name + ".wal").stat().st_size > 0
    assert store.held_bytes() >= path.with_name(path.name + ".wal").stat().st_size
    assert store.oldest() is None, "a GPU's lines are not a node's"
    write_nodes(store, [NOON_NS + 5, NOON_NS + 7])
    assert store.oldest() == from_ns(NOON_NS + 5)
    assert seal(store, 1) == 1
    assert store.oldest() == from_ns(NOON_NS + 5)
    told = store.verify()
    assert (told.units, told.lines, told.damaged) == (3, 2 * LINES + 2, 0)
    # Of lines that are gone, only their roll-ups count.
    store.expire(to_ns(NOON + HOUR), 0)
    assert store.oldest() is None
    assert store.verify().lines == LINES
    lines, size = store.sizes()
    assert (lines["gpu"], lines["node"]) == (2 * LINES, 0)
    assert size == files_bytes(tmp_path)


@pytest.mark.slow
def test_a_backup_says_how_many_bytes_it_has(
    tmp_path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    aged(store)
    (tmp_path / "copy").mkdir()
    assert store.backup(tmp_path / "copy") == files_bytes(tmp_path / "copy")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / store.folder.name).touch()
    with pytest.raises(StoreError, match=r"the copy in .*other: "):
        store.backup(tmp_path / "other")
    with pytest.raises(StoreError, match="Not a directory"):
        store.backup(tmp_path / "copy" / "telemetry.duckdb")
    assert samples(store) == HOURS * LINES


@pytest.mark.medium
def test_room_is_given_up_also_when_somebody_was_reading_the_time_before(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    database = Database(path, (256 * MIB, 1), SystemClock(), lambda: None, lambda *_: None)
    make = "CREATE TABLE rows AS SELECT random() AS a FROM range(300000)"
    database.transaction(lambda cursor: cursor.execute(make))
    database.ask("CHECKPOINT")
    full = held_bytes(database)
    with database.cursor() as reader:
        reader.begin()
        reader.execute("SELECT count(*) FROM rows").fetchall()
        database.transaction(lambda cursor: cursor.execute("DELETE FROM rows"))
        reclaim(database)
        assert held_bytes(database) >= full
    database.transaction(lambda cursor: cursor.execute("INSERT INTO rows VALUES (1)"))
    reclaim(database)
    assert held_bytes(database) < full
    database.close()


def test_what_was_dropped_adds_up() -> None:
    none, some = DroppedLines(), DroppedLines(lines=3, until_ns=10)
    assert none.and_then(none) == none
    assert none.and_then(some) == some == some.and_then(none)
    assert some.and_then(DroppedLines(lines=4, until_ns=5)) == DroppedLines(lines=7, until_ns=10)
    assert some.and_then(DroppedLines(lines=4, until_ns=15)) == DroppedLines(lines=7, until_ns=15)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("memory", "log"), [(256, "32.0 MiB"), (1016, "127.0 MiB"), (4096, "128.0 MiB")]
)
def test_a_log_takes_a_share_of_the_memory_up_to_a_limit(path: Path, memory: int, log: str) -> None:
    store = Embedded(path, memory * MIB, 1)
    (told,) = store.ask("SELECT current_setting('checkpoint_threshold') AS it")["it"].to_pylist()
    store.close()
    assert told == log


@pytest.mark.slow
def test_what_is_on_the_disk_says_which_version_wrote_it(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    aged(store)
    for unit in store.units():
        for file in unit.files(store.folder):
            said = pq.read_metadata(file).metadata
            assert (said[b"version"], said[b"parts"], said[b"together"]) == (b"1", b"1", b"")
    assert store.ask("SELECT version FROM schema_version")["version"].to_pylist() == [2]
    store.close()
    for version, is_refused in ((2, False), (3, True)):
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE schema_version SET version = ?", [version])
        if not is_refused:
            opened().close()
            continue
        with pytest.raises(StoreError, match="newer gpuvigil"):
            Embedded(path, 256 * MIB, 1)
        # Whoever is refused lets the file go, so that another may have it.
        assert not held(path)


@pytest.mark.medium
def test_an_old_version_is_raised_and_stands_once(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    opened().close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE schema_version SET version = 1")
    store = opened()
    assert store.ask("SELECT version FROM schema_version")["version"].to_pylist() == [2]


@pytest.mark.slow
def test_a_closed_store_opens_its_file_again_when_it_is_asked(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    aged(store)
    assert held(path)
    store.close()
    assert not held(path)
    assert (samples(store), latest(store)) == (HOURS * LINES, LINES)
    write(store, 2.5)
    assert samples(store) == (HOURS + 1) * LINES


def test_a_question_that_fails_for_no_file_is_not_asked_again(
    opened: Callable[[], Embedded], caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    write(store, 0)
    nonsense = Series(
        measurement=GPU,
        fields=("power_watts",),
        where=(("colour", "red"),),
        start_ns=NOON_NS,
        end_ns=NOON_NS + HOUR_NS,
        step_ns=HOUR_NS,
    )
    with pytest.raises(StoreError, match="colour"):
        store.answer(nonsense)
    assert "asked again" not in caplog.text


@pytest.mark.slow
def test_it_is_told_in_words_what_was_wrong_with_a_sealed_file(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    for hour in range(4):
        write(store, hour)
    assert seal(store, 4) == 4
    gone, short, other, _ = (it.lines_file(store.folder) for it in store.units())
    size = short.stat().st_size
    gone.unlink()
    cut(short, 0.5)
    store = opened()  # the sizes are looked at
    garble(other, 0.5)
    assert store.verify().damaged == 1
    told = {it["file"]: (it["reason"], it["moved_to"]) for it in store.damaged()}
    assert told.keys() == {str(gone), str(short), str(other)}
    assert told[str(gone)] == ("it is gone", None)
    assert told[str(short)][0] == f"{size // 2} bytes instead of {size}"
    assert told[str(other)][0] == "its bytes are not those that were written"
    assert all(Path(told[str(it)][1] or "").exists() for it in (short, other))
    assert samples(store, 4) == LINES


@pytest.mark.slow
def test_a_value_that_nobody_asks_for_and_cannot_be_read_is_found_when_all_is_looked_through(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    count = 1_000_000  # so that nearly all of the file is of them
    store.append(
        {
            "extra": pa.table(
                {
                    "at": pa.array(np.full(count, NOON_NS)).cast(TIME),
                    "value": np.random.default_rng(1).random(count),
                }
            )
        },
        [],
    )
    store = opened()
    assert store.verify().damaged == 0
    store.close()
    garble(path, 0.5)
    store = opened()
    assert store.damaged() == []
    with pytest.raises(StoreError, match="Corrupt database file"):
        store.verify()
    assert [it["file"] for it in store.damaged()] == [str(path)]


@pytest.mark.medium
def test_only_a_unit_that_is_cut_in_two_is_looked_through_before(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    write_nodes(store, [NOON_NS, NOON_NS + 5])
    assert store.seal(LATER_NS, LATER_NS - NOON_NS - HOUR_NS) == 1
    (unit,) = store.units()
    garble(unit.lines_file(store.folder), 0.5)
    store.forget(NOON_NS)
    assert (store.units(), store.damaged()) == ([unit], [])
    # Nor one that goes as a whole.
    store.forget(NOON_NS + 6)
    assert (store.units(), store.damaged()) == ([], [])
    assert not unit.lines_file(store.folder).exists()


@pytest.mark.medium
def test_roll_ups_of_which_the_lines_are_gone_are_forgotten_as_a_whole(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    write_nodes(store, [NOON_NS, NOON_NS + 5])
    assert store.seal(LATER_NS, LATER_NS - NOON_NS - HOUR_NS) == 1
    store.expire(NOON_NS + 6, 0)
    (unit,) = store.units()
    assert [it.name for it in (store.folder / "node").iterdir()] == [
        unit.rolled_file(store.folder).name
    ]
    # Nobody looks into what goes.
    garble(unit.rolled_file(store.folder), 0.5)
    store.forget(NOON_NS + 1)
    assert (store.units(), store.damaged()) == ([], [])


@pytest.mark.medium
def test_a_damaged_file_of_a_question_costs_no_other_measurement_nor_hour_a_look(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    for hour in range(3):
        write(store, hour)
    write_nodes(store, [NOON_NS])
    assert store.seal(LATER_NS, 0) == 4
    first, second, node = (
        next(it for it in store.units() if (it.measurement, it.first_ns) == at)
        for at in (("gpu", NOON_NS), ("gpu", NOON_NS + HOUR_NS), ("node", NOON_NS))
    )
    for unit in (first, second, node):
        garble(unit.lines_file(store.folder), 0.5)
    mean = Aggregate(function=Function.MEAN, field="power_watts")
    cut(first.lines_file(store.folder), 0.3)
    asked = Window(measurement=GPU, aggregates=(mean,), start_ns=NOON_NS, end_ns=NOON_NS + HOUR_NS)
    assert store.answer(asked).num_rows == 0
    assert [it["file"] for it in store.damaged()] == [str(first.lines_file(store.folder))]
    assert {second, node} <= set(store.units())


@pytest.mark.medium
@pytest.mark.parametrize(("seconds", "steps"), [(2_000, 2), (7_200, 15)])
def test_a_series_says_how_long_after_its_steps_lines_came(
    opened: Callable[[], Embedded], seconds: int, steps: int
) -> None:
    """Also of more than a day, which is read from roll-ups once it is sealed."""
    store = opened()
    step = seconds * 1_000_000_000
    begin = NOON_NS // step * step + step
    half = step // 2
    write_nodes(store, [begin + half, begin + half + 1_000_000_000, begin + step + half])
    asked = Series(
        measurement=NODE,
        fields=(FIELD,),
        where=(),
        start_ns=begin,
        end_ns=begin + steps * step,
        step_ns=step,
    )
    for sealed in (False, True):
        if sealed:
            assert store.seal(LATER_NS, 0) > 0
        found = store.answer(asked)["offset_seconds"].to_pylist()
        assert found == [seconds / 2 + 0.5, seconds / 2]


@pytest.mark.medium
def test_roll_ups_know_a_value_that_was_measured_in_some_of_their_lines_alone(
    opened: Callable[[], Embedded],
) -> None:
    store, measured = opened(), {"power_watts": [None, 7.5, 4.5], "pcie_replays": [5, None, -3]}
    at = [NOON_NS, NOON_NS + HOUR_NS // 2, NOON_NS + HOUR_NS]
    tags = {tag: ["one"] * len(at) for tag in GPU.tags}
    store.append({"gpu": pa.table({**tags, "at": pa.array(at).cast(TIME), **measured})}, [])
    asked = Window(
        measurement=GPU,
        aggregates=tuple(
            Aggregate(function=function, field=field)
            for field in measured
            for function in (Function.COUNT, Function.MEAN, Function.MIN, Function.MAX)
        ),
        start_ns=NOON_NS,
        end_ns=NOON_NS + 30 * HOUR_NS,
    )
    hot = store.answer(asked)
    values = [row for name, row in hot.to_pylist()[0].items() if name.startswith(tuple(measured))]
    assert values == [2, 6.0, 4.5, 7.5, 2, 1.0, -3, 5]
    assert store.seal(LATER_NS, 0) == 2
    assert store.answer(asked).equals(hot)


def test_newest_lines_that_were_not_asked_for_yet_are_forgotten_as_well() -> None:
    newest = Newest(NODE)
    newest.add(table([("a", 5), ("b", 9)]))
    newest.forget(6)
    assert newest_of(newest) == {"b": 9.0}
    newest.add(table([("a", 20)]))
    newest.forget(9)
    assert newest_of(newest) == {"a": 20.0, "b": 9.0}
    newest.add(table([("c", 3)]))
    newest.forget(10)
    assert newest_of(newest) == {"a": 20.0}
    assert newest_of(Newest(NODE)) == {}


def test_a_file_that_no_database_can_be_made_in_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as told:
        Embedded(tmp_path / "file" / "t.duckdb", 256 * MIB, 1)
    assert len(str(told.value).splitlines()) == 1


def test_where_no_new_file_can_be_made_for_a_damaged_one_nothing_more_is_set_aside(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(b"nothing of a database" * 1000)

    def in_its_way() -> None:
        if not path.exists():
            path.mkdir()

    database = Database(path, (256 * MIB, 1), SystemClock(), in_its_way, lambda *_: None)
    for _ in range(2):
        with pytest.raises(StoreError):
            database.cursor()
        assert path.is_dir()
        (damaged,) = tmp_path.glob("*.damaged-*")
        assert damaged.is_file()


def test_bodies_that_were_taken_are_told_as_they_came(opened: Callable[[], Embedded]) -> None:
    lanes = [Lane(cluster="c", node="n1", boot="b", lane=it) for it in ("live", "backlog")]
    taken = [
        Arrival(lane=lanes[0], first=1, last=4, received_at=NOON, sent_at=NOON - HOUR, version="1"),
        Arrival(lane=lanes[1], first=2, last=2, received_at=NOON),
    ]
    store = opened()
    store.append({}, taken)
    assert store.seen() == taken
    store.replace_seen(taken[1:])
    assert store.seen() == taken[1:]


def test_what_fails_in_a_transaction_leaves_nothing_and_the_next_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    database = Database(path, (256 * MIB, 1), SystemClock(), lambda: None, lambda *_: None)

    def enter(failure: Exception | None) -> Callable[[duckdb.DuckDBPyConnection], None]:
        def work(cursor: duckdb.DuckDBPyConnection) -> None:
            cursor.execute("INSERT INTO layouts VALUES ('a', 'b')")
            if failure is not None:
                raise failure

        return work

    for failure, said in (
        (duckdb.IOException("first\nsecond"), rf"the store in {path}: first$"),
        (duckdb.IOException(""), rf"the store in {path}: IOException$"),
        (OSError(28, "No room", "a/b"), "the store: a/b: No room$"),
        (OSError(28, "No room"), rf"the store: {path}: No room$"),
        (StoreError("stopped"), "stopped$"),
    ):
        with pytest.raises(StoreError, match=said):
            database.transaction(enter(failure))
        assert database.ask("SELECT * FROM layouts").num_rows == 0
    database.transaction(enter(None))
    with pytest.raises(StoreError, match="no_such"):
        database.ask("SELECT * FROM no_such")
    assert database.ask("SELECT * FROM layouts").num_rows == 1

    class Entering(AbstractContextManager[None]):
        """Somebody else commits as soon as a transaction has begun."""

        def __exit__(self, *_: object) -> None:
            database.transaction(enter(None))

    def count(cursor: duckdb.DuckDBPyConnection) -> int:
        return len(cursor.execute("SELECT * FROM layouts").fetchall())

    assert database.transaction(count, Entering()) == 1
    assert database.transaction(count) == 2
    database.close()
    assert not held(path)
