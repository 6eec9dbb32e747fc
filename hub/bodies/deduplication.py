"""Deduplication: committed bodies are remembered, so that one sent again is not stored twice."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from gpuvigil.clock import from_text, to_ns
from gpuvigil.store import EARLIEST_NS, LATEST_NS


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lane:
    """A numbered sequence of bodies: those of one start of a collector, live or backlog."""

    cluster: str
    node: str
    boot: str
    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A body's lane and sequence number, as its headers give them."""

    lane: Lane
    sequence: int
    sent_at: datetime | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Committed bodies `first` to `last` of a lane; the other fields are those of the newest one."""

    lane: Lane
    first: int
    last: int
    received_at: datetime
    sent_at: datetime | None = None
    version: str = ""


# Longest name in a lane; each lane is remembered for a month.
LONGEST_NAME = 256

_LANE_HEADERS = tuple(f"gpuvigil-{key}" for key in ("cluster", "node", "boot", "lane"))
# Lanes cached: a node's next body is of the same lane.
_LANES_AT_HAND = 16_384

# A sequence is stored as a signed 64-bit integer.
_LARGEST = 2**63 - 1

# Spans remembered per lane, and lanes per node: two for each start of its collector.
MOST_SPANS = 256
MOST_LANES = 256
# At these limits, a lane that is silent for so long makes room for a new one, and so does a node.
SILENT_LANE = timedelta(minutes=10)
SILENT_NODE = timedelta(hours=12)

LIVE = "live"  # the lane of fresh bodies
BACKLOG = "backlog"  # the lane of bodies that a collector has buffered
Node = tuple[str, str]


def identity(headers: Mapping[str, str]) -> Identity | None:
    """Return the identity in the `Gpuvigil-*` headers; None without them, ValueError when invalid."""
    if "gpuvigil-sequence" not in headers:
        return None
    lane = _lane(*[headers.get(name, "") for name in _LANE_HEADERS])
    text = headers["gpuvigil-sequence"]
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _LARGEST:
        raise ValueError("Gpuvigil-Sequence is not a whole number from 1")
    sent_at = _sent_at(headers.get("gpuvigil-sent-at", ""))
    version = headers.get("gpuvigil-version", "")[:LONGEST_NAME]
    return Identity(lane=lane, sequence=int(text), sent_at=sent_at, version=version)


@lru_cache(maxsize=_LANES_AT_HAND)
def _lane(cluster: str, node: str, boot: str, lane: str) -> Lane:
    names = {"cluster": cluster, "node": node, "boot": boot, "lane": lane}
    for key, value in names.items():
        if not value:
            raise ValueError(f"Gpuvigil-{key.capitalize()} is missing")
        if len(value) > LONGEST_NAME:
            raise ValueError(
                f"Gpuvigil-{key.capitalize()} is longer than {LONGEST_NAME} characters"
            )
        if value in {".", ".."}:
            raise ValueError(f"Gpuvigil-{key.capitalize()} is {value!r}, which is no name")
    if lane not in {LIVE, BACKLOG}:
        raise ValueError("Gpuvigil-Lane is neither live nor backlog")
    return Lane(**names)


def sender(headers: Mapping[str, str]) -> tuple[Node, datetime] | None:
    """Return a request's node and time of sending, from its headers; None if either is missing."""
    cluster, node = (headers.get(f"gpuvigil-{key}", "") for key in ("cluster", "node"))
    sent_at = _sent_at(headers.get("gpuvigil-sent-at", ""))
    known = 0 < len(cluster) <= LONGEST_NAME and 0 < len(node) <= LONGEST_NAME
    return ((cluster, node), sent_at) if known and sent_at is not None else None


def _sent_at(text: str) -> datetime | None:
    """Return the time in a text; None when it is no time, or one of a clock that was never set."""
    try:
        found = from_text(text)
    except ValueError:
        return None
    return found if EARLIEST_NS <= to_ns(found) <= LATEST_NS else None


class IntervalSet:
    """A set of integers, stored as spans: small while there are few gaps."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self.floor = 0  # below this, membership is no longer known

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._spans, (number, _LARGEST)) - 1
        return index >= 0 and number <= self._spans[index][1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._spans)

    def add(self, first: int, last: int) -> None:
        """Take in `first` to `last`, both included."""
        # Spans that touch the new one are adjacent, and are merged with it.
        start = bisect_right(self._spans, (first - 1, -1))
        if start and self._spans[start - 1][1] >= first - 1:
            start -= 1
        end = start
        while end < len(self._spans) and self._spans[end][0] <= last + 1:
            first = min(first, self._spans[end][0])
            last = max(last, self._spans[end][1])
            end += 1
        self._spans[start:end] = [(first, last)]

    def trim(self) -> None:
        """Forget the lowest spans beyond the limit; a full set may have, and raises its floor."""
        del self._spans[:-MOST_SPANS]
        if len(self._spans) == MOST_SPANS:
            self.floor = max(self.floor, self._spans[0][0])


@dataclass(slots=True)
class _Known:
    spans: IntervalSet
    newest: Arrival


class TooManySenders(Exception):
    """There are too many lanes, or nodes, to accept a new one."""


class Deduplicator:
    """The committed bodies with an identity, and each node's newest; both are bounded.

    One thread adds, any thread may read.
    """

    def __init__(self, most_nodes: int = 1_000_000) -> None:
        self._most_nodes = most_nodes
        self._lanes: dict[Lane, _Known] = {}
        # The lanes of each node; nodes and lanes are ordered by silence, the longest silent first.
        self._nodes: OrderedDict[Node, OrderedDict[Lane, None]] = OrderedDict()
        # For each node at its limit of lanes: since when its longest silent lane is silent.
        self._full: dict[Node, datetime] = {}
        self._nodes_full: datetime | None = None

    def __contains__(self, body: Identity) -> bool:
        known = self._lanes.get(body.lane)
        return known is not None and body.sequence in known.spans

    def check(self, body: Identity, now: datetime) -> None:
        """Raise ValueError if the body may have come before, TooManySenders if its lane finds no room."""
        known = self._lanes.get(body.lane)
        if known is not None:
            if body.sequence < known.spans.floor and body.sequence not in known.spans:
                raise ValueError(
                    f"body {body.sequence} comes too late: of this lane the newest {MOST_SPANS}"
                    f" runs of bodies are remembered, from {known.spans.floor} on"
                )
            return
        node = (body.lane.cluster, body.lane.node)
        if node in self._nodes:
            since = self._full.get(node)
            if since is not None and now - since < SILENT_LANE:
                minutes = SILENT_LANE.total_seconds() / 60
                raise TooManySenders(
                    f"{'/'.join(node)} has {MOST_LANES} lanes of the last {minutes:g} minutes:"
                    " a lane is one start of a collector, live or backlog"
                )
        elif self._nodes_full is not None and now - self._nodes_full < SILENT_NODE:
            raise TooManySenders(f"{'/'.join(node)} is one of more than {self._most_nodes} nodes")

    def add(self, arrivals: Iterable[Arrival]) -> None:
        """Remember what was committed."""
        changed = set()
        for arrival in sorted(arrivals, key=lambda it: it.received_at):
            lane = arrival.lane
            known = self._lanes.setdefault(lane, _Known(IntervalSet(), arrival))
            known.spans.add(arrival.first, arrival.last)
            changed.add(lane)
            if arrival.received_at >= known.newest.received_at:
                known.newest = arrival
                node = (lane.cluster, lane.node)
                self._nodes.setdefault(node, OrderedDict())[lane] = None
                self._nodes[node].move_to_end(lane)
                self._nodes.move_to_end(node)
        # Trimmed only now: in between there may have been more spans than at the end.
        for lane in changed:
            self._lanes[lane].spans.trim()
        for node in {(lane.cluster, lane.node) for lane in changed}:
            self._bound_lanes(node)
        self._bound_nodes()

    def _bound_lanes(self, node: Node) -> None:
        lanes = self._nodes[node]
        while len(lanes) > MOST_LANES:
            lane, _ = lanes.popitem(last=False)
            del self._lanes[lane]
        if len(lanes) == MOST_LANES:
            self._full[node] = self._lanes[next(iter(lanes))].newest.received_at

    def _bound_nodes(self) -> None:
        while len(self._nodes) > self._most_nodes:
            node, lanes = self._nodes.popitem(last=False)
            for lane in lanes:
                del self._lanes[lane]
            self._full.pop(node, None)
        self._nodes_full = None
        if len(self._nodes) == self._most_nodes:
            silent = self._nodes[next(iter(self._nodes))]
            self._nodes_full = self._lanes[next(reversed(silent))].newest.received_at

    def compact(self, since: datetime) -> list[Arrival]:
        """Return the set in as few arrivals as possible; lanes silent since `since` are forgotten."""
        for lane in [key for key, it in self._lanes.items() if it.newest.received_at < since]:
            node = (lane.cluster, lane.node)
            del self._lanes[lane]
            del self._nodes[node][lane]
            self._full.pop(node, None)
            if not self._nodes[node]:
                del self._nodes[node]
        self._bound_nodes()
        return [
            replace(known.newest, first=first, last=last)
            for known in self._lanes.values()
            for first, last in known.spans
        ]

    def nodes(self) -> list[Arrival]:
        """Return the newest arrival of every node, sorted by cluster and node."""
        newest: dict[Node, Arrival] = {}
        for known in list(self._lanes.values()):
            key = (known.newest.lane.cluster, known.newest.lane.node)
            if key not in newest or known.newest.received_at > newest[key].received_at:
                newest[key] = known.newest
        return [newest[key] for key in sorted(newest)]

    def live_at(self) -> dict[Node, datetime]:
        """Return when the newest live body of each node came; a node that sent only backlog is left out."""
        newest: dict[Node, datetime] = {}
        for known in list(self._lanes.values()):
            lane, at = known.newest.lane, known.newest.received_at
            if lane.lane == LIVE:
                node = (lane.cluster, lane.node)
                newest[node] = max(newest.get(node, at), at)
        return newest
