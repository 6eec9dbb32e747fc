"""Runs one reader process: starts it, listens to it, replaces it when stuck, and releases it.

A second reader never starts before the first is gone: a process in an uninterruptible driver call
cannot be killed, and a second one would only get stuck beside it. The reader holds a lock on a
file, so that this also holds for a reader that an earlier agent had to leave behind.
"""

import fcntl
import os
import select
from contextlib import suppress
from datetime import datetime
from enum import Enum
from functools import partial

from gpuvigil import own_command
from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.log import Log

from ..processes import cpu_time
from ..processes.spawn import Child, end, started
from ..samples.messages import CHANGED, LOADED, RELEASED, STARTING, Tick, contents, load
from .inbox import Inbox, Message

log = Log("collector")

_RETRY_SECONDS = 60.0  # between looks for a driver that is not there
_SHORTEST_REST_SECONDS = 0.5
_LONGEST_REST_SECONDS = 30.0
_KILL_PATIENCE_SECONDS = 5.0
_END_PATIENCE_SECONDS = 1.2  # for a reader that was asked to end; it gives the driver one second
# A reader reports once a tick; when this much later, it is not just late on a busy machine.
_LATE_SECONDS = 1.0
_FIRST_WORD_SECONDS = 10.0  # for Python to start from a slow disk
_LOCK_FILE = "reader.lock"
# Linux kernel, Documentation/ABI/stable/sysfs-module.
_MODULE_FILE = "module/nvidia/version"


class Verdict(Enum):
    """What to do with a running reader."""

    KEEP = "keep"
    FROZEN = "reader says nothing"
    STUCK = "no driver call of the reader comes back"


class ReaderSupervisor:
    """Runs at most one reader; `keep` is for the main thread, which the kernel ties the child to."""

    def __init__(self, settings: CollectorSettings, clock: Clock, inbox: Inbox) -> None:
        """Set up the supervisor; the reader's messages arrive in `inbox`."""
        self._settings = settings
        self._clock = clock
        self._inbox = inbox
        self._child: Child | None = None
        self._last_message = clock.monotonic()
        self._has_spoken = False
        self._last: Tick | None = None
        self._not_before = 0.0
        self._rest_seconds = _SHORTEST_REST_SECONDS
        self._asked: float | None = None  # when it was asked to end by itself
        self._killed: float | None = None
        self._stubborn = False
        self._starts = 0
        self._restarts = 0
        self._released = False
        self._is_fresh = (
            False  # the next reader is wanted for a reason other than a fault of this one
        )
        self._is_left_behind = False
        self._module: str | None = None  # the driver's kernel module when the reader was started

    @property
    def restarts(self) -> int:
        """The number of readers that replaced one that had stopped working."""
        return self._restarts

    @property
    def released(self) -> bool:
        """Whether no reader is wanted, because somebody works on the hardware."""
        return self._released

    @property
    def gone(self) -> bool:
        """Whether no reader of this agent runs, so that it holds nothing of the driver."""
        return self._child is None

    @property
    def pid(self) -> int | None:
        """The reader's process id."""
        return None if self._child is None else self._child.pid

    def release(self) -> None:
        """Leave the driver alone until `attach`: the reader shuts it down and ends, or is killed."""
        self._released = True
        if self._child is not None and self._asked is None and self._killed is None:
            self._child.terminate()
            self._asked = self._clock.monotonic()

    def renew(self) -> None:
        """Replace the reader with a new one, which sees the GPUs that the driver has now."""
        if self._child is not None and self._asked is None and self._killed is None:
            self._is_fresh = True
            self._child.terminate()
            self._asked = self._clock.monotonic()

    def attach(self) -> None:
        """Start reading again at once."""
        self._released = False
        self._not_before, self._rest_seconds = 0.0, _SHORTEST_REST_SECONDS
        self._last_message = self._clock.monotonic()
        self._last, self._is_fresh = None, True

    def keep(self) -> None:
        """Start, replace or leave the reader, whichever is due."""
        now = self._clock.monotonic()
        if self._child is None:
            if not self._released and (now >= self._not_before or self._has_new_module()):
                self._start(now)
        elif self._child.poll() is not None:
            self._child.wait()
            self._child = None
            self._rest(now)
        elif self._killed is not None:
            if now - self._killed >= _KILL_PATIENCE_SECONDS and not self._stubborn:
                self._stubborn = True
                log.warning("reader cannot be ended: it is stuck in the driver")
        elif self._asked is not None:
            if now - self._asked >= _END_PATIENCE_SECONDS:
                self._kill(now)
        else:
            self._judge(now)

    def note(self, reader: int, message: Message) -> Message | None:
        """Note a reader's message and return it; None for one of a former or released reader."""
        if reader != self._starts or self._released:
            return None
        if isinstance(message, Tick):
            self._last = message
            if message.state == LOADED and message.silent_seconds is None:
                self._rest_seconds = _SHORTEST_REST_SECONDS
        return message

    def outage_seconds(self) -> float | None:
        """Return how long a reader is overdue, in seconds; None while it reports or need not."""
        silent = self._clock.monotonic() - self._last_message
        tick_seconds = self._settings.tick_seconds
        patience = max(2 * tick_seconds, tick_seconds + _LATE_SECONDS)
        if self._is_left_behind:
            patience = 0.0
        elif not self._has_spoken:
            patience = max(patience, _FIRST_WORD_SECONDS)
        if self.resting or silent < patience or self._quiet_seconds(silent) < patience:
            return None
        return silent

    def _quiet_seconds(self, silent: float) -> float:
        """Return how long the reader was silent although it had the CPU time to report."""
        if self._child is None:
            return silent
        assert self._child.stdout is not None
        with suppress(OSError, ValueError):
            if select.select([self._child.stdout], [], [], 0.0)[0]:
                return 0.0  # it has reported, and this process had no core to listen
        last = self._last if self._has_spoken else None
        spent = 0.0 if last is None else last.spent_seconds
        return cpu_time.quiet_seconds(self._child.pid, silent, spent)

    @property
    def resting(self) -> bool:
        """Whether no reader should report: no driver, GPUs not wanted, or the driver released."""
        if not self._settings.gpus:
            return True
        return self._child is None and (self._released or self._has_none_to_read())

    def absence(self, now: datetime) -> Tick | None:
        """Return the tick that stands in for a reader's while none should report.

        None while a reader should, or before anything is known of the driver.
        """
        if not self.resting:
            return None  # a reader that was asked to end has not ended yet
        if self._released:
            return Tick(at=now, state=RELEASED)
        return None if self._last is None else Tick(at=now, state=self._last.state)

    @property
    def last(self) -> Tick | None:
        """The reader's last tick."""
        return self._last

    def stop(self) -> None:
        """End the reader; one that cannot be killed is left to the kernel."""
        end(self._child)

    def _start(self, now: float) -> None:
        try:
            lock = self._lock()
        except BlockingIOError:
            if not self._is_left_behind:
                log.warning("a reader of an earlier agent is stuck in the driver; none is started")
            self._is_left_behind, self._not_before = True, now + self._rest_seconds
            return
        self._is_left_behind = False
        try:
            self._launch(now, lock)
        finally:
            if lock is not None:
                os.close(lock)

    def _lock(self) -> int | None:
        """Return the lock that the reader will hold until it ends.

        None when the file cannot be opened; BlockingIOError while another reader holds it.
        """
        file = self._settings.spool_directory / _LOCK_FILE
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("reader runs without its lock", file=str(file), why=str(error))
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _launch(self, now: float, lock: int | None) -> None:
        settings = self._settings
        self._module = self._loaded_module()
        # A start that takes too long is reported before the reader is replaced for it.
        start_seconds = max(settings.driver_timeout_seconds, settings.reader_patience_seconds / 2)
        call_seconds, slow_seconds = settings.driver_timeout_seconds, settings.slow_tick_seconds
        seconds = (settings.tick_seconds, call_seconds, start_seconds, slow_seconds)
        command = [*own_command.command("read", "collector.reader"), *map(str, seconds)]
        reader, before = self._starts + 1, (self._last_message, self._has_spoken)
        self._last_message, self._has_spoken = now, False
        listen = partial(self._listen, reader=reader)
        held = () if lock is None else (lock,)
        try:
            self._child = started(command, "reader", listen, held)
        except OSError as error:
            log.warning("reader cannot be started, it is tried again", why=str(error))
            self._last_message, self._has_spoken = before
            self._put_off(now)
            return
        # After a driver was absent, changed or released, a new reader is no restart.
        if self._starts > 0 and not self._is_fresh and not self._has_none_to_read():
            self._restarts += 1
        self._starts = reader
        self._is_fresh = False
        self._asked, self._killed, self._stubborn = None, None, False

    def _listen(self, child: Child, reader: int) -> None:
        assert child.stdout is not None
        for content in contents(child.stdout):
            try:
                message = load(content)
            except ValueError as error:
                log.warning("reader speaks otherwise than expected", why=str(error))
                continue
            self._last_message, self._has_spoken = self._clock.monotonic(), True
            self._inbox.put_message(reader, message)
        child.stdout.close()
        self._inbox.wake()

    def _has_new_module(self) -> bool:
        """Return whether a kernel module was loaded since the driver could not be read."""
        return self._has_none_to_read() and self._loaded_module() not in {None, self._module}

    def _loaded_module(self) -> str | None:
        try:
            return (self._settings.sysfs_root / _MODULE_FILE).read_text(encoding="ascii")
        except (OSError, ValueError):
            return None

    def _has_none_to_read(self) -> bool:
        """Return whether there is no driver, or one that cannot be used for another reason."""
        return self._last is not None and self._last.state not in {LOADED, STARTING, CHANGED}

    def _judge(self, now: float) -> None:
        silent = None if self._last is None else self._last.silent_seconds
        patience = self._settings.reader_patience_seconds
        # A reader reports once a tick, so its last message may be a tick old.
        unheard = now - self._last_message - self._settings.tick_seconds
        if unheard >= patience:
            unheard = min(self._quiet_seconds(now - self._last_message), unheard)
        verdict = judge(unheard, silent, patience)
        if verdict is not Verdict.KEEP and self._child is not None:
            log.warning("reader is replaced", why=verdict.value)
            self._kill(now)
            if self._last is not None:
                self._last = Tick(at=self._last.at, state=STARTING, driver=self._last.driver)

    def _kill(self, now: float) -> None:
        if self._child is not None:
            self._child.kill()
            self._killed = now

    def _rest(self, now: float) -> None:
        """Set how long to wait before the next reader."""
        if self._asked is not None:
            return
        if self._last is not None and self._last.state == CHANGED:
            self._is_fresh = True
            return
        if self._has_none_to_read():
            self._not_before = now + _RETRY_SECONDS
            return
        if self._killed is None:
            log.warning("reader has ended by itself, another is started")
        self._put_off(now)

    def _put_off(self, now: float) -> None:
        self._not_before = now + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, _LONGEST_REST_SECONDS)


def judge(
    message_age_seconds: float, silent_seconds: float | None, patience_seconds: float
) -> Verdict:
    """Return what to do with a reader.

    `message_age_seconds` is the age of its last message, `silent_seconds` how long, by its own
    account, none of its driver calls has returned.
    """
    if message_age_seconds >= patience_seconds:
        return Verdict.FROZEN
    if silent_seconds is not None and silent_seconds >= patience_seconds:
        return Verdict.STUCK
    return Verdict.KEEP
