"""What Slurm's controller adds to a node's word, and where the two disagree."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.jobs import by_holder, disagreements, filled
from gpuvigil.model import Allocation, Job, Subject

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
        subject=NODE, holder=f"job {number}", user="ann", command=None, started_at=NOON - HOUR
    )
    one = replace(one, **values)  # type: ignore[arg-type]
    return [replace(one, subject=replace(NODE, gpu=f"GPU-{index}")) for index in range(gpus)]


def test_slurm_fills_what_the_node_was_not_told_and_nothing_else() -> None:
    jobs = by_holder([job()])
    (one, _) = held(partition="debug")
    assert filled(one, jobs) == replace(one, command="train", account="physics")
    assert filled(one, {}) == one
    (other, _) = held("8")
    assert filled(other, jobs) == other
    elsewhere = replace(one, subject=replace(one.subject, cluster="d"))
    assert filled(elsewhere, jobs) == elsewhere


def test_of_a_number_that_is_given_again_each_allocation_has_its_own_job() -> None:
    first = job(
        name="first", submitted_at=NOON - 9 * HOUR, ended_at=NOON - 8 * HOUR, state="FAILED"
    )
    jobs = by_holder([job(name="second"), first])
    (before,) = held(gpus=1, started_at=NOON - 9 * HOUR)
    (now,) = held(gpus=1)
    assert filled(before, jobs).command == "first"
    assert filled(now, jobs).command == "second"


@given(
    st.permutations(
        [
            job(seen_at=NOON + i * HOUR, state=s)
            for i, s in enumerate(("PENDING", "RUNNING", "FAILED"))
        ]
    )
)
def test_the_newest_look_counts_in_whatever_order_looks_arrive(looks: list[Job]) -> None:
    assert [one.state for one in by_holder(looks)["c", "job 7"]] == ["FAILED"]


def test_who_agrees_is_not_mentioned() -> None:
    assert disagreements(NODE, held(), by_holder([job()]), NOON) == {}
    assert disagreements(NODE, held(), {}, NOON) == {}


def test_where_two_sources_disagree_both_are_told() -> None:
    ended = job(state="FAILED", ended_at=NOON - HOUR / 2)
    away = job(nodes=("n2",), numbers={"n2": (0, 1)})
    for told, said in (
        (ended, "it ended as FAILED, and no epilog told of it"),
        (away, "it is not on this node"),
        (job(numbers={"n1": (0, 1, 2)}), "gives it 3 GPUs here, its prolog told of 2"),
    ):
        (found,) = disagreements(NODE, held(), by_holder([told]), NOON).values()
        assert said in found
    silent = disagreements(NODE, [], by_holder([job("9")]), NOON)
    assert silent == {"job 9": "Slurm gives it 2 GPUs here, and no prolog told of it"}


def test_what_changed_just_now_is_held_against_nobody() -> None:
    soon = NOON - timedelta(minutes=1)
    assert disagreements(NODE, held(), by_holder([job(state="FAILED", ended_at=soon)]), NOON) == {}
    assert disagreements(NODE, [], by_holder([job(started_at=soon)]), NOON) == {}
