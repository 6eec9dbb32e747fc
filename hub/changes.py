"""The long poll: requests that wait are woken by the commit they wait for."""

import asyncio
import contextlib


class News:
    """Wakes everybody who waits, on one event loop."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def tell(self) -> None:
        """Something was committed."""
        self._next.set()
        self._next = asyncio.Event()

    def heard(self) -> None:
        """Something was committed elsewhere. May be called from any thread."""
        if self._loop is not None:
            # The loop may have ended: then nobody waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.tell)

    def close(self) -> None:
        """The hub stops: nobody waits any longer. May be called from any thread."""
        self.closed = True
        self.heard()

    def ticket(self) -> asyncio.Event:
        """Taken before a look at the records, so that no commit after the look is missed."""
        return self._next

    async def wait(self, ticket: asyncio.Event, seconds: float) -> None:
        """Until the first commit after `ticket` was taken, or until `seconds` have passed."""
        self._loop = asyncio.get_running_loop()
        if self.closed or seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ticket.wait()
