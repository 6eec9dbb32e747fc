"""Clocks are known from send times, put right while they are a little off, and not trusted beyond."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import to_ns
from hub.bodies.deduplication import Deduplicator, Identity, Lane
from hub.embedded import Embedded
from hub.telemetry.body import Body
from hub.telemetry.clocks import Clocks, ClockState, offset_of
from hub.telemetry.committer import commit

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NODE = ("c", "n")
TEN = timedelta(seconds=10)
SECONDS = st.floats(-4000, 4000).map(lambda it: timedelta(seconds=it))
DELAYS = st.lists(st.floats(0, 30).map(lambda it: timedelta(seconds=it)), min_size=1, max_size=5)


def who(sent_at: datetime | None, lane: str = "live", sequence: int = 1) -> Identity:
    name = Lane(cluster="c", node="n", boot="b", lane=lane)
    return Identity(lane=name, sequence=sequence, sent_at=sent_at)


def told(clocks: Clocks, offset: timedelta, delay: timedelta, lane: str = "live") -> timedelta:
    """The shift of a body that a node with this offset sent, and that was this long on its way."""
    return clocks.shift(who(NOON + offset, lane), NOON + delay)


@given(SECONDS, DELAYS)
def test_the_offset_is_never_overrated_and_off_by_the_shortest_way_alone(
    offset: timedelta, delays: list[timedelta]
) -> None:
    found = offset_of(offset - delay for delay in delays)
    assert found <= offset
    assert offset - found == min(delays)


@given(SECONDS, DELAYS, st.integers(0, 10**9))
def test_a_shift_of_all_clocks_changes_nothing(
    offset: timedelta, delays: list[timedelta], seconds: int
) -> None:
    def shifts(start: datetime) -> list[timedelta]:
        clocks = Clocks(TEN)
        return [clocks.shift(who(start + offset), start + delay) for delay in delays]

    assert shifts(NOON) == shifts(NOON + timedelta(seconds=seconds))


@given(SECONDS, DELAYS)
def test_the_backlog_says_nothing_of_a_clock(offset: timedelta, delays: list[timedelta]) -> None:
    clocks = Clocks(TEN)
    assert all(not told(clocks, offset, delay, "backlog") for delay in delays)
    assert clocks.offset(NODE) is None


@given(st.floats(0.6, 9.0), st.sampled_from([1, -1]))
def test_a_small_offset_is_taken_off_and_a_delay_is_not_taken_for_one(
    seconds: float, sign: int
) -> None:
    clocks, offset = Clocks(TEN), timedelta(seconds=sign * seconds)
    shifts = [told(clocks, offset, timedelta(seconds=wait)) for wait in (0.01, 20, 0.02, 0.01)]
    assert abs(shifts[-1] + offset) <= timedelta(seconds=0.01)
    assert clocks.state(NODE) is ClockState.CORRECTED
    right = Clocks(TEN)
    assert not any(told(right, timedelta(), timedelta(seconds=wait)) for wait in (20, 20, 0.3, 20))
    assert right.state(NODE) is ClockState.RIGHT


def test_one_slow_body_is_no_clock_behind() -> None:
    clocks = Clocks(TEN)
    assert [told(clocks, timedelta(), TEN * 2) for _ in range(2)] == [timedelta(), timedelta()]
    assert clocks.state(NODE) is ClockState.RIGHT


def test_a_wrong_clock_counts_from_each_bodys_arrival_also_when_it_jumps() -> None:
    clocks, hour = Clocks(TEN), timedelta(hours=1)
    for offset in (hour, 2 * hour, hour, timedelta()):
        assert told(clocks, offset, timedelta()) == -offset
    assert clocks.state(NODE) is ClockState.WRONG
    for _ in range(4):
        told(clocks, timedelta(), timedelta())
    assert clocks.state(NODE) is ClockState.RIGHT


def test_a_hub_that_is_late_itself_learns_nothing_of_clocks() -> None:
    clocks = Clocks(TEN)
    for _ in range(9):
        assert clocks.shift(who(NOON), NOON + TEN * 2, prompt=False) == timedelta()
    assert clocks.state(NODE) is None


def test_a_clock_that_is_behind_by_more_than_any_way_is_wrong_at_once() -> None:
    clocks = Clocks(TEN)
    assert told(clocks, -timedelta(hours=1), timedelta()) == timedelta(hours=1)
    assert clocks.wrong() == {NODE: -timedelta(hours=1)}
    for _ in range(5):
        clocks.update(NODE, timedelta())
    assert clocks.wrong() == {}


def test_without_a_send_time_nothing_is_done() -> None:
    clocks = Clocks(TEN)
    assert clocks.shift(None, NOON) == timedelta()
    assert clocks.shift(who(None), NOON) == timedelta()


@pytest.mark.medium
def test_lines_of_a_clock_that_is_off_are_stored_when_they_were_measured(tmp_path: Path) -> None:
    store = Embedded(tmp_path / "store", 256 * 1024 * 1024, 1)
    clocks = Clocks(TEN)
    for offset in (3, 3600):
        sent_at = NOON + timedelta(seconds=offset)
        lines = [
            f"{name},cluster=c,node=n{offset} {field}=1i {to_ns(sent_at) - 2 * 10**9}"
            for name, field in [("node", "spool_bytes")] * 20 + [("gpu", "up")]
        ]
        lane = Lane(cluster="c", node=f"n{offset}", boot="b", lane="live")
        body = Body(
            text="\n".join(lines).encode(),
            precision="ns",
            received_at=NOON,
            identity=Identity(lane=lane, sequence=1, sent_at=sent_at),
            done=lambda _: None,
        )
        commit(store, Deduplicator(), [body], None, clocks)
    for table, count in (("node", 40), ("gpu", 2)):
        found = store.ask(f'SELECT epoch_ns("at") AS at FROM "{table}"')["at"].to_pylist()
        assert found == [to_ns(NOON) - 2 * 10**9] * count
    store.close()
