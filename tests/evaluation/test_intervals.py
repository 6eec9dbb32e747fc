"""Intervals, against values that books and papers print."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.judge.intervals import bootstrap_f1, exact_rate, exact_share, wilson


def test_known_values() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert exact_share(81, 263) == pytest.approx((0.2527, 0.3676), abs=1e-4)
    assert exact_share(0, 20) == pytest.approx((0.0, 0.1684), abs=1e-4)
    # Garwood: 0 and 10 events.
    assert exact_rate(0, 1.0) == pytest.approx((0.0, 3.689), abs=1e-3)
    assert exact_rate(10, 1.0) == pytest.approx((4.795, 18.39), abs=1e-2)


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert exact_share(0, 0) == (0.0, 1.0)
    assert exact_rate(0, 0.0) == (0.0, math.inf)
    assert bootstrap_f1([(3, 0, 0)]) == (0.0, 1.0)


@given(st.integers(0, 400), st.integers(1, 400))
def test_an_interval_holds_its_share(hits: int, more: int) -> None:
    of = hits + more
    for low, high in (wilson(hits, of), exact_share(hits, of)):
        assert 0.0 <= low <= hits / of <= high <= 1.0


def test_a_bootstrap_is_the_same_every_time_and_holds_the_value() -> None:
    counts = [(8, 2, 1), (5, 0, 4), (9, 3, 3), (2, 2, 6)]
    tp, fp, fn = (sum(column) for column in zip(*counts, strict=True))
    low, high = bootstrap_f1(counts)
    assert (low, high) == bootstrap_f1(counts)
    assert low < 2 * tp / (2 * tp + fp + fn) < high
