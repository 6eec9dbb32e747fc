"""Bursts split into small slices, so that the event loop stays responsive."""

import asyncio
from collections import deque


class LoopThrottle:
    """Lets `at_a_time` tasks through at each turn of the event loop; others wait for the next.

    An instance belongs to one event loop at a time.
    """

    def __init__(self, at_a_time: int) -> None:
        self._most = self._free = at_a_time
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def step(self) -> None:
        """Return at once, or as soon as the tasks that came before have had their turn."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._free = loop, self._most
            self._waiting.clear()
        if self._free == self._most:
            loop.call_soon(self._turn)
        if self._free:
            self._free -= 1
        else:
            mine = loop.create_future()
            self._waiting.append(mine)
            await mine

    def _turn(self) -> None:
        assert self._loop is not None
        self._free = self._most
        while self._free and self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # cancelled, and gone
                first.set_result(None)
                self._free -= 1
        if self._free < self._most:
            self._loop.call_soon(self._turn)
