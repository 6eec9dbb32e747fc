"""The queue of the agent's main loop, filled by other threads."""

import queue
from collections.abc import Callable

from ..samples.messages import Tick, XidSeen

Work = Callable[[], None]
Message = Tick | XidSeen


class Inbox:
    """The main loop takes, every other thread puts."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[int, Message] | Work | None] = queue.SimpleQueue()

    def put(self, work: Work) -> None:
        """Work that only the main loop may do."""
        self._queue.put(work)

    def wake(self) -> None:
        """Something has changed that the main loop should look at."""
        self._queue.put(None)

    def say(self, reader: int, message: Message) -> None:
        """What a reader said; `reader` counts readers, so that a former one's words are known."""
        self._queue.put((reader, message))

    def next(self, seconds: float) -> tuple[int, Message] | Work | None:
        """The next of it; None when nothing comes for `seconds`, or at `wake`."""
        try:
            return self._queue.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None
