"""Retries with a growing back-off: a service keeps going after failures, and logs a run of them once."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .clock import Clock
from .errors import GpuvigilError
from .log import Log

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 2.0


@dataclass(slots=True, kw_only=True)
class Persistence:
    """Counts the consecutive failures of one task that a service keeps retrying."""

    name: str
    clock: Clock
    stop: threading.Event
    log: Log
    failures: int = 0

    def failed(self, error: Exception) -> None:
        """Wait before the next try; only the first failure in a row is logged.

        A wait that the other side asked for (`retry_after_seconds`) is honoured, within bounds.
        """
        if self.failures == 0:
            kind = type(error).__name__
            self.log.warning(
                "cannot go on, tries again", loop=self.name, kind=kind, error=str(error)
            )
        asked = getattr(error, "retry_after_seconds", None)
        wait = FIRST_WAIT_SECONDS * 2.0 ** min(self.failures, 10)
        self.failures += 1
        self.clock.wait(self.stop, min(asked or wait, LONGEST_WAIT_SECONDS))

    def worked(self) -> None:
        """Log that the task works again, if it had failed."""
        if self.failures:
            self.log.info("goes on", loop=self.name, failures=self.failures)
        self.failures = 0


def run_steps(persistence: Persistence, step: Callable[[], None]) -> None:
    """Call `step` until asked to stop; an error in it never ends the loop."""
    while not persistence.stop.is_set():
        try:
            step()
        except GpuvigilError as error:
            persistence.failed(error)
        except Exception as error:  # noqa: BLE001 - one bad value must not silence a service
            persistence.failed(error)
        else:
            persistence.worked()
