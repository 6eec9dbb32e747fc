"""The hub's own metrics, as `/metrics` shows them."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .body import Outcome
from .clocks import Clocks, ClockState
from .series_limit import SeriesLimiter


class Counters:
    """Counters of one hub, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lines = self._counter("lines", "Lines committed.")
        self._bodies = self._counter("bodies", "Bodies committed, in whole or in part.")
        self._duplicates = self._counter("duplicate_bodies", "Bodies that were stored before.")
        self._refused = self._counter("refused_lines", "Lines that were at fault.")
        self.busy = self._counter("busy_answers", "Bodies sent away because the queue was full.")
        self.refused_lanes = self._counter(
            "refused_lanes", "Bodies of new lanes sent away because their node had too many."
        )
        self.failed_commits = self._counter("failed_commits", "Commits of telemetry that failed.")
        self.failed_retention = self._counter(
            "failed_tidying",  # a metric keeps its name
            "Steps of a pass (expiring, making room, sealing, joining) that failed.",
        )
        self.dropped_lines = self._counter(
            "dropped_lines", "Oldest lines dropped because the store was full."
        )
        self.records = self._counter("records", "Records committed, each version counted.")
        self.commit_seconds = Histogram(
            "gpuvigil_hub_commit_seconds",
            "Time from the start of parsing to the end of a commit of telemetry.",
            registry=self.registry,
        )
        self.refused_lines = 0

    def watch_queue(self, waiting: Callable[[], tuple[int, int]]) -> None:
        """Show the bodies and bytes that `waiting` gives."""
        for index, what in enumerate(("bodies", "bytes")):
            gauge = Gauge(
                f"gpuvigil_hub_queue_{what}",
                f"Telemetry that waits for its commit, in {what}.",
                registry=self.registry,
            )
            gauge.set_function(lambda index=index: waiting()[index])  # type: ignore[misc]

    def watch_series(self, series: SeriesLimiter) -> None:
        """Show how many series there are, and the lines refused because there were too many."""
        known = Gauge(
            "gpuvigil_hub_series", "Series of the last half day to day.", registry=self.registry
        )
        known.set_function(lambda: series.count)
        flood = Gauge(
            "gpuvigil_hub_refused_series_lines",
            "Lines of new series refused in this half day, of nodes that have too many.",
            registry=self.registry,
        )
        flood.set_function(lambda: sum(it.lines for it in series.floods()))

    def watch_clocks(self, clocks: Clocks) -> None:
        """Show how many nodes' clocks are in each state."""
        gauge = Gauge(
            "gpuvigil_hub_clocks",
            "Nodes by what is done with the times of their lines.",
            ["state"],
            registry=self.registry,
        )
        for state in ClockState:
            gauge.labels(state.value).set_function(lambda state=state: clocks.count(state))  # type: ignore[misc]

    def body(self, outcome: Outcome) -> None:
        """Count the outcome of a body."""
        if outcome.error is not None or outcome.forbidden is not None:
            return
        (self._duplicates if outcome.duplicate else self._bodies).inc()
        self._lines.inc(outcome.lines)
        self._refused.inc(len(outcome.refused))
        self.refused_lines += len(outcome.refused)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"gpuvigil_hub_{name}", text, registry=self.registry)
