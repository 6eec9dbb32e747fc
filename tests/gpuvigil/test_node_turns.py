"""Since when nodes are out of service, by one who looks again and again."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from gpuvigil.model import ScheduledNode, Scheduler, Subject
from gpuvigil.schedulers.node_turns import KEPT_FOR, NodeTurns

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
DRAINED = ScheduledNode(name="n1", states=("MIXED", "DRAIN"), reason="dust [ann@x]")


def test_what_is_so_at_the_first_look_has_no_beginning() -> None:
    turns = NodeTurns()
    assert turns.update([DRAINED], NOON) == ((DRAINED,), ())
    # Its jobs end, and it does not answer: for whoever wants to use it, it is as it was.
    empty = replace(DRAINED, states=("IDLE", "DRAIN", "NOT_RESPONDING"))
    assert turns.update([empty], NOON + MINUTE) == ((empty,), ())


def test_what_is_new_begins_with_the_look_and_ends_with_another() -> None:
    turns = NodeTurns()
    assert turns.update([], NOON) == ((), ())
    since = replace(DRAINED, since=NOON + MINUTE)
    assert turns.update([DRAINED], NOON + MINUTE) == ((since,), ())
    assert turns.update([DRAINED], NOON + 2 * MINUTE) == ((since,), ())
    mended = replace(DRAINED, reason="RMA [ann@x]")
    told, left = turns.update([mended], NOON + 3 * MINUTE)
    assert told == (replace(mended, since=NOON + 3 * MINUTE),)
    assert left == (replace(since, until=NOON + 3 * MINUTE),)
    # A reason outlives the drain.
    back = replace(mended, states=("IDLE",))
    told, left = turns.update([back], NOON + 4 * MINUTE)
    assert told == (back,)
    assert [one.until for one in left] == [NOON + 4 * MINUTE, NOON + 3 * MINUTE]


def test_how_it_was_is_told_for_an_hour() -> None:
    turns = NodeTurns()
    turns.update([DRAINED], NOON)
    gone = (replace(DRAINED, until=NOON + MINUTE),)
    assert turns.update([], NOON + MINUTE) == ((), gone)
    assert turns.update([], NOON + MINUTE + KEPT_FOR - SECOND) == ((), gone)
    assert turns.update([], NOON + MINUTE + KEPT_FOR) == ((), ())


def test_after_a_restart_it_goes_on_from_what_was_said_within_the_hour() -> None:
    first, at = replace(DRAINED, name="n2", since=NOON - MINUTE), NOON + KEPT_FOR
    before = Scheduler(
        told_by=Subject(cluster="c", node="head"), at=NOON, nodes=(DRAINED, first), left=()
    )
    turns = NodeTurns()
    turns.resume(before, at)
    new = replace(DRAINED, name="n3")
    told, left = turns.update([first, new], at)
    assert told == (first, replace(new, since=at))
    assert left == (replace(DRAINED, until=at),)
    # Of what was said longer ago nobody could say in which hour it turned, nor of a look without an answer.
    for said, now in ((before, at + SECOND), (replace(before, nodes=None), at)):
        turns = NodeTurns()
        turns.resume(said, now)
        assert turns.update([first, new], now)[0] == (replace(first, since=None), new)
