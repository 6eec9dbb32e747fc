"""How far the programs on this node's GPUs say that they are: a small file per process.

A rank that wants its hangs to be seen leaves a file named by its process id, with one line: the number of its last step and
the 99th percentile of its steps' seconds, as `1234 0.82`. The file's time of change is when that
step ended. It counts only while the process runs on a GPU, and only when both belong to the same
user, so that nobody can speak for somebody else's job, and when it was written since the process
began: what a rank that was killed has left behind is not another one's with the same number.

Everybody may write to the directory: nobody lists it, or a million files would stop the collector.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from gpuvigil.clock import EPOCH

_MOST_BYTES = 256
# Times of files are as coarse as the kernel's tick, and the clock may be put right by a little.
_SLACK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the ranks on one GPU say; of several the one whose last step is longest ago."""

    step: int
    age_seconds: float  # since its last step ended
    p99_seconds: float | None  # of its steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A file as it was found last: how old it was when it had changed, and when that was."""

    written: int  # its time of change, in nanoseconds
    age_seconds: float
    since: float  # monotonic
    looked: float  # monotonic


class Steps:
    """The step files of one directory."""

    def __init__(
        self,
        directory: Path,
        proc_root: Path,
        start_ticks: Callable[[int], int | None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start_ticks`: when a process started, in clock ticks since boot; None: it is not there."""
        self._monotonic = monotonic
        self._known: dict[int, _Known] = {}
        self._directory, self._proc, self._start_ticks = directory, proc_root, start_ticks
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def read(self, processes: Mapping[str, Iterable[int]], now: datetime) -> dict[str, Progress]:
        """By GPU (UUID), for the processes that are on it; GPUs of which nobody tells are not there."""
        found: dict[str, Progress] = {}
        pids_now = {pid for pids in processes.values() for pid in pids}
        self._known = {pid: known for pid, known in self._known.items() if pid in pids_now}
        for uuid, pids in processes.items():
            said = [one for pid in sorted(set(pids)) if (one := self._of(pid, now)) is not None]
            if said:
                found[uuid] = max(said, key=lambda one: (one.age_seconds, one.step))
        return found

    def _of(self, pid: int, now: datetime) -> Progress | None:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(f"{self._directory}/{pid}", flags)
        except OSError:
            return None
        try:
            about = os.fstat(file)
            owner = os.stat(f"{self._proc}/{pid}").st_uid
            if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
                return None
            age = self._age_seconds(pid, about.st_mtime_ns, now)
            if age > self._ran_seconds(pid) + _SLACK_SECONDS:
                return None
            text = os.read(file, _MOST_BYTES).decode(errors="replace")
        except OSError:
            return None
        finally:
            os.close(file)
        return _parse(text, age)

    def _age_seconds(self, pid: int, written: int, now: datetime) -> float:
        """How long ago a file was written; while it stays as it is no clock that is set counts.

        One that changed since it was looked at is no older than that look.
        """
        known, at = self._known.get(pid), self._monotonic()
        if known is not None and known.written == written:
            self._known[pid] = replace(known, looked=at)
            return known.age_seconds + at - known.since
        age = (now - EPOCH).total_seconds() - written / 1e9
        if known is not None:
            age = min(age, at - known.looked)
        age = max(age, 0.0)
        self._known[pid] = _Known(written=written, age_seconds=age, since=at, looked=at)
        return age

    def _ran_seconds(self, pid: int) -> float:
        """How long the process has run; nothing when it is not there any more."""
        ticks = self._start_ticks(pid)
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        return 0.0 if ticks is None else up - ticks / self._ticks_per_second


def _parse(text: str, age_seconds: float) -> Progress | None:
    words = text.split()
    try:
        step = int(words[0])
        seconds = float(words[1]) if len(words) > 1 else None
    except (IndexError, ValueError):
        return None
    if not 0 <= step < 2**63 or (seconds is not None and not 0.0 <= seconds < 1e9):
        return None
    return Progress(step=step, age_seconds=age_seconds, p99_seconds=seconds)
