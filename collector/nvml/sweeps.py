"""Sweeps over GPUs, in as few threads as possible: a call that hangs holds one of them.

A GPU that answers at once is finished before the next is begun. Threads that call the driver at the
same time spend more on passing Python's lock to each other than on the calls. So a second thread
starts only when the first makes no headway, and so on.
"""

import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gpuvigil.clock import Clock
from gpuvigil.gpu_identity import GpuIdentity, Unmeasured

from ..processes import cpu_time
from ..processes.cpu_time import CallTime, Threads
from ..samples.messages import GpuTick
from . import Driver, DriverError, Events, Gpu

# Values that rarely change are read this often: in every tick of ten seconds, though ticks vary.
_LASTING_SECONDS = 9.5
_SLOW_PLACES = 8  # the slow sweeps of this many GPUs are spread over the slow tick
_NO_HEADWAY_SECONDS = 0.005  # when no GPU is finished for this long, another thread takes the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a driver call may take before it counts as not answering.

    The first calls may wake a driver that is not kept loaded, which takes it many seconds.
    """

    seconds: float
    start_seconds: float
    slow_seconds: float = 60.0  # how often rarely changing values are read again


class GpuSweep:
    """Reads one GPU, one sweep at a time; only `sweep` may block, in whatever thread runs it."""

    def __init__(
        self, driver: Driver, events: Events | None, index: int, patience: Patience, clock: Clock
    ) -> None:
        self.index = index
        self._patience = patience
        self._driver = driver
        self._events = events
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = 0
        self._answered = 0
        self._reported = 0
        self._before: Threads | None = None
        self._call: CallTime | None = None
        self._made = 0  # calls that had returned at the last look
        self._gpu: Gpu | None = None
        self._identity: GpuIdentity | None = None
        self._last = GpuTick(index=index)
        self._slow_due: float | None = None
        self._lasting_due = 0.0

    def ask(self, before: Threads | None = None) -> None:
        """Request a sweep: `sweep` must follow. Not to be called while one is under way.

        `before` is the CPU time that the threads of this process have spent by now.
        """
        with self._lock:
            self._asked += 1
            self._before, self._call, self._made = before, None, self._calls_made

    def sweep(self) -> None:
        """Make the requested sweep; may block for as long as the driver likes."""
        call = CallTime(self._clock, self._before)
        with self._lock:
            self._call = call
        result = self._sweep()
        patience = self._patience.seconds
        if call.passed > patience and call.seconds(cpu_time.threads()) > patience:
            # Half of these values are from before the call that hung; only the costs are true.
            result = GpuTick(
                index=result.index,
                identity=result.identity,
                reason=result.reason,
                costs=result.costs,
            )
            self._slow_due = None
        with self._lock:
            if self._reported < self._answered:
                result = _with_untold(self._last, result)
            self._last = result
            self._identity = result.identity
            self._answered = self._asked

    @property
    def is_under_way(self) -> bool:
        """Whether a requested sweep has not returned yet."""
        with self._lock:
            return self._asked != self._answered

    @property
    def _calls_made(self) -> int:
        return 0 if self._gpu is None else self._gpu.calls_made

    def stuck_thread(self, now: Threads | None) -> int | None:
        """Return the thread of a sweep without a returned call since the last look; else None.

        To be called once a tick: for a sweep that makes headway, silence is measured anew.
        """
        with self._lock:
            if self._asked == self._answered or self._call is None:
                return None
            before, self._made = self._made, self._calls_made
            if before == self._made:
                return self._call.thread
            self._call.restart(now)
            return None

    def _silent_seconds(self, now: Threads | None, stuck: Collection[int]) -> float | None:
        """Return how long the driver has had for the call under way; None when all have returned.

        0 for a sweep that no thread has begun yet.
        """
        with self._lock:
            if self._asked == self._answered:
                return None
            return 0.0 if self._call is None else self._call.seconds(now, stuck)

    def tick(self, now: Threads | None = None, stuck: Collection[int] = ()) -> GpuTick:
        """Return this sweep's result, or the last unreported one, or that no call has returned.

        `now` is the CPU time that this process's threads have spent, `stuck` are those that `look`
        gave.
        """
        silent = self._silent_seconds(now, stuck)
        with self._lock:
            untold = self._reported < self._answered
            if silent is None or (untold and silent < self._patience.seconds):
                self._reported = self._answered
                return self._last
            if self._answered == 0 and silent < self._patience.start_seconds:
                return GpuTick(index=self.index)
            return GpuTick(index=self.index, identity=self._identity, silent_seconds=silent)

    def _sweep(self) -> GpuTick:
        start = self._clock.monotonic()
        try:
            if self._gpu is None:
                self._gpu, self._slow_due = self._find(), None
            slow = self._slow_due is None or start >= self._slow_due
            lasting = slow or start >= self._lasting_due
            reading = self._gpu.read(slow=slow, lasting=lasting)
        except DriverError as error:
            # A GPU that comes back may do so under another handle.
            self._gpu = None
            return GpuTick(index=self.index, identity=self._identity, reason=error.reason)
        if slow:
            self._slow_due = self._next_slow(start)
        if lasting:
            self._lasting_due = start + _LASTING_SECONDS
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
        """Return when this GPU's next slow sweep is due, staggered against the other GPUs'."""
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


def _with_untold(last: GpuTick, result: GpuTick) -> GpuTick:
    """Return the newer result, with the slow tick's values of the older, unreported one."""
    if result.values is None:
        return result
    return replace(
        result,
        slow=last.slow if result.slow is None else result.slow,
        links=last.links if result.links is None else result.links,
        costs=last.costs if result.costs is None else result.costs,
    )


class Runners:
    """The sweeping threads; an idle one waits for the next batch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._idle: deque[_Runner] = deque()

    def sweep(self, gpus: Sequence[GpuSweep], seconds: float, spent: Threads | None = None) -> None:
        """Sweep all GPUs; return when that is done, at the latest after `seconds`.

        Unfinished sweeps go on after that, each in a thread of its own. `spent` is the CPU time
        that the threads of this process have spent by now.
        """
        if not gpus:
            return
        for gpu in gpus:
            gpu.ask(spent)
        batch = _Batch(gpus)
        until = self._clock.monotonic() + seconds
        self._begin(batch)
        waiting = len(batch.pending)
        while (left := until - self._clock.monotonic()) > 0.0:
            if batch.finished.acquire(timeout=min(left, _NO_HEADWAY_SECONDS) if waiting else left):
                return
            before, waiting = waiting, len(batch.pending)
            if waiting and waiting == before:
                self._begin(batch)
        for _ in range(len(batch.pending)):
            self._begin(batch)

    def _begin(self, batch: "_Batch") -> None:
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = _Runner(self._idle)
        runner.begin(batch)


class _Batch:
    """The GPUs of one tick; the lock `finished` is released once all of them are done."""

    def __init__(self, gpus: Sequence[GpuSweep]) -> None:
        self.pending = deque(gpus)
        self.finished = threading.Lock()
        self.finished.acquire()
        self._left = len(gpus)
        self._lock = threading.Lock()

    def work(self) -> bool:
        """Sweep GPUs that no thread has begun; return true when this finishes the batch."""
        last = False
        while True:
            try:
                gpu = self.pending.popleft()
            except IndexError:
                return last
            gpu.sweep()
            with self._lock:
                self._left -= 1
                last = self._left == 0


class _Runner:
    """One thread, woken by a bare lock: a condition variable costs several times as much."""

    def __init__(self, idle: "deque[_Runner]") -> None:
        self._idle = idle
        self._batch: _Batch | None = None
        self._wanted = threading.Lock()
        self._wanted.acquire()
        threading.Thread(target=self._run, name="sweep", daemon=True).start()

    def begin(self, batch: _Batch) -> None:
        """Work on this batch; only while idle."""
        self._batch = batch
        self._wanted.release()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            batch = self._batch
            if batch is None:
                continue
            last = batch.work()
            self._batch = None
            self._idle.append(self)
            if last:
                batch.finished.release()
