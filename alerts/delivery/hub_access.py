"""What the threads of alerts share, and how each retries while the hub is away."""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from accounting.cost.money import Prices
from gpuvigil.clock import Clock
from gpuvigil.config import AlertsSettings
from gpuvigil.config.pricing import CostSettings
from gpuvigil.errors import HubRefused, HubUnavailable
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.loop import Persistence, run_steps
from gpuvigil.model import RecordKind
from gpuvigil.web.signed_links import Seal

from ..messages.cost import Models
from ..routing.notice import Notice
from .batches import in_parts

# A process that is killed holds its claims for this long.
LEASE_SECONDS = 15.0
# Longest wait for work; short, so that a stop leaves no claim behind that nobody works on.
POLL_SECONDS = 2.0
# A short wait after each claim: what comes in a storm is claimed, and stored, together.
GATHER_SECONDS = 0.3
# Most records in one claim.
CLAIM_LIMIT = 100

T = TypeVar("T")


class Tally:
    """Counts of notices by state, for the pulse."""

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
class Context:
    """One alerts process: its name at the hub, its settings, and when it is to stop."""

    connect: Callable[[], Hub]  # a client of its own for each thread
    owner: str
    settings: AlertsSettings
    clock: Clock
    stop: threading.Event
    log: Log
    seal: Seal | None = None  # signs links in messages
    prices: Prices = Prices(settings=CostSettings())  # noqa: RUF009 - it is frozen
    models: Models = field(default_factory=Models)
    tally: Tally = field(default_factory=Tally)

    def chance(self) -> float:
        """Jitter, in [0, 1)."""
        return secrets.randbelow(1000) / 1000

    def loop(self, name: str, step: Callable[[], None]) -> None:
        """Call `step` until asked to stop; nothing that goes wrong in it ends the loop."""

        def unless_taken() -> None:
            try:
                step()
            except HubRefused as error:
                if error.status != 409:  # else the lease went to somebody else, who does the work
                    raise

        run_steps(self._persistence(name), unless_taken)

    def gather(self, claimed: int) -> None:
        """Wait for more before the next claim; after a full one, more is there already."""
        if 0 < claimed < CLAIM_LIMIT:
            self.clock.wait(self.stop, GATHER_SECONDS)

    def keep(self, hub: Hub, notices: Sequence[Notice]) -> bool:
        """Write notices, retrying while the hub is away; return False when stopped or refused."""
        persistence = self._persistence("keep")
        while True:
            try:
                hub.write_records([notice.to_record() for notice in notices])
            except HubRefused as error:
                self.log.warning("notice refused", id=notices[0].id, error=str(error))
                return False
            except HubUnavailable as error:
                persistence.failed(error)
            else:
                self.tally.add(notices)
                return True
            if self.stop.is_set():
                return False

    def finish(self, hub: Hub, notice: Notice, others: Sequence[Notice] = ()) -> None:
        """End this process's claim of `notice` with its next version."""
        self._finish(hub, [notice], others)

    def finish_all(self, hub: Hub, notices: Sequence[Notice]) -> None:
        """End this process's claims of `notices` with their next versions."""
        self.in_parts(notices, lambda part: self._finish(hub, part), lambda one: one.id)

    def in_parts(
        self,
        items: Sequence[T],
        finish: Callable[[Sequence[T]], None],
        name: Callable[[T], str],
    ) -> None:
        """Call `finish` with all items in turn, as many at once as the hub takes in one body.

        An item that is too large by itself is left out, and does not stop the others; its lease
        ends.
        """

        def left_out(one: T, error: HubRefused) -> None:
            self.log.warning("too large for the hub", id=name(one), error=str(error))

        in_parts(items, finish, left_out)

    def _finish(self, hub: Hub, notices: Sequence[Notice], others: Sequence[Notice] = ()) -> None:
        records = [one.to_record() for one in (*notices, *others)]
        hub.finish(RecordKind.NOTICE, self.owner, [one.id for one in notices], records)
        self.tally.add((*notices, *others))

    def _persistence(self, name: str) -> Persistence:
        return Persistence(name=name, clock=self.clock, stop=self.stop, log=self.log)
