"""The services as child processes: start, restart and stop them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# A service that ran this long was healthy: its next failure counts as the first.
HEALTHY_SECONDS = 60.0
_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 30.0
LOG_BYTES = 5 * 1024 * 1024
_POLL_SECONDS = 0.02

# The exit code for a wrong configuration; restarting does not help.
WRONG_CONFIGURATION = 2


def delay_seconds(failures: int) -> float:
    """Return the back-off before the restart after so many failures in a row, from 1."""
    return min(_FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 16), _LONGEST_DELAY_SECONDS)


def failures_after(failures: int, alive_seconds: float) -> int:
    """Return the number of failures in a row after one more; it restarts at 1 if the service was healthy."""
    return 1 if alive_seconds >= HEALTHY_SECONDS else failures + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A child that ended by itself: its exit code, its last log line, and the delay of its restart."""

    name: str
    code: int
    last_words: str
    delay_seconds: float

    @property
    def text(self) -> str:
        """A line for people, without the last log line of a killed child, since that is no reason."""
        again = f"it starts again in {self.delay_seconds:g} s"
        if self.code < 0:
            return f"{self.name} was ended by {signal.Signals(-self.code).name}; {again}"
        words = f": {self.last_words}" if self.last_words else ""
        return f"{self.name} ended with exit code {self.code}; {again}{words}"


@dataclass(slots=True, kw_only=True)
class Child:
    """One service and its process."""

    name: str
    command: Sequence[str]
    log_path: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    start_at: float | None = None
    _log_begins: int = field(default=0)

    def start(self, now: float) -> None:
        """Start the process; call this from the main thread only (`gpuvigil.lifeline`)."""
        with self.log_path.open("ab") as log:
            self._log_begins = log.tell()
            # A session of its own: Ctrl-C in the terminal reaches `up` alone, which ends its
            # children in order.
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.environment),
                start_new_session=True,
            )
        self.started_at, self.start_at = now, None

    def poll(self, now: float) -> Ended | None:
        """Restart the child when its back-off is over; return how it ended if it just did, else None."""
        self._bound_log()
        if self.start_at is not None and now >= self.start_at:
            self.start(now)
        if self.process is None or (code := self.process.poll()) is None:
            return None
        # Processes that the child left in its session end too, before the child is restarted.
        self._signal_session(signal.SIGKILL)
        self.process = None
        self.failures = failures_after(self.failures, now - self.started_at)
        delay = delay_seconds(self.failures)
        self.start_at = now + delay
        return Ended(name=self.name, code=code, last_words=self._last_words(), delay_seconds=delay)

    def _bound_log(self) -> None:
        """Move a large log aside, over the one that was moved aside before.

        The child appends, so it goes on at the start of the emptied file.
        """
        if not self.log_path.exists() or self.log_path.stat().st_size <= LOG_BYTES:
            return
        with suppress(OSError):  # a full disk keeps no copy
            shutil.copyfile(self.log_path, self.log_path.with_name(f"{self.log_path.name}.1"))
        os.truncate(self.log_path, 0)
        self._log_begins = 0

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and do not restart the child."""
        self.start_at = None
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def is_gone(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def kill(self) -> None:
        """End the child and everything in its session at once."""
        if self.process is None:
            return
        self._signal_session(signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _signal_session(self, number: signal.Signals) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _last_words(self) -> str:
        """Return the last line that this process wrote to its log, 300 characters at most."""
        with self.log_path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_begins, end - 4096))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


class Family:
    """All child processes, in the order of their start."""

    def __init__(self, config: Path, logs: Path, environment: Mapping[str, str]) -> None:
        self._config = config
        self._logs = logs
        self._environment = environment
        self._children: list[Child] = []

    def start(self, name: str, now: float) -> None:
        """Start the service of that command, such as `alert` or `report schedule`."""
        child = Child(
            name=name,
            # -P: do not import a folder called gpuvigil in the working directory.
            command=[
                *(sys.executable, "-P", "-m", "gpuvigil"),
                *(*name.split(), "--config", str(self._config)),
            ],
            log_path=self._logs / f"{name.replace(' ', '-')}.log",
            environment=self._environment,
        )
        child.start(now)
        self._children.append(child)

    def poll(self, now: float) -> list[Ended]:
        """Restart children whose back-off is over; return those that ended since the last look."""
        ended = [child.poll(now) for child in self._children]
        return [end for end in ended if end is not None]

    def stop(self, seconds: float, hurry: "Hurry") -> None:
        """Stop all children, the hub last, since the others still send to it.

        A child that is not gone after its share of `seconds`, or once `hurry` is asked for, is killed.
        """
        last, others = self._children[:1], self._children[1:]
        deadline = time.monotonic() + seconds
        for group, share in ((others[::-1], 0.6), (last, 1.0)):
            for child in group:
                child.ask_to_stop()
            until = deadline - seconds * (1.0 - share)
            while not all(child.is_gone() for child in group):
                if time.monotonic() >= until or hurry():
                    break
                time.sleep(_POLL_SECONDS)
            for child in group:
                child.kill()


class Hurry:
    """Whether the user has asked to stop a second time.

    A terminal, a shell and make may each pass on one Ctrl-C: signals within half a second are one request.
    """

    SECONDS = 0.5

    def __init__(self) -> None:
        self._first: float | None = None
        self._asked_again = False

    def ask(self, now: float) -> None:
        """Note a request to stop at `now`, a monotonic time in seconds."""
        if self._first is None:
            self._first = now
        elif now - self._first >= self.SECONDS:
            self._asked_again = True

    def __call__(self) -> bool:
        return self._asked_again
