"""An hour is judged of who had GPUs alone and all the while, and is kept as it was."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.efficiency import idle_query
from accounting.efficiency.efficiency_query import ASKED
from accounting.efficiency.idle_query import Measurements, excuses, why_idle
from accounting.efficiency.idle_reason import Idleness
from accounting.efficiency.inefficient_hours import (
    HOUR,
    Waste,
    WasteHour,
    parts_of,
    waste_hour,
)
from gpuvigil.faults import FAULTS, Stops
from gpuvigil.model import Allocation, Incident, Record, Severity, Subject
from tests.dashboard.scene import NOON, allocation, gpu, incident, inventory, node

FIRST, SECOND = node("n-1", "prod"), node("n-2", "prod")
SPAN = (NOON - HOUR, NOON)
LITTLE: dict[str, Any] = {
    **dict.fromkeys((one.column for one in ASKED), None),
    "utilization_percent_mean": 95.0,
    "utilization_percent_max": 100.0,
    "sm_activity_percent_mean": 20.0,
    "memory_used_bytes_max": 8e9,
    "memory_total_bytes_max": 80e9,
    "utilization_percent_count": 3600,
    "first_at": SPAN[0],
}


def held(index: int, holder: str = "job 7", minutes: float = 120, **values: Any) -> Allocation:
    began = NOON - timedelta(minutes=minutes)
    return replace(allocation(gpu(index, FIRST), holder, "ann"), started_at=began, **values)


def hour(*allocations: Allocation, incidents: Sequence[Incident] = ()) -> WasteHour:
    rows = {gpu(index, one).key: LITTLE for one in (FIRST, SECOND) for index in range(4)}
    del rows[gpu(3, SECOND).key]
    inventories = [inventory(FIRST, 4), inventory(SECOND, 4)]
    return waste_hour("prod", SPAN[0], allocations, inventories, {SPAN: rows}, incidents)


def test_who_gets_little_is_kept_with_hours_and_model() -> None:
    found = hour(held(0, account="ml", partition="gpu"), held(1))
    (one,) = found.wastes
    assert (one.holder, one.user, one.account, one.partition) == ("job 7", "ann", "ml", "gpu")
    assert (one.advice, one.gpus, one.model) == ("a smaller GPU or a slice would do", 2, "H100")
    assert one.gpu_hours == pytest.approx(2 * 0.8)
    assert found.scattered_gpus == 0  # two free ones make no whole node of four


@pytest.mark.parametrize(
    ("command", "said"),
    [("train.py", ["feed it faster, or take a slice"]), ("vllm serve m", []), ("bash", [])],
)
def test_hours_in_which_hardly_anything_ran_are_kept_unless_somebody_waits_to_be_asked(
    command: str, said: list[str]
) -> None:
    few = {"utilization_percent_mean": 4.0, "utilization_percent_max": 9.0}
    rows = {gpu(0, FIRST).key: {**LITTLE, **few, "sm_activity_percent_mean": None}}
    them = [held(0, command=command)]
    found = waste_hour("prod", SPAN[0], them, [inventory(FIRST, 4)], {SPAN: rows})
    assert [one.advice for one in found.wastes] == said


@pytest.mark.parametrize(
    "others",
    [
        [held(0, minutes=30)],
        [held(0, ended_at=NOON - timedelta(minutes=5))],
        [held(0), held(0, "job 8")],
        [held(0), held(1, part="shared")],
        [replace(held(0), subject=gpu(3, SECOND))],  # of which nothing was measured
    ],
)
def test_nothing_is_kept_of_who_had_them_in_part_shared_them_or_was_not_measured(
    others: list[Allocation],
) -> None:
    assert hour(*others).wastes == ()


@pytest.mark.parametrize(
    ("begins", "ends", "part", "gpu_hours"),
    [
        (30, None, (30, 60), 0.8 * 30 / 60),
        (None, 44, (0, 30), 0.8 * 44 / 60),
        (10, 52, (15, 45), 0.8 * 42 / 60),
        (31, 59, None, None),  # no whole quarter
        (0.1, None, (15, 60), 0.8 * 59.9 / 60),
    ],
)
def test_who_had_them_for_a_part_of_the_hour_is_judged_by_its_whole_quarters(
    begins: float | None,
    ends: float | None,
    part: tuple[int, int] | None,
    gpu_hours: float | None,
) -> None:
    minutes = timedelta(minutes=1)
    began = NOON - 3 * HOUR if begins is None else SPAN[0] + begins * minutes
    over = None if ends is None else SPAN[0] + ends * minutes
    one = replace(held(0), started_at=began, ended_at=over)
    # Whoever had it before and after is no sharer.
    before = replace(held(0, "job 8"), started_at=NOON - 9 * HOUR, ended_at=began)
    them = [one, before]
    spans = parts_of([one], SPAN[0])
    assert spans == (
        {(SPAN[0] + part[0] * minutes, SPAN[0] + part[1] * minutes)} if part else set()
    )
    rows = {gpu(0, FIRST).key: LITTLE}
    parts = {
        it: {gpu(0, FIRST).key: {**LITTLE, "first_at": it[0]}} for it in parts_of(them, SPAN[0])
    }
    found = waste_hour("prod", SPAN[0], them, [inventory(FIRST, 4)], {SPAN: rows, **parts})
    mine = [it.gpu_hours for it in found.wastes if it.holder == "job 7"]
    assert mine == ([] if gpu_hours is None else [pytest.approx(gpu_hours, abs=1e-3)])


def test_a_job_that_ended_after_the_hour_and_one_that_goes_on_had_all_of_it() -> None:
    over = held(0, ended_at=NOON + timedelta(minutes=5))
    before = held(0, "job 3", 300, ended_at=SPAN[0])
    assert [one.holder for one in hour(over, before).wastes] == ["job 7"]


def test_whose_gpu_or_node_was_broken_in_the_hour_is_not_blamed() -> None:
    stands = incident("gpu_lost", gpu(0, FIRST), Severity.CRITICAL)
    for fault in (stands, replace(stands, resolved_at=SPAN[0] + timedelta(minutes=1))):
        assert hour(held(0), incidents=[fault]).wastes == ()
    was = replace(stands, since=SPAN[0] - 2 * HOUR, resolved_at=SPAN[0] - HOUR)
    idle = incident("gpu_idle_held", gpu(0, FIRST), Severity.INFO)
    assert hour(held(0), incidents=[was, idle]).wastes


def _idle(on: Sequence[Subject], incidents: Sequence[Incident]) -> Idleness | None:
    """Why the first of a holder's GPUs is idle, which computed nothing all the hour."""
    row: dict[str, Any] = {
        **dict.fromkeys((one.column for one in idle_query.ASKED), None),
        idle_query.SAMPLES: 360,
        idle_query.MOST_USED: 0.0,
        "compute_processes_max": 1,
        "first_at": SPAN[0],
    }
    span = Measurements(
        start=SPAN[0],
        end=SPAN[1],
        rows={one.key: row for one in on},
        expected={one.of_node().key: 360.0 for one in on},
        excuses=excuses(incidents, SPAN[0]),
    )
    return why_idle(on[0], on[1:], span)


# With the severity, whether it stops a job of one node, too.
STOPPING = {
    "nvswitch_error": (Severity.WARNING, True),
    "fabric_down": (Severity.WARNING, True),
    "gpu_hung": (Severity.WARNING, True),
    "host_mount": (Severity.WARNING, True),
    "host_disk": (Severity.WARNING, True),
    "host_space": (Severity.WARNING, True),
    "port_down": (Severity.WARNING, False),
    "port_flapping": (Severity.WARNING, False),
    "switch_down": (Severity.WARNING, False),
    "gpu_memory": (Severity.CRITICAL, True),
}


@pytest.mark.parametrize("fault", STOPPING)
def test_who_is_kept_from_computing_is_neither_idle_nor_inefficient(fault: str) -> None:
    severity, alone = STOPPING[fault]
    stands = incident(fault, FIRST, severity, since=SPAN[0])
    on_both = [held(0), replace(held(0), subject=gpu(0, SECOND))]
    assert hour(*on_both).wastes
    assert _blames([one.subject for one in on_both], [])
    assert hour(*on_both, incidents=[stands]).wastes == ()
    assert not _blames([one.subject for one in on_both], [stands])
    # A job of one node needs no other: what cuts it off does not stop it.
    assert (hour(held(0), incidents=[stands]).wastes == ()) is alone
    assert _blames([gpu(0, FIRST)], [stands]) is not alone


@pytest.mark.parametrize(
    ("begins", "ends", "minutes", "blamed"),
    [
        (20, 60, (0, 20), True),  # over when it began
        (20, 60, (0, 20.1), False),
        (0, 40, (40, 60), True),  # it had ended
        (0, 40, (39.9, 60), False),
    ],
)
def test_what_was_over_before_somebody_had_a_gpu_excuses_nobody(
    begins: float, ends: float, minutes: tuple[float, float], blamed: bool
) -> None:
    since, until = (SPAN[0] + it * timedelta(minutes=1) for it in minutes)
    one = replace(
        held(0),
        started_at=SPAN[0] + begins * timedelta(minutes=1),
        ended_at=SPAN[0] + ends * timedelta(minutes=1),
    )
    stood = incident("gpu_lost", FIRST, Severity.CRITICAL, since=since)
    stood = replace(stood, state="resolved", resolved_at=until)
    (part,) = parts_of([one], SPAN[0])
    rows = {gpu(0, FIRST).key: {**LITTLE, "first_at": part[0]}}
    found = waste_hour(
        "prod", SPAN[0], [one], [inventory(FIRST, 4)], {SPAN: rows, part: rows}, [stood]
    )
    assert bool(found.wastes) is blamed


def test_a_part_that_was_hardly_used_says_nothing_of_the_minutes_beside_it() -> None:
    few = {"utilization_percent_mean": 4.0, "utilization_percent_max": 90.0}
    one = replace(held(0), started_at=SPAN[0] + timedelta(minutes=5))
    (part,) = parts_of([one], SPAN[0])
    rows = {
        gpu(0, FIRST).key: {**LITTLE, **few, "sm_activity_percent_mean": 3.0, "first_at": part[0]}
    }
    found = waste_hour("prod", SPAN[0], [one], [inventory(FIRST, 4)], {SPAN: rows, part: rows})
    assert [it.gpu_hours for it in found.wastes] == [pytest.approx(0.97 * 45 / 60, abs=1e-4)]


def _blames(on: Sequence[Subject], incidents: Sequence[Incident]) -> bool:
    why = _idle(on, incidents)
    assert why is not None
    return why.blames


@pytest.mark.parametrize("fault", FAULTS)
def test_idle_hours_and_inefficient_ones_excuse_by_one_definition(fault: str) -> None:
    for severity in Severity:
        stands = incident(fault, FIRST, severity, since=SPAN[0])
        for holder in ([held(0)], [held(0), replace(held(0), subject=gpu(0, SECOND))]):
            excused = not _blames([one.subject for one in holder], [stands])
            assert (hour(*holder, incidents=[stands]).wastes == ()) is excused


def test_a_file_system_that_is_nearly_full_keeps_nobody_waiting() -> None:
    assert FAULTS["host_space"].stops is Stops.STORAGE
    nearly = incident("host_space", FIRST, Severity.INFO, since=SPAN[0])
    assert hour(held(0), incidents=[nearly]).wastes
    assert _blames([gpu(0, FIRST)], [nearly])


_WASTES = st.builds(
    Waste,
    st.text(max_size=20),
    st.none() | st.text(max_size=5),
    st.none() | st.text(max_size=5),
    st.none(),
    st.none() | st.just("H100"),
    st.sampled_from(["the batch can grow", "busy and doing little"]),
    st.integers(0, 64),
    st.floats(0, 64),
)


@pytest.mark.medium
@given(st.lists(_WASTES, max_size=4), st.integers(0, 100), st.text(min_size=1, max_size=10))
@settings(max_examples=30)
def test_what_is_written_is_read_again(wastes: list[Waste], free: int, cluster: str) -> None:
    made = WasteHour(cluster=cluster, start=NOON, wastes=tuple(wastes), scattered_gpus=free)
    again = Record.from_json(made.to_record().to_json())
    assert WasteHour.from_record(again) == made


def test_the_first_node_of_a_silent_rack_is_faulty_only_where_it_is_silent_itself() -> None:
    second, third = node("n-2", "prod"), node("n-3", "prod")
    members = [it for one in (second, third) for it in (one.key, gpu(0, one).key)]
    rack = incident("node_silent", FIRST, Severity.WARNING, since=SPAN[0])
    lives = replace(rack, members=(FIRST.key, *members))
    assert excuses([lives], since=SPAN[0]).broken == frozenset(members)
    assert not excuses([lives]).cover(gpu(0, FIRST))
    assert excuses([lives]).cover(gpu(1, second))
    dark = replace(rack, members=(FIRST.key, gpu(0, FIRST).key, *members))
    assert excuses([dark], since=SPAN[0]).broken == frozenset(dark.members)
    assert excuses([dark]).cover(gpu(0, FIRST))
    alone = replace(rack, members=(FIRST.key,))
    assert excuses([alone]).cover(gpu(0, FIRST))
