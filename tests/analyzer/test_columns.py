"""Groups of rows: who belongs together, and what is in the middle of each group."""

import math
import statistics

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.window.columns import (
    Codes,
    Floats,
    combined_codes,
    group_count,
    group_maximum,
    per_group,
)
from analyzer.window.copied import Copied

_ROWS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 1), st.sampled_from([math.nan, 0.0, 1.0, 2.5, 4.0])
    ),
    max_size=12,
)


@given(_ROWS, st.booleans())
def test_a_group_has_its_own_middle(rows: list[tuple[int, int, float]], lasting: bool) -> None:
    first = _codes([row[0] for row in rows], lasting)
    second = _codes([row[1] for row in rows], lasting)
    values: Floats = np.array([row[2] for row in rows], np.float64)
    groups = combined_codes(first, second)
    assert (combined_codes(first, second) is groups) is lasting
    medians, counts = per_group(groups, values)
    highest, there = group_maximum(groups, values), group_count(groups, values > 1.0)
    twice = per_group(groups, np.stack([values, -values]))
    assert np.array_equal(twice[0], np.stack([medians, -medians]), equal_nan=True)
    assert np.array_equal(twice[1], np.stack([counts, counts]))
    for number, row in enumerate(rows):
        own = [it[2] for it in rows if it[:2] == row[:2] and not math.isnan(it[2])]
        assert counts[number] == len(own)
        assert there[number] == sum(value > 1.0 for value in own)
        assert _same(medians[number], statistics.median(own) if own else math.nan)
        assert _same(highest[number], max(own, default=math.nan))


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(0, 2**32 - 1))
def test_groups_of_any_sizes_are_kept_apart(sizes: list[int], seed: int) -> None:
    chance = np.random.default_rng(seed)
    codes = chance.permutation(np.repeat(np.arange(len(sizes)) * 1000, sizes).astype(np.int64))
    values = chance.normal(size=len(codes))
    values[chance.random(len(codes)) < 0.2] = np.nan
    medians, counts = per_group(codes, values)
    for number, code in enumerate(codes):
        own = values[(codes == code) & ~np.isnan(values)]
        assert counts[number] == len(own)
        assert _same(medians[number], float(np.median(own)) if len(own) else math.nan)


def test_codes_that_may_change_are_read_anew() -> None:
    codes, values = _codes([1, 1, 2], lasting=False), np.array([1.0, 3.0, 5.0])
    assert per_group(codes, values)[0].tolist() == [2.0, 2.0, 5.0]
    codes[1] = 2
    assert per_group(codes, values)[0].tolist() == [1.0, 4.0, 4.0]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 2)), max_size=8))
def test_a_copy_stays_as_it_was(changes: list[tuple[str, int | None]]) -> None:
    known: Copied[int] = Copied()
    plain: dict[str, int] = {}
    given_away = [(known.copy(), dict(plain))]
    for key, value in changes:
        if value is None:
            known.drop(key)
            plain.pop(key, None)
        else:
            known.put(key, value)
            plain[key] = value
        given_away.append((known.copy(), dict(plain)))
        assert known.copy() is given_away[-1][0]
    assert [dict(copy) for copy, _ in given_away] == [then for _, then in given_away]


def _codes(numbers: list[int], lasting: bool) -> Codes:
    codes = np.array(numbers, np.int64)
    codes.flags.writeable = not lasting
    return codes


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
