"""Busy and doing little: what is said of a job, and when nothing is."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.efficiency.efficiency import Advice, EfficiencyAdvice, Work, judge, scattered

GIB = 1024**3
GOOD = Work(
    utilization_percent=95.0,
    utilization_most_percent=100.0,
    sm_percent=85.0,
    tensor_percent=50.0,
    dram_percent=60.0,
    memory_most_bytes=70 * GIB,
    memory_total_bytes=80 * GIB,
)


def judged(*works: Work) -> EfficiencyAdvice:
    found = judge(works)
    assert found is not None
    return found


def test_nothing_is_said_of_a_job_that_fills_its_gpus() -> None:
    assert judge([GOOD] * 8) is None


def test_gpus_that_computed_nothing_beside_others_were_too_many() -> None:
    still = replace(GOOD, utilization_percent=0.0, utilization_most_percent=0.0)
    found = judged(*[GOOD] * 5, *[still] * 3)
    assert (found.advice, found.gpus, found.wasted_share) == (Advice.FEWER, 3, 1.0)
    assert "3 of its 8 GPUs computed nothing: 5 would have done" in found.text
    assert judge([still] * 8) is None  # idle, which is another command's


def test_a_gpu_that_was_hardly_measured_is_nobodys_waste() -> None:
    still = replace(GOOD, utilization_percent=0.0, utilization_most_percent=0.0)
    lost = replace(still, coverage=0.1)
    assert judge([GOOD] * 5 + [lost] * 3) is None
    assert judge([GOOD] * 5 + [still] * 2 + [lost]) is None


@pytest.mark.parametrize(
    ("change", "advice", "words"),
    [
        ({"sm_percent": 12.0, "memory_most_bytes": 6 * GIB}, Advice.SMALLER, "6 of 80 GiB"),
        (
            {"sm_percent": 40.0, "dram_percent": 30.0, "memory_most_bytes": 30 * GIB},
            Advice.BATCH,
            "larger batches",
        ),
        ({"sm_percent": 30.0}, Advice.LITTLE, "fills 30 % of the multiprocessors"),
    ],
)
def test_each_advice_says_what_it_rests_on(
    change: dict[str, Any], advice: Advice, words: str
) -> None:
    found = judged(*[replace(GOOD, **change)] * 2)
    assert found.advice is advice
    assert words in found.text


@pytest.mark.parametrize(("mean", "said"), [(0.1, True), (9.99, True), (10.0, False)])
@pytest.mark.parametrize("sm", [None, 90.0])
def test_gpus_that_compute_for_less_than_a_tenth_of_the_time_are_hardly_used(
    mean: float, said: bool, sm: float | None
) -> None:
    work = replace(GOOD, utilization_percent=mean, sm_percent=sm)
    found = judge([work, work])
    assert (found is not None) is said
    assert judge([work, work], on_call=True) is None
    if found is not None:
        share = (mean if sm is None else sm) / 100.0
        assert found.gpus == 2
        assert found.wasted_share == pytest.approx(1.0 - share)


@pytest.mark.parametrize(
    ("most", "advice", "said"),
    [
        (50.0, Advice.GATHER, "works in bursts: 5.0 % used in the mean, 50 % at most"),
        (
            49.9,
            Advice.FEED,
            "is used for 5.0 % of the time in the mean, and never for more than 50 %",
        ),
        (
            8.0,
            Advice.FEED,
            "is used for 5.0 % of the time in the mean, and never for more than 8 %",
        ),
    ],
)
def test_one_busy_sample_tells_bursts_from_what_is_low_and_steady(
    most: float, advice: Advice, said: str
) -> None:
    low = replace(GOOD, utilization_percent=5.0, utilization_most_percent=6.0)
    found = judged(low, replace(low, utilization_most_percent=most))
    assert (found.advice, found.text) == (advice, said)


def test_what_is_busy_and_hardly_filled_is_said_of_who_is_on_call_as_well() -> None:
    server = replace(GOOD, sm_percent=30.0)
    assert judge([server], on_call=True) == judged(server)


def test_memory_bandwidth_that_is_full_is_no_room_for_a_larger_batch() -> None:
    bound = replace(GOOD, sm_percent=40.0, dram_percent=85.0, memory_most_bytes=30 * GIB)
    assert judged(bound).advice is Advice.LITTLE


def test_what_was_not_measured_says_nothing() -> None:
    assert judge([replace(GOOD, sm_percent=None)]) is None
    assert judge([replace(GOOD, sm_percent=5.0), replace(GOOD, sm_percent=None)]) is None
    assert judge([]) is None


_PERCENT = st.none() | st.floats(0, 100)
_WORK = st.builds(
    Work,
    utilization_percent=_PERCENT,
    utilization_most_percent=_PERCENT,
    sm_percent=_PERCENT,
    tensor_percent=_PERCENT,
    dram_percent=_PERCENT,
    memory_most_bytes=st.none() | st.floats(0, 80 * GIB),
    memory_total_bytes=st.none() | st.just(80.0 * GIB),
)


@given(st.lists(_WORK, min_size=1, max_size=8))
def test_the_order_of_gpus_changes_nothing_and_no_more_is_wasted_than_there_is(
    works: list[Work],
) -> None:
    found, back = judge(works), judge(works[::-1])
    assert (found and found.advice) == (back and back.advice)
    if found is not None:
        assert 0.0 <= found.wasted_share <= 1.0
        assert 1 <= found.gpus <= len(works)


def test_free_gpus_on_partly_held_nodes_are_said_where_they_would_be_whole_ones() -> None:
    found = scattered([(2, 8), (3, 8), (3, 8), (8, 8), (0, 8)])
    assert found is not None
    assert (found.gpus, found.nodes, found.whole) == (8, 3, 1)
    assert scattered([(2, 8), (8, 8)]) is None
    assert scattered([]) is None
