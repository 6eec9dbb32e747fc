"""Limits that all clients share: rates, turns at work, and answers."""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

_T = TypeVar("_T")


class Cooldown:
    """Limits how often a repeated event is reported; times are those of a monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began_at = -math.inf

    def is_over(self, now: float) -> bool:
        """Return whether the event may be reported at `now`; if so, the cooldown starts again."""
        if now - self._began_at < self._seconds:
            return False
        self._began_at = now
        return True


class Allowance:
    """A rate limit per sender: `most` at once, and what is used grows back over `seconds`."""

    def __init__(self, most: float, seconds: float) -> None:
        self._most = most
        self._per_second = most / seconds
        self._used: dict[Hashable, tuple[float, float]] = {}  # how much, and when that was

    def allows(self, who: Hashable, amount: float, now: float) -> bool:
        """Return whether `who` may use `amount` more; any amount when it has used none."""
        used = self._now(who, now)
        return not used or used + amount <= self._most

    def use(self, who: Hashable, amount: float, now: float) -> None:
        self._used[who] = self._now(who, now) + amount, now

    def _now(self, who: Hashable, now: float) -> float:
        used, at = self._used.get(who, (0.0, now))
        return max(used - (now - at) * self._per_second, 0.0)


class SharedRun(Generic[_T]):
    """Runs work in a thread, once at a time: whoever asks during a run gets the same result."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._running: asyncio.Future[_T] | None = None

    async def __call__(self) -> _T:
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(run_in_threadpool(self._work))
        # A caller that is cancelled must not cancel the run for the others.
        return await asyncio.shield(self._running)


class FairQueue:
    """Lets `at_a_time` requests work at once; of those that wait, senders take turns.

    An instance belongs to one event loop.
    """

    def __init__(self, at_a_time: int) -> None:
        self._free = at_a_time
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, who: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and hold it until the context ends."""
        if self._free:
            self._free -= 1
        else:
            await self._called(who)
        try:
            yield
        finally:
            self._pass_on()

    async def _called(self, who: Hashable) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._pass_on()  # given the turn and cancelled at the same moment
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            who, queue = self._waiting.popitem(last=False)
            first = queue.popleft()
            if queue:
                self._waiting[who] = queue
            if not first.done():
                first.set_result(None)
                return
        self._free += 1
