"""The queue of audit entries on their way to the hub, so that nobody who signs in waits for the hub."""

import contextlib
import queue
import threading
from collections.abc import Callable

from gpuvigil.clock import Clock
from gpuvigil.errors import HubError
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import Audit, Record

# So many entries wait while the hub is away; further ones are only in the process's log.
MOST_WAITING = 10_000
_RETRY_SECONDS = 2.0
_STOP_SECONDS = 2.0
_AT_ONCE = 500


class AuditTrail:
    """A queue that a thread writes to the hub. `stop` writes what still waits, if the hub answers."""

    def __init__(self, connect: Callable[[], Hub], clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._log = Log("audit")
        self._waiting: queue.Queue[Record] = queue.Queue(MOST_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, entry: Audit) -> None:
        """Queue an entry and write it to the process's log at once."""
        told = {"person": entry.person, "about": entry.about, "address": entry.address}
        self._log.info(entry.deed.value, **{key: value for key, value in told.items() if value})
        try:
            self._waiting.put_nowait(entry.to_record())
        except queue.Full:
            self._log.error("entry not kept: the hub has not taken any for too long")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        with contextlib.closing(self._connect()) as hub:
            while not (self._stop.is_set() and self._waiting.empty()):
                batch = self._next()
                while batch and not self._written(hub, batch):
                    if self._stop.is_set():
                        return
                    self._clock.wait(self._stop, _RETRY_SECONDS)

    def _next(self) -> list[Record]:
        try:
            batch = [self._waiting.get(timeout=0.2)]
        except queue.Empty:
            return []
        while len(batch) < _AT_ONCE and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        return batch

    def _written(self, hub: Hub, batch: list[Record]) -> bool:
        """Return whether the hub took the batch. Entries have IDs, so a retry writes no duplicates."""
        try:
            hub.write_records(batch)
        except HubError:
            return False
        return True
