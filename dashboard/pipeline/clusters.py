"""The collectors of each cluster: which are heard, how old the data are, which nodes are worst; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from gpuvigil.clock import EPOCH, from_text
from gpuvigil.model import SIMULATED_CLUSTER, Inventory, Subject
from gpuvigil.model.expected_nodes import is_retired
from gpuvigil.model.reporting import TICKS, silent_after
from gpuvigil.numbers_in_words import natural

from ..model.cluster import ClusterView
from .hub_queries import WINDOW, Sources

Row = Mapping[str, Any]

# How late the newest row may arrive.
ARRIVAL = timedelta(seconds=3)
# The assumed tick until a collector's inventory says its own.
USUAL_TICK_SECONDS = 10.0
CLOCK_LIMIT_SECONDS = 2.0
# Ours: a collector gets too little processor time where four tasks wait for each processor and reading the GPUs, which
# takes some hundredths of a second, takes this long.
_TASKS_PER_PROCESSOR, _SLOW_SWEEP_SECONDS = 4.0, 0.5
MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """The health of one collector; None is not known."""

    subject: Subject
    heard_at: datetime | None
    heard: bool
    lag_seconds: float | None  # age of its newest numbers, corrected for its clock
    offset_seconds: float | None  # its clock minus the hub's
    coverage_percent: float | None  # share of the window's ticks that came
    version: str
    spool_bytes: int | None
    spool_oldest_seconds: float | None
    spool_writable: int | None  # 0: the disk is full or fails
    dropped: int | None  # batches in total
    dropped_lately: int | None  # batches in the window
    restarts_lately: int | None
    driver_silent_seconds: float | None
    sweep_seconds: float | None
    load_average: float | None
    processors: float | None

    @property
    def is_starved(self) -> bool:
        """Whether its numbers come late because its machine has too little processor time for it."""
        if self.load_average is None or not self.processors:
            return False
        crowded = self.load_average >= _TASKS_PER_PROCESSOR * self.processors
        return crowded and (self.sweep_seconds or 0.0) >= _SLOW_SWEEP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """The collectors of one cluster; clusters are never summed."""

    name: str
    simulated: bool
    nodes: tuple[NodeHealth, ...]

    @property
    def reporting(self) -> int:
        return sum(node.heard for node in self.nodes)

    @property
    def coverage_percent(self) -> float | None:
        """The mean coverage of the nodes, without those with too few ticks; None if none is known."""
        known = [n.coverage_percent for n in self.nodes if n.coverage_percent is not None]
        return sum(known) / len(known) if known else None

    @property
    def lag_seconds(self) -> float | None:
        """The median lag of the nodes that have data; None without any."""
        lags = [node.lag_seconds for node in self.nodes if node.lag_seconds is not None]
        return median(lags) if lags else None

    @property
    def versions(self) -> tuple[tuple[str, int], ...]:
        """The collectors' versions with the number of nodes, most frequent first."""
        return tuple(Counter(node.version for node in self.nodes if node.version).most_common())

    def worst(self, value: str, above: float = 0.0) -> tuple[NodeHealth, ...]:
        """Return nodes whose number exceeds `above` in absolute value, largest first."""
        found = [n for n in self.nodes if (it := getattr(n, value)) is not None and abs(it) > above]
        return tuple(sorted(found, key=lambda n: (-abs(getattr(n, value)), n.subject)))

    @property
    def silent(self) -> tuple[NodeHealth, ...]:
        """The silent nodes, longest silent first."""
        quiet = [node for node in self.nodes if not node.heard]
        return tuple(sorted(quiet, key=lambda node: (node.heard_at or EPOCH, node.subject)))


def clusters(sources: Sources, shown: Iterable[ClusterView] = ()) -> tuple[ClusterHealth, ...]:
    """Return every cluster with an inventory, a batch or a row; real ones first.

    Nodes of `shown`, the clusters on all pages, are silent here if they are silent there.
    """
    views = {one.name: one for one in shown}
    known: dict[Subject, Inventory | None] = {one.subject: one for one in sources.inventories}
    bodies = {_node(body): body for body in sources.status["nodes"]}
    rows = {_node(row): row for row in sources.nodes}
    spans = {_node(span): span for span in sources.spans}
    for subject in (*bodies, *rows):
        known.setdefault(subject, None)
    for one in sources.retirements:
        if is_retired(one.at, _last_seen_at(known.get(one.node), bodies.get(one.node))):
            known.pop(one.node, None)
    names = sorted({one.cluster for one in known}, key=lambda it: (it == SIMULATED_CLUSTER, it))
    found = []
    for name in names:
        subjects = sorted(
            (one for one in known if one.cluster == name), key=lambda one: natural(one.node)
        )
        begun = min((spans[one]["first_at"] for one in subjects if one in spans), default=None)
        found.append(
            ClusterHealth(
                name=name,
                simulated=name == SIMULATED_CLUSTER,
                nodes=_as_shown(
                    (
                        _health(
                            one,
                            known[one],
                            (bodies.get(one), rows.get(one), spans.get(one)),
                            begun,
                            sources.now,
                            sources.silent_after_seconds,
                        )
                        for one in subjects
                    ),
                    views.get(name),
                ),
            )
        )
    return tuple(found)


def _as_shown(nodes: Iterable[NodeHealth], shown: ClusterView | None) -> tuple[NodeHealth, ...]:
    """Return nodes as heard or silent as on the other pages; nodes not on those stay as the hub has them."""
    if shown is None:
        return tuple(nodes)
    silent = {one.name: one for one in shown.silent_nodes}
    return tuple(
        replace(node, heard=False, heard_at=quiet.heard_at or node.heard_at)
        if (quiet := silent.get(node.subject.node)) is not None
        else replace(node, heard=node.heard or node.subject.node in shown.layout.numbers)
        for node in nodes
    )


def _last_seen_at(inventory: Inventory | None, body: Row | None) -> datetime | None:
    """Return when a node was last heard, else the time of its inventory, or None."""
    if body is not None:
        return from_text(str(body["received_at"]))
    return None if inventory is None else inventory.at


def _node(row: Row) -> Subject:
    return Subject(cluster=row["cluster"], node=row["node"])


_PUT_RIGHT = frozenset({"corrected", "wrong"})


def _health(
    subject: Subject,
    inventory: Inventory | None,
    known: tuple[Row | None, Row | None, Row | None],
    begun: datetime | None,
    now: datetime,
    allowed: float,
) -> NodeHealth:
    body, row, span = known
    tick = inventory.tick_seconds if inventory is not None else USUAL_TICK_SECONDS
    heard_at = None if body is None else from_text(str(body["received_at"]))
    offset = None if body is None else body.get("offset_seconds")
    value = (row or {}).get
    lately = (span or {}).get
    # The hub has already corrected the times of a clock that it knows to be wrong.
    ahead = 0.0 if (body or {}).get("clock") in _PUT_RIGHT else (offset or 0.0)
    lag = None if row is None else (now - row["at"]).total_seconds() + ahead
    return NodeHealth(
        subject=subject,
        heard_at=heard_at,
        heard=heard_at is not None and now - heard_at <= silent_after(allowed, tick),
        lag_seconds=None if lag is None else max(lag, 0.0),
        offset_seconds=offset,
        coverage_percent=_coverage(span, begun, tick, now),
        version=str((body or {}).get("version") or (inventory.version if inventory else "")),
        spool_bytes=value("spool_bytes"),
        spool_oldest_seconds=value("spool_oldest_seconds"),
        spool_writable=value("spool_writable"),
        dropped=value("dropped_bodies"),
        dropped_lately=lately("dropped_bodies_increase"),
        restarts_lately=lately("reader_restarts_increase"),
        driver_silent_seconds=value("driver_silent_seconds"),
        sweep_seconds=value("sweep_seconds"),
        load_average=value("load_average"),
        processors=_processors(span),
    )


def _processors(span: Row | None) -> float | None:
    """Return how many processors a node has, by the time that all of them spent together; None if nobody counted it."""
    spent = (span or {}).get("cpu_milliseconds_increase")
    if span is None or spent is None or span["last_at"] <= span["first_at"]:
        return None
    return float(spent) / 1e3 / float((span["last_at"] - span["first_at"]).total_seconds())


def _coverage(span: Row | None, begun: datetime | None, tick: float, now: datetime) -> float | None:
    """Return the percentage of expected ticks that came; None while too few are expected."""
    if begun is None:
        return None
    start = max(begun, now - WINDOW)
    # The newest tick may be on its way, and the window's ends lie between ticks.
    expected = ((now - start) - ARRIVAL).total_seconds() / tick - 1
    if expected < TICKS:
        return None
    came = 0 if span is None else span["samples"]
    return float(min(100.0 * came / expected, 100.0))
