"""Keeps one reader process: starts it, listens to it, and replaces one that is stuck.

Never a second reader while the first is not gone: a process that sits in an uninterruptible driver
call cannot be killed, and a second one would only get stuck beside it.
"""

import subprocess
import threading
from contextlib import suppress
from datetime import datetime
from enum import Enum

from gpuvigil import lifeline, program
from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log

from .inbox import Inbox, Message
from .report import LOADED, STARTING, Tick, load

log = Log("collector")

_LOOK_AGAIN_SECONDS = 60.0  # for a driver that is not there
_SHORTEST_REST_SECONDS = 0.5
_LONGEST_REST_SECONDS = 30.0
_KILL_PATIENCE_SECONDS = 5.0


class Verdict(Enum):
    """What to do with a reader that runs."""

    KEEP = "keep"
    FROZEN = "reader says nothing"
    STUCK = "no driver call of the reader comes back"


def judge(
    heard_seconds_ago: float, silent_seconds: float | None, patience_seconds: float
) -> Verdict:
    """`silent_seconds` is the reader's own word on its calls, `heard_seconds_ago` the age of it."""
    if heard_seconds_ago >= patience_seconds:
        return Verdict.FROZEN
    if silent_seconds is not None and silent_seconds >= patience_seconds:
        return Verdict.STUCK
    return Verdict.KEEP


class ReaderKeeper:
    """One reader at most; `keep` is for the main thread, which the kernel ties the child to."""

    def __init__(self, settings: CollectorSettings, clock: Clock, inbox: Inbox) -> None:
        """What the reader says arrives in `inbox`."""
        self._settings = settings
        self._clock = clock
        self._inbox = inbox
        self._child: subprocess.Popen[bytes] | None = None
        self._heard = clock.monotonic()
        self._last: Tick | None = None
        self._not_before = 0.0
        self._rest_seconds = _SHORTEST_REST_SECONDS
        self._killed: float | None = None
        self._stubborn = False
        self._starts = 0
        self._restarts = 0

    @property
    def restarts(self) -> int:
        """Readers that replaced one that had stopped working."""
        return self._restarts

    def keep(self) -> None:
        """Start, replace or leave the reader, as is due."""
        now = self._clock.monotonic()
        if self._child is None:
            if now >= self._not_before:
                self._start(now)
        elif self._child.poll() is not None:
            self._child.wait()
            self._child = None
            self._rest(now)
        elif self._killed is not None:
            if now - self._killed >= _KILL_PATIENCE_SECONDS and not self._stubborn:
                self._stubborn = True
                log.warning("reader cannot be ended: it is stuck in the driver")
        else:
            self._judge(now)

    def note(self, reader: int, message: Message) -> Message | None:
        """Take note of what came from a reader; None when it is not the one that speaks now."""
        if reader != self._starts:
            return None
        if isinstance(message, Tick):
            self._last = message
            if message.state == LOADED and message.silent_seconds is None:
                self._rest_seconds = _SHORTEST_REST_SECONDS
        return message

    def outage_seconds(self) -> float | None:
        """How long a reader that should speak has not; None while it does, or has no driver."""
        silent = self._clock.monotonic() - self._heard
        patience = 2 * self._settings.tick_seconds + self._settings.driver_timeout_seconds
        return None if self.resting or silent < patience else silent

    @property
    def resting(self) -> bool:
        """Whether there is no reader because there is no driver to read."""
        return self._child is None and self._last is not None and _has_no_driver(self._last)

    def absence(self, now: datetime) -> Tick | None:
        """What a reader would say now, while there is none because there is no driver to read."""
        if self._last is None or not self.resting:
            return None
        return Tick(at=now, state=self._last.state)

    @property
    def last(self) -> Tick | None:
        """The reader's last tick."""
        return self._last

    def stop(self) -> None:
        """End the reader; one that cannot be ended is left to the kernel."""
        if self._child is not None:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(1.0)

    def _start(self, now: float) -> None:
        settings = self._settings
        # A start that takes too long is told before the reader is replaced for it.
        start_seconds = max(settings.driver_timeout_seconds, settings.reader_patience_seconds / 2)
        command = [
            *program.command("read", "collector.reader"),
            *("--tick-seconds", str(settings.tick_seconds)),
            *("--driver-timeout-seconds", str(settings.driver_timeout_seconds)),
            *("--start-timeout-seconds", str(start_seconds)),
        ]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=lifeline.environment(),
        )
        # A driver that was not there is looked for; that replaces nobody.
        if self._starts > 0 and not (self._last is not None and _has_no_driver(self._last)):
            self._restarts += 1
        self._starts += 1
        self._heard, self._killed, self._stubborn = now, None, False
        threading.Thread(
            target=self._listen, args=(self._child, self._starts), name="reader", daemon=True
        ).start()

    def _listen(self, child: subprocess.Popen[bytes], reader: int) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            try:
                message = load(line)
            except ValueError as error:
                log.warning("reader speaks otherwise than expected", why=str(error))
                continue
            self._heard = self._clock.monotonic()
            self._inbox.say(reader, message)
        child.stdout.close()
        self._inbox.wake()

    def _judge(self, now: float) -> None:
        silent = None if self._last is None else self._last.silent_seconds
        patience = self._settings.reader_patience_seconds
        # A reader speaks once a tick, so its last word may be a tick old.
        verdict = judge(now - self._heard - self._settings.tick_seconds, silent, patience)
        if verdict is not Verdict.KEEP and self._child is not None:
            log.warning("reader is replaced", why=verdict.value)
            self._child.kill()
            self._killed = now
            if self._last is not None:
                self._last = _starting(self._last)

    def _rest(self, now: float) -> None:
        """How long to wait before the next reader."""
        if self._last is not None and _has_no_driver(self._last):
            self._not_before = now + _LOOK_AGAIN_SECONDS
            return
        if self._killed is None:
            log.warning("reader has ended by itself, another is started")
        self._not_before = now + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, _LONGEST_REST_SECONDS)


def _has_no_driver(tick: Tick) -> bool:
    """Also a driver that cannot be used for another reason."""
    return tick.state not in {LOADED, STARTING}


def _starting(tick: Tick) -> Tick:
    return Tick(at=tick.at, state=STARTING, driver=tick.driver)
