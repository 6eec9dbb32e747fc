"""Right before and right after each boundary in time: hours, days, retention, late and newest lines."""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import to_ns
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.bodies.deduplication import Deduplicator
from hub.bodies.tables import TIME
from hub.embedded import Embedded, Latest, Window, segments
from hub.embedded.aggregates import BUCKET_NS
from hub.embedded.newest import Newest
from hub.embedded.sealed_files import BESIDE, Unit
from hub.embedded.segment_writer import DAY, HOUR, HOUR_NS
from hub.embedded.segments import DAY_NS
from hub.embedded.statistics import beyond
from hub.telemetry.body import Body
from hub.telemetry.committer import commit
from tests.hub.hours import NOON, garble

NODE = MEASUREMENTS["node"]
FIELD = "load_average"
MEAN = Aggregate(function=Function.MEAN, field=FIELD)
NOON_NS = to_ns(NOON)
MIDNIGHT_NS = NOON_NS // DAY_NS * DAY_NS
NOW_NS = NOON_NS + 100 * DAY_NS
LATE_NS, LATE_DAY_NS = HOUR_NS, 6 * HOUR_NS
MANY_LATE = 50_000


def write(store: Embedded, times_ns: Sequence[int], node: str = "n") -> None:
    """Lines whose value is their time after noon, in nanoseconds."""
    lines = "\n".join(
        f"node,cluster=c,node={node} load_average={at - NOON_NS} {at}" for at in times_ns
    )
    body = Body(
        text=lines.encode(), precision="ns", received_at=NOON, identity=None, done=lambda _: None
    )
    (outcome,) = commit(store, Deduplicator(10), [body])
    assert outcome.lines == len(times_ns)


def samples(store: Embedded, start_ns: int = 0, end_ns: int = NOW_NS) -> int:
    asked = Window(measurement=NODE, aggregates=(MEAN,), start_ns=start_ns, end_ns=end_ns)
    return sum(store.answer(asked)["samples"].to_pylist())


def latest(store: Embedded) -> dict[str, float]:
    found = store.answer(Latest(measurement=NODE, fields=(FIELD,), since_ns=0))
    return dict(zip(found["node"].to_pylist(), found[FIELD].to_pylist(), strict=True))


def spans(store: Embedded) -> list[tuple[int, int, int]]:
    """Level, first and last time after noon of each unit."""
    return [(it.level, it.first_ns - NOON_NS, it.last_ns - NOON_NS) for it in store.units()]


def sealed_until(store: Embedded, until_ns: int, now_ns: int = NOW_NS) -> int:
    return store.seal(now_ns, now_ns - until_ns)


def unit(
    level: int, first_ns: int, last_ns: int, sealed_ns: int = 0, *, lines: bool = True
) -> Unit:
    return Unit(
        name=f"{level}.{first_ns}.{last_ns}",
        measurement="node",
        lines=1,
        first_ns=first_ns,
        last_ns=last_ns,
        first_node="n",
        last_node="n",
        level=level,
        sealed_ns=sealed_ns,
        lines_bytes=1 if lines else None,
        lines_sha256="",
        rolled_bytes=1,
        rolled_sha256="",
        layout="",
    )


@pytest.mark.slow
def test_an_hour_is_sealed_from_its_first_nanosecond_to_its_last_when_it_is_over(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    write(store, [NOON_NS - 1, NOON_NS, NOON_NS + HOUR_NS - 1, NOON_NS + HOUR_NS])
    assert sealed_until(store, NOON_NS - 1) == 0
    assert sealed_until(store, NOON_NS + HOUR_NS - 1) == 1
    assert spans(store) == [(HOUR, -1, -1)]
    assert sealed_until(store, NOON_NS + HOUR_NS) == 1
    assert spans(store) == [(HOUR, -1, -1), (HOUR, 0, HOUR_NS - 1)]
    assert samples(store) == 4
    assert sealed_until(store, NOON_NS + 2 * HOUR_NS) == 1
    assert samples(opened()) == 4


@pytest.mark.slow
def test_late_lines_wait_for_an_hour_since_their_own_was_sealed_last_or_until_they_are_many(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    until = NOON_NS + HOUR_NS
    write(store, [NOON_NS])
    assert sealed_until(store, until, NOW_NS) == 1
    for turn in (1, 2):
        sealed = NOW_NS + (turn - 1) * LATE_NS
        write(store, [NOON_NS + turn])
        assert sealed_until(store, until, sealed + LATE_NS - 1) == 0
        assert sealed_until(store, until, sealed + LATE_NS) == 1
    newest = NOW_NS + 2 * LATE_NS
    write(store, [NOON_NS + 10 + n for n in range(MANY_LATE - 1)])
    assert sealed_until(store, until, newest) == 0
    write(store, [NOON_NS + 9])
    assert sealed_until(store, until, newest) == 1
    assert samples(store) == MANY_LATE + 3


@pytest.mark.slow
def test_late_lines_of_the_first_and_the_last_hour_of_a_joined_day_wait_as_well(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    tomorrow = MIDNIGHT_NS + DAY_NS
    write(store, [MIDNIGHT_NS - 1, MIDNIGHT_NS, tomorrow - 1, tomorrow])
    assert sealed_until(store, tomorrow + HOUR_NS) == 4
    assert store.join(NOW_NS, NOW_NS - tomorrow + 1) == 0
    assert store.join(NOW_NS, NOW_NS - tomorrow) == 1
    assert [it.level for it in store.units()] == [HOUR, DAY, HOUR]
    (day,) = [it for it in store.units() if it.level == DAY]
    assert (day.first_ns, day.last_ns) == (MIDNIGHT_NS, tomorrow - 1)
    write(store, [MIDNIGHT_NS + 1, tomorrow - 2])
    assert sealed_until(store, tomorrow, NOW_NS + LATE_NS - 1) == 0
    assert sealed_until(store, tomorrow, NOW_NS + LATE_NS) == 2
    assert samples(store) == 6


def test_a_day_is_joined_when_it_is_over_and_again_when_a_late_hour_has_waited() -> None:
    end = DAY_NS

    def days(found: Sequence[Unit], before_ns: int = end, now_ns: int = 0) -> list[int]:
        return [start for start, _ in segments.due_days(found, before_ns, now_ns)]

    hours = [unit(HOUR, 0, 1), unit(HOUR, end - 1, end - 1)]
    assert days(hours) == [0]
    assert days(hours, end - 1) == []
    assert days([hours[0]]) == []
    assert days([unit(HOUR, end - 1, end - 1), unit(HOUR, end, end)], 2 * end) == []
    assert days([*hours, unit(HOUR, end, end), unit(HOUR, end + 1, end + 1)], 2 * end) == [0, end]
    day, late, later = unit(DAY, 0, end - 1), unit(HOUR, 5, 5, 100), unit(HOUR, 6, 6, 200)
    assert days([day, late, later], end, 100 + LATE_DAY_NS - 1) == []
    assert days([day, late, later], end, 100 + LATE_DAY_NS) == [0]
    assert days([day, unit(DAY, 1, 2)], end, 10 * LATE_DAY_NS) == []
    assert days([hours[0], unit(HOUR, 3, 4, lines=False)]) == []


def test_what_is_kept_for_a_time_goes_when_its_newest_line_is_older_than_that() -> None:
    cut, rolled = 1000 * DAY_NS, 100 * DAY_NS

    def gone(found: Unit) -> tuple[bool, bool]:
        stripped, dropped = segments.expiring([found], cut, rolled)
        return bool(stripped), bool(dropped)

    assert gone(unit(DAY, cut - 5, cut)) == (False, False)
    assert gone(unit(DAY, cut - 5, cut - 1)) == (True, False)
    assert gone(unit(DAY, cut - 5, cut - 1, lines=False)) == (False, False)
    # A bucket of roll-ups reaches from its begin on: that of the newest line may end later.
    assert gone(unit(DAY, 0, rolled - BUCKET_NS)) == (True, False)
    assert gone(unit(DAY, 0, rolled - BUCKET_NS, lines=False)) == (False, False)
    assert gone(unit(DAY, 0, rolled - BUCKET_NS - 1)) == (False, True)
    beside = Unit(**{name: getattr(unit(HOUR, 0, cut), name) for name in Unit.__slots__})
    for last_ns, dropped in ((cut, False), (cut - 1, True)):
        of = {name: getattr(beside, name) for name in Unit.__slots__}
        changed = Unit(**{**of, "measurement": BESIDE.name, "last_ns": last_ns})
        assert gone(changed) == (False, dropped)


@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.slow
def test_to_forget_drops_what_is_older_and_keeps_the_line_at_the_cut(
    opened: Callable[[], Embedded], offset: int
) -> None:
    store = opened()
    cut = NOON_NS + 1000
    times = [cut - 2, cut - 1, cut, cut + 1]
    write(store, times, "sealed")
    write(store, [cut - 1], "gone")
    assert sealed_until(store, NOON_NS + HOUR_NS) == 1
    write(store, times, "hot")
    before = cut + offset
    store.forget(before)
    left = [at for at in times if at >= before]
    assert samples(store) == 2 * len(left) + (offset == -1)
    assert samples(store, 0, before) == 0
    assert spans(store) == [(HOUR, left[0] - NOON_NS, left[-1] - NOON_NS)]
    assert store.units()[0].name.startswith(f"{NOON:%Y-%m-%dT}")
    named = {"sealed", "hot"} | ({"gone"} if offset == -1 else set())
    assert latest(store).keys() == named
    assert latest(opened()).keys() == named
    store = opened()
    (kept,) = store.units()
    store.forget(left[0])
    assert store.units() == [kept], "a unit that begins at the cut is left as it is"
    store.forget(left[-1])
    assert spans(store) == [(HOUR, left[-1] - NOON_NS, left[-1] - NOON_NS)]
    store.forget(left[-1] + 1)
    assert (store.units(), samples(store), latest(store)) == ([], 0, {})


@pytest.mark.slow
def test_a_file_that_ends_at_the_cut_is_looked_through_before_it_is_written_anew(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    write(store, [NOON_NS, NOON_NS + 5])
    assert sealed_until(store, NOON_NS + HOUR_NS) == 1
    (one,) = store.units()
    assert one.name.startswith(f"{NOON:%Y-%m-%dT%H}.")
    garble(one.lines_file(store.folder), 0.1)
    store.forget(NOON_NS + 5)
    assert [it["file"] for it in store.damaged()] == [str(one.lines_file(store.folder))]
    assert store.units() == []


@pytest.mark.slow
def test_late_lines_beyond_the_retention_go_and_the_others_stay(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    write(store, [NOON_NS, NOON_NS + 5], "n")
    assert sealed_until(store, NOON_NS + HOUR_NS) == 1
    write(store, [NOON_NS - 1, NOON_NS, NOON_NS + 1], "late")
    store.expire(NOON_NS, 0)
    assert samples(store) == 4
    store.expire(NOON_NS + 5, 0)
    assert [it.lines_bytes is None for it in store.units()] == [False]
    assert latest(store) == {"n": 5.0}
    store.expire(NOON_NS + 6, 0)
    assert [it.lines_bytes is None for it in store.units()] == [True]
    assert latest(store) == {}
    assert latest(opened()) == {}


def test_a_unit_touches_what_begins_at_its_last_line_and_not_what_ends_at_its_first() -> None:
    one = unit(HOUR, 10, 20)
    touched = {(0, 10): False, (0, 11): True, (20, 30): True, (21, 30): False, (12, 13): True}
    assert {span: one.touches(*span) for span in touched} == touched


@pytest.mark.parametrize(("room", "gone"), [(9, 0), (8, 1), (6, 1), (5, 2), (4, 2), (3, 3), (0, 3)])
def test_the_oldest_units_go_until_the_others_have_room(room: int, gone: int) -> None:
    them = [
        replace(unit(HOUR, n, n), lines_bytes=lines, rolled_bytes=rolled)
        for n, (lines, rolled) in enumerate([(2, 1), (None, 2), (1, 3)])
    ]
    assert beyond(room, iter(them)) == them[:gone]


def test_a_day_is_split_where_the_next_node_would_be_too_many_lines() -> None:
    with duckdb.connect() as connection:
        counts = "(VALUES ('a', 2), ('b', 2), ('c', 1), ('d', 5)) AS it(node, lines)"
        source = f"(SELECT node FROM {counts}, range(lines))"
        parts = list(segments._parts(connection, source, 4))
        nodes = [
            connection.execute(f"SELECT DISTINCT node FROM {source} WHERE {one}").fetchall()
            for one in parts
        ]
    assert [sorted(node for (node,) in found) for found in nodes] == [["a", "b"], ["c"], ["d"]]


def table(rows: Sequence[tuple[str, int]]) -> pa.Table:
    """Lines of nodes at times; the value of each is its time."""
    names, times = [name for name, _ in rows], [at for _, at in rows]
    return pa.table(
        {
            "cluster": pa.array(["c"] * len(rows), pa.string()),
            "node": pa.array(names, pa.string()),
            "at": pa.array(times, pa.int64()).cast(TIME),
            FIELD: pa.array(map(float, times), pa.float64()),
        }
    )


def newest_of(newest: Newest, since_ns: int = 0) -> dict[str, float]:
    found = newest.latest((FIELD,), since_ns)
    assert found["at"].cast(pa.int64()).to_pylist() == [int(it) for it in found[FIELD].to_pylist()]
    return dict(zip(found["node"].to_pylist(), found[FIELD].to_pylist(), strict=True))


@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 10**15)),
        min_size=1,
        max_size=30,
        unique=True,
    ),
    cuts=st.lists(st.integers(1, 30), max_size=5),
    looks=st.booleans(),
    seed=st.integers(),
)
def test_in_whatever_order_lines_come_the_newest_of_each_subject_is_the_newest(
    rows: list[tuple[str, int]], cuts: list[int], looks: bool, seed: int
) -> None:
    expected: dict[str, float] = {}
    for name, at in rows:
        expected[name] = max(expected.get(name, 0.0), float(at))
    random.Random(seed).shuffle(rows)
    newest = Newest(NODE)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, end in itertools.pairwise(edges):
        newest.add(table(rows[start:end]))
        if looks:
            newest_of(newest)
    assert newest_of(newest) == expected
    cut = sorted(expected.values())[len(expected) // 2]
    kept = {name: at for name, at in expected.items() if at >= cut}
    assert newest_of(newest, int(cut)) == kept
    assert newest_of(newest, int(cut) + 1) == {n: at for n, at in expected.items() if at > cut}
    newest.forget(int(cut))
    assert newest_of(newest) == kept
    newest.forget(int(cut) + 1)
    assert newest_of(newest) == {n: at for n, at in expected.items() if at > cut}


@pytest.mark.slow
def test_a_late_old_line_never_replaces_the_newest_before_or_after_a_restart(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    write(store, [NOON_NS + 9])
    assert sealed_until(store, NOON_NS + HOUR_NS) == 1
    for turn in range(3):
        write(store, [NOON_NS + turn])
        assert latest(store) == {"n": 9.0}
        store = opened()
        assert latest(store) == {"n": 9.0}
        sealed_until(store, NOON_NS + HOUR_NS, NOW_NS + (turn + 1) * LATE_NS)
        store = opened()
        assert latest(store) == {"n": 9.0}
    # Also when the tables are lost, and the files alone tell.
    (folder, path) = (store.folder, store.folder.with_suffix(".duckdb"))
    store.close()
    path.unlink()
    assert folder.exists()
    assert latest(opened()) == {"n": 9.0}


@pytest.mark.slow
def test_hot_lines_are_found_whether_they_come_before_or_after_those_that_are_there(
    opened: Callable[[], Embedded],
) -> None:
    store = opened()
    for count, at in enumerate((0, 5, -5, 10, -10), 1):
        write(store, [NOON_NS + at])
        assert samples(store, NOON_NS + at, NOON_NS + at + 1) == 1
        assert samples(store) == count
