"""Whom the others wait for in collectives, and who is told."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from collector.nccl.awaited_rank import AwaitedRank, awaited_ranks, with_earlier_cost
from collector.nccl.inspector import Op
from collector.nccl.repeat_filter import SECOND_LOOK_SECONDS, TOLD_AGAIN_SECONDS, RepeatFilter
from gpuvigil.model import RankState, Source

SLOW, EVERY = 2, 10_000
Took = Callable[[int, int], int]


def ops(took: Took, count: int = 40, ranks: int = 4, every: int = EVERY) -> list[Op]:
    """A collective each `every` microseconds; four are written at once."""
    return [
        Op(
            communicator="0xabc12",
            size=ranks,
            rank=rank,
            host="n1",
            pid=1 + rank,
            operation="AllReduce",
            number=number,
            microseconds=took(rank, number),
            clock="kernel_gpu",
            owner=1000,
            written=number // 4 * 4 * every,
        )
        for number in range(count)
        for rank in range(ranks)
    ]


def shorter(by: int, others: int = 3000) -> Took:
    return lambda rank, _: others - by * (rank == SLOW)


def test_the_rank_that_is_in_collectives_for_the_shortest_time_is_waited_for() -> None:
    (found,) = awaited_ranks(ops(shorter(1000)))
    assert (found.op.rank, found.compared, found.percent, found.cost) == (SLOW, 40, 100, 100)
    told = replace(found, cost_before=7).collective("job 7", "GPU-2")
    assert (told.by, told.stand, told.size, told.operation, told.cost, told.cost_before) == (
        *(Source.INSPECTOR, RankState.FIRST, 4, "AllReduce", 100, 7),
    )
    assert (told.ranks[0].microseconds, told.microseconds) == (2000, 3000)


@pytest.mark.parametrize(("every", "seconds"), [(EVERY, 0), (31_249, 0), (31_250, 1)])
def test_it_is_told_for_how_long_that_has_been_so(every: int, seconds: int) -> None:
    """In whole seconds, of nine tenths of forty: from the fifth to the last four."""
    (found,) = awaited_ranks(ops(shorter(1000), every=every))
    assert found.collective("job 7", None).seconds == seconds


def test_whatever_is_written_there_it_is_a_day_at_most() -> None:
    late = 10**6 * 86_402
    them = [replace(op, written=op.written + late * (op.number > 35)) for op in ops(shorter(1000))]
    assert [it.seconds for it in awaited_ranks(them)] == [86_400]


def in_spans(count: int) -> Took:
    """In so many of ten spans it comes last, and else rank 1."""
    return lambda rank, n: 3000 - 1000 * (rank == (SLOW if n // 4 < count else 1))


@pytest.mark.parametrize(
    ("took", "count", "ranks", "every", "is_found"),
    [
        (shorter(1000), 20, 4, EVERY, True),
        (shorter(1000), 19, 4, EVERY, False),
        (shorter(1000), 40, 3, EVERY, False),
        # Of the job's time.
        (shorter(250), 40, 4, EVERY, True),
        (shorter(249), 40, 4, EVERY, False),
        # What a ring's order makes.
        (shorter(200), 40, 4, 1000, True),
        (shorter(199), 40, 4, 1000, False),
        # In nine of ten spans.
        (in_spans(9), 40, 4, EVERY, True),
        (in_spans(8), 40, 4, EVERY, False),
        # Another one stands half as near.
        (lambda rank, _: (3000, 2500, 2000, 3000)[rank], 40, 4, EVERY, True),
        (lambda rank, _: (3000, 2499, 2000, 3000)[rank], 40, 4, EVERY, False),
        (lambda rank, _: 2000 if rank < 2 else 3000, 40, 4, EVERY, False),
        (lambda rank, n: 2000 if rank == n % 4 else 3000, 40, 4, EVERY, False),
        (lambda rank, _: 0, 40, 4, EVERY, False),
    ],
)
def test_it_is_one_rank_and_much_and_all_the_time(
    took: Took, count: int, ranks: int, every: int, is_found: bool
) -> None:
    assert bool(awaited_ranks(ops(took, count, ranks, every))) is is_found


@pytest.mark.parametrize(("by", "is_found"), [(1500, True), (1499, False)])
def test_where_all_is_written_at_once_it_waits_half_as_long(by: int, is_found: bool) -> None:
    found = awaited_ranks(replace(op, written=1) for op in ops(shorter(by)))
    assert [it.cost for it in found] == [None] * is_found


def test_a_pause_in_which_one_waits_for_all_says_nothing() -> None:
    """As where one rank saves for the others, once."""
    assert awaited_ranks(ops(lambda rank, n: 60_000_000 if rank != SLOW and n == 5 else 3000)) == []


@pytest.mark.parametrize(("pause", "cost"), [(4 * EVERY, 90), (4 * EVERY + 1, 100)])
def test_a_pause_is_no_time_of_the_job(pause: int, cost: int) -> None:
    """Four are written at once, so that what is twice as long and more is a pause."""
    took = ops(shorter(1000))
    later = [replace(op, written=op.written + pause * (op.number >= 20)) for op in took]
    assert [it.cost for it in awaited_ranks(later)] == [cost]


def test_what_is_in_every_step_is_no_pause() -> None:
    """As a forward pass without collectives: nine times as long as what is between them."""
    took = ops(shorter(2000))
    later = [replace(op, written=op.written + op.number // 8 * 32 * EVERY) for op in took]
    assert [it.cost for it in awaited_ranks(later)] == [43]


def test_a_job_of_which_lines_are_lost_has_the_same_pace() -> None:
    """The numbers count, not the lines: as of versions that keep the last of an interval."""
    every_fourth = [op for op in ops(shorter(1000), 160) if op.number % 4 == 3]
    assert [it.cost for it in awaited_ranks(every_fourth)] == [100]


def test_only_what_all_ranks_told_of_by_one_clock_is_compared() -> None:
    """Rank 2 lost half of its lines in the ring, and measured others by another clock."""

    def half(count: int) -> Iterable[Op]:
        return (op for op in ops(shorter(1000), count) if op.rank != SLOW or op.number % 2)

    assert [it.compared for it in awaited_ranks(half(30))] == []
    assert [it.compared for it in awaited_ranks(half(60))] == [30]
    clocks = [replace(it, clock=str(it.rank == SLOW)) for it in ops(shorter(1000))]
    assert awaited_ranks(clocks) == []


@pytest.mark.parametrize(("count", "before"), [(20, 40), (19, None)])
def test_what_was_earlier_is_of_the_same_rank_where_enough_is_known(
    count: int, before: int | None
) -> None:
    ones = awaited_ranks(ops(shorter(1000)))
    assert [it.cost_before for it in with_earlier_cost(ones, ops(shorter(400), count))] == [before]
    assert [it.cost_before for it in with_earlier_cost(ones, ops(shorter(-400)))] == [0]
    strange = (replace(op, communicator="0xdef") for op in ops(shorter(400)))
    assert [it.cost_before for it in with_earlier_cost(ones, strange)] == [None]
    others = (replace(op, rank=op.rank + 3) for op in ops(shorter(400)))
    assert [it.cost_before for it in with_earlier_cost(ones, others)] == [None]


def test_whoever_comes_last_at_two_looks_is_told_and_seldom_again() -> None:
    told = RepeatFilter()
    assert told.news(["a"], 0.0) == set()
    assert told.news(["a", "b"], 120.0) == {"a"}
    assert told.news(["b"], 240.0) == {"b"}
    assert told.news(["a"], 360.0) == set()
    assert told.news([], 480.0) == set()
    again = 120.0 + TOLD_AGAIN_SECONDS
    assert told.news(["a"], again - 2.0) == told.news(["a"], again - 1.0) == set()
    assert told.news(["a"], again) == {"a"}


def turned(turns: int, minute: int) -> list[Op]:
    """Four collectives at every one of `turns` times in the last minute, of which a rank has been last since
    then; and as many at each of 40 seconds before, in which it was not."""
    gap = minute // (turns - 1)
    at = [
        *(1_000_000 * second for second in range(40)),
        *(39_000_000 + minute + gap * it for it in range(turns)),
    ]
    took = ops(lambda rank, n: 500_000 - 250_000 * (rank == SLOW and n >= 160), 4 * len(at))
    return [replace(op, written=at[op.number // 4]) for op in took]


@pytest.mark.parametrize(
    # In whole microseconds between ten and nine of them, and a minute is 60 s.
    ("turns", "minute", "is_found"),
    [(10, 59_999_994, True), (9, 60_000_000, False), (10, 60_000_003, False)],
)
def test_who_has_been_last_for_a_minute_is_waited_for_whatever_was_before(
    turns: int, minute: int, is_found: bool
) -> None:
    """At ten times of writing: else it may be one step."""
    assert [it.op.rank for it in awaited_ranks(turned(turns, minute))] == [SLOW] * is_found


def test_a_rank_that_is_found_first_is_looked_at_again_as_soon_as_there_is_more_to_read() -> None:
    told = RepeatFilter()
    told.news([], 0.0)
    assert told.rest(60.0, 0.0) == 60.0
    told.news(["a"], 60.0)
    assert told.rest(60.0, 25.0) == SECOND_LOOK_SECONDS == 30.0
    # What was told is no reason to look sooner, and another rank at each look is one at every other.
    assert told.news(["a"], 90.0) == {"a"}
    assert told.rest(60.0, 25.0) == 60.0
    assert told.news(["a"], 150.0) == set()
    assert told.rest(60.0, 25.0) == 60.0
    rests = []
    for number in range(4):
        told.news([number], 200.0 + number)
        rests.append(told.rest(60.0, 0.0))
    assert rests == [30.0, 60.0, 30.0, 60.0]


@pytest.mark.parametrize(
    ("read", "rest"), [(25.0, 30.0), (26.0, 31.2), (50.0, 60.0), (500.0, 60.0)]
)
def test_two_looks_read_different_lines(read: float, rest: float) -> None:
    told = RepeatFilter()
    told.news(["a"], 0.0)
    assert told.rest(60.0, read) == pytest.approx(rest)


def kept(found: list[AwaitedRank]) -> list[int]:
    return [it.op.rank for it in found]


def test_numbers_of_several_operations_are_counted_each() -> None:
    """As of sharded data: half of them gather and half scatter."""
    both = [replace(op, operation=("AllGather", "ReduceScatter")[op.number % 2], number=op.number // 2)
            for op in ops(shorter(1000), 80)]  # fmt: skip
    (found,) = awaited_ranks(both)
    assert (kept([found]), found.cost) == ([SLOW], 100)
