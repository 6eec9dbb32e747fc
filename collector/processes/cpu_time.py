"""How long a call itself had: on a busy machine most of the time may pass in waiting for a core.

The kernel counts for each thread how long it ran and how long it was ready to run and had no core
(`/proc/PID/task/TID/schedstat`: Linux kernel, Documentation/scheduler/sched-stats.rst). A driver
that hangs keeps its caller blocked, or busy; it does not keep it waiting for a core.
"""

import os
import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpuvigil.clock import Clock

_NANOSECONDS = 1e9
_MOST_BYTES = 512  # of a thread's file: all that is used stands at its beginning


class Spent(NamedTuple):
    """What one thread has spent since it began, in seconds.

    Not a dataclass: a child that starts every minute must not import what that takes.
    """

    ran_seconds: float = 0.0
    waited_seconds: float = 0.0  # ready to run, without a core
    runnable: bool = (
        False  # now: it runs, or waits for a core, a wait that is counted only once it gets one
    )

    @property
    def seconds(self) -> float:
        """The seconds on a core or waiting for one."""
        return self.ran_seconds + self.waited_seconds


Threads = Mapping[int, Spent]  # by thread id


def threads(pid: int | None = None, *, states: bool = True) -> Threads | None:
    """Return the threads of a process, by default this one; None where the kernel does not tell.

    The calling thread counts as not runnable in its own process: it waits for nothing. Without
    `states`, which take as long again, no thread does: enough for what was spent before a call.
    """
    folder = f"/proc/{'self' if pid is None else pid}/task"
    asking = threading.get_native_id() if states and pid is None else 0
    found: dict[int, Spent] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for name in names:
        thread = int(name)
        spent = _spent(f"{folder}/{name}", state=states and thread != asking)
        if spent is not None:
            found[thread] = spent
    return found or None


def _spent(folder: str, *, state: bool) -> Spent | None:
    """Return None for a thread that has ended, or where the kernel was built without these counts."""
    try:
        # Read the state first: a thread that starts to wait after that has all earlier time counted.
        runnable = state and _state(folder) == b"R"
        ran, waited, *_ = _content(f"{folder}/schedstat").split()
        return Spent(
            ran_seconds=int(ran) / _NANOSECONDS,
            waited_seconds=int(waited) / _NANOSECONDS,
            runnable=runnable,
        )
    except (OSError, ValueError):
        return None


def _state(folder: str) -> bytes:
    return _content(f"{folder}/stat").rpartition(b")")[2].split()[0]


def _content(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _MOST_BYTES)
    finally:
        os.close(file)


def active_seconds(seconds: float, thread: int, before: Threads, now: Threads) -> float:
    """Return how many of the last `seconds` the thread ran or was blocked from outside its process.

    A lower bound: what other threads of the process spent since `before` is subtracted, since they
    may have held Python's lock. Where one is runnable now, only the time that `thread` ran is
    known.
    """
    own, own_before = now.get(thread, Spent()), before.get(thread, Spent())
    ran = max(own.ran_seconds - own_before.ran_seconds, 0.0)
    if any(spent.runnable for spent in now.values()):
        return min(ran, seconds)
    others = sum(
        spent.seconds - before.get(other, Spent()).seconds
        for other, spent in now.items()
        if other != thread
    )
    waited = own.waited_seconds - own_before.waited_seconds
    return max(seconds - others - waited, min(ran, seconds), 0.0)


def spent_seconds(of: Threads | None) -> float:
    """Return what all threads of a process have spent, in seconds."""
    return 0.0 if of is None else sum(spent.seconds for spent in of.values())


class CallTime:
    """How long a thread's call has been under way, without the machine's delays.

    Waiting for a core is such a delay. Where the kernel does not count it, all the time is the
    call's. For several threads: one calls, others look.
    """

    def __init__(self, clock: "Clock", before: Threads | None) -> None:
        """Start the call now, in this thread; `before` is of this moment or earlier."""
        self._clock = clock
        self._before = before
        self.thread = threading.get_native_id()
        self._at = clock.monotonic()
        self._active_seconds = 0.0

    def seconds(self, now: Threads | None, stuck: Collection[int] = ()) -> float:
        """Return a lower bound of the call's time; `now` is what this process's threads have spent.

        `stuck` are threads that are in calls of their own all the time, and so have held nobody up.
        """
        passed = self._clock.monotonic() - self._at
        if self._before is None or now is None:
            return passed
        others = {t: spent for t, spent in now.items() if t == self.thread or t not in stuck}
        self._active_seconds = max(
            self._active_seconds, active_seconds(passed, self.thread, self._before, others)
        )
        return self._active_seconds

    def restart(self, now: Threads | None) -> None:
        """Start anew: until now another call was under way."""
        self._at, self._before, self._active_seconds = self._clock.monotonic(), now, 0.0

    @property
    def passed(self) -> float:
        """The seconds on the clock, including waits for a core."""
        return self._clock.monotonic() - self._at


def quiet_seconds(pid: int, seconds: float, spent_before: float) -> float:
    """Return in how many of the last `seconds` no thread of a process ran or waited for a core.

    A lower bound. `spent_before` is what its threads had spent at the start. 0 where a thread is
    runnable now, as it is not known since when; all of them where the kernel does not count.
    """
    now = threads(pid)
    if now is None:
        return seconds
    if any(spent.runnable for spent in now.values()):
        return 0.0
    return max(seconds - (spent_seconds(now) - spent_before), 0.0)
