"""Rows of a store become what a job did; its pace is held against the hour before."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from accounting.jobs.bound import COVERAGE
from accounting.jobs.measured import (
    ASKED,
    ASKED_OF_HOSTS,
    ASKED_OF_PORTS,
    Host,
    Ports,
    activity,
    checkpoint_age,
    hosts_of,
    ports_of,
    rank,
    steps_of,
    whole_span,
)
from accounting.jobs.pace import pace
from tests.dashboard.scene import NOON

SPAN = timedelta(minutes=5)
EMPTY = {one.column: None for one in (*ASKED, *ASKED_OF_PORTS)}


def row(seconds: float = 300.0, **values: Any) -> Mapping[str, Any]:
    return {
        **EMPTY,
        "cluster": "prod",
        "node": "n-1",
        "model": "H100",
        "first_at": NOON - timedelta(seconds=seconds),
        "last_at": NOON,
        "samples": 30,
        "utilization_percent_count": 30,
        **values,
    }


def one(key: str = "k", **values: Any) -> Any:
    return rank(key, row(**values), SPAN, 10.0)


def test_a_gpu_is_told_in_shares_of_what_there_is() -> None:
    found = one(
        nvlink_receive_bytes_increase=300 * 225e9,
        nvlink_links_up_max=18,
        pcie_receive_bytes_per_second_mean=32e9,
        pcie_generation_max=5,
        pcie_width_max=16,
    )
    assert found.nvlink_share == pytest.approx(0.5)
    assert found.pcie_share == pytest.approx(0.508, abs=0.001)
    assert found.coverage == 1.0
    newer = rank(
        "k",
        row(model="NVIDIA B200", nvlink_receive_bytes_increase=300 * 225e9, nvlink_links_up_max=18),
        SPAN,
        10.0,
    )
    assert newer.nvlink_share == pytest.approx(0.25)
    assert rank("k", None, SPAN, 10.0).coverage == 0.0
    assert one(seconds=14.9, nvlink_receive_bytes_increase=1.0).nvlink_bytes_per_second is None


def test_ports_through_which_a_node_talks_are_apart_from_its_storage() -> None:
    def port(role: str, received: float, sent: float, speed: float = 8e9) -> Mapping[str, Any]:
        return row(
            role=role,
            receive_bytes_increase=300 * received,
            transmit_bytes_increase=300 * sent,
            receive_pause_microseconds_increase=300 * 1e5,
            speed_bits_per_second_max=speed,
        )

    both = ports_of([port("fabric", 5e8, 2e8), port("storage", 1e8, 6e8)])["prod", "n-1"]
    assert both.fabric_share == pytest.approx(0.5)
    assert both.fabric_wait_percent == pytest.approx(10.0)
    assert both.storage_sent_share == pytest.approx(0.6)
    assert both.storage_received_share == pytest.approx(0.1)
    plain = ports_of([port("storage", 5e8, 2e8)])["prod", "n-1"]
    assert plain.fabric_share == pytest.approx(0.5)
    assert plain.storage_sent_share is None
    assert ports_of([row(role="fabric")]) == {}


def host(seconds: float = 300.0, **told: float | None) -> dict[str, Any]:
    names = [one.field for one in ASKED_OF_HOSTS]
    values = {f"{name}_increase": told.get(name) for name in names}
    span = {"first_at": NOON - timedelta(seconds=seconds), "last_at": NOON}
    return {"cluster": "prod", "node": "n-1", **span, **values}


def test_a_host_s_processors_are_busy_by_share_of_their_time_and_waited_for_by_the_clock() -> None:
    told = host(
        cpu_milliseconds=8_000.0, cpu_busy_milliseconds=6_000.0, cpu_pressure_microseconds=6e7
    )
    assert hosts_of([told]) == {("prod", "n-1"): Host(cpu_percent=75.0, cpu_pressure_percent=20.0)}
    assert hosts_of([host()]) == {("prod", "n-1"): Host()}
    brief = host(
        14.0, cpu_milliseconds=8.0, cpu_busy_milliseconds=8.0, cpu_pressure_microseconds=1.0
    )
    assert hosts_of([brief]) == {("prod", "n-1"): Host()}


def test_what_is_read_and_written_is_that_of_disks_and_mounts_together() -> None:
    told = host(disk_read_bytes=3e9, shared_read_bytes=6e9, shared_write_bytes=0.0)
    (one,) = hosts_of([told]).values()
    assert (one.read_bytes_per_second, one.written_bytes_per_second) == (3e7, 0.0)
    silent = hosts_of([host(disk_read_bytes=3e9)])["prod", "n-1"]
    assert silent.written_bytes_per_second is None


def test_one_node_may_write_for_all_and_each_reads_for_itself() -> None:
    here, there = ("prod", "n-1"), ("prod", "n-2")
    hosts = {
        here: Host(read_bytes_per_second=2e7, written_bytes_per_second=4e8),
        there: Host(read_bytes_per_second=4e7, written_bytes_per_second=0.0),
    }
    both = activity([one()], [here, there], {}, hosts)
    assert (both.read_bytes_per_second, both.written_bytes_per_second) == (3e7, 4e8)
    neither = activity([one()], [here, there], {}, {})
    assert (neither.read_bytes_per_second, neither.written_bytes_per_second) == (None, None)


def test_on_a_node_with_others_a_job_reads_and_writes_what_its_own_group_counts() -> None:
    here, there = ("prod", "n-1"), ("prod", "n-2")
    whole = Host(cpu_percent=9.0, read_bytes_per_second=2e7, written_bytes_per_second=4e8)
    moved: dict[str, Any] = {
        "job_disk_read_bytes_increase": 3e8,
        "job_disk_write_bytes_increase": 6e9,
    }
    told, silent = one(**moved), one()
    alone = activity([told], [here], {}, {here: whole}, [there])
    assert (alone.written_bytes_per_second, alone.with_others) == (4e8, False)
    beside = activity([told, silent], [here], {}, {here: whole}, [here])
    assert (beside.read_bytes_per_second, beside.written_bytes_per_second) == (1e6, 2e7)
    assert (beside.cpu_percent, beside.with_others) == (9.0, True)
    # What the others write is nothing that this job is known to write.
    unknown = activity([silent], [here], {}, {here: whole}, [here])
    assert (unknown.read_bytes_per_second, unknown.written_bytes_per_second) == (None, None)
    elsewhere = activity([one(node="n-2", **moved)], [here], {}, {here: whole}, [here])
    assert elsewhere.written_bytes_per_second is None


def test_a_job_is_the_mean_of_most_of_its_gpus_or_nothing() -> None:
    told = one(
        utilization_percent_mean=80.0, sm_activity_percent_mean=60.0, sm_activity_percent_max=90.0
    )
    silent = one()
    node = ("prod", "n-1")
    hosts = {node: Host(cpu_percent=40.0)}
    half = activity([told, silent], [node], {node: Ports(fabric_share=0.3)}, hosts)
    assert COVERAGE == 0.5
    assert (half.utilization_percent, half.fabric_share) == (80.0, 0.3)
    assert (half.sm_percent, half.sm_most_percent) == (60.0, 90.0)
    assert (half.cpu_percent, half.cpu_pressure_percent) == (40.0, None)
    less = activity([told, silent, silent], [node], {}, {})
    assert (less.utilization_percent, less.fabric_share) == (None, None)


def test_steps_are_those_of_most_ranks_and_pauses_lie_in_none() -> None:
    told = one(
        step_seconds_mean=2.0,
        step_own_seconds_mean=1.5,
        step_input_seconds_mean=0.1,
        step_increase=90.0,
        checkpoint_age_seconds_last=100.0,
        rank_last=3.0,
    )
    found = steps_of([told, one()])
    assert found is not None
    assert (found.seconds, found.ranks, found.own_seconds) == (2.0, 1, 1.5)
    assert found.outside_share == pytest.approx(0.4)
    assert activity([told], [], {}, {}).checkpoints
    assert told.after_own_seconds == pytest.approx(0.4)
    assert told.number == 3
    assert steps_of([told, one(), one()]) is None
    assert one(step_seconds_mean=60.0, step_increase=4.0).outside_share is None
    assert one(step_seconds_mean=60.0, step_increase=5.0).outside_share == 0.0
    old = one(step_seconds_mean=2.0, checkpoint_age_seconds_last=301.0)
    assert not activity([old], [], {}, {}).checkpoints
    assert checkpoint_age([told, old, one()]) == timedelta(seconds=301)
    assert checkpoint_age([one()]) is None


def test_how_much_of_the_time_a_checkpoint_may_have_taken_is_by_the_ranks_phases() -> None:
    def share(*ranks: Any) -> float | None:
        return activity(ranks, [], {}, {}).checkpoint_share

    def phase(most: float, mean: float) -> Any:
        return one(step_phase_max=most, step_phase_mean=mean)

    assert share(phase(3, 3.0)) == 1.0
    assert share(phase(3, 0.9)) == pytest.approx(0.3)
    assert share(phase(2, 1.9)) == 0.0
    assert share(phase(4, 3.5)) is None  # an evaluation, too: which took how long is not known
    assert share(phase(3, 3.0), one()) == 1.0
    assert share(phase(3, 3.0), one(), one()) is None


def test_the_pace_is_by_steps_else_by_traffic_else_by_activity() -> None:
    hour = row(3600.0, samples=360, step_seconds_mean=2.0, nvlink_receive_bytes_increase=3600e9)
    now = row(step_seconds_mean=4.0, nvlink_receive_bytes_increase=300e9)
    # (2.0 * 360 - 4.0 * 30) / 330 s a step before, 4 s now.
    assert pace([(now, hour)]) == pytest.approx(100.0 * 1.818 / 4.0, rel=0.001)
    del_steps = {"step_seconds_mean": None}
    slow = {**now, **del_steps, "nvlink_receive_bytes_increase": 150e9}
    assert pace([(slow, {**hour, **del_steps})]) == pytest.approx(100 * 0.5 * 3300 / 3450, rel=0.01)
    busy = {**EMPTY, **row(sm_activity_percent_mean=30.0)}
    was = {**EMPTY, **row(3600.0, samples=360, sm_activity_percent_mean=60.0)}
    assert pace([(busy, was)]) == pytest.approx(100.0 * 30.0 / 62.7, rel=0.01)


def test_the_pace_is_of_steps_that_were_made_and_of_none_it_is_none() -> None:
    def now(made: float) -> Mapping[str, Any]:
        return row(step_increase=made, step_seconds_mean=2.0, sm_activity_percent_mean=60.0)

    def hour(made: float) -> Mapping[str, Any]:
        return row(3600.0, samples=360, step_increase=made, step_seconds_mean=2.0)

    assert pace([(now(0.0), hour(1650.0))]) == 0.0
    assert pace([(now(75.0), hour(1725.0))]) == pytest.approx(50.0)
    # Twenty were due; of fewer one more is no other pace, and how long they take is held against it.
    assert pace([(now(19.0), hour(220.0 + 19.0))]) == pytest.approx(95.0)
    assert pace([(now(18.0), hour(219.0 + 18.0))]) == pytest.approx(100.0)
    # Also one that has made none all the hour; of slow steps none may be due.
    assert pace([(now(0.0), hour(0.0))]) == 0.0
    assert pace([({**now(0.0), "step_seconds_mean": 60.0}, hour(60.0))]) == 0.0
    assert pace([({**now(0.0), "step_seconds_mean": 60.1}, hour(60.0))]) is None


def test_a_job_that_makes_no_step_tells_nothing_of_its_steps() -> None:
    told: dict[str, Any] = {"step_seconds_mean": 2.0, "step_own_seconds_mean": 0.1}
    assert steps_of([one(step_increase=1.0, **told)]) is not None
    assert steps_of([one(step_increase=0.0, **told)]) is None


def test_too_little_to_hold_against_is_no_pace() -> None:
    now = row(nvlink_receive_bytes_increase=300e9)
    short = row(1199.0, nvlink_receive_bytes_increase=1199e9)
    enough = row(1200.0, nvlink_receive_bytes_increase=1200e9)
    assert pace([(now, short)]) is None
    assert pace([(now, enough)]) == pytest.approx(100.0)
    assert pace([(now, enough), (None, None)]) == pytest.approx(100.0)
    assert pace([(now, enough), (None, None), (None, None)]) is None
    little = row(nvlink_receive_bytes_increase=300e5)
    assert pace([(little, enough)]) is None
    assert pace([]) is None


def test_what_was_measured_before_a_job_began_is_somebody_elses() -> None:
    assert whole_span(NOON - SPAN, (NOON - SPAN, NOON))
    assert not whole_span(NOON - SPAN + timedelta(seconds=1), (NOON - SPAN, NOON))
