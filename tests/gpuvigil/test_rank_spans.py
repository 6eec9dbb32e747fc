"""Many ranks in few words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.model.rank_spans import MOST_SPANNED, MOST_SPANS, ranks_in, read_spans, spans


@given(st.frozensets(st.integers(0, 300)))
def test_they_are_the_same_ranks_again(ranks: frozenset[int]) -> None:
    assert ranks_in(spans(ranks)) == ranks
    assert read_spans([list(it) for it in spans(ranks)]) == spans(ranks)


def test_ranks_beside_each_other_are_one_span() -> None:
    assert spans([3, 1, 2, 7, 7]) == ((1, 3), (7, 7))


@pytest.mark.parametrize(
    ("count", "kept"), [(MOST_SPANS, MOST_SPANS), (MOST_SPANS + 1, MOST_SPANS)]
)
def test_of_very_many_spans_the_first_are_told(count: int, kept: int) -> None:
    assert len(spans(range(0, 2 * count, 2))) == kept


def test_so_many_ranks_are_read() -> None:
    assert read_spans([[0, MOST_SPANNED - 1]]) == ((0, MOST_SPANNED - 1),)


@pytest.mark.parametrize(
    "value",
    [
        *("0-3", None, 1, [1], [[1]], [[1, 2, 3]], [["1", "2"]], [[2, 1]], [[-1, 2]], [[True, 2]]),
        [[0, MOST_SPANNED]],
        [[10**6, 10**6]],
        [[1, 1]] * (MOST_SPANS + 1),
    ],
)
def test_what_is_none_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        read_spans(value)
