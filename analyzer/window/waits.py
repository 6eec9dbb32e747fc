"""How long nodes lately kept the hub waiting without a fault: some send only every few minutes."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpuvigil.model import Inventory
from gpuvigil.model.reporting import MIXED, are_most

# A gap shorter than `_LEAST` or two of the node's ticks is no wait; one longer than `_MOST` was an
# outage and no habit.
_LEAST, _TICKS, _MOST = timedelta(seconds=20), 2.0, timedelta(minutes=5)
# A wait is remembered for this long at least, and for twice as long at most.
_REMEMBERED = timedelta(hours=6)


class Waits:
    """The second longest recent wait of each node: a wait that happened once is no habit.

    One thread at a time.
    """

    def __init__(self) -> None:
        self._last_seen: Mapping[str, datetime] = {}
        self._lately: dict[str, tuple[float, ...]] = {}  # the two longest
        self._before: dict[str, tuple[float, ...]] = {}
        self._since: datetime | None = None

    def after(
        self,
        last_seen: Mapping[str, datetime],
        listening_since: datetime | None,
        now: datetime,
        inventories: Mapping[str, Inventory],
    ) -> Mapping[str, float]:
        """Return the second longest wait in seconds of each node with more than one, by key.

        `last_seen`: by key, when each node was heard last. `inventories`, by the same keys, say how
        often a node is due. A gap in which the hub was away, or that many nodes had at once, is no
        node's wait.
        """
        if self._since is None or now - self._since >= _REMEMBERED:
            self._before, self._lately, self._since = self._lately, {}, now
        waited = {key: at - self._last_seen.get(key, at) for key, at in last_seen.items()}
        waited = {
            key: wait
            for key, wait in waited.items()
            if wait >= _LEAST and wait >= _two_ticks(inventories.get(key))
        }
        if not are_most(len(waited), len(last_seen), MIXED):
            for key, wait in waited.items():
                own = listening_since is None or self._last_seen[key] >= listening_since
                if own and wait <= _MOST:
                    self._lately[key] = _longest(*self._lately.get(key, ()), wait.total_seconds())
        self._last_seen = last_seen
        known = self._lately.keys() | self._before.keys()
        both = {k: _longest(*self._lately.get(k, ()), *self._before.get(k, ())) for k in known}
        return {key: waits[1] for key, waits in both.items() if len(waits) > 1}


def _two_ticks(inventory: Inventory | None) -> timedelta:
    return timedelta(seconds=0.0 if inventory is None else _TICKS * inventory.tick_seconds)


def _longest(*seconds: float) -> tuple[float, ...]:
    return tuple(sorted(seconds, reverse=True)[:2])
