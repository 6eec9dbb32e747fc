"""Group commit: a bounded queue of bodies, and the one thread that commits them."""

import math
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import Clock
from gpuvigil.config import HubSettings
from gpuvigil.errors import StoreError
from gpuvigil.log import Log
from gpuvigil.web.limits import Shares

from ..bodies.deduplication import Arrival, Deduplicator, Identity
from ..embedded import Embedded
from .batch import read_bodies
from .body import Body, Outcome
from .clocks import Clocks
from .counters import Counters
from .series_limit import SeriesLimiter

_LOG = Log("hub")

# Most text in one commit. Parsed, it takes about ten times as much memory.
_COMMIT_BYTES = 16 * 1024 * 1024

# Most lines in one commit: the shortest take as long as those of fifty fields.
_COMMIT_LINES = 100_000

# While collectors drain their backlogs, commits are up to this many times as frequent: each of
# their connections waits for one commit per body. Even so, commits take at most half of the time.
_SOONER = 10
_SHARE = 0.5

_FAILING_SECONDS = 10.0

_HOUSEKEEPING = timedelta(minutes=10)

# A collector keeps bodies in its spool for days, not for a month.
_SEEN_KEPT = timedelta(days=30)


class Committer:
    """Takes bodies from any thread and commits them together, every `commit_seconds`."""

    def __init__(
        self,
        store: Embedded,
        settings: HubSettings,
        clock: Clock,
        counters: Counters,
        forget_records: Callable[[datetime], object],
    ) -> None:
        """`forget_records` drops records that were over before a time; StoreError if it fails."""
        self._store = store
        self._forget_records = forget_records
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._queue: deque[Body] = deque()
        self._shares = Shares(settings.queue_bytes)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._failed_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="committer")
        self.clocks = Clocks(timedelta(seconds=settings.clock_wrong_seconds))
        self.series = SeriesLimiter(settings.series_per_node_count, settings.nodes_count, clock.now)
        self.seen = Deduplicator(settings.nodes_count)
        self.seen.add(store.seen())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit the bodies that wait, then end; no more are accepted."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        self._thread.join()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def failing(self) -> bool:
        """Whether the last commit failed, a moment ago: a store that is left alone may be fine."""
        return self._clock.monotonic() - self._failed_at < _FAILING_SECONDS

    def has_room(self, sender: Hashable, size: int = 0) -> bool:
        """Return whether a body of `size` bytes would be accepted now; always so when none waits."""
        return self._shares.fits(sender, size)

    def put(self, body: Body) -> bool:
        """Queue a body; false when the queue is full or the hub stops."""
        with self._changed:
            if self.stopping or not self._shares.acquire(body.sender, len(body.text)):
                return False
            self._queue.append(body)
            self._changed.notify_all()
        return True

    def waiting(self) -> tuple[int, int]:
        """Return the bodies in the queue, and the bytes in it or on their way to the store."""
        with self._changed:
            return len(self._queue), self._shares.held

    def _run(self) -> None:
        due = kept_house = -math.inf
        while True:
            self._wait(due)
            began = self._clock.monotonic()
            bodies = self._next_bodies()
            if bodies:
                self._finish(bodies, self._commit(bodies))
            due = began + pause_seconds(
                self._settings.commit_seconds, self._clock.monotonic() - began, bodies
            )
            if not bodies and self.stopping:
                return
            if self._clock.monotonic() - kept_house >= _HOUSEKEEPING.total_seconds():
                kept_house = self._clock.monotonic()
                self._keep_house()

    def _wait(self, due: float) -> None:
        """Wait until there is a body and the next commit is due, or it is time for housekeeping."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self.stopping, timeout=60.0)
        if self._shares.held < _COMMIT_BYTES:
            self._clock.wait(self._stopping, due - self._clock.monotonic())

    def _next_bodies(self) -> list[Body]:
        bodies: list[Body] = []
        size = lines = 0
        with self._changed:
            while self._queue and (
                not bodies
                or (
                    size + len(self._queue[0].text) <= _COMMIT_BYTES
                    and lines + self._queue[0].rows <= _COMMIT_LINES
                )
            ):
                bodies.append(self._queue.popleft())
                size += len(bodies[-1].text)
                lines += bodies[-1].rows
        return bodies

    def _finish(self, bodies: Sequence[Body], outcomes: Sequence[Outcome]) -> None:
        with self._changed:
            for body in bodies:
                self._shares.give_back(body.sender, len(body.text))
        for body, outcome in zip(bodies, outcomes, strict=True):
            self._counters.body(outcome)
            body.done(outcome)

    def _commit(self, bodies: Sequence[Body]) -> list[Outcome]:
        """Commit bodies and return the outcome of each; no failure ends the thread."""
        started = self._clock.monotonic()
        try:
            outcomes = commit(self._store, self.seen, bodies, self.series, self.clocks)
        except StoreError as error:
            self._reload_seen()
            return self._failed(bodies, error)
        except Exception as error:  # noqa: BLE001 - the one committer outlives any batch
            self._reload_seen()
            if len(bodies) > 1:
                # Whatever is wrong with one body, the others are still committed.
                return [outcome for body in bodies for outcome in self._commit([body])]
            return self._failed(bodies, error)
        self._failed_at = -math.inf
        self._counters.commit_seconds.observe(self._clock.monotonic() - started)
        return outcomes

    def _reload_seen(self) -> None:
        """Read again which bodies are known: a commit that failed may have been made all the same."""
        try:
            self.seen.add(self._store.seen())
        except Exception as error:  # noqa: BLE001 - the one committer outlives any trouble
            _LOG.warning("bodies not looked up", error=f"{type(error).__name__}: {error}")

    def _failed(self, bodies: Sequence[Body], error: Exception) -> list[Outcome]:
        self._counters.failed_commits.inc()
        self._failed_at = self._clock.monotonic()
        _LOG.error("commit failed", bodies=len(bodies), error=f"{type(error).__name__}: {error}")
        return [Outcome(error="the store could not commit; see the hub's log")] * len(bodies)

    def _keep_house(self) -> None:
        now, settings = self._clock.now(), self._settings
        try:
            self._forget_records(now - timedelta(days=settings.records_days))
            self._store.replace_seen(self.seen.compact(now - _SEEN_KEPT))
        except Exception as error:  # noqa: BLE001 - the one committer outlives any trouble
            _LOG.error("retention failed", error=f"{type(error).__name__}: {error}")


def pause_seconds(usual: float, took: float, bodies: Sequence[Body]) -> float:
    """Return the time from the start of a commit to the next one, which a backlog brings forward.

    `took`: how long the commit took.
    """
    if any(body.is_backlog for body in bodies):
        return min(usual, max(usual / _SOONER, took / _SHARE))
    return usual


def commit(
    store: Embedded,
    seen: Deduplicator,
    bodies: Sequence[Body],
    series: SeriesLimiter | None = None,
    clocks: Clocks | None = None,
) -> list[Outcome]:
    """Commit the rows of all bodies not seen before, and that they were seen, together.

    StoreError when the store cannot: then nothing was stored of any body.
    """
    new: list[bool] = []
    fresh: set[tuple[object, int]] = set()
    for body in bodies:
        who = body.identity
        new.append(who is None or not (who in seen or (who.lane, who.sequence) in fresh))
        if who is not None:
            fresh.add((who.lane, who.sequence))
    taken = [body for body, is_new in zip(bodies, new, strict=True) if is_new]
    if clocks is not None:
        taken = [_put_right(body, clocks) for body in taken]
    tables, read = read_bodies(taken, series)
    arrivals = _arrivals(
        [
            (body.identity, body.received_at)
            for body, outcome in zip(taken, read, strict=True)
            # A forbidden body is not recorded as seen; its sender may yet be allowed to write.
            if body.identity is not None and outcome.forbidden is None
        ]
    )
    if tables or arrivals:
        store.append(tables, arrivals)
        seen.add(arrivals)
    outcomes = iter(read)
    return [next(outcomes) if is_new else Outcome(duplicate=True) for is_new in new]


def _put_right(body: Body, clocks: Clocks) -> Body:
    shift = clocks.shift(body.identity, body.received_at, body.prompt)
    return replace(body, shift_ns=shift // timedelta(microseconds=1) * 1000) if shift else body


def _arrivals(bodies: Iterable[tuple[Identity, datetime]]) -> list[Arrival]:
    """Return the arrivals of bodies and when each was received; consecutive ones of a lane are one."""
    joined: list[Arrival] = []
    for who, received_at in sorted(bodies, key=lambda it: (it[0].lane, it[0].sequence)):
        first = who.sequence
        if joined and joined[-1].lane == who.lane and joined[-1].last + 1 == who.sequence:
            first = joined.pop().first
        joined.append(
            Arrival(
                lane=who.lane,
                first=first,
                last=who.sequence,
                received_at=received_at,
                sent_at=who.sent_at,
                version=who.version,
            )
        )
    return joined
