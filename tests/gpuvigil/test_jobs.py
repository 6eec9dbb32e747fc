"""What Slurm's controller adds to a node's word, and where the two disagree."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    Allocation,
    Job,
    Record,
    RecordKind,
    Scheduler,
    Subject,
    job_holder,
)
from gpuvigil.schedulers.jobs import (
    by_holder,
    job_history,
    jobs_since,
    scheduler_disagreements,
    with_job_details,
)

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
NODE = Subject(cluster="c", node="n1")


def job(number: str = "7", **values: object) -> Job:
    given = Job(
        told_by=Subject(cluster="c", node="login"),
        number=number,
        state="RUNNING",
        submitted_at=NOON - 2 * HOUR,
        started_at=NOON - HOUR,
        seen_at=NOON,
        user="ann",
        account="physics",
        name="train",
        nodes=("n1",),
        gpus=2,
        numbers={"n1": (0, 1)},
    )
    return replace(given, **values)  # type: ignore[arg-type]


def held(number: str = "7", gpus: int = 2, **values: object) -> list[Allocation]:
    one = Allocation(
        subject=NODE,
        holder=job_holder(number),
        user="ann",
        command=None,
        started_at=NOON - HOUR,
    )
    one = replace(one, **values)  # type: ignore[arg-type]
    return [replace(one, subject=replace(NODE, gpu=f"GPU-{index}")) for index in range(gpus)]


def test_slurm_fills_what_the_node_was_not_told_and_nothing_else() -> None:
    jobs = by_holder([job()])
    (one, _) = held(partition="debug")
    assert with_job_details(one, jobs) == replace(one, command="train", account="physics")
    assert with_job_details(one, {}) == one
    (other, _) = held("8")
    assert with_job_details(other, jobs) == other
    elsewhere = replace(one, subject=replace(one.subject, cluster="d"))
    assert with_job_details(elsewhere, jobs) == elsewhere


def test_of_a_number_that_is_given_again_each_allocation_has_its_own_job() -> None:
    first = job(
        name="first", submitted_at=NOON - 9 * HOUR, ended_at=NOON - 8 * HOUR, state="FAILED"
    )
    jobs = by_holder([job(name="second"), first])
    (before,) = held(gpus=1, started_at=NOON - 9 * HOUR)
    (now,) = held(gpus=1)
    assert with_job_details(before, jobs).command == "first"
    assert with_job_details(now, jobs).command == "second"


@given(
    st.permutations(
        [
            job(seen_at=NOON + i * HOUR, state=s)
            for i, s in enumerate(("PENDING", "RUNNING", "FAILED"))
        ]
    )
)
def test_the_newest_look_counts_in_whatever_order_looks_arrive(looks: list[Job]) -> None:
    assert [one.state for one in by_holder(looks)["c", job_holder(7)]] == ["FAILED"]


def test_who_agrees_is_not_mentioned() -> None:
    assert scheduler_disagreements(NODE, held(), by_holder([job()]), NOON) == {}
    assert scheduler_disagreements(NODE, held(), {}, NOON) == {}


def test_where_two_sources_disagree_both_are_told() -> None:
    ended = job(state="FAILED", ended_at=NOON - HOUR / 2)
    away = job(nodes=("n2",), numbers={"n2": (0, 1)})
    for told, said in (
        (ended, "it ended as FAILED, and no epilog told of it"),
        (away, "it is not on this node"),
        (job(numbers={"n1": (0, 1, 2)}), "gives it 3 GPUs here, its prolog told of 2"),
    ):
        (found,) = scheduler_disagreements(NODE, held(), by_holder([told]), NOON).values()
        assert said in found
    silent = scheduler_disagreements(NODE, [], by_holder([job("9")]), NOON)
    assert silent == {job_holder(9): "Slurm gives it 2 GPUs here, and no prolog told of it"}


def test_what_changed_just_now_is_held_against_nobody() -> None:
    soon = NOON - timedelta(minutes=1)
    assert (
        scheduler_disagreements(NODE, held(), by_holder([job(state="FAILED", ended_at=soon)]), NOON)
        == {}
    )
    assert scheduler_disagreements(NODE, [], by_holder([job(started_at=soon)]), NOON) == {}


class ShelfHub(Hub):
    """Records of jobs and schedulers in the order in which they were told; counts what is read."""

    def __init__(self, *records: Record) -> None:
        super().__init__("http://127.0.0.1:1", str)
        self.shelf = records
        self.read = 0

    def records(self, kind: RecordKind, **asked: Any) -> tuple[Record, ...]:
        states = asked.get("states")
        fitting = [
            one
            for one in self.shelf
            if one.kind is kind and (not states or one.body["state"] in states)
        ]
        found = tuple(fitting[-asked.get("limit", 10_000) :])
        self.read += len(found)
        return found


@pytest.mark.slow
@settings(max_examples=15)
@given(st.permutations(range(40)), st.integers(0, 60))
def test_what_ended_lately_is_found_however_much_has_ended_before(
    out_of_turn: list[int], hours: int
) -> None:
    ends = [NOON - n * timedelta(minutes=5) for n in range(700, 0, -1)]
    ends[-40:] = [ends[-40:][place] for place in out_of_turn]  # of a cluster that was away
    told = [
        job(str(n), state="COMPLETED", ended_at=at, submitted_at=at - HOUR)
        for n, at in enumerate(ends)
    ]
    hub, oldest = ShelfHub(*(one.to_record() for one in told)), NOON - hours * HOUR
    found = {one.number for them in jobs_since(hub, None, oldest).values() for one in them}
    assert found == {one.number for one in told if one.ended_at and one.ended_at >= oldest}
    if hours < 15:
        assert hub.read == 500


def ended(count: int) -> list[Record]:
    """As many jobs of which one ended each second until noon."""
    ends = [NOON - n * timedelta(seconds=1) for n in range(count, 0, -1)]
    return [
        job(str(n), state="COMPLETED", ended_at=at, submitted_at=at - HOUR).to_record()
        for n, at in enumerate(ends)
    ]


@pytest.mark.slow
def test_all_jobs_of_a_busy_week_are_read() -> None:
    hub = ShelfHub(*ended(21_000))
    told = job_history(hub, None, NOON - 6 * HOUR)
    assert (len(told.jobs), told.whole_from) == (21_000, None)


@pytest.mark.medium
def test_where_more_have_ended_than_are_read_it_is_said_since_when_they_are_all() -> None:
    hub = ShelfHub(*ended(700))
    told = job_history(hub, None, NOON - HOUR, most=600)
    assert len(told.jobs) == 600
    assert told.whole_from is not None
    assert NOON - timedelta(seconds=600) <= told.whole_from <= NOON - timedelta(seconds=539)
    lately = NOON - timedelta(minutes=2)
    assert job_history(hub, None, lately, most=600).whole_from is None


def test_whoever_asks_no_more_is_not_believed_when_another_does() -> None:
    first, second = (Subject(cluster="c", node=name) for name in ("login", "spare"))
    old = job("7", told_by=first, seen_at=NOON - 2 * HOUR)
    over = job("8", told_by=first, seen_at=NOON - 2 * HOUR)  # its end was never told
    moved = job("7", told_by=second)
    looks = [Scheduler(told_by=first, at=NOON - 2 * HOUR), Scheduler(told_by=second, at=NOON)]
    records = [one.to_record() for one in (old, over, moved)]
    hub = ShelfHub(*records, *(one.to_record() for one in looks))
    assert jobs_since(hub, None, NOON - HOUR) == by_holder([moved])
    both = [Scheduler(told_by=first, at=NOON - HOUR / 6), looks[1]]
    hub = ShelfHub(*records, *(one.to_record() for one in both))
    assert set(jobs_since(hub, None, NOON - HOUR)) == {("c", job_holder(7)), ("c", job_holder(8))}
