"""What is said of replicas of a model, and how many of them would carry what was asked."""

import dataclasses
import random
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.inference_capacity import (
    CARRIED_SHARE,
    FULL_SHARE,
    CapacityVerdict,
    Replica,
    Verdict,
    judge,
    needed,
    numbers,
    percentile,
)

STEPS = 60


def replica(
    name: str = "a",
    *,
    running: float | None = 4.0,
    waiting: float | None = 0.0,
    cache: float | None = 10.0,
    activity: float | None = 20.0,
    answered: float | None = 500.0,
    standby: bool = False,
    preempted: float | None = 0.0,
) -> Replica:
    """The same in every step."""
    return Replica(
        name=name,
        gpus=(f"c/n/{name}",),
        running=[running] * STEPS,
        waiting=[waiting] * STEPS,
        cache_percent=[cache] * STEPS,
        activity_percent=[activity] * STEPS,
        answered=answered,
        preempted=preempted,
        standby=standby,
    )


def judged(*replicas: Replica) -> CapacityVerdict:
    found = judge(replicas)
    assert found is not None
    return found


def still(name: str) -> Replica:
    return replica(name, running=0.0, cache=0.0, activity=0.0, answered=0.0)


def test_replicas_without_a_request_are_named_so() -> None:
    found = judged(still("a"), still("b"))
    assert (found.verdict, found.needed, found.spare_gpus) == (Verdict.NO_REQUESTS, 0, 2)


def test_a_short_request_between_two_looks_is_one() -> None:
    one = replica(running=0.0, cache=0.0, activity=0.0, answered=3.0)
    assert judge([one]) is None


def test_what_stands_by_is_not_judged_and_carries_nothing() -> None:
    spare = replica("b", running=0.0, cache=0.0, activity=0.0, answered=0.0, standby=True)
    assert judge([spare]) is None
    assert judge([replica("a", activity=75.0), spare]) is None


def test_of_four_that_do_little_one_would_carry_it() -> None:
    found = judged(*(replica(name, activity=15.0) for name in "abcd"))
    assert (found.verdict, found.needed, found.spare_gpus) == (Verdict.OVER_PROVISIONED, 1, 3)
    assert (
        found.text
        == "16 requests at the p95, the fullest cache 10 %; 1 of 4 replicas would carry it, none over 80 % full"
    )


def test_the_fuller_of_cache_and_activity_says_what_is_needed() -> None:
    assert needed([replica(n, cache=60.0, activity=5.0) for n in "abcd"]) == 3
    assert needed([replica(n, cache=5.0, activity=60.0) for n in "abcd"]) == 3
    assert needed([replica(n, cache=None, activity=60.0) for n in "abcd"]) == 3
    assert needed([replica(n, activity=None) for n in "abcd"]) is None


def test_requests_that_wait_everywhere_are_too_few_replicas() -> None:
    found = judged(
        *(replica(n, waiting=3.0, cache=95.0, activity=90.0, preempted=7.0) for n in "ab")
    )
    assert found.verdict is Verdict.SATURATED
    assert "wait at least 100 % of the time" in found.text
    assert "cache is 95 % full" in found.text
    assert "14 requests put back" in found.text
    assert found.advice.startswith("add replicas")


def test_requests_that_wait_beside_an_empty_cache_wait_for_a_setting() -> None:
    found = judged(replica(waiting=3.0, cache=20.0))
    assert (found.verdict, found.advice[:18]) == (Verdict.SATURATED, "the cache has room")


def test_one_that_has_all_the_work_is_unbalanced_and_not_too_few() -> None:
    found = judged(replica("a", running=12.0, waiting=5.0, cache=97.0), replica("b", running=1.0))
    assert found.verdict is Verdict.UNBALANCED
    assert (
        found.text
        == "a has 17 requests at once and b 1; requests wait 100 % of the time at one of them"
    )
    by_count = [
        replica(n, running=None, waiting=None, answered=c) for n, c in (("a", 900.0), ("b", 90.0))
    ]
    assert judged(*by_count).verdict is Verdict.UNBALANCED


def test_what_was_hardly_measured_says_nothing() -> None:
    gaps = [0.0] * 10 + [None] * (STEPS - 10)
    quiet = dataclasses.replace(still("a"), running=gaps, waiting=gaps, answered=None)
    assert judge([quiet]) is None
    little = [dataclasses.replace(replica(n), activity_percent=gaps) for n in "abcd"]
    assert judge(little) is None
    waits = dataclasses.replace(replica(cache=None), waiting=[9.0] * 10 + [None] * (STEPS - 10))
    assert judge([waits]) is None


_SHARES = st.floats(0.0, 100.0)


@st.composite
def services(draw: st.DrawFn) -> list[Replica]:
    steps = draw(st.integers(5, 12))
    cached = draw(st.booleans())
    return [
        Replica(
            name=f"r{place}",
            activity_percent=draw(st.lists(_SHARES, min_size=steps, max_size=steps)),
            cache_percent=draw(st.lists(_SHARES, min_size=steps, max_size=steps)) if cached else (),
        )
        for place in range(draw(st.integers(1, 5)))
    ]


def most(replicas: list[Replica], step: int) -> float:
    """What was asked in a step, in full replicas: told another way than the product does."""
    sums = [fsum(one.activity_percent[step] or 0.0 for one in replicas)]
    if replicas[0].cache_percent:
        sums.append(fsum(one.cache_percent[step] or 0.0 for one in replicas))
    return max(sums) / 100.0


@given(services())
def test_so_many_carry_it_and_one_less_would_not(replicas: list[Replica]) -> None:
    found = needed(replicas)
    assert found is not None
    steps = len(replicas[0].activity_percent)
    asked = [most(replicas, step) for step in range(steps)]

    def carried(count: int) -> float:
        return sum(one <= FULL_SHARE * (count + 1e-9) for one in asked) / steps

    assert carried(found) >= CARRIED_SHARE
    assert found == 1 or carried(found - 1) < CARRIED_SHARE


@pytest.mark.medium
@given(services(), st.randoms(use_true_random=False), st.floats(0.0, 1.0))
@settings(max_examples=40)
def test_order_says_nothing_idle_replicas_carry_nothing_and_less_work_needs_no_more(
    replicas: list[Replica], chance: random.Random, part: float
) -> None:
    found = needed(replicas)
    assert found is not None
    assert needed(chance.sample(replicas, len(replicas))) == found
    steps = len(replicas[0].activity_percent)
    idle = Replica(
        name="idle",
        activity_percent=[0.0] * steps,
        cache_percent=[0.0] * steps if replicas[0].cache_percent else (),
    )
    assert needed([*replicas, idle]) == found
    less = [
        Replica(
            name=one.name,
            activity_percent=[part * (value or 0.0) for value in one.activity_percent],
            cache_percent=[part * (value or 0.0) for value in one.cache_percent],
        )
        for one in replicas
    ]
    fewer = needed(less)
    assert fewer is not None
    assert fewer <= found


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_percentile_is_one_of_the_values_that_enough_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < share * len(values) + 1e-6


def test_numbers_of_what_was_not_measured_are_none() -> None:
    empty = numbers([Replica(name="a")])
    assert (empty.running_p95, empty.cache_p95_percent, empty.needed, empty.answered) == (None,) * 4
