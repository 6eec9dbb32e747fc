"""Fleets of trainings without a fault, of which the jobs' detectors hear GPUs and nodes alone."""

from typing import Any

import pytest

from evaluation.healthy_jobs import detectors, play, until


def played(uneven: float, pauses: float) -> dict[str, Any]:
    return {
        "healthy": {
            "staged": {"hours": uneven, "pauses": 0.0},
            "even": {"hours": 100.0, "pauses": pauses},
        }
    }


@pytest.mark.slow
def test_a_fleet_is_played_with_the_detectors_of_jobs_alone() -> None:
    assert {it.name for it in detectors()} == {
        "gpu_clocks", "gpu_hung", "gpu_slow", "node_silent",
    }  # fmt: skip
    one = play(5, nodes=8)
    assert (one["faults"], one["node_days"]) == ([], pytest.approx(4.0 / 3.0))
    assert not any(it["loud"] for it in one["wrong"])
    assert (one["read"], [it for it in one["last"] if it["id"] is not None]) == (0.2, [])
    assert sum(it["hours"] for it in one["healthy"].values()) > 4.0


@pytest.mark.parametrize(
    ("uneven", "pauses", "count"),
    [(500.0, 5000.0, 2), (499.0, 5000.0, 3), (500.0, 4999.0, 3)],
)
def test_it_is_played_until_there_are_as_many_hours_and_ten_times_as_many_pauses(
    uneven: float, pauses: float, count: int
) -> None:
    plays = [played(uneven, pauses)] * 5
    assert len(list(until(1000.0, plays))) == count
