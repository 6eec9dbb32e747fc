"""Why jobs wait, and which free GPUs are kept from them by what."""

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.queueing import Room, Wait, lost_gpu_hours, queue, reason_of, tasks_of, waited
from gpuvigil.model import Job, Subject
from tests.processor import allowed

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def job(reason: str | None = "Resources", gpus: int = 4, number: int = 1, **more: Any) -> Job:
    told: dict[str, Any] = {"state": "PENDING", "submitted_at": NOON, **more}
    return Job(
        told_by=Subject(cluster="c", node="ctl"),
        number=str(number),
        seen_at=NOON,
        gpus=gpus,
        reason=reason,
        **told,
    )


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        ("Resources", Wait.ROOM),
        ("Priority", Wait.BACKFILL),
        ("AssocGrpGRES", Wait.QUOTA),
        ("QOSMaxGRESPerUser", Wait.QUOTA),
        ("Reservation", Wait.RESERVATION),
        ("ReqNodeNotAvail, May be reserved for other job", Wait.RESERVATION),
        ("ReqNodeNotAvail, UnavailableNodes:n1", Wait.FAULTY),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", Wait.FAULTY),
        ("Dependency", Wait.OWN),
        ("JobArrayTaskLimit", Wait.OWN),
        ("Unschedulable: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu.", Wait.ROOM),
        ("couldn't assign flavors to pod set main: insufficient unused quota", Wait.QUOTA),
        ("ImagePullBackOff", Wait.UNKNOWN),
        (None, Wait.UNKNOWN),
    ],
)
def test_a_reason_is_the_schedulers_own_word(said: str | None, wait: Wait) -> None:
    assert reason_of(job(said)) is wait


def test_what_is_free_while_jobs_wait_is_split_by_what_keeps_it() -> None:
    two_each = {f"n{n}": Room(free=2, gpus=8) for n in range(4)}
    split = queue([job(gpus=8)], two_each)
    assert (split.gpus, split.free, split.kept) == (8, 8, {Wait.FRAGMENTATION: 8})
    assert queue([job(gpus=16)], two_each).kept == {}
    assert queue([job(gpus=2)], two_each).kept == {Wait.BACKFILL: 2}
    drained = {"n1": Room(free=8, gpus=8, states=("IDLE", "DRAIN")), "n2": Room(free=0, gpus=8)}
    assert queue([job(gpus=4)], drained).kept == {Wait.FAULTY: 4}
    kept = {"n1": Room(free=8, gpus=8, states=("RESERVED",)), "n2": Room(free=1, gpus=8)}
    assert queue([job("Reservation", gpus=4)], kept).kept == {Wait.RESERVATION: 4}
    free = {"n1": Room(free=8, gpus=8)}
    assert queue([job("AssocGrpGRES", gpus=3)], free).kept == {Wait.QUOTA: 3}
    held = queue([job("Dependency")], free)
    assert (held.jobs, held.gpus, held.kept) == (1, 0, {})


def test_a_job_of_several_nodes_needs_whole_ones() -> None:
    free = {"n1": Room(free=8, gpus=8), "n2": Room(free=8, gpus=8)}
    assert queue([job(gpus=16)], free).kept == {Wait.BACKFILL: 16}
    broken = {**free, "n2": Room(free=7, gpus=8), "n3": Room(free=1, gpus=8)}
    assert queue([job(gpus=16)], broken).kept == {Wait.FRAGMENTATION: 16}


def test_the_nodes_of_a_large_fleet_are_added_up_once_for_all_jobs() -> None:
    nodes = {f"n{n}": Room(free=n % 3, gpus=8) for n in range(12_500)}
    jobs = [job(gpus=4 + n, number=n) for n in range(100)]
    began = time.process_time()
    assert queue(jobs, nodes).waits == {Wait.FRAGMENTATION: sum(one.gpus or 0 for one in jobs)}
    assert time.process_time() - began < allowed(0.4)  # it was a second


_ROOM = st.builds(
    Room,
    free=st.integers(0, 8),
    gpus=st.just(8),
    states=st.sampled_from([(), ("IDLE", "DRAIN"), ("RESERVED",), ("MIXED",)]),
)
_REASONS = ["Resources", "Priority", "AssocGrpGRES", "Dependency", "NodeDown", "Reservation", None]


@given(
    st.lists(st.tuples(st.sampled_from(_REASONS), st.integers(1, 32)), max_size=6),
    st.dictionaries(st.sampled_from("abcdef"), _ROOM, max_size=6),
)
def test_no_more_is_kept_than_is_free_or_wanted(
    asked: list[tuple[str | None, int]], nodes: dict[str, Room]
) -> None:
    jobs = [job(reason, gpus, n) for n, (reason, gpus) in enumerate(asked)]
    found = queue(jobs, nodes)
    assert found.free_while_queued <= min(found.free, found.gpus)
    assert sum(found.waits.values()) == sum(one.gpus or 0 for one in jobs)
    assert all(number > 0 for number in found.kept.values())
    assert queue(reversed(jobs), dict(reversed(nodes.items()))) == found


@pytest.mark.parametrize(
    ("array", "count"),
    [("17_[4-9]", 6), ("17_[4-9,12%2]", 7), ("17_[0-9:2]", 5), ("17_3", 1), ("17", 1), ("", 1)],
)
def test_the_tasks_of_an_array_that_are_to_come_are_counted(array: str, count: int) -> None:
    assert tasks_of(array) == count


def test_waits_are_of_jobs_that_began_in_the_span() -> None:
    began = [job(state="RUNNING", submitted_at=NOON - n * HOUR, started_at=NOON) for n in range(5)]
    found = waited([*began, job()], NOON - HOUR, NOON + HOUR)
    assert found is not None
    assert (found.jobs, found.median, found.longest) == (5, 2 * HOUR, 4 * HOUR)
    assert found.median <= found.p95 <= found.longest
    assert waited(began, NOON + HOUR, NOON + 2 * HOUR) is None


def test_what_was_preempted_is_told_apart_from_what_went_with_its_node() -> None:
    ended: dict[str, Any] = {
        "started_at": NOON - 3 * HOUR,
        "ended_at": NOON,
        "submitted_at": NOON - 9 * HOUR,
    }
    jobs = [job(state="PREEMPTED", **ended), job(state="NODE_FAIL", gpus=8, **ended)]
    assert lost_gpu_hours(jobs, "PREEMPTED", NOON - HOUR, NOON + HOUR) == 12.0
    assert lost_gpu_hours(jobs, "NODE_FAIL", NOON - HOUR, NOON + HOUR) == 24.0
    assert lost_gpu_hours(jobs, "PREEMPTED", NOON + HOUR, NOON + 2 * HOUR) == 0.0
