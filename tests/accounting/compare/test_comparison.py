"""Faults per 1,000 node-days by version, and what of a difference is more than chance."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.compare.comparison import Amount, Comparison, Row, rows
from accounting.compare.exposure import History, ReportingSpan

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
DAY, MOMENT = timedelta(days=1), timedelta(microseconds=1)
DAY_SECONDS = 86_400.0
EVER = NOON - 900 * DAY


def had(*told: tuple[datetime, str]) -> History:
    return History(tuple(at for at, _ in told), tuple(value for _, value in told))


def days_heard(node: str, first: int, last: int, share: float = 1.0) -> list[ReportingSpan]:
    return [
        ReportingSpan(
            node=node,
            start=NOON + day * DAY,
            end=NOON + (day + 1) * DAY,
            seconds=share * DAY_SECONDS,
        )
        for day in range(first, last)
    ]


def row(value: str | None, faults: Sequence[int], days_each: float) -> Row:
    """A node for each number of faults."""
    nodes = {
        f"{value}-{n}": Amount(count, days_each * DAY_SECONDS) for n, count in enumerate(faults)
    }
    return Row(value=value, nodes=nodes, whole=sum(nodes.values(), Amount()))


def compare(*them: Row) -> Comparison:
    return Comparison(cluster="c", rows=them, until=NOON)


def test_rates_are_of_a_thousand_node_days() -> None:
    whole = row("a", [1] * 7, 100.0).whole
    assert (whole.faults, whole.days, whole.rate) == (7, 700.0, 10.0)
    assert whole.interval == pytest.approx((4.02, 20.60), abs=0.01)
    nothing = Amount()
    assert (nothing.rate, nothing.interval) == (None, (0.0, math.inf))


def test_node_days_and_faults_go_to_what_the_node_had_then() -> None:
    known = {"n1": had((EVER, "old"), (NOON + 10 * DAY, "new")), "n2": had((EVER, "old"))}
    heard = [*days_heard("n1", 0, 14), *days_heard("n2", 0, 14, 0.5), *days_heard("n3", 0, 2)]
    upgraded = NOON + 10 * DAY
    failed = {"n1": [upgraded - MOMENT, upgraded], "n3": [NOON], "n4": [NOON]}
    found = rows(heard, failed, known, [(NOON, NOON + 14 * DAY)])
    said = [(one.value, one.whole.faults, one.whole.days, set(one.nodes)) for one in found]
    assert said == [
        ("old", 1, 17.0, {"n1", "n2"}),
        ("new", 1, 4.0, {"n1"}),
        # Of n3 nobody said it; n4 was never heard.
        (None, 1, 2.0, {"n3"}),
    ]


def test_a_failure_counts_in_time_that_was_counted_and_in_no_other() -> None:
    spans = [(NOON + 2 * DAY, NOON + 3 * DAY), (NOON, NOON + DAY)]
    for at, counted in [
        (NOON - MOMENT, 0),
        (NOON, 1),
        (NOON + DAY - MOMENT, 1),
        (NOON + DAY, 0),
        (NOON + 2 * DAY - MOMENT, 0),
        (NOON + 2 * DAY, 1),
        (NOON + 3 * DAY, 0),
    ]:
        (one,) = rows(days_heard("n", 0, 1), {"n": [at]}, {"n": had((EVER, "a"))}, spans)
        assert one.whole.faults == counted


def test_five_to_nothing_may_be_chance_and_six_are_more() -> None:
    for faults, striking in [(5, False), (6, True)]:
        (one,) = compare(row("a", [1] * faults, 10.0), row("b", [0] * faults, 10.0)).differences
        assert (one.value, one.against, one.ratio) == ("a", "b", math.inf)
        assert (one.outlier is not None) is striking


def test_without_the_node_that_failed_most_it_must_still_be_more_than_chance() -> None:
    for days, holds in [(54.0, False), (55.0, True)]:
        (one,) = compare(row("a", [1] * 6, 10.0), row("b", [0], days)).differences
        assert one.outlier is not None
        assert (one.outlier.interval[0] > 1.0) is one.holds is holds


def test_one_bad_node_makes_no_verdict() -> None:
    (one,) = compare(row("new", [12, 0, 0, 1], 10.0), row("old", [1, 0, 0, 0], 10.0)).differences
    assert one.outlier is not None
    assert (one.outlier.node, one.outlier.faults, one.outlier.of) == ("new-0", 12, 13)
    assert not one.holds
    # As many faults, spread over nodes, do.
    (one,) = compare(row("new", [4, 3, 3, 3], 10.0), row("old", [1, 0, 0, 0], 10.0)).differences
    assert one.holds


def test_of_two_the_one_that_fails_more_is_held_against_the_other() -> None:
    (one,) = compare(row("a", [1, 1], 100.0), row("b", [3, 3], 50.0)).differences
    assert (one.value, one.against) == ("b", "a")
    assert one.ratio == pytest.approx(6.0)


def test_of_more_each_is_held_against_all_others_by_a_stricter_limit() -> None:
    a, b, c = row("a", [1] * 6, 10.0), row("b", [0] * 6, 10.0), row("c", [0] * 6, 1e-6)
    found = compare(a, b, c).differences
    assert [(one.value, one.against) for one in found] == [("a", None), ("b", None), ("c", None)]
    # Six to nothing is more than chance at one look, and not at one of three.
    assert all(one.outlier is None for one in found)
    worse = compare(row("a", [1] * 12, 10.0), b, row("c", [0] * 6, 10.0)).differences[0]
    assert worse.holds


def test_a_value_that_fails_less_is_not_made_better_by_one_bad_node_elsewhere() -> None:
    good, one_bad, fair = (
        row("a", [0] * 9, 10.0),
        row("b", [14, 0, 0], 10.0),
        row("c", [0] * 3, 10.0),
    )
    least = next(it for it in compare(good, one_bad, fair).differences if it.value == "a")
    assert (least.ratio, least.outlier is not None, least.holds) == (0.0, True, False)
    assert least.outlier is not None
    assert (least.outlier.node, least.outlier.of) == ("b-0", 14)


def test_what_is_not_known_and_what_was_never_heard_is_compared_with_nothing() -> None:
    a, unknown = row("a", [1], 10.0), row(None, [50], 10.0)
    never = Row(value="b", nodes={"n": Amount(1, 0.0)}, whole=Amount(1, 0.0))
    assert compare(a, never, unknown).differences == ()
    assert compare(a, never, unknown).compared == [a]


def test_without_any_fault_there_is_no_ratio() -> None:
    (one,) = compare(row("a", [0], 10.0), row("b", [0], 10.0)).differences
    assert (one.ratio, one.interval, one.holds) == (None, (0.0, math.inf), False)


NODES = ("n1", "n2", "n3")
TIMES = st.integers(0, 10 * 24)
HISTORIES = st.dictionaries(
    st.sampled_from(NODES),
    st.lists(st.tuples(TIMES, st.sampled_from("ab")), min_size=1, unique_by=lambda it: it[0]).map(
        lambda told: had(*((NOON + hour * DAY / 24, value) for hour, value in sorted(told)))
    ),
)
FAILED = st.dictionaries(
    st.sampled_from(NODES),
    st.lists(TIMES.map(lambda hour: NOON + hour * DAY / 24), unique=True),
)


def sums(found: Sequence[Row]) -> Mapping[tuple[str | None, str], Amount]:
    return {(one.value, node): amount for one in found for node, amount in one.nodes.items()}


@given(HISTORIES, FAILED, st.integers(1, 9), st.floats(0.0, 1.0), st.integers())
def test_a_span_cut_in_two_gives_the_same_sums_in_any_order(
    known: Mapping[str, History],
    failed: Mapping[str, Sequence[datetime]],
    cut: int,
    share: float,
    seed: int,
) -> None:
    heard = [piece for node in NODES for piece in days_heard(node, 0, 10, share)]
    middle, end = NOON + cut * DAY, NOON + 10 * DAY
    whole = sums(rows(heard, failed, known, [(NOON, end)]))
    Random(seed).shuffle(heard)
    first = sums(rows([it for it in heard if it.end <= middle], failed, known, [(NOON, middle)]))
    second = sums(rows([it for it in heard if it.start >= middle], failed, known, [(middle, end)]))
    assert first.keys() | second.keys() == whole.keys()
    for key, amount in whole.items():
        added = first.get(key, Amount()) + second.get(key, Amount())
        assert added.faults == amount.faults
        assert added.seconds == pytest.approx(amount.seconds)
    assert sum(it.seconds for it in whole.values()) == pytest.approx(30 * share * DAY_SECONDS)


@given(st.lists(st.integers(0, 6), min_size=1), st.lists(st.integers(0, 6), min_size=1))
def test_a_verdict_needs_more_than_one_node(some: list[int], others: list[int]) -> None:
    (one,) = compare(row("a", some, 5.0), row("b", others, 5.0)).differences
    low, high = one.interval
    if one.ratio is not None:
        assert low <= one.ratio <= high
    if one.holds:
        side = some if one.value == "a" else others
        assert sum(count > 0 for count in side) > 1
