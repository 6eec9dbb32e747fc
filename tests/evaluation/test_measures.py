"""The headline: what a budget of wrong messages buys, for anybody and for who says everything."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.accuracy_page.page import ranked
from evaluation.baselines import ALWAYS, NEVER, OURS, SETS, variants
from evaluation.baselines.trivial import EVERY, always
from evaluation.judge.inferred import NAMES_ITSELF, is_inferred
from evaluation.judge.matching import Outcome, Verdict
from evaluation.judge.measures import (
    BUDGETS,
    Point,
    Rate,
    Share,
    conformance,
    found,
    inferred,
    interval_at,
    points,
    precision_at,
    recall_at,
    seconds,
    shipped,
)
from evaluation.judge.tally import Tally, tally
from simulator.fleet.kinds import KINDS, OF_SWITCHES
from tests.evaluation.made import NOON, node
from tests.evaluation.test_judge import DAY, claim, truth

pytestmark = pytest.mark.slow

WEEK = (NOON, NOON + timedelta(days=7))
NODES = [node(number) for number in range(6)]
SLOW = truth(fault="slow GPU", end=NOON + timedelta(hours=6))


def point(wrong: int, hits: int, of: int = 100, node_days: float = 1000.0) -> Point:
    return Point(Rate(wrong, node_days), Share(hits, of))


anything = st.builds(point, st.integers(0, 100_000), st.integers(0, 100))


@pytest.mark.parametrize(
    ("budget", "recall"), [(0.0, 0.2), (1.0, 0.2), (9.999, 0.2), (10.0, 0.6), (100.0, 0.6)]
)
def test_a_budget_buys_what_is_found_within_it(budget: float, recall: float) -> None:
    # From (0, 0.2) to (10, 0.6) a reader may heed a share of what the noisier point says more.
    bought = recall_at(budget, [point(0, 20), point(10, 60)])
    assert bought == pytest.approx(max(recall, 0.2 + 0.04 * min(budget, 10.0)))


def test_what_is_noisier_than_the_budget_is_thinned_until_it_fits() -> None:
    assert recall_at(10.0, [point(1000, 50)]) == pytest.approx(0.005)
    assert recall_at(10.0, [point(10, 50)]) == 0.5
    assert recall_at(10.0, [point(0, 0)]) == 0.0


@given(st.lists(anything, max_size=4), st.lists(anything, max_size=2), st.floats(0.0, 1e6))
def test_more_ways_to_read_and_a_larger_budget_never_cost(
    some: list[Point], more: list[Point], budget: float
) -> None:
    assert recall_at(budget, some) <= recall_at(budget, [*some, *more]) + 1e-12
    assert recall_at(budget, some) <= recall_at(budget * 1.5, some) + 1e-12
    assert recall_at(budget, some) == recall_at(budget, some[::-1])
    low, high = interval_at(budget, some)
    assert low <= recall_at(budget, some) + 1e-12 <= high + 2e-12


def test_who_says_nothing_false_and_finds_all_scores_one() -> None:
    perfect = tally([SLOW], [claim(fault="gpu_slow")], 6, WEEK)
    assert [recall_at(budget, points([perfect])) for budget in (0.0, *BUDGETS)] == [1.0, 1.0, 1.0]
    precision = precision_at(4.0, shipped([perfect]))
    assert precision is not None
    assert precision[0] == 1.0


def test_a_constant_alarm_finds_everything_and_is_wrong_nearly_always() -> None:
    said = list(always(NODES, WEEK))
    constant = tally([SLOW], said, len(NODES), WEEK)
    assert found(constant.outcomes) == Share(1, 1)
    assert len(said) == len(NODES) * 7 * 96
    # Those within the fault, and the half hour after it, are not about nothing.
    inside = timedelta(hours=5) / EVERY + timedelta(minutes=30) / EVERY
    assert constant.false() == len(said) - inside
    assert recall_at(10.0, points([constant])) < 2e-4


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(SETS)), st.integers(0, 9000), st.integers(0, 4)),
        unique_by=lambda it: it[0],
    )
)
def test_no_set_whatever_ranks_below_the_constant_alarm_but_silence(
    sets: list[tuple[str, int, int]],
) -> None:
    constant = tally([SLOW], list(always(NODES, WEEK)), len(NODES), WEEK)
    silence = tally([SLOW], [], len(NODES), WEEK)
    played: dict[str, list[Tally]] = {ALWAYS: [constant], NEVER: [silence]}
    for name, wrong, hits in sets:
        outcomes = tuple(
            Outcome(fault="fan", seconds=1.0 if number < hits else None, told="warning")
            for number in range(4)
        )
        counts = {"warning": {Verdict.FALSE.value: wrong}}
        for variant in variants(name):
            played[variant] = [Tally(node_days=42.0, outcomes=outcomes, counts=counts)]
    rows = ranked(played)
    assert [name for name, _ in rows[-2:]] == [ALWAYS, NEVER]
    assert {name for name, _ in rows[:-2]} == {name for name, _, _ in sets}
    recalls = [recall[-1] for _, recall in rows]
    assert recalls == sorted(recalls, reverse=True)
    assert recalls[-2] > recalls[-1] == 0.0


def test_criticals_alone_are_a_point_of_their_own() -> None:
    outcomes = (
        Outcome(fault="fan", seconds=1.0, told="critical"),
        Outcome(fault="fan", seconds=1.0, told="warning"),
        Outcome(fault="fan"),
        Outcome(fault="port down", seconds=1.0, told="critical"),
    )
    counts = {"critical": {"false": 1, "right": 2}, "warning": {"false": 4, "echo": 3}}
    alone, whole = points([Tally(node_days=500.0, outcomes=outcomes, counts=counts)])
    assert (alone.wrong.count, alone.found) == (1, Share(1, 3))
    assert (whole.wrong.value, whole.found) == (10.0, Share(2, 3))


def test_faults_that_name_themselves_stand_apart() -> None:
    assert set(KINDS | OF_SWITCHES) > NAMES_ITSELF
    for kind in ("dead node", "slow GPU", "heatsink", "fan", "leaf down", "hung process"):
        assert is_inferred(kind)
    both = [Tally(node_days=1.0, outcomes=(Outcome(fault="fan"), Outcome(fault="off the bus")))]
    assert [it.fault for it in inferred(both)] == ["fan"]
    assert [it.fault for it in conformance(both)] == ["off the bus"]


def test_precision_is_of_the_worlds_rate_and_not_of_the_fleets() -> None:
    sparse, dense = point(10, 50), point(10, 500, of=1000)
    for one in (sparse, dense):
        found_at = precision_at(4.0, one)
        assert found_at is not None
        assert found_at[0] == pytest.approx(2.0 / 12.0)
        assert found_at[1][0] < found_at[0] < found_at[1][1]
    assert precision_at(4.0, point(0, 0)) is None


def test_delays_are_of_what_was_found() -> None:
    outcomes = [Outcome(fault="fan", seconds=it) for it in (None, 10.0, 30.0)]
    assert seconds(outcomes, 50) == 20.0
    assert seconds(outcomes[:1], 50) is None


def test_a_tally_has_no_figure_without_a_fault() -> None:
    empty = shipped([tally([], [], 1, DAY)])
    assert (empty.found.value, empty.wrong.value) == (None, 0.0)
    assert OURS in SETS
