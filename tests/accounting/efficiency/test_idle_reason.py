"""Why a held GPU computes nothing, and who hears of it when."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.efficiency.idle_reason import (
    FOR_JOBS,
    FOR_PODS,
    IdleContext,
    IdleHolder,
    Idleness,
    Measured,
    Policy,
    due,
    idleness,
)

MONDAY = datetime(2026, 11, 16, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
STILL = Measured(
    coverage=1.0,
    utilization_most_percent=0.0,
    memory_utilization_most_percent=0.0,
    processes_most=1.0,
    memory_least_bytes=1e9,
    memory_total_bytes=80e9,
    power_least_watts=70.0,
    power_limit_watts=700.0,
)


@pytest.mark.parametrize(
    ("changes", "around", "why"),
    [
        ({}, {}, Idleness.NOTHING_COMPUTED),
        ({"utilization_most_percent": 3.0}, {"faulty": True}, None),
        ({"memory_utilization_most_percent": 3.0}, {}, None),
        ({"processes_most": 0.0}, {}, Idleness.NO_PROCESS),
        ({"processes_most": None}, {}, Idleness.NO_DATA),
        ({"memory_least_bytes": 60e9}, {}, Idleness.MEMORY_PARKED),
        ({"processes_most": 0.0}, {"peers_busy": True}, Idleness.SOME_GPUS),
        ({}, {"peers_faulty": True, "peers_busy": True}, Idleness.WAITS),
        ({}, {"waits_for_data": True}, Idleness.WAITS),
        ({}, {"faulty": True, "standby": True}, Idleness.FAULTY),
        ({"clock_event_reasons": 0x40}, {}, Idleness.FAULTY),
        ({"clock_event_reasons": 0x1}, {}, Idleness.NOTHING_COMPUTED),
        ({"coverage": 0.5}, {}, Idleness.NO_DATA),
        ({"utilization_most_percent": None}, {}, Idleness.NO_DATA),
        ({"power_least_watts": 500.0}, {}, Idleness.NO_DATA),
        ({"power_watts": 230.0, "power_most_watts": 120.0}, {}, Idleness.NO_DATA),
        ({"power_most_watts": 150.0}, {}, Idleness.NO_DATA),
        ({"power_watts": 118.0, "power_most_watts": 125.0}, {}, Idleness.NOTHING_COMPUTED),
        # The largest modules rest below a fifth of their limit; smaller ones may draw more.
        ({"power_watts": 185.0}, {}, Idleness.NO_DATA),
        ({"power_watts": 92.0, "power_limit_watts": 350.0}, {}, Idleness.NOTHING_COMPUTED),
        ({"power_watts": 106.0, "power_limit_watts": 350.0}, {}, Idleness.NO_DATA),
        ({"sm_activity_most_percent": 3.0}, {}, Idleness.NO_DATA),
        # A board of 72 W draws two fifths of it with nothing to do.
        (
            {"power_watts": 27.0, "power_least_watts": 26.0, "power_limit_watts": 72.0},
            {},
            Idleness.NOTHING_COMPUTED,
        ),
        ({}, {"standby": True, "peers_busy": True}, Idleness.STANDBY),
    ],
)
def test_each_case_has_its_name(
    changes: dict[str, Any], around: dict[str, bool], why: Idleness | None
) -> None:
    assert idleness(replace(STILL, **changes), IdleContext(**around)) is why


@given(
    st.builds(
        Measured,
        coverage=st.floats(0, 1),
        utilization_most_percent=st.sampled_from([None, 0.0, 50.0]),
        memory_utilization_most_percent=st.sampled_from([None, 0.0, 50.0]),
        processes_most=st.sampled_from([None, 0.0, 2.0]),
        power_least_watts=st.sampled_from([None, 70.0, 600.0]),
        power_limit_watts=st.sampled_from([None, 700.0]),
        clock_event_reasons=st.sampled_from([None, 0, 1, 0x80]),
    ),
    st.builds(IdleContext, faulty=st.booleans(), peers_faulty=st.booleans(), standby=st.booleans()),
)
def test_nobody_is_blamed_for_a_fault_or_over_bad_readings(
    measured: Measured, around: IdleContext
) -> None:
    why = idleness(measured, around)
    if why is None or not why.blames:
        return
    assert not around.faulty
    assert not around.peers_faulty
    assert not around.standby
    assert measured.coverage >= 0.8
    assert measured.utilization_most_percent == 0.0
    assert measured.processes_most is not None
    assert (measured.clock_event_reasons or 0) & 0x80 == 0


def told(policy: Policy, idler: IdleHolder, looks: list[datetime]) -> dict[str, datetime]:
    sent: dict[str, datetime] = {}
    for now in looks:
        stage = due(policy, idler, sent, now)
        if stage is not None:
            assert stage not in sent
            sent[stage] = now
    return sent


def test_a_job_hears_after_60_and_105_minutes_and_a_pod_after_30() -> None:
    idler = IdleHolder(why=Idleness.NO_PROCESS, since=MONDAY)
    looks = [MONDAY + n * MINUTE for n in range(300)]
    sent = told(FOR_JOBS, idler, looks)
    assert sent == {"notice 1": MONDAY + 60 * MINUTE, "notice 2": MONDAY + 105 * MINUTE}
    assert told(FOR_PODS, idler, looks) == {"notice 1": MONDAY + 30 * MINUTE}
    ending = replace(FOR_JOBS, end_after=120 * MINUTE)
    assert told(ending, idler, looks)["end"] == MONDAY + 120 * MINUTE


def test_who_is_exempt_hears_nothing() -> None:
    idler = IdleHolder(why=Idleness.NO_PROCESS, since=MONDAY)
    later = MONDAY + 90 * MINUTE
    for other in (
        replace(idler, interactive=True),
        replace(idler, used_share=0.7),
        replace(idler, why=Idleness.FAULTY),
        replace(idler, why=Idleness.NO_DATA),
    ):
        assert due(FOR_JOBS, other, {}, later) is None
    office = replace(FOR_JOBS, work_days=frozenset(range(5)))
    saturday = replace(idler, since=MONDAY + timedelta(days=5))
    assert due(office, saturday, {}, saturday.since + 90 * MINUTE) is None
    assert due(office, saturday, {}, MONDAY + timedelta(days=7)) == "notice 1"
    strict = replace(FOR_JOBS, interactive_exempt=False)
    assert due(strict, replace(idler, interactive=True), {}, later) == "notice 1"


@given(st.lists(st.integers(0, 600), max_size=30), st.booleans())
def test_each_stage_comes_once_in_order_and_at_its_distance(at: list[int], ends: bool) -> None:
    policy = replace(FOR_JOBS, end_after=120 * MINUTE if ends else None)
    idler = IdleHolder(why=Idleness.MEMORY_PARKED, since=MONDAY)
    sent = told(policy, idler, sorted(MONDAY + n * MINUTE for n in at))
    names = [name for name, _ in policy.stages()]
    assert list(sent) == names[: len(sent)]
    after = dict(policy.stages())
    for (first, first_at), (second, second_at) in zip(
        list(sent.items()), list(sent.items())[1:], strict=False
    ):
        assert second_at - first_at >= after[second] - after[first]
        assert second_at - MONDAY >= after[second]
    assert ends or "end" not in sent


def test_no_reason_speaks_of_a_job_since_programs_without_a_scheduler_have_none() -> None:
    assert not [one for one in Idleness if "job" in one.value]
