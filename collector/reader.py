"""The only process that touches the driver: threads that sweep, and a main thread that never does.

A driver call on a sick GPU may never return. Then one thread is stuck, the other GPUs go on in
other threads, and the main thread keeps reporting to the supervisor which GPUs are silent and for
how long.
"""

import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from gpuvigil import lifeline
from gpuvigil.clock import Clock, SystemClock
from gpuvigil.gpu_identity import Unmeasured

from .nvml import Driver, DriverError, Events, load_library
from .nvml.sweeps import GpuSweep, Patience, Runners
from .processes import cpu_time, memory_trim
from .processes.cpu_time import CallTime
from .samples.messages import CHANGED, LOADED, NO_DRIVER, STARTING, GpuTick, Tick, XidSeen, dump

_COUNT_SECONDS = 5.0  # GPUs that appear are seen within this time
_CLOSE_SECONDS = 1.0  # for the driver to let go, when this process is asked to end
_SHARE_OF_TICK = 0.8  # the longest wait for a sweep, so that ticks stay on time


class Reader:
    """Sweeps all GPUs every tick and writes the results."""

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
        self._first: CallTime | None = None  # the driver's first call, until it has answered
        self._ready = threading.Event()
        self._never = threading.Event()
        self._state = STARTING
        self._driver: Driver | None = None
        self._gpus: tuple[GpuSweep, ...] = ()
        self._runners = Runners(clock)

    def run(self) -> None:
        """Report until the driver turns out to be absent or gone; then the process may end."""
        threading.Thread(target=self._start, name="init", daemon=True).start()
        self._ready.wait(min(self._patience.seconds, self._tick_seconds))
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
                self._clock.wait(self._never, pause)
            else:
                self._ready.wait(pause)

    def _start(self) -> None:
        """Do everything that concerns the driver as a whole, in a thread that may get stuck."""
        load_library()
        self._first = CallTime(self._clock, cpu_time.threads())
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
        self._gpus = tuple(
            GpuSweep(driver, events, index, self._patience, self._clock)
            for index in range(driver.count)
        )
        self._state = LOADED
        self._ready.set()
        self._watch(driver, events)

    def close(self) -> None:
        """Shut the driver down; wait a second at most, since the driver may hang in it."""
        closing = threading.Thread(target=self._close, name="close", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def _close(self) -> None:
        if self._driver is not None:
            self._driver.close()

    def _watch(self, driver: Driver, events: Events | None) -> None:
        """Report Xids, and notice when the driver has other GPUs than at the start."""
        due = self._clock.monotonic() + _COUNT_SECONDS
        while self._state == LOADED:
            if events is None or not self._listen(events, due - self._clock.monotonic()):
                # Some drivers refuse to wait while no GPU is registered; do not busy-loop.
                self._clock.wait(self._never, 1.0)
            if self._clock.monotonic() >= due:
                due = self._clock.monotonic() + _COUNT_SECONDS
                if driver.has_changed():
                    self._state = CHANGED

    def _listen(self, events: Events, seconds: float) -> bool:
        """Wait for the next Xid; return false when the driver cannot be waited for."""
        try:
            seen = events.wait(math.ceil(1000 * max(seconds, 0.0)))
        except DriverError:
            return False
        if seen is not None:
            uuid, xid = seen
            self._write(dump(XidSeen(at=self._clock.now(), uuid=uuid, xid=xid)))
        return True

    def _sweep(self) -> Tick:
        at, start = self._clock.now(), self._clock.monotonic()
        before = cpu_time.threads(states=False)
        gpus = self._gpus if self._ready.is_set() else ()
        patience = min(self._patience.seconds, _SHARE_OF_TICK * self._tick_seconds)
        self._runners.sweep([gpu for gpu in gpus if not gpu.is_under_way], patience, before)
        sweep_seconds = self._clock.monotonic() - start if gpus else None
        tick = self._tick(at, gpus, sweep_seconds)
        return replace(tick, spent_seconds=cpu_time.spent_seconds(before))

    def _tick(self, at: datetime, sweeps: Sequence[GpuSweep], sweep_seconds: float | None) -> Tick:
        waits = any(sweep.is_under_way for sweep in sweeps)
        spent = cpu_time.threads() if waits else None
        stuck = [thread for sweep in sweeps if (thread := sweep.stuck_thread(spent)) is not None]
        gpus = tuple(sweep.tick(spent, stuck) for sweep in sweeps)
        gone = any(gpu.reason is Unmeasured.DRIVER_NOT_LOADED for gpu in gpus)
        return Tick(
            at=at,
            state=NO_DRIVER if gone else self._state,
            driver=None if self._driver is None else self._driver.version,
            gpus=gpus,
            silent_seconds=self._silent_seconds(gpus),
            starting_seconds=self._starting_seconds(),
            sweep_seconds=sweep_seconds,
        )

    def _starting_seconds(self) -> float | None:
        if self._ready.is_set():
            return None
        return 0.0 if self._first is None else self._first.seconds(cpu_time.threads())

    def _silent_seconds(self, gpus: Sequence[GpuTick]) -> float | None:
        """Return how long no call has returned, in seconds; None within the driver's time limit."""
        starting = self._starting_seconds()
        if starting is not None:
            return starting if starting >= self._patience.start_seconds else None
        silences = [gpu.silent_seconds for gpu in gpus if gpu.silent_seconds is not None]
        if not gpus or len(silences) < len(gpus) or min(silences) < self._patience.seconds:
            return None
        return min(silences)


def main(arguments: Sequence[str]) -> int:
    """Report to standard output until the parent ends.

    The supervisor passes four durations in seconds: of a tick, a driver call, the driver's start
    and a slow tick.
    """
    lifeline.hold()
    # No argparse: it would keep half a MiB of memory.
    tick_seconds, driver_seconds, start_seconds, slow_seconds = map(float, arguments)
    memory_trim.settle()
    # Ctrl-C is handled by the supervisor, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    writing = threading.Lock()
    output = _redirect_output()

    def write(message: bytes) -> None:
        with writing:
            while message:
                message = message[os.write(output, message) :]

    patience = Patience(
        seconds=driver_seconds, start_seconds=start_seconds, slow_seconds=slow_seconds
    )
    reader = Reader(write, SystemClock(), tick_seconds, patience)

    def end() -> None:
        reader.close()
        os._exit(0)

    # In a thread, so that the main thread goes on whatever the driver does.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end, daemon=True).start())
    reader.run()
    # Threads may be stuck in the driver, and nothing is left to save.
    os._exit(0)


def _redirect_output() -> int:
    """Return a descriptor of standard output for messages alone.

    What the driver's library prints goes to the log instead.
    """
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output


if __name__ == "__main__":
    main(sys.argv[1:])
