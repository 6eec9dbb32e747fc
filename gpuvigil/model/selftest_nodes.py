"""The names of the selftest's nodes, and when what they left behind is over.

`gpuvigil selftest` simulates nodes of the cluster `selftest` (`Subject.marked`) for the hub. They are
named `<run>.<what>`, so that a run never meets the remains of an earlier one. A run is over once none of
its nodes has been heard for a while, even if it was killed: then nothing has to be cleaned up.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from . import SELFTEST_CLUSTER

# Its nodes send every few seconds, and one of them falls silent for half a minute on purpose.
OVER_AFTER = timedelta(seconds=30)

_PREFIX = f"{SELFTEST_CLUSTER}/"


def node_name(run: str, what: str) -> str:
    """Return the name of a run's node."""
    return f"{run}.{what}"


def without_marked(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hub's status without the selftest's nodes, for everybody but the fault detectors."""
    lists = {
        name: [node for node in status.get(name, ()) if node["cluster"] != SELFTEST_CLUSTER]
        for name in ("nodes", "wrong_clocks")
    }
    return {**status, **lists}


def over(last_seen: Mapping[str, datetime], now: datetime) -> frozenset[str]:
    """Return the keys of the `last_seen` nodes that belong to runs that are over."""
    runs: dict[str, datetime] = {}
    marked = [key for key in last_seen if key.startswith(_PREFIX)]
    for key in marked:
        runs[_run(key)] = max(last_seen[key], runs.get(_run(key), last_seen[key]))
    return frozenset(key for key in marked if now - runs[_run(key)] > OVER_AFTER)


def _run(key: str) -> str:
    return key.removeprefix(_PREFIX).partition(".")[0]
