"""Which slices of hot lines are read for a question, kept, and given up."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.embedded import Series, Window
from hub.embedded.dense_arrays import SlotAggregates
from hub.embedded.manifest import Contents, Manifest, Span
from hub.embedded.rollup_cache import Change, Kind, Plan, RollupCache, seconds_of

SECOND = 1_000_000_000
GPU = MEASUREMENTS["gpu"]
MEAN = Aggregate(function=Function.MEAN, field="power_watts")
LENGTH = 320 * SECOND
STEP = 20 * SECOND
# Where a slice begins, and the whole range is whole slices.
START = 100_000 * STEP
SETTLED = 5 * SECOND
# The last slice that has settled at `END` ends a second before it may.
END = START + LENGTH + SETTLED + SECOND


def asked(end_ns: int, length_ns: int = LENGTH) -> Window:
    return Window(measurement=GPU, aggregates=(MEAN,), start_ns=end_ns - length_ns, end_ns=end_ns)


def planned(slices: RollupCache, question: Window | Series, *, keep: bool = True) -> Plan:
    with slices.planned(question) as plan:
        if keep:
            plan.made = {start: dense() for start, _ in plan.making}
    return plan


def dense(count: int = 1) -> SlotAggregates:
    # Not all alike: equal numbers would take the room of one.
    none = np.arange(count, dtype=np.int64)
    return SlotAggregates(lines=none, first_ns=none, last_ns=none, fields={})


def commit(slices: RollupCache, change: Change) -> None:
    with slices.changing(change):
        pass


def test_of_a_kind_that_comes_again_all_settled_slices_are_read_and_known_the_next_time() -> None:
    slices = RollupCache(1 << 30)
    first = planned(slices, asked(END))
    assert (first.kind, first.rest, first.making) == (None, [(END - LENGTH, END)], ())
    second = planned(slices, asked(END))
    assert second.kind is not None
    assert second.kind.step_ns == STEP
    # What lies before the first whole slice, and what may still come.
    begin = START + STEP
    making = [(it, it + STEP) for it in range(begin, START + LENGTH, STEP)]
    assert second.making == making
    assert second.rest == [(END - LENGTH, begin), (START + LENGTH, END)]
    third = planned(slices, asked(END))
    assert (third.making, len(third.known), third.rest) == ([], len(making), second.rest)
    assert third.starts == {it for it, _ in making}


@pytest.mark.parametrize(("after", "settled"), [(0, False), (1, True)])
def test_a_slice_is_kept_when_more_than_five_seconds_have_gone_by_since_it_ended(
    after: int, settled: bool
) -> None:
    slices, end = RollupCache(1 << 30), START + LENGTH + SETTLED + after
    planned(slices, asked(end))
    last = planned(slices, asked(end)).making[-1]
    assert (last[1] == START + LENGTH) is settled


def test_a_range_of_five_minutes_is_a_kind_and_a_shorter_one_or_a_series_is_none() -> None:
    slices = RollupCache(1 << 30)
    shortest = 300 * SECOND
    for length, is_kind in ((shortest, True), (shortest - 1, False)):
        found = [planned(slices, asked(END, length)).kind for _ in range(3)]
        assert [it is not None for it in found] == [False, is_kind, is_kind]
    steps = Series(
        measurement=GPU,
        fields=("power_watts",),
        where=(),
        start_ns=0,
        end_ns=LENGTH,
        step_ns=STEP,
    )
    assert [planned(slices, steps).kind for _ in range(3)] == [None] * 3


def test_where_none_is_known_few_are_read_but_for_each_tenth_question() -> None:
    slices = RollupCache(1 << 30)
    planned(slices, asked(END))
    counts = [len(planned(slices, asked(END), keep=False).making) for _ in range(12)]
    assert counts == [15, *[4] * 9, 15, 4]


def test_those_that_a_commit_has_touched_are_read_again_the_newest_first() -> None:
    slices = RollupCache(1 << 30)
    for _ in range(2):
        planned(slices, asked(END))
    # The first and the last nanosecond of slices, and one of another measurement.
    touched = [START + it * STEP for it in (3, 5, 7, 9, 11)]
    times = np.array([*touched[:3], *(it + STEP - 1 for it in touched[3:])])
    commit(slices, {"gpu": times, "node": np.array([START + 4 * STEP])})
    plan = planned(slices, asked(END))
    assert [it for it, _ in plan.making] == touched[1:]
    assert len(plan.known) == 10
    assert (touched[0], touched[0] + STEP) in plan.rest
    assert [it for it, _ in planned(slices, asked(END)).making] == touched[:1]
    commit(slices, None)
    assert planned(slices, asked(END)).known == []


def test_a_slice_that_a_commit_touched_meanwhile_is_not_kept() -> None:
    slices = RollupCache(1 << 30)
    planned(slices, asked(END))
    with slices.planned(asked(END)) as plan:
        plan.made = {start: dense() for start, _ in plan.making}
        commit(slices, {"gpu": np.array([plan.making[3][0]])})
        commit(slices, {"node": np.array([plan.making[4][0]])})
        assert slices.holds(plan)  # of what it knows, which is nothing, none was touched
    assert [it for it, _ in planned(slices, asked(END), keep=False).making] == [plan.making[3][0]]
    with slices.planned(asked(END)) as again:
        commit(slices, {"gpu": np.array([plan.making[5][0]])})
        assert not slices.holds(again)
    with slices.planned(asked(END)) as again:
        again.made = {again.making[0][0]: dense()}
        commit(slices, None)
        assert not slices.holds(again)
    assert planned(slices, asked(END)).known == []


def test_a_plan_begun_beside_a_commit_trusts_nothing_of_it() -> None:
    slices = RollupCache(1 << 30)
    for _ in range(2):
        planned(slices, asked(END))
    with slices.changing({"gpu": np.array([START])}), slices.planned(asked(END)) as plan:
        assert slices.holds(plan)
    for change in ({"gpu": np.array([START + 2 * STEP])}, None):
        with slices.changing(change), slices.planned(asked(END)) as plan:
            plan.made = {start: dense() for start, _ in plan.making}
        before = plan.made.keys()
        assert before
        assert before.isdisjoint(planned(slices, asked(END), keep=False).starts)
        assert planned(slices, asked(END)).making
    # Once they are over, they are of no interest any more.
    with slices.planned(asked(END)) as plan:
        assert slices.holds(plan)


@given(
    looks=st.lists(
        st.tuples(st.integers(0, 90 * SECOND), st.lists(st.integers(1, 400 * SECOND), max_size=4)),
        min_size=2,
        max_size=12,
    )
)
def test_whatever_is_known_every_moment_of_a_range_is_in_one_part_of_the_plan(
    looks: list[tuple[int, list[int]]],
) -> None:
    slices, end, kept = RollupCache(1 << 30), END, set[int]()
    for later, ago in looks:
        end += later
        plan = planned(slices, asked(end))
        assert plan.starts <= kept
        known = [(it, it + STEP) for it in plan.starts]
        at = end - LENGTH
        for start, stop in sorted([*known, *plan.making, *plan.rest]):
            assert start == at < stop
            at = stop
        assert at == end
        # What is kept and in the range is used.
        assert plan.starts == {it for it in kept if end - LENGTH <= it and it + STEP <= end}
        kept |= {start for start, _ in plan.making}
        times = np.array([end - it for it in ago], np.int64)
        commit(slices, {"gpu": times})
        kept -= set((times // STEP * STEP).tolist())


def test_of_slices_before_the_range_none_is_kept() -> None:
    slices = RollupCache(1 << 30)
    for end in (END, END, END + 2 * LENGTH, END + 2 * LENGTH):
        planned(slices, asked(end))
    # Twice four were read of the later range, and the 15 of the first are gone.
    assert slices.bytes == 8 * dense().bytes


@pytest.mark.parametrize(("after", "count"), [(0, 15), (1, 14)])
def test_a_slice_stays_until_a_range_begins_after_its_end_for_one_whose_clock_is_behind(
    after: int, count: int
) -> None:
    slices, end = RollupCache(1 << 30), START + LENGTH
    for ahead in (0, 0, STEP + after):
        planned(slices, asked(end + ahead))
    assert len(planned(slices, asked(end)).known) == count


def test_where_there_is_no_room_left_what_is_known_stays_and_no_more_is_read() -> None:
    slices = RollupCache(15 * dense().bytes)
    for _ in range(2):
        planned(slices, asked(END))
    plan = planned(slices, asked(END + STEP))
    assert (plan.making, len(plan.known)) == ([], 14)
    assert [planned(slices, asked(END, 2 * LENGTH)).kind for _ in range(3)] == [None] * 3
    # By now the oldest has been given up.
    assert len(planned(slices, asked(END + 2 * STEP)).making) == 2


def kinds(count: int) -> list[Window]:
    return [asked(END, LENGTH + it * SECOND) for it in range(count)]


@pytest.mark.parametrize(("count", "first"), [(64, True), (65, False)])
def test_of_kinds_that_came_once_the_last_64_are_known_when_they_come_again(
    count: int, first: bool
) -> None:
    slices = RollupCache(1 << 30)
    for question in kinds(count):
        assert planned(slices, question).kind is None
    assert planned(slices, kinds(count)[-1]).kind is not None
    assert (planned(slices, kinds(1)[0]).kind is not None) is first


@pytest.mark.parametrize(("times", "is_gone"), [(437, False), (438, True)])
def test_a_kind_gives_up_its_place_once_500_others_were_asked(times: int, is_gone: bool) -> None:
    slices, asking = RollupCache(1 << 30), kinds(65)
    for question in asking[:64]:
        for _ in range(2):
            planned(slices, question, keep=False)
    # The first came as number 1 of all, the last as number 64.
    for _ in range(times):
        planned(slices, asking[63], keep=False)
    planned(slices, asking[64])
    assert (planned(slices, asking[64]).kind is not None) is is_gone
    assert (planned(slices, asking[0]).kind is None) is is_gone


def test_hours_have_a_time_in_each_slice_that_is_in_them() -> None:
    times = seconds_of(START, START + 3600 * SECOND)
    assert (times[0], times[-1], len(times)) == (START, START + 3599 * SECOND, 3600)
    assert Kind("gpu", (), 321 * SECOND).step_ns == STEP


class Tables:
    """What a manifest is read from, and how often it was."""

    def __init__(self) -> None:
        self.reads = 0
        self.hot: dict[str, Span] = {}
        self.meanwhile = threading.Event().is_set

    def read(self) -> tuple[Contents, dict[str, Span]]:
        self.reads += 1
        self.meanwhile()
        return Contents(units={}, subjects={}), dict(self.hot)


def test_what_is_sealed_is_read_again_after_each_change_and_not_before() -> None:
    tables = Tables()
    manifest = Manifest(tables.read)
    sight = manifest.view("gpu")
    assert manifest.view("node").contents is sight.contents
    assert manifest.is_current(sight.version)
    with manifest.changing():
        assert not manifest.is_current(sight.version)
        # As it was, since nothing is committed yet; but nobody may rely on that.
        during = manifest.view("gpu")
        assert during.contents is sight.contents
        assert not manifest.is_current(during.version)
    assert not manifest.is_current(during.version)
    after = manifest.view("gpu")
    assert manifest.is_current(after.version)
    assert after.contents is not sight.contents
    manifest.renew()
    assert tables.reads == 2


def test_what_was_read_while_something_changed_is_read_once_more() -> None:
    tables, changed = Tables(), list[None]()

    def change() -> bool:
        if not changed:
            changed.append(None)
            with manifest.changing():
                pass
        return True

    tables.meanwhile = change
    manifest = Manifest(tables.read)
    sight = manifest.view("gpu")
    assert tables.reads == 2
    assert manifest.is_current(sight.version)


def test_hot_times_widen_with_each_commit_and_narrow_to_what_is_left() -> None:
    tables = Tables()
    tables.hot = {"gpu": (10, 20), "node": (1, 2)}
    manifest = Manifest(tables.read)
    manifest.widen("gpu", (15, 30))
    assert manifest.view("gpu").hot == (10, 30)
    manifest.widen("gpu", (5, 6))
    assert manifest.view("gpu").hot == (5, 30)
    assert manifest.view("node").hot == (1, 2)
    assert manifest.view("port").hot is None
    manifest.narrow(["gpu", "port"], lambda: {"gpu": (12, 13)})
    assert [manifest.view(it).hot for it in ("gpu", "node", "port")] == [(12, 13), (1, 2), None]
    manifest.narrow(["gpu"], dict)
    assert manifest.view("gpu").hot is None


def test_what_is_known_is_put_together_once_and_anew_when_it_is_another() -> None:
    slices = _read(asked(END))
    before = slices.bytes
    sum_ = _put_together(slices)
    assert slices.bytes == before + sum_.bytes
    assert planned(slices, asked(END + SECOND)).summed is sum_
    # Neither another table's lines nor those of a time that is in no slice change it.
    commit(slices, {"port": np.array([START + STEP])})
    commit(slices, {"gpu": np.array([START + STEP - 1, START + LENGTH])})
    assert planned(slices, asked(END)).summed is sum_
    # A slice later there is one more, and one less.
    assert planned(slices, asked(END + STEP), keep=False).summed is None
    commit(slices, {"gpu": np.array([START + LENGTH - 1])})
    assert planned(slices, asked(END), keep=False).summed is None
    assert slices.bytes < before
    slices = _read(asked(END))
    _put_together(slices)
    commit(slices, None)
    assert (slices.bytes, planned(slices, asked(END), keep=False).summed) == (0, None)


@pytest.mark.parametrize("change", [{"gpu": np.array([START + STEP])}, None])
def test_what_was_put_together_beside_a_commit_in_it_is_not_kept(change: Change) -> None:
    slices = _read(asked(END))
    with slices.planned(asked(END)) as plan:
        plan.summed = dense()
        commit(slices, change)
    assert planned(slices, asked(END), keep=False).summed is None


def _read(question: Window) -> RollupCache:
    slices = RollupCache(1 << 30)
    for _ in range(2):
        planned(slices, question)
    return slices


def _put_together(slices: RollupCache) -> SlotAggregates:
    with slices.planned(asked(END)) as plan:
        assert plan.summed is None
        plan.summed = sum_ = dense(3)
    return sum_
