"""Retention of telemetry in a thread of its own: sealed by the hour, merged by the day, expired."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from gpuvigil.clock import Clock, from_ns, to_ns, to_text
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from gpuvigil.log import Log

from ..embedded import Embedded, is_crowded
from .counters import Counters

T = TypeVar("T")

_LOG = Log("hub")

_PASS_SECONDS = 60.0


class Retention:
    """Applies `hot_hours`, `telemetry_days`, `rollup_days` and `store_bytes` every minute."""

    def __init__(
        self, store: Embedded, settings: HubSettings, clock: Clock, counters: Counters
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._crowded = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and interrupt its work; the next start goes on with it."""
        self._stopping.set()
        self._store.stop_retention()
        self._thread.join()

    def apply(self) -> None:
        """Run one pass. A step that fails is logged, stops no other, and is retried in the next."""
        settings, now = self._settings, self._clock.now()
        hot_ns = round(settings.hot_hours * 3_600e9)
        lines_before_ns = to_ns(now - timedelta(days=settings.telemetry_days))
        rolled_before_ns = to_ns(now - timedelta(days=settings.rollup_days))
        self._tried("expiring", lambda: self._store.expire(lines_before_ns, rolled_before_ns))
        self._tried("making room", self.make_room)
        sealed = self._tried("sealing", lambda: self._store.seal(to_ns(now), hot_ns))
        joined = self._tried("joining", lambda: self._store.join(to_ns(now), hot_ns))
        if sealed or joined:
            _LOG.info("sealed", hours=sealed or 0, days_joined=joined or 0)

    def _tried(self, what: str, work: Callable[[], T]) -> T | None:
        """Return the result of the work; None when it failed, or the hub stops."""
        if self._stopping.is_set():
            return None
        try:
            return work()
        except StoreError as error:
            if not self._stopping.is_set():
                self._counters.failed_retention.inc()
                _LOG.error("retention failed", at=what, error=str(error))
            return None

    def make_room(self) -> None:
        """Drop the oldest sealed telemetry of a full store; log that, and if it helps little."""
        most = self._settings.store_bytes
        gone = self._store.shrink(most)
        self._warn_if_crowded(most)
        if gone.until_ns is None:
            return
        self._counters.dropped_lines.inc(gone.lines)
        _LOG.error(
            "the store is full: its oldest telemetry was dropped; raise hub.store_bytes",
            most_bytes=most,
            lines=gone.lines,
            until=to_text(from_ns(gone.until_ns)),
        )

    def _warn_if_crowded(self, most_bytes: int) -> None:
        held = self._store.held_bytes()
        crowded = is_crowded(most_bytes, held)
        if crowded and not self._crowded:
            _LOG.error(
                "recent telemetry alone takes more than half of hub.store_bytes: raise it, or lower"
                " hub.hot_hours",
                most_bytes=most_bytes,
                recent_bytes=held,
            )
        self._crowded = crowded

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.apply()
            except Exception as error:  # noqa: BLE001 - the thread outlives any pass
                self._counters.failed_retention.inc()
                _LOG.error("retention failed", error=f"{type(error).__name__}: {error}")
            self._clock.wait(self._stopping, _PASS_SECONDS)
