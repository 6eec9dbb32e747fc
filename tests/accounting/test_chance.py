"""Rates and their ratios, against printed values and against SciPy."""

import math

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from accounting.chance import at_least, exact_rate, rate_ratio

LEVELS = st.sampled_from([0.9, 0.95, 1.0 - 0.05 / 400])
EXPOSURES = st.floats(0.1, 1e5)


def test_known_values() -> None:
    # Garwood: 0 and 10 events.
    assert exact_rate(0, 1.0) == pytest.approx((0.0, 3.689), abs=1e-3)
    assert exact_rate(10, 1.0) == pytest.approx((4.795, 18.39), abs=1e-2)
    # Clopper and Pearson: 1 of 10 and 5 of 10, as odds.
    assert rate_ratio(1, 1.0, 9, 1.0) == pytest.approx((0.002535, 0.80236), rel=1e-3)
    assert rate_ratio(5, 1.0, 5, 1.0) == pytest.approx((0.23015, 4.34493), rel=1e-3)


def test_of_nothing_nothing_is_known() -> None:
    nothing = (0.0, math.inf)
    assert exact_rate(0, 0.0) == exact_rate(3, 0.0) == nothing
    assert rate_ratio(0, 1.0, 0, 1.0) == nothing
    assert rate_ratio(3, 0.0, 1, 1.0) == rate_ratio(3, 1.0, 1, 0.0) == nothing


def test_none_beside_some_has_one_end() -> None:
    low, high = rate_ratio(4, 1.0, 0, 1.0)
    assert (0.0 < low < 1.0, high) == (True, math.inf)
    low, high = rate_ratio(0, 1.0, 4, 1.0)
    assert (low, 1.0 < high < math.inf) == (0.0, True)


def test_six_to_nothing_are_more_than_chance_and_five_are_not() -> None:
    assert rate_ratio(5, 1.0, 0, 1.0)[0] < 1.0 < rate_ratio(6, 1.0, 0, 1.0)[0]
    assert rate_ratio(0, 1.0, 6, 1.0)[1] < 1.0 < rate_ratio(0, 1.0, 5, 1.0)[1]


@given(st.integers(1, 40), st.floats(1e-6, 30.0))
def test_the_tail_is_poissons(count: int, expected: float) -> None:
    below = math.fsum(
        math.exp(-expected + n * math.log(expected) - math.lgamma(n + 1)) for n in range(count)
    )
    assert at_least(count, expected) == pytest.approx(1.0 - below, rel=1e-6, abs=1e-12)
    assert at_least(count + 1, expected) < at_least(count, expected) + 1e-12


@given(st.integers(0, 20_000), EXPOSURES, LEVELS)
def test_a_rate_is_as_scipy_has_it(count: int, exposure: float, level: float) -> None:
    tail = (1.0 - level) / 2.0
    low = scipy.stats.chi2.ppf(tail, 2 * count) / 2.0 if count else 0.0
    high = scipy.stats.chi2.ppf(1.0 - tail, 2 * count + 2) / 2.0
    expected = (low / exposure, high / exposure)
    assert exact_rate(count, exposure, level) == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 3_000), EXPOSURES, st.integers(0, 3_000), EXPOSURES, LEVELS)
def test_a_ratio_is_as_scipy_has_it_and_turns_over_with_its_sides(
    count: int, exposure: float, other: int, other_exposure: float, level: float
) -> None:
    low, high = rate_ratio(count, exposure, other, other_exposure, level)
    back_low, back_high = rate_ratio(other, other_exposure, count, exposure, level)
    assert (low == 0.0, high == math.inf) == (back_high == math.inf, back_low == 0.0)
    if 0.0 < low <= high < math.inf:
        assert (1.0 / back_high, 1.0 / back_low) == pytest.approx((low, high), rel=1e-9)
    if count + other:
        test = scipy.stats.binomtest(count, count + other)
        share = test.proportion_ci(confidence_level=level, method="exact")
        scale = other_exposure / exposure
        ends = [math.inf if p == 1.0 else scale * p / (1.0 - p) for p in share]
        assert (low, high) == pytest.approx(tuple(ends), rel=1e-6)
