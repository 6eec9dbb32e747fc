"""Long polling: waiting requests are woken by the commit that they wait for."""

import asyncio
import contextlib
from collections.abc import Collection
from weakref import WeakSet

from gpuvigil.model import RecordKind


class Waiter:
    """A waiting request, with the kinds of records that it waits for."""

    def __init__(self, kinds: Collection[RecordKind]) -> None:
        self.kinds = frozenset(kinds)
        self.woken = asyncio.Event()


class CommitNotifier:
    """Wakes the requests that wait for commits, on one event loop."""

    def __init__(self) -> None:
        # Each waiting request holds its waiter, which is gone with the request.
        self._waiters: WeakSet[Waiter] = WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def notify(self, kinds: Collection[RecordKind] = frozenset(RecordKind)) -> None:
        """Wake the requests that wait for these kinds, as records of them were committed."""
        for waiter in self._waiters:
            if not waiter.kinds.isdisjoint(kinds):
                waiter.woken.set()

    def notify_from_thread(self) -> None:
        """Wake all requests after a commit elsewhere. May be called from any thread."""
        if self._loop is not None:
            # The loop may have ended: then nobody waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.notify)

    def close(self) -> None:
        """End all waiting because the hub stops. May be called from any thread."""
        self.closed = True
        self.notify_from_thread()

    def waiter(self, kinds: Collection[RecordKind]) -> Waiter:
        """Return a waiter; take it before reading the records, so that no later commit is missed."""
        waiter = Waiter(kinds)
        self._waiters.add(waiter)
        return waiter

    async def wait(self, waiter: Waiter, seconds: float) -> None:
        """Wait for the first commit after `waiter` was taken, or until `seconds` have passed."""
        self._loop = asyncio.get_running_loop()
        if self.closed or seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await waiter.woken.wait()
