"""When a reader is started, left alone, and replaced."""

import os
import signal
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.agent.inbox import Inbox
from collector.agent.reader_supervisor import ReaderSupervisor, Verdict, judge
from collector.samples.messages import NO_DRIVER, Tick
from gpuvigil.clock import ManualClock
from gpuvigil.config import CollectorSettings
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.shortage import shortage

pytestmark = pytest.mark.slow

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("heard_seconds_ago", "silent_seconds", "verdict"),
    [
        (0.0, None, Verdict.KEEP),
        (29.9, 29.9, Verdict.KEEP),
        (30.0, None, Verdict.FROZEN),
        (1.0, 30.0, Verdict.STUCK),
        (100.0, 100.0, Verdict.FROZEN),
    ],
)
def test_a_reader_is_replaced_when_it_or_all_its_calls_are_silent_for_too_long(
    heard_seconds_ago: float, silent_seconds: float | None, verdict: Verdict
) -> None:
    assert judge(heard_seconds_ago, silent_seconds, patience_seconds=30.0) is verdict


def test_no_reader_is_missed_where_no_gpu_is_to_be_read(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    settings = CollectorSettings(gpus=False, spool_directory=tmp_path)
    keeper = ReaderSupervisor(settings, clock, Inbox())
    clock.advance(3600.0)
    assert keeper.resting
    assert keeper.outage_seconds() is None
    assert keeper.absence(NOW) is None


class Kept:
    """A keeper whose clock only the test moves, and its real readers."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(NOW)
        settings = CollectorSettings(
            tick_seconds=0.1, reader_patience_seconds=30.0, spool_directory=directory
        )
        self.inbox = Inbox()
        self.keeper = ReaderSupervisor(settings, self.clock, self.inbox)

    def children(self) -> list[int]:
        """Readers that run, or have ended and were not yet taken note of."""
        tasks = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        return [int(pid) for pid in tasks.read_text().split() if _is_reader(int(pid))]

    def is_over(self) -> bool:
        """Whether the keeper has taken note of the reader's end."""
        self.keeper.keep()
        return not self.children()

    def tick(self) -> Tick:
        return wait_until("a tick", self._heard)

    def _heard(self) -> Tick | None:
        found = self.inbox.next(0.1)
        message = self.keeper.note(*found) if isinstance(found, tuple) else None
        return message if isinstance(message, Tick) else None


def _is_reader(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    # A process that ends has lost its command line some time before anybody takes note.
    return not command or b"collector.reader" in command


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.keeper.stop()


def test_a_driver_that_is_not_there_is_looked_for_every_minute(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    kept.keeper.keep()
    assert kept.tick().state == NO_DRIVER
    wait_until("its end", kept.is_over)
    assert kept.keeper.absence(NOW) == Tick(at=NOW, state=NO_DRIVER)
    kept.clock.advance(59)
    assert kept.is_over()
    assert kept.keeper.outage_seconds() is None
    kept.clock.advance(2)
    kept.keeper.keep()
    assert len(kept.children()) == 1
    assert kept.keeper.absence(NOW) is None
    assert kept.tick().state == NO_DRIVER
    # Looking for a driver replaces nobody.
    assert kept.keeper.restarts == 0


@pytest.mark.slow
def test_a_reader_that_dies_again_and_again_is_started_less_and_less_often(
    kept: Kept, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in driver.environment().items():
        monkeypatch.setenv(name, value)
    driver.hang_all()
    rests = []
    for _ in range(4):
        kept.keeper.keep()
        (reader,) = kept.children()
        os.kill(reader, signal.SIGKILL)
        wait_until("its end", kept.is_over)
        rest = 0.0
        while kept.is_over():
            kept.clock.advance(0.5)
            rest += 0.5
        rests.append(rest)
    assert rests == [0.5, 1.0, 2.0, 4.0]
    assert kept.keeper.restarts == 4


def test_a_reader_that_is_stuck_is_killed_and_never_has_a_second_beside_it(
    kept: Kept, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in driver.environment().items():
        monkeypatch.setenv(name, value)
    kept.keeper.keep()
    (first,) = kept.children()
    kept.tick()
    os.kill(first, signal.SIGSTOP)
    kept.clock.advance(31)
    kept.keeper.keep()
    kept.keeper.keep()
    assert kept.children() in ([first], [])
    wait_until("its end", kept.is_over)
    kept.clock.advance(1)
    kept.keeper.keep()
    (second,) = kept.children()
    assert second != first


@pytest.mark.parametrize("lacks", ["descriptors", "threads"])
def test_without_room_for_a_reader_the_collector_goes_on_and_tries_again(
    kept: Kept, lacks: str
) -> None:
    with shortage(lacks):
        kept.keeper.keep()
        kept.clock.advance(11)
        kept.keeper.keep()
        assert kept.keeper.gone
        assert kept.keeper.outage_seconds() == 11  # which is told
    kept.keeper.keep()
    assert kept.keeper.gone  # after a rest
    kept.clock.advance(1.0)
    kept.keeper.keep()
    assert len(kept.children()) == 1
    assert kept.keeper.restarts == 0
