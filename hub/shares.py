"""What all who come share and none can use up alone: memory, turns at work, and an answer."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

_T = TypeVar("_T")


class Shares:
    """Bytes that many hold, bounded together; any thread may call.

    Whoever holds some gets more only while at least as much as it then holds would be left for
    others: alone it comes to a half, of two each to a third. Who holds nothing gets what is free.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[Hashable, int] = {}
        self._lock = threading.Lock()
        self.bytes = 0

    def fits(self, who: Hashable, size: int) -> bool:
        """Whether `who` may hold `size` bytes more; one thing of any size while nobody holds any.

        Another may take them before `who` does.
        """
        with self._lock:
            return self._fits(who, size)

    def take(self, who: Hashable, size: int) -> bool:
        """Hold `size` bytes more if that fits; whether it did."""
        with self._lock:
            if not self._fits(who, size):
                return False
            self.bytes += size
            self._held[who] = self._held.get(who, 0) + size
            return True

    def give_back(self, who: Hashable, size: int) -> None:
        with self._lock:
            self.bytes -= size
            left = self._held.pop(who, 0) - size
            if left:
                self._held[who] = left

    def _fits(self, who: Hashable, size: int) -> bool:
        if not self.bytes:
            return True
        left = self._most_bytes - self.bytes - size
        held = self._held.get(who, 0)
        return left >= 0 and (not held or held + size <= left)


class Allowance:
    """So much per sender at once, and as much again over `seconds`: what is used grows back."""

    def __init__(self, most: float, seconds: float) -> None:
        self._most = most
        self._per_second = most / seconds
        self._used: dict[Hashable, tuple[float, float]] = {}  # how much, and when that was

    def allows(self, who: Hashable, amount: float, now: float) -> bool:
        """Whether `who` may use `amount` more; one thing of any size when it has used none."""
        used = self._now(who, now)
        return not used or used + amount <= self._most

    def use(self, who: Hashable, amount: float, now: float) -> None:
        self._used[who] = self._now(who, now) + amount, now

    def _now(self, who: Hashable, now: float) -> float:
        used, at = self._used.get(who, (0.0, now))
        return max(used - (now - at) * self._per_second, 0.0)


class Once(Generic[_T]):
    """Work in a thread, once at a time: whoever asks while it is done gets the same answer."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._running: asyncio.Future[_T] | None = None

    async def __call__(self) -> _T:
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(run_in_threadpool(self._work))
        # Who no longer waits takes it from nobody.
        return await asyncio.shield(self._running)


class Turns:
    """So many work at a time; of those who wait, each sender's first comes before anybody's next.

    It belongs to one event loop.
    """

    def __init__(self, at_a_time: int) -> None:
        self._free = at_a_time
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, who: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the end."""
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
                self._pass_on()  # called, and gone at the same moment
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
