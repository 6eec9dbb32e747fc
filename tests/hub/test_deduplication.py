"""What was seen, in few numbers."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.bodies.deduplication import (
    MOST_LANES,
    MOST_SPANS,
    SILENT_LANE,
    SILENT_NODE,
    Arrival,
    Deduplicator,
    Identity,
    IntervalSet,
    Lane,
    TooManySenders,
    identity,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def arrival(first: int, last: int, node: str = "n1", minute: int = 0) -> Arrival:
    lane = Lane(cluster="c", node=node, boot="b", lane="live")
    return Arrival(lane=lane, first=first, last=last, received_at=NOON + timedelta(minutes=minute))


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5))))
def test_spans_hold_what_a_set_would_in_as_few_pieces_as_can_be(
    pieces: list[tuple[int, int]],
) -> None:
    spans, numbers = IntervalSet(), set[int]()
    for first, length in pieces:
        spans.add(first, first + length)
        numbers |= set(range(first, first + length + 1))
    assert {number for number in range(60) if number in spans} == numbers
    starts = {number for number in numbers if number - 1 not in numbers}
    assert [first for first, _ in spans] == sorted(starts)


def test_bodies_are_compacted_and_silent_lanes_forgotten() -> None:
    seen = Deduplicator()
    seen.add([arrival(n, n) for n in (1, 2, 4, 3)])
    seen.add([arrival(1, 1, node="gone", minute=-60)])
    compacted = seen.compact(NOON - timedelta(minutes=30))
    assert [(it.lane.node, it.first, it.last) for it in compacted] == [("n1", 1, 4)]
    lane = Lane(cluster="c", node="gone", boot="b", lane="live")
    assert Identity(lane=lane, sequence=1) not in seen


def test_the_newest_arrival_of_a_node_is_the_one_received_last() -> None:
    seen = Deduplicator()
    seen.add([arrival(9, 9, minute=1), arrival(2, 2, minute=0), arrival(1, 1, node="a")])
    assert [(it.lane.node, it.last) for it in seen.nodes()] == [("a", 1), ("n1", 9)]


def test_a_name_of_a_lane_is_short_and_a_clock_that_was_never_set_says_nothing() -> None:
    headers = {
        "gpuvigil-cluster": "c",
        "gpuvigil-node": "n",
        "gpuvigil-boot": "b",
        "gpuvigil-lane": "live",
        "gpuvigil-sequence": "1",
    }
    with pytest.raises(ValueError, match="Gpuvigil-Boot is longer than 256"):
        identity({**headers, "gpuvigil-boot": "b" * 257})
    with pytest.raises(ValueError, match=r"Gpuvigil-Node is '\.\.', which is no name"):
        identity({**headers, "gpuvigil-node": ".."})
    for never in ("1960-01-01T00:00:00Z", "9999-12-31T00:00:00Z"):
        found = identity({**headers, "gpuvigil-sent-at": never})
        assert found is not None
        assert found.sent_at is None


def boot(number: int, node: str = "n1") -> Lane:
    return Lane(cluster="c", node=node, boot=f"b{number}", lane="live")


def started(seen: Deduplicator, lane: Lane, at: datetime) -> None:
    """A body comes in as it does through the door: looked at, committed, remembered."""
    seen.check(Identity(lane=lane, sequence=1), at)
    seen.add([Arrival(lane=lane, first=1, last=1, received_at=at)])


def flood(seen: Deduplicator, at: datetime) -> None:
    for number in range(MOST_LANES + 1):
        started(seen, boot(10_000 + number), at)


def test_gaps_without_end_are_forgotten_from_below_and_never_taken_for_seen() -> None:
    seen = Deduplicator()
    seen.add([arrival(2 * n, 2 * n) for n in range(1, 10 * MOST_SPANS)])
    kept = seen.compact(NOON)
    assert len(kept) == MOST_SPANS
    lane, floor = kept[0].lane, min(it.first for it in kept)
    again = Deduplicator()  # after a restart
    again.add(reversed(kept))
    for those in (seen, again):
        late = Identity(lane=lane, sequence=floor - 2)
        assert late not in those
        with pytest.raises(ValueError, match="comes too late"):
            those.check(late, NOON)
        those.check(Identity(lane=lane, sequence=floor), NOON)
        those.check(Identity(lane=lane, sequence=floor + 1), NOON)


def test_a_collector_that_starts_again_and_again_is_heard_and_a_flood_of_lanes_is_not() -> None:
    seen = Deduplicator()
    for number in range(3 * MOST_LANES):  # every few seconds, as a crash loop
        started(seen, boot(number), NOON + number * timedelta(seconds=3))
    assert len(seen.compact(NOON)) == MOST_LANES
    now = NOON + 3 * MOST_LANES * timedelta(seconds=3)
    with pytest.raises(TooManySenders, match="c/n1 has 256 lanes"):
        flood(seen, now)
    started(seen, boot(1, "n2"), now)  # the neighbour
    seen.check(Identity(lane=boot(10_000), sequence=2), now)  # what is known goes on
    started(seen, boot(99_999), now + SILENT_LANE)


def test_more_nodes_than_may_be_are_refused_until_one_is_gone() -> None:
    seen = Deduplicator(2)
    for name in ("a", "b"):
        started(seen, boot(1, name), NOON)
    with pytest.raises(TooManySenders, match="more than 2 nodes"):
        started(seen, boot(1, "c"), NOON)
    started(seen, boot(2, "a"), NOON + SILENT_NODE / 2)
    started(seen, boot(1, "c"), NOON + SILENT_NODE)
    assert [it.lane.node for it in seen.nodes()] == ["a", "c"]
