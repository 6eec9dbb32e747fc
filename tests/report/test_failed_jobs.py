"""Jobs that a failure ended, as a real hub tells of them: with their GPUs, and their last checkpoint where they told it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from accounting.job_ending import EndCause
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Allocation, Job, Subject, job_holder
from gpuvigil.store.hub import HubStore
from report.inputs.failed_jobs import failed, lost, ran_again
from tests.report.weeks import gpu, incident
from tests.servers import QuickHub

pytestmark = pytest.mark.server

NOW = SystemClock().now()
ENDED = NOW - timedelta(hours=1)
SPAN = NOW - timedelta(hours=10), NOW
BROKEN = incident(since=ENDED - timedelta(minutes=1), until=NOW)  # n1 GPU 0


def job(number: int, **more: object) -> Job:
    ran = Job(
        told_by=Subject(cluster="alpha", node="ctl"),
        number=str(number),
        state="FAILED",
        submitted_at=ENDED - timedelta(hours=6),
        seen_at=NOW,
        started_at=ENDED - timedelta(hours=4),
        ended_at=ENDED,
        account="vision",
        nodes=("n1",),
        gpus=4,
        exit_code="1:0",
    )
    return replace(ran, **more)  # type: ignore[arg-type]


JOBS = (
    job(1),  # on the GPU that broke
    job(2),  # beside it on the same node
    job(3, state="COMPLETED", exit_code="0:0"),
    job(4, ended_at=SPAN[0] - timedelta(minutes=1)),  # before the span
)


def held(number: int, first: int) -> Iterator[Allocation]:
    for index in range(first, first + 4):
        yield Allocation(
            subject=gpu(index),
            holder=job_holder(number),
            user="ann",
            command="train",
            started_at=ENDED - timedelta(hours=4),
            ended_at=ENDED,
        )


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with QuickHub(tmp_path_factory.mktemp("failed")) as process:
        client = process.hub()
        client.write_records(one.to_record() for one in (*held(1, 0), *held(2, 4)))
        yield client


def test_a_job_on_the_broken_gpu_lost_at_most_all_and_its_neighbour_nothing(hub: Hub) -> None:
    (found,) = lost(hub, failed(hub, JOBS, [BROKEN], SPAN) or (), [BROKEN], SPAN)
    assert (str(found.job.holder), found.why, found.said) == (
        "job 1",
        EndCause.HARDWARE,
        "hardware failed: GPU fell off the bus",
    )
    assert (found.gpu_hours, found.since_checkpoint) == (16.0, False)


def test_without_a_scheduler_nobody_knows_and_without_a_failure_nothing_was_lost(hub: Hub) -> None:
    assert failed(hub, (), [BROKEN], SPAN) is None
    assert failed(hub, JOBS, (), SPAN) == ()


def test_with_a_checkpoint_it_lost_what_it_did_since(hub: Hub) -> None:
    at = ENDED - timedelta(minutes=1)
    lines = [
        encode(
            "gpu",
            {"cluster": "alpha", "node": "n1", "uuid": gpu(index).gpu or "", "model": "H100"},
            {"up": 1, "checkpoint_age_seconds": 1740},
            to_ns(at),
        )
        or ""
        for index in range(4)
    ]
    HubStore(hub).write("\n".join(lines).encode())
    (found,) = lost(hub, failed(hub, JOBS, [BROKEN], SPAN) or (), [BROKEN], SPAN)
    assert found.since_checkpoint
    assert found.gpu_hours == pytest.approx(4 * 0.5, abs=0.1)


def test_a_job_that_failed_before_the_span_lost_nothing_in_it(hub: Hub) -> None:
    found = failed(hub, JOBS, [BROKEN], SPAN) or ()
    assert len(found) == 1
    assert lost(hub, found, [BROKEN], (ENDED + timedelta(minutes=1), NOW)) == ()


def test_the_job_that_the_broken_gpu_ended_ran_again_once_it_was_requeued(hub: Hub) -> None:
    named = [replace(it, user="ann", name="train") for it in JOBS]
    requeued = replace(
        named[0],
        number="5",
        state="RUNNING",
        submitted_at=ENDED + timedelta(minutes=1),
        started_at=ENDED + timedelta(minutes=12),
        ended_at=None,
    )
    found = failed(hub, named, [BROKEN], SPAN) or ()
    (again,) = ran_again(found, [*named, requeued])
    assert (again.nodes, again.after) == (1, timedelta(minutes=12))
    assert ran_again(found, named) == ()
