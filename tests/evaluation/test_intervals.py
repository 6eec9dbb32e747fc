"""Intervals, against values that books and papers print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.judge.intervals import mcnemar, wilson


def test_known_values() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(0, 400), st.integers(1, 400))
def test_an_interval_holds_its_share(hits: int, more: int) -> None:
    of = hits + more
    low, high = wilson(hits, of)
    assert 0.0 <= low <= hits / of <= high <= 1.0


@pytest.mark.parametrize(
    ("lost", "gained", "chance"),
    [
        (0, 0, 1.0),
        (4, 0, 0.0625),
        (5, 0, 0.03125),
        (7, 1, 0.03515625),
        (6, 1, 0.0625),
        (1, 5, 0.984375),
    ],
)
def test_pairs_that_differ_are_thrown_like_coins(lost: int, gained: int, chance: float) -> None:
    assert mcnemar(lost, gained) == pytest.approx(chance)
