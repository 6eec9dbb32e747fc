"""How long nodes lately let the hub wait, with nothing wrong: some send only every few minutes."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpuvigil.model.reporting import MIXED, are_most

# What is shorter than this is no wait, and what is longer was an outage and no habit.
_LEAST, _MOST = timedelta(seconds=20), timedelta(minutes=5)
# A wait is remembered for this long at least, and for twice as long at most.
_REMEMBERED = timedelta(hours=6)


class Waits:
    """The longest wait of each node, pass after pass. One thread at a time."""

    def __init__(self) -> None:
        self._heard: Mapping[str, datetime] = {}
        self._lately: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._since: datetime | None = None

    def after(
        self, heard: Mapping[str, datetime], listening_since: datetime | None, now: datetime
    ) -> Mapping[str, float]:
        """Seconds by node, of those that let it wait; `heard`: when each was last, by its key.

        What the hub was away for is nobody's wait, nor what many of them had at once.
        """
        if self._since is None or now - self._since >= _REMEMBERED:
            self._before, self._lately, self._since = self._lately, {}, now
        waited = {key: at - self._heard.get(key, at) for key, at in heard.items()}
        waited = {key: wait for key, wait in waited.items() if wait >= _LEAST}
        if not are_most(len(waited), len(heard), MIXED):
            for key, wait in waited.items():
                own = listening_since is None or self._heard[key] >= listening_since
                if own and wait <= _MOST:
                    seconds = wait.total_seconds()
                    self._lately[key] = max(seconds, self._lately.get(key, 0.0))
        self._heard = heard
        return {
            key: max(self._lately.get(key, 0.0), self._before.get(key, 0.0))
            for key in self._lately.keys() | self._before.keys()
        }
