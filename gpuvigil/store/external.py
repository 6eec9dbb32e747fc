"""A hub whose telemetry is stored elsewhere: one client gives access to both."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ..clock import from_text, to_text
from ..hub_client import Hub
from ..hub_client.seen import FilteredHub
from ..hub_client.tls import Trust
from ..metrics import NODE
from . import Store
from .hub import HubStore

# A node silent for longer than this before the first look counts as never heard by this process.
_FIRST_READ = timedelta(hours=1)
# A line that reaches the store up to this long after its time is seen at the next look.
_LATER_READ = timedelta(minutes=5)
# All callers within this time get the same answer.
_FRESH = timedelta(seconds=1)
_Node = tuple[str, str]


class NodesHeardByStore:
    """When each node was last heard, from the newest line in the store; threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._newest: dict[_Node, datetime] = {}
        self._read_at: datetime | None = None

    def last_seen(self, now: datetime) -> Mapping[_Node, datetime]:
        """Return times by cluster and node; a line from a clock that is ahead counts as of `now`."""
        with self._lock:
            if self._read_at is None or not timedelta() <= now - self._read_at < _FRESH:
                self._ask(now)
            return dict(self._newest)

    def _ask(self, now: datetime) -> None:
        oldest = now - _FIRST_READ
        since = oldest if self._read_at is None else self._read_at - _LATER_READ
        # Every node has a line of its own, with GPUs or without.
        rows = self._store.latest(NODE.name, (), max(since, oldest))
        columns = (rows.column(name).to_pylist() for name in ("cluster", "node", "at"))
        for cluster, node, at in zip(*columns, strict=True):
            key = (cluster, node)
            self._newest[key] = max(self._newest.get(key, at), min(at, now))
        self._read_at = now


class HasStore:
    """A client of the hub that also knows where the telemetry is."""

    store: Store


class HubWithExternalStore(Hub, HasStore):
    """The hub's client, with the store that keeps the telemetry; raises StoreError beside HubError.

    `status` lists the nodes that the store has heard as if the hub had heard them, without what only a
    body's headers contain: no clock is corrected, and no version is known.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        trust: Trust,
        store: Store,
        last_seen: NodesHeardByStore,
    ) -> None:
        super().__init__(url, token, trust=trust)
        self.store = store
        self._last_seen = last_seen

    def status(self) -> Mapping[str, Any]:
        """See `Hub.status`."""
        status = super().status()
        known = {(node["cluster"], node["node"]) for node in status["nodes"]}
        heard = self._last_seen.last_seen(from_text(status["now"]))
        more = [_entry(key, at) for key, at in sorted(heard.items()) if key not in known]
        return {**status, "nodes": [*status["nodes"], *more]}


def store_of(hub: Hub) -> Store:
    """Return the store with the telemetry that belongs to this hub's records."""
    if isinstance(hub, HasStore):
        return hub.store
    return store_of(hub.behind) if isinstance(hub, FilteredHub) else HubStore(hub)


def _entry(node: _Node, at: datetime) -> dict[str, Any]:
    return {
        "cluster": node[0],
        "node": node[1],
        "boot": "",
        "lane": "live",
        "sequence": 0,
        "sent_at": None,
        "received_at": to_text(at),
        "offset_seconds": None,
        "version": "",
    }
