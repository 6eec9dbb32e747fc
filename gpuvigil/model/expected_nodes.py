"""Which nodes are expected: shown, counted and missed, however long they are silent.

A node is expected from its first inventory or body until it is retired, by a person or by its
scheduler, which deleted it. A retired node that is heard again is expected again.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from . import SELFTEST_CLUSTER, SIMULATED_CLUSTER

# A simulated node belongs to a process that has ended when it is silent this long.
SIMULATED_LEFT_AFTER = timedelta(minutes=10)

NodeName = tuple[str, str]  # cluster and node


def expected(
    told_at: Mapping[NodeName, datetime],
    retired_at: Mapping[NodeName, datetime],
    incidents: Collection[NodeName],
    now: datetime,
    listening_since: datetime | None,
) -> frozenset[NodeName]:
    """Return the nodes that are expected at `now`.

    `told_at`: when each known node was last heard, else the time of its inventory. `incidents`: nodes
    with an active incident, which stay expected in any case. `listening_since`: when the hub started.
    """
    kept = frozenset(incidents)
    return frozenset(
        name
        for name in {*told_at, *kept}
        if name[0] != SELFTEST_CLUSTER
        and (
            name in kept
            or not (
                is_retired(retired_at.get(name), told_at[name])
                or (
                    name[0] == SIMULATED_CLUSTER
                    and is_played_out(told_at[name], now, listening_since)
                )
            )
        )
    )


def is_retired(retired_at: datetime | None, told_at: datetime | None) -> bool:
    """Return whether a node was retired, and has not been heard since."""
    return retired_at is not None and (told_at is None or told_at <= retired_at)


def is_played_out(told_at: datetime, now: datetime, listening_since: datetime | None) -> bool:
    """Return whether a simulated node is from an earlier simulation, which will not resume."""
    if listening_since is not None and told_at >= listening_since:
        return False
    return now - told_at > SIMULATED_LEFT_AFTER
