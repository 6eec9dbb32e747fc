"""A loop goes on whatever happens, waits longer each time, and says so once."""

import logging
import threading
from datetime import datetime, timezone

import pytest

from gpuvigil.clock import ManualClock
from gpuvigil.errors import HubUnavailable
from gpuvigil.log import Log
from gpuvigil.loop import LONGEST_WAIT_SECONDS, Persistence, run_steps


@pytest.fixture
def persistence() -> Persistence:
    clock = ManualClock(datetime(2026, 1, 31, tzinfo=timezone.utc))
    return Persistence(name="test", clock=clock, stop=threading.Event(), log=Log("test"))


def test_no_error_ends_a_loop_and_a_row_of_them_is_one_line(
    persistence: Persistence, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [HubUnavailable("away"), ValueError("odd"), HubUnavailable("away")]

    def step() -> None:
        if errors:
            raise errors.pop(0)
        persistence.stop.set()

    with caplog.at_level(logging.INFO, logger="gpuvigil"):
        run_steps(persistence, step)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith('"cannot go on, tries again" loop=test kind=HubUnavailable')
    assert said[1] == '"goes on" loop=test failures=3'


def test_the_wait_doubles_up_to_a_bound_and_starts_again_after_success(
    persistence: Persistence,
) -> None:
    waits = []
    for _ in range(7):
        before = persistence.clock.monotonic()
        persistence.failed(ValueError())
        waits.append(round(persistence.clock.monotonic() - before, 3))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, LONGEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS]
    persistence.worked()
    before = persistence.clock.monotonic()
    persistence.failed(HubUnavailable("busy", retry_after_seconds=1.5))
    assert persistence.clock.monotonic() - before == 1.5
