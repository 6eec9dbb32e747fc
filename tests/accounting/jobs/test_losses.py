"""What ended jobs lost, by cause, and how long they took to come back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.job_ending import EndCause
from accounting.jobs.losses import (
    LEAST_RESTARTS,
    Begin,
    Ended,
    Loss,
    Restart,
    by_cause,
    losses,
    may_have_failed,
    of_allocations,
    of_job,
    restart,
    restart_by_size,
    restarts,
)
from gpuvigil.model import ENDED_STATES, Holder, Job, Severity, Subject
from tests.dashboard.scene import LONG_AGO, NOON, allocation, gpu, incident, node

HOUR = timedelta(hours=1)
ONE = node("n-1", "prod")
FAILED = Ended(
    cluster="prod",
    holder=Holder.parse("job 7"),
    ended_at=NOON,
    state="FAILED",
    user="ann",
    name="train",
    started_at=NOON - 10 * HOUR,
    gpus=8,
    gpu_keys=frozenset({gpu(0, ONE).key}),
    nodes=("n-1",),
    exit_code="1:0",
)
LOST = incident("gpu_lost", gpu(0, ONE), Severity.CRITICAL, since=NOON - timedelta(seconds=30))


def test_a_failure_takes_what_was_done_since_the_last_checkpoint() -> None:
    (loss,) = losses([FAILED], [LOST])
    assert (loss.why, loss.gpu_hours, loss.since_checkpoint) == (EndCause.HARDWARE, 80.0, False)
    told = {FAILED.key: NOON - timedelta(minutes=30)}
    (loss,) = losses([FAILED], [LOST], told)
    assert (loss.gpu_hours, loss.since_checkpoint) == (4.0, True)
    (loss,) = losses([replace(FAILED, gpus=None)], [LOST])
    assert loss.gpu_hours is None


def test_who_ended_by_itself_lost_nothing() -> None:
    assert not losses([FAILED], [])  # its program failed
    assert not losses([replace(FAILED, state="COMPLETED", exit_code="0:0")], [LOST])
    assert not losses([replace(FAILED, state="CANCELLED")], [LOST])
    timed_out = replace(FAILED, state="TIMEOUT")
    assert [one.why for one in losses([timed_out], [])] == [EndCause.TIME_LIMIT]


@pytest.mark.parametrize("state", sorted(ENDED_STATES))
def test_who_has_not_failed_by_its_schedulers_word_lost_nothing(state: str) -> None:
    job = Job(
        told_by=node("ctl", "prod"),
        number="7",
        state=state,
        submitted_at=NOON - HOUR,
        seen_at=NOON,
    )
    assert may_have_failed(job) or not losses([replace(FAILED, state=state)], [LOST])
    assert may_have_failed(job) == (state not in {"COMPLETED", "CANCELLED", "REVOKED"})


def test_causes_are_summed_the_dearest_first() -> None:
    many = [FAILED, replace(FAILED, state="TIMEOUT", gpus=1), replace(FAILED, gpus=2)]
    found = by_cause(losses(many, [LOST]))
    assert [(one.why, one.jobs, one.gpu_hours, one.at_most) for one in found] == [
        (EndCause.HARDWARE, 2, 100.0, True),
        (EndCause.TIME_LIMIT, 1, 10.0, True),
    ]


def begin(at: datetime, **values: Any) -> Begin:
    return Begin(**{"cluster": "prod", "user": "ann", "name": "train", "at": at, **values})


def again(lost: Sequence[Loss], begins: Sequence[Begin]) -> timedelta | None:
    return restart(restarts(lost, begins))


def test_jobs_of_a_size_ran_again_after_the_median_of_enough_of_them() -> None:
    def back(nodes: int, minutes: float) -> Restart:
        return Restart(nodes=nodes, after=timedelta(minutes=minutes))

    found = [
        back(1, 4),
        back(3, 8),
        back(2, 6),
        back(4, 30),
        back(15, 50),
        back(16, 70),
        back(0, 1),
    ]
    assert LEAST_RESTARTS == 3
    assert restart_by_size(found, [1, 4, 16]) == {1: timedelta(minutes=6)}
    assert restart_by_size([*found, back(9, 40)], [1, 4, 16])[4] == timedelta(minutes=40)
    assert restart_by_size(found, []) == {}


def test_a_restart_has_the_nodes_of_the_job_that_ended() -> None:
    wide = replace(FAILED, nodes=("n-1", "n-2"))
    (one,) = restarts(losses([wide], [LOST]), [begin(NOON + HOUR)])
    assert one == Restart(nodes=2, after=HOUR)


def test_the_next_job_of_that_name_is_the_restart() -> None:
    lost = losses([FAILED, replace(FAILED, state="TIMEOUT")], [LOST])
    at = NOON + timedelta(minutes=12)
    assert again(lost, [begin(at), begin(at + HOUR)]) == timedelta(minutes=12)
    assert again(lost, [begin(at, user="bob")]) is None
    assert again(lost, [begin(NOON + 13 * HOUR)]) is None


def test_a_job_that_waited_already_is_no_restart_and_neither_is_another_task() -> None:
    task = replace(FAILED, array="17_3", submitted_at=NOON - 11 * HOUR)
    lost, at = losses([task], [LOST]), NOON + timedelta(seconds=4)
    assert again(lost, [begin(at, array="17_3", submitted_at=NOON - timedelta(seconds=1))]) is None
    assert again(lost, [begin(at, array="17_4", submitted_at=NOON)]) is None
    assert again(lost, [begin(at, submitted_at=NOON)]) is None
    # The same task again, of the same array or of one that was submitted anew.
    for array in ("17_3", "42_3"):
        assert again(lost, [begin(at, array=array, submitted_at=NOON)]) == timedelta(seconds=4)


def test_nodes_tell_of_jobs_that_no_scheduler_told_of() -> None:
    held = [replace(allocation(gpu(n, ONE), "job 7"), ended_at=NOON) for n in range(2)]
    found = of_allocations(held)
    assert found is not None
    assert (found.gpus, found.nodes, found.started_at, found.state) == (2, ("n-1",), LONG_AGO, None)
    assert of_allocations([held[0], replace(held[1], ended_at=None)]) is None
    told_by = Subject(cluster="prod", node="ctl")
    job = Job(told_by=told_by, number="7", state="RUNNING", submitted_at=NOON, seen_at=NOON)
    assert of_job(job) is None
    over = of_job(replace(job, state="FAILED", ended_at=NOON, gpus=8, nodes=("n-1",)))
    assert over is not None
    assert (over.cluster, over.holder, over.gpus) == ("prod", FAILED.holder, 8)
