"""A program's Xid speaks against a GPU where its users' jobs do not show it elsewhere."""

from dataclasses import replace
from datetime import timedelta

import pytest

from analyzer.evidence.xid_repeats import Repeats, repeats
from gpuvigil.model import Allocation, Event, EventKind, Holder

from .scene import NOON, Scene, allocation, event, gpu, node

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
USERS = [f"user{n}" for n in range(12)]
BAD = gpu(1, 0)


def run(number: int, index: int, user: int, turn: int) -> Allocation:
    """A quarter of an hour on one GPU."""
    start = NOON - 12 * HOUR + turn * 15 * MINUTE
    return allocation(
        gpu(number, index),
        f"job {number}{index}{user:02d}{turn:02d}",
        USERS[user],
        started_at=start,
        ended_at=start + 14 * MINUTE,
    )


def fault(of: Allocation, code: int = 31, place: str = "GPC 1, TPC 3") -> Event:
    told = event(EventKind.XID, of.subject, of.started_at + 5 * MINUTE, code)
    return replace(told, message=f"Graphics SM Warp Exception on ({place}, SM 0)")


def sweep(bad: int, everywhere: int) -> Scene:
    """Two jobs of each user on each of 16 GPUs; `bad` users have a page fault on one of them, and
    each user `everywhere` times on others.
    """
    runs = [
        run(number, index, user, 2 * user + again)
        for number in (1, 2)
        for index in range(8)
        for user in range(len(USERS))
        for again in (0, 1)
    ]
    own = [
        r
        for r in runs
        if r.subject == BAD and r.holder.name.endswith(("00", "02", "04", "06", "08"))
    ]
    events = [fault(r) for r in own[:bad]]
    for user in USERS:
        others = [r for r in runs if r.user == user and r.subject != BAD]
        events += [
            fault(r) for r in others[:: max(len(others) // max(everywhere, 1), 1)][:everywhere]
        ]
    return Scene(allocations=tuple(runs), events=tuple(events))


@pytest.mark.parametrize(
    ("bad", "everywhere", "told"),
    [
        (5, 0, True),  # nowhere else: it is the GPU
        (4, 0, True),
        (3, 0, False),  # too few to say anything
        (4, 2, False),  # what jobs like these do everywhere
        (5, 4, False),
    ],
)
def test_what_users_show_everywhere_is_their_own(bad: int, everywhere: int, told: bool) -> None:
    found = repeats(sweep(bad, everywhere).window(), BAD, 31)
    assert (found is not None) == told


def test_the_numbers_are_in_the_evidence() -> None:
    found = repeats(sweep(5, 0).window(), BAD, 31)
    assert isinstance(found, Repeats)
    users, chance = found.evidence
    assert users.value == "5"
    assert str(users.limit).endswith("expected by their jobs elsewhere")
    assert 0.0 < found.expected < 1.0
    assert float(chance.value.partition(" ")[0]) < 0.01


def test_a_look_at_one_node_knows_what_the_others_show() -> None:
    whole = sweep(4, 2).window()
    assert repeats(whole.of_node(node()), BAD, 31) is None
    assert repeats(sweep(4, 0).window().of_node(node()), BAD, 31) is not None


def test_of_a_large_job_each_gpu_is_hit_the_less() -> None:
    """Four jobs of a node each, of four users, with the same rank's GPU hit every time."""
    runs = [
        replace(run(1, index, user, user), holder=Holder.parse(f"job {user}"))
        for user in range(4)
        for index in range(8)
    ]
    scene = Scene(allocations=tuple(runs), events=tuple(fault(r) for r in runs if r.subject == BAD))
    found = repeats(scene.window(), BAD, 31)
    assert found is not None
    single = Scene(
        allocations=tuple(r for r in runs if r.subject == BAD),
        events=scene.events,
    )
    alone = repeats(single.window(), BAD, 31)
    assert alone is not None
    assert found.expected < alone.expected / 4


@pytest.mark.parametrize(
    ("places", "told"),
    [(("GPC 1, TPC 3", "GPC 1, TPC 3"), True), (("GPC 1, TPC 3", "GPC 2, TPC 3"), False)],
)
def test_an_exception_counts_on_one_part_of_the_gpu(places: tuple[str, str], told: bool) -> None:
    runs = [run(1, 0, user, user) for user in range(2)]
    events = [fault(r, 13, place) for r, place in zip(runs, places, strict=True)]
    found = repeats(Scene(allocations=tuple(runs), events=tuple(events)).window(), BAD, 13)
    assert (found is not None) == told
