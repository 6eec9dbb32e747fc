"""The agent's kernel log: read by a thread of its own, handled by the main loop.

A report names a GPU by its PCI address. At a node's first start it is not yet known which GPU is
where, so reports about an unknown address wait for that, a few seconds at most. The thread waits
with them, so that nothing counts as handled before it is safe.
"""

import threading
from collections.abc import Callable, Sequence

from gpuvigil.clock import Clock
from gpuvigil.model import Event

from ..kernel_log.event_book import KernelBook
from ..sensors.kernel_log import Batch, KernelLog, Source
from .inbox import Work

_STOP_SECONDS = 1.0  # how soon the thread notices that it must stop
_UNKNOWN_SECONDS = 5.0  # for the driver to say which GPUs there are


class KernelLogListener:
    """Hands batches of the kernel log to the book; everything but its thread runs in the main loop."""

    def __init__(
        self,
        book: KernelBook,
        clock: Clock,
        post: Callable[[Work], None],
        record: Callable[[Sequence[Event]], None],
    ) -> None:
        """Set up the listener: `post` lets the main loop do work, `record` keeps events."""
        self._book = book
        self._clock = clock
        self._post = post
        self._record = record
        self._began = clock.monotonic()
        self._settled = False
        self._waiting: tuple[Batch, threading.Event] | None = None

    def listen(self, source: Source, stop: threading.Event) -> None:
        """Read the log until `stop`, from the position where an earlier process ended."""

        def deliver(batch: Batch) -> None:
            taken = threading.Event()
            self._post(lambda: self._receive(batch, taken))
            while not taken.wait(_STOP_SECONDS) and not stop.is_set():
                pass

        kernel_log = KernelLog(source, self._book.position, deliver, self._clock)
        threading.Thread(
            target=kernel_log.run, args=(stop,), name="kernel log", daemon=True
        ).start()

    def settle(self) -> None:
        """Note that all GPUs of the node are known, or that there are none to know."""
        self._settled = True

    def flush_due(self) -> None:
        """Record what is due: repeated reports, and reports that have waited for their GPU."""
        self.record(self._book.due())
        if self._waiting is not None and self._may_record(self._waiting[0]):
            batch, taken = self._waiting
            self._waiting = None
            self._ingest(batch, taken)

    def record(self, events: Sequence[Event]) -> None:
        """Record events of the kernel log and NVML; save the book, so that each is recorded once."""
        if events:
            self._record(events)
            self._book.save()

    def _receive(self, batch: Batch, recorded: threading.Event) -> None:
        if self._may_record(batch):
            self._ingest(batch, recorded)
        else:
            self._waiting = batch, recorded

    def _may_record(self, batch: Batch) -> bool:
        late = self._clock.monotonic() - self._began >= _UNKNOWN_SECONDS
        return self._settled or late or self._book.knows(batch)

    def _ingest(self, batch: Batch, recorded: threading.Event) -> None:
        events = self._book.ingest(batch)
        self.record(events)
        if not events:
            self._book.save()
        recorded.set()
