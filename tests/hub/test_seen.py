"""What was seen, in few numbers."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.seen import Arrival, Identity, Lane, Seen, Spans, identity

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def arrival(first: int, last: int, node: str = "n1", minute: int = 0) -> Arrival:
    lane = Lane(cluster="c", node=node, boot="b", lane="live")
    return Arrival(lane=lane, first=first, last=last, received_at=NOON + timedelta(minutes=minute))


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5))))
def test_spans_hold_what_a_set_would_in_as_few_pieces_as_can_be(
    pieces: list[tuple[int, int]],
) -> None:
    spans, numbers = Spans(), set[int]()
    for first, length in pieces:
        spans.add(first, first + length)
        numbers |= set(range(first, first + length + 1))
    assert {number for number in range(60) if number in spans} == numbers
    starts = {number for number in numbers if number - 1 not in numbers}
    assert [first for first, _ in spans] == sorted(starts)


def test_bodies_are_compacted_and_silent_lanes_forgotten() -> None:
    seen = Seen()
    seen.add([arrival(n, n) for n in (1, 2, 4, 3)])
    seen.add([arrival(1, 1, node="gone", minute=-60)])
    compacted = seen.compact(NOON - timedelta(minutes=30))
    assert [(it.lane.node, it.first, it.last) for it in compacted] == [("n1", 1, 4)]
    lane = Lane(cluster="c", node="gone", boot="b", lane="live")
    assert Identity(lane=lane, sequence=1) not in seen


def test_the_newest_arrival_of_a_node_is_the_one_received_last() -> None:
    seen = Seen()
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
    for never in ("1960-01-01T00:00:00Z", "9999-12-31T00:00:00Z"):
        found = identity({**headers, "gpuvigil-sent-at": never})
        assert found is not None
        assert found.sent_at is None
