"""Idle spells of any length, wherever in a quarter they begin, are in the sums to within a sample."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from accounting.cost.money import Prices
from accounting.efficiency.holdings import Holding, holdings
from accounting.usage import BUCKET, Bucket
from accounting.usage.count import Facts, count
from accounting.usage.ownership import AllocationTable
from accounting.usage.spells import LONGEST, minutes_before
from gpuvigil.model import Allocation
from tests.accounting.usage.quarter import BUSY, START, Minute, bucket, held, table

HALF = timedelta(minutes=30)
TICK, LOAD = 10, 80.0
QUARTERS = 9  # the last minute of a spell is told by the quarter after it
Spell = tuple[int, int]  # from one second to another
_NO_ROWS = table(())


def minute_means(spells: Sequence[Spell], silent: Sequence[int], gpu: int) -> list[Minute]:
    """A GPU that is at 0 % in its spells; a sample stands for the tick after it."""
    found = []
    for number in range(-60, QUARTERS * 15):
        ticks = range(60 * number, 60 * number + 60, TICK)
        busy = sum(not any(a <= at < b for a, b in spells) for at in ticks)
        fields = {**BUSY, "utilization_percent": LOAD * busy / len(ticks)}
        if number not in silent:
            found.append(Minute(number=number, fields=fields, gpu=gpu))
    return found


def counted(
    gpus: Sequence[Sequence[Spell]],
    allocations: Sequence[Allocation],
    silent: Sequence[int] = (),
    after: timedelta = HALF,
) -> list[Bucket]:
    """Every quarter of them, as it is counted."""
    cells = [one for gpu, spells in enumerate(gpus) for one in minute_means(spells, silent, gpu)]
    rows, book = table(cells), AllocationTable.of(allocations)
    found = [
        count(
            Facts(
                cluster="c",
                start=at,
                now=at + BUCKET + timedelta(minutes=2),
                rows=rows,
                sent={("n1", f"GPU-{gpu}") for gpu in range(len(gpus))},
                allocations=book,
                before=rows,
                idle_after=after,
            )
        )
        for at in (START + number * BUCKET for number in range(QUARTERS))
    ]
    return [one for one in found if one is not None]


def of_job(
    gpus: Sequence[Sequence[Spell]], after: timedelta = HALF, silent: Sequence[int] = ()
) -> Holding:
    had = [held(-60, None, gpu=gpu) for gpu in range(len(gpus))]
    (found,) = holdings(counted(gpus, had, silent, after), Prices(), after)
    return found


def seconds(found: Holding) -> float:
    return 3600 * found.idle


@pytest.mark.medium
@settings(max_examples=25)
@given(start=st.integers(0, 4200 // TICK), ticks=st.integers(20 * 6, 50 * 6))
@example(start=416, ticks=300)
def test_a_spell_counts_whatever_moment_it_begins_at(start: int, ticks: int) -> None:
    begin, length = start * TICK, ticks * TICK
    told = seconds(of_job([[(begin, begin + length)]]))
    truth = length if length >= HALF.total_seconds() else 0
    assert told == pytest.approx(truth, abs=TICK)


@pytest.mark.medium
@pytest.mark.parametrize("phase", [0, 20, 300, 590, 600, 880])
@pytest.mark.parametrize(("length", "told"), [(1790, 0), (1800, 1800), (1810, 1810)])
def test_half_an_hour_is_idle_and_a_sample_less_is_not(phase: int, length: int, told: int) -> None:
    begin = 900 + phase
    assert seconds(of_job([[(begin, begin + length)]])) == pytest.approx(told, abs=TICK)


@pytest.mark.medium
@settings(max_examples=8, phases=(Phase.explicit, Phase.generate))
@given(data=st.data())
def test_gpus_of_one_job_that_idle_each_at_its_own_time_add_up(data: st.DataObject) -> None:
    gpus = []
    for _ in range(4):
        begin = data.draw(st.integers(0, 240)) * TICK
        length = data.draw(st.integers(150, 230)) * TICK
        gpus.append([(begin, begin + length), (begin + length + 600, begin + length + 2400)])
    spells = [b - a for one in gpus for a, b in one if b - a >= HALF.total_seconds()]
    assert seconds(of_job(gpus)) == pytest.approx(sum(spells), abs=TICK * len(gpus) * 2)


def test_each_hour_has_what_was_idle_in_it() -> None:
    """From 12:50 to 13:35: it has lasted half an hour only at 13:20."""
    found = of_job([[(3000, 5700)]])
    assert {hour: round(idle, 3) for hour, (_, idle, _) in found.hourly.items()} == {
        0: round(600 / 3600, 3),
        1: round(2100 / 3600, 3),
        2: 0.0,
    }
    # What was idle before the first quarter that is asked for is no part of the sum.
    before = of_job([[(-1200, 900)]])
    assert seconds(before) == pytest.approx(900, abs=TICK)


def test_a_spell_ends_with_its_holder() -> None:
    one = [[(1200, 5000)]]
    after = {"job 1": held(-60, 45), "job 2": held(45, None, "job 2")}
    found = holdings(counted(one, tuple(after.values())), Prices(), HALF)
    idle = {it.holder: seconds(it) for it in found}
    # The first had it for 25 minutes of the spell, the second for 38.
    assert idle == {"job 1": 0.0, "job 2": pytest.approx(2300, abs=TICK)}


@pytest.mark.parametrize(("away", "told"), [(5, 3000 - 5 * 60), (6, 0)])
def test_some_minutes_without_a_word_end_no_spell(away: int, told: int) -> None:
    """Of 50 minutes at 0 % the 23rd and those after it are missing; what is left after six is 22."""
    found = of_job([[(0, 3000)]], silent=range(22, 22 + away))
    assert seconds(found) == pytest.approx(told, abs=TICK)


@pytest.mark.parametrize("after", [timedelta(minutes=10), timedelta(minutes=50)])
def test_the_span_is_the_one_that_is_set(after: timedelta) -> None:
    length = int(after.total_seconds())
    short, long = ([[(1230, 1230 + length + more)]] for more in (-TICK, TICK))
    assert seconds(of_job(short, after)) == 0.0
    assert seconds(of_job(long, after)) == pytest.approx(length + TICK, abs=TICK)


def test_by_another_span_than_it_was_counted_by_whole_quarters_tell() -> None:
    buckets = counted([[(1200, 6000)]], [held(-60, None)])
    hour = timedelta(hours=1)
    (found,) = holdings(buckets, Prices(), hour)
    assert seconds(found) == pytest.approx(4 * 900 + 600 + 600, abs=60)
    longer = [[(1200, 1200 + 3300)]]
    (none,) = holdings(counted(longer, [held(-60, None)]), Prices(), hour)
    assert none.idle == 0.0


def test_what_is_read_before_a_quarter_has_a_limit() -> None:
    assert minutes_before(HALF) == 37
    assert minutes_before(LONGEST) <= 2 * 60 + 7


def test_shared_gpus_are_idle_by_their_parts() -> None:
    two = [held(-60, None), held(-60, None, "job 2", "bob")]
    found = holdings(counted([[(1230, 4830)]], two), Prices(), HALF)
    assert [seconds(one) for one in found] == pytest.approx([1800, 1800], abs=TICK)


def test_a_quarter_is_written_with_its_spells_and_read_again() -> None:
    one = counted([[(0, 3600)]], [held(-60, None)])[2]
    again = Bucket.from_record(one.to_record())
    assert again.idle_after == HALF
    (share,) = again.shares
    assert (share.idle_long, share.idle_long_before) == (900.0, 0.0)
    assert again.to_record() == one.to_record()
    written = one.to_record()
    body = {key: it for key, it in written.body.items() if key != "idle_after_seconds"}
    assert Bucket.from_record(replace(written, body=body)).idle_after is None


def test_a_table_without_rows_before_is_no_spell_before() -> None:
    cells = minute_means([(0, 900)], (), 0)
    found = bucket(cells, held(-60, None), before=_NO_ROWS, idle_after=HALF)
    assert found.shares[0].idle_long == 0.0
    unasked = bucket(cells, held(-60, None))
    assert unasked.shares[0].idle_long is None


def test_rows_before_of_a_gpu_that_is_gone_change_nothing() -> None:
    still, gone = (minute_means([(-3600, 900)], (), gpu) for gpu in range(2))
    now = [one for one in still if 0 <= one.number < 15]
    for before in (still, [*gone, *still]):
        found = bucket(now, held(-60, None), before=table(before), idle_after=HALF)
        assert [one.idle_long for one in found.shares] == [900.0]


@pytest.mark.parametrize("allocations", [[held(-60, None)], []])
def test_a_spell_is_as_long_where_nobody_says_who_holds(allocations: list[Allocation]) -> None:
    cells = minute_means([(-1200, 900)], (), 0)
    now = [one for one in cells if 0 <= one.number < 15]
    (share,) = bucket(now, *allocations, before=table(cells), idle_after=HALF).shares
    assert (share.idle_long, share.idle_long_before) == (900.0, 1200.0)
