"""The queue of the agent's main loop, filled by other threads."""

import queue
from collections.abc import Callable

from ..samples.messages import Tick, XidSeen

Work = Callable[[], None]
Message = Tick | XidSeen


class Inbox:
    """The main loop's queue: the main loop takes from it, every other thread puts into it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[int, Message] | Work | None] = queue.SimpleQueue()

    def put(self, work: Work) -> None:
        """Add work that only the main loop may do."""
        self._queue.put(work)

    def wake(self) -> None:
        """Wake the main loop to look at something that has changed."""
        self._queue.put(None)

    def put_message(self, reader: int, message: Message) -> None:
        """Add a reader's message; the number `reader` tells a former reader's messages apart."""
        self._queue.put((reader, message))

    def next(self, seconds: float) -> tuple[int, Message] | Work | None:
        """Return the next item; None when nothing comes for `seconds`, or after `wake`."""
        try:
            return self._queue.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None
