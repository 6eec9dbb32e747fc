import math

from hypothesis import given
from hypothesis import strategies as st

from report.model.rounding import down, near, shared

amounts = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=40)


@given(values=amounts, digits=st.integers(0, 2))
def test_what_is_shared_out_adds_up_and_no_part_moves_by_more_than_one_step(
    values: list[float], digits: int
) -> None:
    total = near(math.fsum(values), digits)
    parts = shared(values, total, digits)
    assert near(math.fsum(parts), digits) == total
    for value, part in zip(values, parts, strict=True):
        assert part >= 0
        assert abs(part - value) <= 1.001 * 10**-digits
        assert part == near(part, digits)


@given(values=amounts)
def test_shares_of_a_whole_add_up_to_a_hundred_percent(values: list[float]) -> None:
    whole = math.fsum(values)
    if whole <= 0:
        return
    parts = shared([100 * value / whole for value in values], 100.0, 1)
    assert near(math.fsum(parts), 1) == 100.0


def test_a_coverage_that_is_not_whole_never_reads_as_whole() -> None:
    assert down(99.97, 1) == 99.9
    assert down(100.0, 1) == 100.0
    assert down(92.3, 1) == 92.3
