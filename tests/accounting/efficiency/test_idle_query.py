"""Why a GPU is idle, by its rows, what inference servers answered and what stood or has just ended."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from accounting.efficiency.idle_query import (
    ASKED,
    ASKED_OF_SERVERS,
    Measurements,
    excuses,
    measured,
    why_idle,
    with_requests,
)
from accounting.efficiency.idle_reason import IdleContext, Idleness, idleness
from gpuvigil.model import Severity, Subject
from tests.dashboard.scene import NOON, gpu, incident

PARKED: dict[str, Any] = {
    **dict.fromkeys((one.column for one in ASKED), None),
    "utilization_percent_count": 100,
    "utilization_percent_max": 0.0,
    "compute_processes_max": 1.0,
    "memory_used_bytes_min": 60e9,
    "memory_total_bytes_max": 80e9,
}
NOTHING: dict[str, Any] = {
    **dict.fromkeys((one.column for one in ASKED_OF_SERVERS), 0.0),
    "requests_running_count": 100,
    "requests_count": 100,
    "cluster": "c",
    "node": "n",
    "uuid": "GPU-a",
}


def why(*servers: dict[str, Any], standby: bool = False) -> Idleness | None:
    key = Subject(cluster="c", node="n", gpu="GPU-a").key
    (row,) = with_requests({key: PARKED}, servers).values()
    return idleness(measured(row, 100.0), IdleContext(standby=standby))


def test_a_replica_that_nobody_asks_has_no_requests_and_not_just_memory_parked() -> None:
    assert why() is Idleness.MEMORY_PARKED
    assert why(NOTHING) is Idleness.NO_REQUESTS
    assert why(NOTHING, NOTHING) is Idleness.NO_REQUESTS
    assert why({**NOTHING, "uuid": ""}) is Idleness.MEMORY_PARKED  # it is not known whose it is
    assert Idleness.NO_REQUESTS.blames


def test_who_stands_by_by_declaration_is_not_blamed_for_having_none() -> None:
    found = why(NOTHING, standby=True)
    assert found is Idleness.STANDBY
    assert not found.blames


@pytest.mark.parametrize("name", ["requests_increase", "requests_running_max"])
def test_whoever_answered_between_two_samples_is_not_blamed(name: str) -> None:
    assert why(NOTHING, {**NOTHING, name: 3.0}) is Idleness.NO_DATA


@pytest.mark.parametrize("name", ["requests_running_count", "requests_count"])
def test_one_number_that_was_always_there_is_enough(name: str) -> None:
    other = {**NOTHING, name: 0}
    assert why(other) is Idleness.NO_REQUESTS
    assert (
        why({**other, "requests_running_count": 10, "requests_count": 10}) is Idleness.MEMORY_PARKED
    )


SPAN = timedelta(minutes=30)


def why_beside(fault: str, severity: Severity, ended_minutes_ago: float | None) -> Idleness | None:
    """Of a GPU whose model is parked for all of the span."""
    it = gpu(0)
    ended = None if ended_minutes_ago is None else NOON - timedelta(minutes=ended_minutes_ago)
    stood = incident(fault, it.of_node(), severity, resolved_at=ended)
    span = Measurements(
        start=NOON - SPAN,
        end=NOON,
        rows={it.key: {**PARKED, "first_at": NOON - SPAN}},
        expected={it.of_node().key: 100.0},
        excuses=excuses([stood], NOON - SPAN),
    )
    return why_idle(it, (), span)


@pytest.mark.parametrize(
    ("fault", "severity"),
    [
        ("host_disk", Severity.WARNING),
        ("host_mount", Severity.WARNING),
        ("host_space", Severity.WARNING),
    ],
)
def test_where_storage_failed_the_idle_time_that_counts_begins_anew_when_it_is_back(
    fault: str, severity: Severity
) -> None:
    assert why_beside(fault, severity, None) is Idleness.WAITS
    assert why_beside(fault, severity, 5.0) is Idleness.WAITS
    assert why_beside(fault, severity, 29.0) is Idleness.WAITS
    assert why_beside(fault, severity, 31.0) is Idleness.MEMORY_PARKED


def test_a_file_system_that_is_nearly_full_keeps_nobody_waiting() -> None:
    assert why_beside("host_space", Severity.INFO, None) is Idleness.MEMORY_PARKED


@pytest.mark.parametrize("condition", ["did_not_report", "rack_did_not_report"])
def test_a_silence_of_which_it_is_known_that_the_node_was_up_excuses_nobody_any_more(
    condition: str,
) -> None:
    node = gpu(0).of_node()
    silent = incident("node_silent", node, Severity.WARNING, condition=condition)
    over = replace(silent, resolved_at=NOON)
    since = NOON - timedelta(hours=1)
    assert excuses([silent], since).hold_up([gpu(0)])
    assert not excuses([over], since).hold_up([gpu(0)])
    assert excuses([replace(over, condition="was_down")], since).hold_up([gpu(0)])
    assert excuses([replace(over, condition="cut_off")], since).hold_up([gpu(0)])
