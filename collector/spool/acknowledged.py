"""Bodies that a store has acknowledged, and may hold in its memory alone.

VictoriaMetrics writes to disk every 5 s (`-inmemoryDataFlushInterval`, its command-line help; 1 s
in versions before it had that flag): what it took since is gone when it is killed, or its machine
loses power. A restarted server shows by the connection, which has to be opened anew.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

from .body import Body

# Twice what the server may hold back.
SECONDS = 10.0
# While a backlog drains, many bodies a second are acknowledged.
MOST_BYTES = 4 * 1024 * 1024


class Acknowledged:
    """The bodies acknowledged in the last seconds; threads share it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._bodies: deque[tuple[float, Body]] = deque()
        self._bytes = 0

    def add(self, body: Body) -> None:
        """Add an acknowledged body, and drop those acknowledged so long ago that they are on disk."""
        with self._mutex:
            now = self._monotonic()
            self._bodies.append((now, body))
            self._bytes += len(body.content)
            while now - self._bodies[0][0] > SECONDS or self._bytes > MOST_BYTES:
                _, old = self._bodies.popleft()
                self._bytes -= len(old.content)
                if not self._bodies:
                    return

    def doubtful(self) -> list[Body]:
        """Return and forget the bodies that a killed server may have lost: to be sent again, once."""
        with self._mutex:
            found = [body for _, body in self._bodies]
            self._bodies.clear()
            self._bytes = 0
            return found
