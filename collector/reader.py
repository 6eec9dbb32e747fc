"""The only process that touches the driver: one thread per GPU, and a main thread that never does.

A driver call on a sick GPU may never come back. Then that GPU's thread is stuck, the other GPUs
go on, and the main thread goes on telling the supervisor who is silent, and for how long.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuvigil import lifeline
from gpuvigil.clock import Clock, SystemClock
from gpuvigil.model import GpuIdentity, Unmeasured

from . import frugal
from .nvml import Driver, DriverError, Events, Gpu
from .report import CHANGED, LOADED, NO_DRIVER, STARTING, GpuTick, Tick, XidSeen, dump

_EVENT_WAIT_MILLISECONDS = 1000
_COUNT_SECONDS = 5.0  # GPUs that appear are seen within this time
_CLOSE_SECONDS = 1.0  # for the driver to let go, when this process is asked to end
_SLOW_PLACES = 8  # the slow sweeps of this many GPUs are spread over the slow tick
# A GPU that answers at once is let finish before the next is asked: threads that call the driver at
# the same time spend more on handing Python's lock to each other than on the calls.
_HEAD_START_SECONDS = 0.002
_SHARE_OF_TICK = 0.8  # a sweep is waited for no longer, so that ticks stay on time


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a driver call may take before it counts as not answering.

    The first calls may wake a driver that is not kept loaded, which takes it many seconds.
    """

    seconds: float
    start_seconds: float
    slow_seconds: float = 60.0  # how often what changes rarely is asked again


class GpuThread:
    """Reads one GPU whenever it is asked to, in a thread of its own."""

    def __init__(
        self, driver: Driver, events: Events | None, index: int, patience: Patience, clock: Clock
    ) -> None:
        self.index = index
        self._patience = patience
        self._driver = driver
        self._events = events
        self._clock = clock
        self._changed = threading.Condition()
        self._asked = 0
        self._answered = 0
        self._told = 0
        self._started: float | None = None
        self._gpu: Gpu | None = None
        self._identity: GpuIdentity | None = None
        self._last = GpuTick(index=index)
        self._slow_due: float | None = None
        threading.Thread(target=self._run, name=f"gpu {index}", daemon=True).start()

    def ask(self) -> None:
        """Begin a sweep, unless one is still under way."""
        with self._changed:
            if self._asked == self._answered:
                self._asked += 1
                self._started = self._clock.monotonic()
                self._changed.notify_all()

    def silent_seconds(self) -> float | None:
        """How long the sweep has been under way; None when it came back."""
        with self._changed:
            if self._asked == self._answered or self._started is None:
                return None
            return self._clock.monotonic() - self._started

    def wait(self, seconds: float) -> bool:
        """Wait for the sweep's end; false when it did not come within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._asked == self._answered, seconds)

    def tick(self) -> GpuTick:
        """What this sweep gave, or the last one while it is untold, or that none has come back."""
        silent = self.silent_seconds()
        with self._changed:
            untold = self._told < self._answered
            if silent is None or (untold and silent < self._patience.seconds):
                self._told = self._answered
                return self._last
            if self._answered == 0 and silent < self._patience.start_seconds:
                return GpuTick(index=self.index)
            return GpuTick(index=self.index, identity=self._identity, silent_seconds=silent)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked > self._answered)
            start = self._clock.monotonic()
            result = self._sweep()
            if self._clock.monotonic() - start > self._patience.seconds:
                # Half of these numbers are from before the call that hung.
                result = GpuTick(index=self.index, identity=result.identity, reason=result.reason)
                self._slow_due = None
            with self._changed:
                self._last = result
                self._identity = result.identity
                self._answered = self._asked
                self._changed.notify_all()

    def _sweep(self) -> GpuTick:
        start = self._clock.monotonic()
        try:
            if self._gpu is None:
                self._gpu, self._slow_due = self._find(), None
            slow = self._slow_due is None or start >= self._slow_due
            reading = self._gpu.read(slow=slow)
        except DriverError as error:
            # A GPU that comes back may do so under another handle.
            self._gpu = None
            return GpuTick(index=self.index, identity=self._identity, reason=error.reason)
        if slow:
            self._slow_due = self._next_slow(start)
        return GpuTick(
            index=self.index,
            identity=self._gpu.identity,
            values=reading.values,
            slow=reading.slow,
            links=reading.links,
            migs=reading.migs,
            costs=reading.costs,
            processes=reading.processes,
            read_seconds=self._clock.monotonic() - start,
        )

    def _next_slow(self, now: float) -> float:
        """When this GPU's next slow sweep is due: not when all the others' are."""
        every = self._patience.slow_seconds
        if self._slow_due is not None:
            return max(self._slow_due + every, now)
        return now + every * (1 + self.index % _SLOW_PLACES) / _SLOW_PLACES

    def _find(self) -> Gpu:
        gpu = self._driver.gpu(self.index)
        self._identity = gpu.identity
        if self._events is not None:
            try:
                self._events.register(gpu)
            except DriverError as error:
                if error.reason is Unmeasured.LOST:
                    raise
        return gpu


class Reader:
    """Sweeps all GPUs every tick and writes what they say."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        clock: Clock,
        tick_seconds: float,
        patience: Patience,
    ) -> None:
        self._write = write
        self._clock = clock
        self._tick_seconds = tick_seconds
        self._patience = patience
        self._began = clock.monotonic()
        self._ready = threading.Event()
        self._state = STARTING
        self._driver: Driver | None = None
        self._threads: tuple[GpuThread, ...] = ()

    def run(self) -> None:
        """Report until the driver turns out to be absent or gone; then the process may end."""
        threading.Thread(target=self._start, name="init", daemon=True).start()
        self._ready.wait(self._patience.seconds)
        due = self._clock.monotonic()
        while True:
            tick = self._sweep()
            self._write(dump(tick))
            if tick.state not in {LOADED, STARTING}:
                return
            due = max(due + self._tick_seconds, self._clock.monotonic())
            # While the driver starts, its first sweep is not kept waiting for the next tick.
            pause = due - self._clock.monotonic()
            if self._ready.is_set():
                self._clock.wait(threading.Event(), pause)
            else:
                self._ready.wait(pause)

    def _start(self) -> None:
        """Everything that speaks to the driver as a whole, in a thread that may get stuck."""
        try:
            driver = Driver()
        except DriverError as error:
            absent = error.reason is Unmeasured.DRIVER_NOT_LOADED
            self._state = NO_DRIVER if absent else str(error)
            self._ready.set()
            return
        try:
            events: Events | None = Events()
        except DriverError:
            events = None
        self._driver = driver
        self._threads = tuple(
            GpuThread(driver, events, index, self._patience, self._clock)
            for index in range(driver.count)
        )
        self._state = LOADED
        self._ready.set()
        self._watch(driver, events)

    def close(self) -> None:
        """Let the driver go; waits no longer than a second, since the driver may hang in it."""
        closing = threading.Thread(target=self._close, name="close", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def _close(self) -> None:
        if self._driver is not None:
            self._driver.close()

    def _watch(self, driver: Driver, events: Events | None) -> None:
        """Tell of Xids, and see when the driver has other GPUs than at the start."""
        counted = self._clock.monotonic()
        while self._state == LOADED:
            if events is None or not self._listen(events):
                # Some drivers refuse to wait while no GPU is registered; do not turn in circles.
                self._clock.wait(threading.Event(), 1.0)
            if self._clock.monotonic() - counted >= _COUNT_SECONDS:
                counted = self._clock.monotonic()
                if driver.has_changed():
                    self._state = CHANGED

    def _listen(self, events: Events) -> bool:
        """Wait for the next Xid; false when the driver cannot be waited for."""
        try:
            seen = events.wait(_EVENT_WAIT_MILLISECONDS)
        except DriverError:
            return False
        if seen is not None:
            uuid, xid = seen
            self._write(dump(XidSeen(at=self._clock.now(), uuid=uuid, xid=xid)))
        return True

    def _sweep(self) -> Tick:
        at, start = self._clock.now(), self._clock.monotonic()
        threads = self._threads if self._ready.is_set() else ()
        patience = min(self._patience.seconds, _SHARE_OF_TICK * self._tick_seconds)
        stuck = {thread for thread in threads if thread.silent_seconds() is not None}
        for thread in threads:
            thread.ask()
            if thread not in stuck:
                thread.wait(_HEAD_START_SECONDS)
        for thread in threads:
            if thread not in stuck:
                thread.wait(max(start + patience - self._clock.monotonic(), 0.0))
        sweep_seconds = self._clock.monotonic() - start if threads else None
        return self._tick(at, threads, sweep_seconds)

    def _tick(
        self, at: datetime, threads: Sequence[GpuThread], sweep_seconds: float | None
    ) -> Tick:
        gpus = tuple(thread.tick() for thread in threads)
        gone = any(gpu.reason is Unmeasured.DRIVER_NOT_LOADED for gpu in gpus)
        return Tick(
            at=at,
            state=NO_DRIVER if gone else self._state,
            driver=None if self._driver is None else self._driver.version,
            gpus=gpus,
            silent_seconds=self._silent_seconds(gpus),
            sweep_seconds=sweep_seconds,
        )

    def _silent_seconds(self, gpus: Sequence[GpuTick]) -> float | None:
        """How long no call has come back, once that is longer than a driver may take."""
        if not self._ready.is_set():
            silent = self._clock.monotonic() - self._began
            return silent if silent >= self._patience.start_seconds else None
        silences = [gpu.silent_seconds for gpu in gpus if gpu.silent_seconds is not None]
        if not gpus or len(silences) < len(gpus) or min(silences) < self._patience.seconds:
            return None
        return min(silences)


def main(arguments: Sequence[str]) -> int:
    """Report to standard output until the parent ends; started by the supervisor."""
    lifeline.hold()
    parser = argparse.ArgumentParser(prog="gpuvigil read")
    parser.add_argument("--tick-seconds", type=float, default=10.0)
    parser.add_argument("--driver-timeout-seconds", type=float, default=2.0)
    parser.add_argument("--start-timeout-seconds", type=float, default=15.0)
    parser.add_argument("--slow-seconds", type=float, default=60.0)
    chosen = parser.parse_args(arguments)
    frugal.settle()
    # Ctrl-C is the supervisor's affair, who ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    writing = threading.Lock()
    output = sys.stdout.fileno()

    def write(line: bytes) -> None:
        with writing:
            while line:
                line = line[os.write(output, line) :]

    patience = Patience(
        seconds=chosen.driver_timeout_seconds,
        start_seconds=chosen.start_timeout_seconds,
        slow_seconds=chosen.slow_seconds,
    )
    reader = Reader(write, SystemClock(), chosen.tick_seconds, patience)

    def end() -> None:
        reader.close()
        os._exit(0)

    # In a thread, so that the main thread goes on whatever the driver does.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end, daemon=True).start())
    reader.run()
    # Threads may be stuck in the driver, and nothing is left to save.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
