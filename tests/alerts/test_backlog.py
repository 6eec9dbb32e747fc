"""What a receiver cannot take at once waits for its turn."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from alerts.delivery.backlog import (
    IN_HAND_SECONDS,
    LONGEST_SECONDS,
    STEP_SECONDS,
    Backlog,
    most_in_hand,
)
from alerts.delivery.hub_access import CLAIM_LIMIT, GATHER_SECONDS, LEASE_SECONDS, Context
from alerts.messages.channel import Pace
from gpuvigil.clock import SystemClock
from gpuvigil.config import AlertsSettings
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log

paces = st.builds(
    Pace, burst=st.integers(1, 20), per_second=st.sampled_from([0.2, 0.5, 1.0, 2.0, 10.0])
)


@given(pace=paces)
def test_what_is_in_hand_goes_out_before_its_leases_end(pace: Pace) -> None:
    beside_the_burst = most_in_hand(pace) - pace.burst
    assert (beside_the_burst - 1) / pace.per_second < LEASE_SECONDS / 2


@given(
    pace=paces,
    ranks=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    rest=st.floats(0, 3600),
)
def test_a_turn_is_not_before_the_receiver_is_free_and_not_long_after(
    pace: Pace, ranks: list[int], rest: float
) -> None:
    backlog = Backlog.empty(pace, 3)
    turns = []
    for rank in ranks:
        backlog, seconds = backlog.give(rank, 1000.0, 1000.0 + rest)
        assert max(rest, IN_HAND_SECONDS) <= seconds
        assert seconds <= max(rest, 0.0) + LONGEST_SECONDS + STEP_SECONDS + 0.001
        turns.append((rank, seconds))
    if not backlog.beyond:
        for of in range(3):
            mine = [seconds for rank, seconds in turns if rank == of]
            assert mine == sorted(mine)


def test_what_would_have_its_turn_too_late_is_looked_at_again_bit_by_bit() -> None:
    backlog, turns = Backlog.empty(Pace(burst=1, per_second=1.0), 3), []
    for _ in range(10_000):
        backlog, seconds = backlog.give(1, 0.0, 0.0)
        turns.append(seconds)
    late = turns[300:]
    most_at_once = max(late.count(seconds) for seconds in set(late))
    assert most_at_once < 1.2 * len(late) / (LONGEST_SECONDS / 2 / STEP_SECONDS)
    assert max(turns) <= LONGEST_SECONDS


def test_a_thousand_turns_are_given_at_the_receivers_pace() -> None:
    backlog, turns = Backlog.empty(Pace(burst=10, per_second=10.0), 3), []
    for _ in range(1000):
        backlog, seconds = backlog.give(1, 0.0, 0.0)
        turns.append(seconds)
    assert turns[-1] - turns[0] == 100.0
    assert len(set(turns)) == 21  # by the dozen, so that they are claimed together


def test_what_is_critical_comes_before_what_waits_already() -> None:
    backlog = Backlog.empty(Pace(burst=1, per_second=1.0), 3)
    for _ in range(200):
        backlog, warning = backlog.give(1, 0.0, 0.0)
    backlog, critical = backlog.give(0, 0.0, 0.0)
    backlog, after = backlog.give(1, 0.0, 0.0)
    assert critical < 15.0 < warning <= after


class Watched(SystemClock):
    """Says how long was waited, and does not."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.waited.append(seconds)
        return stop.is_set()


def test_a_full_claim_is_followed_by_the_next_at_once() -> None:
    def nobody() -> Hub:
        raise AssertionError

    clock = Watched()
    context = Context(
        connect=nobody,
        owner="a",
        settings=AlertsSettings(),
        clock=clock,
        stop=threading.Event(),
        log=Log("alerts"),
    )
    context.gather(CLAIM_LIMIT)
    context.gather(0)
    assert clock.waited == []
    context.gather(CLAIM_LIMIT - 1)
    assert clock.waited == [GATHER_SECONDS]
