"""Since when nodes are out of service, by one who looks again and again."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from gpuvigil.model import ScheduledNode
from gpuvigil.schedulers.node_turns import KEPT_FOR, NodeTurns

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
DRAINED = ScheduledNode(name="n1", states=("MIXED", "DRAIN"), reason="dust [ann@x]")


def test_what_is_so_at_the_first_look_has_no_beginning() -> None:
    turns = NodeTurns()
    assert turns.take([DRAINED], NOON) == ((DRAINED,), ())
    # Its jobs end, and it does not answer: for whoever wants to use it, it is as it was.
    empty = replace(DRAINED, states=("IDLE", "DRAIN", "NOT_RESPONDING"))
    assert turns.take([empty], NOON + MINUTE) == ((empty,), ())


def test_what_is_new_begins_with_the_look_and_ends_with_another() -> None:
    turns = NodeTurns()
    assert turns.take([], NOON) == ((), ())
    since = replace(DRAINED, since=NOON + MINUTE)
    assert turns.take([DRAINED], NOON + MINUTE) == ((since,), ())
    assert turns.take([DRAINED], NOON + 2 * MINUTE) == ((since,), ())
    mended = replace(DRAINED, reason="RMA [ann@x]")
    told, left = turns.take([mended], NOON + 3 * MINUTE)
    assert told == (replace(mended, since=NOON + 3 * MINUTE),)
    assert left == (replace(since, until=NOON + 3 * MINUTE),)
    # A reason outlives the drain.
    back = replace(mended, states=("IDLE",))
    told, left = turns.take([back], NOON + 4 * MINUTE)
    assert told == (back,)
    assert [one.until for one in left] == [NOON + 4 * MINUTE, NOON + 3 * MINUTE]


def test_how_it_was_is_told_for_an_hour() -> None:
    turns = NodeTurns()
    turns.take([DRAINED], NOON)
    gone = (replace(DRAINED, until=NOON + MINUTE),)
    assert turns.take([], NOON + MINUTE) == ((), gone)
    assert turns.take([], NOON + MINUTE + KEPT_FOR - SECOND) == ((), gone)
    assert turns.take([], NOON + MINUTE + KEPT_FOR) == ((), ())
