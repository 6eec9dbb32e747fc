"""Leaves the driver alone for a while, for a GPU reset, a driver reload or a MIG switch.

The reader shuts NVML down and ends, which closes every `/dev/nvidia*` that this node's agent had
open.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from gpuvigil.clock import Clock
from gpuvigil.errors import GpuvigilError
from gpuvigil.log import Log

from .reader_supervisor import ReaderSupervisor
from .saved_state import Remembered

log = Log("collector")

LONGEST_SECONDS = 24 * 3600.0
_PATIENCE_SECONDS = 1.9  # the caller gets an answer within two seconds
_SOON_SECONDS = 0.05


class NotReleasedError(GpuvigilError):
    """The driver is still held by a reader that cannot be killed."""


Outcome = Callable[[float | NotReleasedError], None]


class Maintenance:
    """Whether the driver is left alone, and until when; for the main loop."""

    def __init__(self, reader: ReaderSupervisor, known: Remembered, clock: Clock) -> None:
        """Continue a release that an earlier agent was asked for."""
        self._reader = reader
        self._known = known
        self._clock = clock
        self._ends = 0.0
        self._asked = 0.0
        self._waiting: list[Outcome] = []
        until = known.released_until
        left = 0.0 if until is None else (until - clock.now()).total_seconds()
        if left > 0:
            self._ends = clock.monotonic() + min(left, LONGEST_SECONDS)
            reader.release()
        else:
            known.released_until = None

    @property
    def pause_seconds(self) -> float | None:
        """Seconds until `look` is due; None when there is no hurry."""
        if self._waiting:
            return _SOON_SECONDS
        return self._ends - self._clock.monotonic() if self._reader.released else None

    def release(self, seconds: float, answer: Outcome) -> None:
        """Release the driver for `seconds` from now on; `answer` gets how long the release took.

        A release that is under way is given this end.
        """
        self._asked = self._clock.monotonic()
        self._ends = self._asked + seconds
        self._known.released_until = self._clock.now() + timedelta(seconds=seconds)
        self._waiting.append(answer)
        self._reader.release()

    def attach(self) -> bool:
        """End the release now; return false when there is none."""
        if not self._reader.released:
            return False
        log.info("driver is read again")
        self._known.released_until = None
        self._reader.attach()
        return True

    def check(self) -> bool:
        """Do what is due; return true when the driver was released or taken back just now."""
        now = self._clock.monotonic()
        if self._waiting and self._reader.gone:
            log.info("driver is released", seconds=round(self._ends - now, 1))
            self._answer(now - self._asked)
            return True
        if self._waiting and now - self._asked >= _PATIENCE_SECONDS:
            # The GPUs are not released, and no second reader is started anyhow.
            self.attach()
            self._answer(NotReleasedError(_stuck(self._reader.pid)))
            return True
        return self._reader.released and now >= self._ends and self.attach()

    def _answer(self, outcome: float | NotReleasedError) -> None:
        waiting, self._waiting = self._waiting, []
        for tell in waiting:
            tell(outcome)


def _stuck(pid: int | None) -> str:
    held = None if pid is None else len(open_devices(pid))
    return (
        f"not released: the reader (pid {pid}) is stuck in the driver, cannot be killed and holds"
        f" {'?' if held is None else held} descriptors of /dev/nvidia*; reboot the node"
    )


def open_devices(pid: int) -> list[str]:
    """Return the `/dev/nvidia*` files that a process of this machine has open."""
    found = []
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            target = Path(entry.path).readlink()
            if str(target).startswith("/dev/nvidia"):
                found.append(str(target))
    except OSError:
        return found  # it ended meanwhile
    return found
