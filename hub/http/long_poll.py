"""Long polling: waiting requests are woken by the commit that they wait for."""

import asyncio
import contextlib
from collections.abc import Collection
from weakref import WeakSet

from gpuvigil.model import RecordKind


class Ticket:
    """A waiting request, with the kinds of records that it waits for."""

    def __init__(self, kinds: Collection[RecordKind]) -> None:
        self.kinds = frozenset(kinds)
        self.told = asyncio.Event()


class News:
    """Wakes the requests that wait for commits, on one event loop."""

    def __init__(self) -> None:
        # Each waiting request holds its ticket, which is gone with the request.
        self._tickets: WeakSet[Ticket] = WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def tell(self, kinds: Collection[RecordKind] = frozenset(RecordKind)) -> None:
        """Wake the requests that wait for these kinds, as records of them were committed."""
        for ticket in self._tickets:
            if not ticket.kinds.isdisjoint(kinds):
                ticket.told.set()

    def heard(self) -> None:
        """Wake all requests after a commit elsewhere. May be called from any thread."""
        if self._loop is not None:
            # The loop may have ended: then nobody waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.tell)

    def close(self) -> None:
        """End all waiting because the hub stops. May be called from any thread."""
        self.closed = True
        self.heard()

    def ticket(self, kinds: Collection[RecordKind]) -> Ticket:
        """Return a ticket; take it before reading the records, so that no later commit is missed."""
        ticket = Ticket(kinds)
        self._tickets.add(ticket)
        return ticket

    async def wait(self, ticket: Ticket, seconds: float) -> None:
        """Wait for the first commit after `ticket` was taken, or until `seconds` have passed."""
        self._loop = asyncio.get_running_loop()
        if self.closed or seconds <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ticket.told.wait()
