"""What the threads of alerts share, and how each of them goes on when the hub is away."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpuvigil.clock import Clock
from gpuvigil.config import AlertsSettings
from gpuvigil.errors import GpuvigilError, HubRefused, HubUnavailable
from gpuvigil.hub import Hub
from gpuvigil.log import Log
from gpuvigil.model import RecordKind

from .notice import Notice

# A process that is killed holds its claims for this long.
LEASE_SECONDS = 15.0
# Longest wait for work; short, so that a stop leaves no claim behind that nobody works on.
POLL_SECONDS = 2.0
# While the hub is away.
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 2.0


class Tally:
    """Counts of what became of notices, for the pulse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, notices: Iterable[Notice]) -> None:
        """Count each notice under its state."""
        with self._lock:
            self._counts.update(notice.state.value for notice in notices)

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """One alerts process: who it is to the hub, what it was told, and when it is to stop."""

    connect: Callable[[], Hub]  # a client of its own for each thread
    owner: str
    settings: AlertsSettings
    clock: Clock
    stop: threading.Event
    log: Log
    tally: Tally = field(default_factory=Tally)

    def chance(self) -> float:
        """Jitter, in [0, 1)."""
        return secrets.randbelow(1000) / 1000

    def loop(self, name: str, step: Callable[[], None]) -> None:
        """Call `step` until asked to stop; nothing that goes wrong in it ends the loop."""
        failures = 0
        while not self.stop.is_set():
            try:
                step()
            except HubRefused as error:
                if error.status == 409:
                    continue  # the lease went to somebody else, who does the work
                failures = self._failed(name, error, failures)
            except GpuvigilError as error:
                failures = self._failed(name, error, failures)
            except Exception as error:  # noqa: BLE001 - one bad record must not silence all alerts
                failures = self._failed(name, error, failures)
            else:
                if failures:
                    self.log.info("goes on", loop=name, failures=failures)
                failures = 0

    def keep(self, hub: Hub, notices: Sequence[Notice]) -> bool:
        """Write notices, insisting while the hub is away; false when stopped or refused."""
        failures = 0
        while True:
            try:
                hub.write_records([notice.to_record() for notice in notices])
            except HubRefused as error:
                self.log.warning("notice refused", id=notices[0].id, error=str(error))
                return False
            except HubUnavailable as error:
                failures = self._failed("keep", error, failures)
            else:
                self.tally.add(notices)
                return True
            if self.stop.is_set():
                return False

    def finish(self, hub: Hub, notice: Notice, others: Sequence[Notice] = ()) -> None:
        """End this process's claim of `notice` with its next version."""
        records = [one.to_record() for one in (notice, *others)]
        hub.finish(RecordKind.NOTICE, self.owner, [notice.id], records)
        self.tally.add((notice, *others))

    def _failed(self, name: str, error: Exception, failures: int) -> int:
        """Wait a little, longer every time; only the first failure in a row is worth a line."""
        if failures == 0:
            kind = type(error).__name__
            self.log.warning("cannot go on, tries again", loop=name, kind=kind, error=str(error))
        asked = getattr(error, "retry_after_seconds", None)
        wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(failures, 10), LONGEST_WAIT_SECONDS)
        self.clock.wait(self.stop, min(asked or wait, LONGEST_WAIT_SECONDS))
        return failures + 1
