"""When a node has stopped reporting, and when it has left: for pages, the analyzer and usage."""

from datetime import timedelta

from .model import SIMULATED_CLUSTER

# Of a node that reports more seldom than every ten seconds so many ticks have to be missing.
TICKS = 3
# A node that says nothing is named for a day; a simulated one was played by a process that has ended.
LEFT_AFTER = timedelta(hours=24)
SIMULATED_LEFT_AFTER = timedelta(minutes=10)

# Of the nodes that report; NVSentinel's circuit breaker opens at half of them within five minutes.
SHARE = 0.5
# Of three nodes two are half, and two of them are chance.
LEAST = 4


def are_most(some: int, nodes: int) -> bool:
    """Whether what befell so many of a cluster's nodes at once has one cause that they share.

    Of nodes that fell silent that is most likely the way to gpuvigil, or gpuvigil itself.
    """
    return some >= max(LEAST, SHARE * nodes)


def silent_after(silent_after_seconds: float, tick_seconds: float) -> timedelta:
    """How long a node that reports every `tick_seconds` may send nothing before it has stopped.

    `silent_after_seconds` is the setting `analyzer.silent_after_seconds`.
    """
    return timedelta(seconds=max(silent_after_seconds, TICKS * tick_seconds))


def left_after(cluster: str) -> timedelta:
    """After how long without a word nobody expects a node of this cluster any more."""
    return SIMULATED_LEFT_AFTER if cluster == SIMULATED_CLUSTER else LEFT_AFTER
