"""Which bodies were committed, so that one that is sent again is not stored twice."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuvigil.clock import from_text, to_ns
from gpuvigil.store import EARLIEST_NS, LATEST_NS


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lane:
    """One numbered row of bodies: a start of a collector, live or backlog."""

    cluster: str
    node: str
    boot: str
    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose body this is and which one, as its headers say."""

    lane: Lane
    sequence: int
    sent_at: datetime | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Bodies `first` to `last` of a lane, committed; the rest is said of the newest of them."""

    lane: Lane
    first: int
    last: int
    received_at: datetime
    sent_at: datetime | None = None
    version: str = ""


# Each lane is remembered for a month, so that its names may not be long.
LONGEST_NAME = 256

# A sequence is stored as a signed 64-bit integer.
_LARGEST = 2**63 - 1


def identity(headers: Mapping[str, str]) -> Identity | None:
    """What the `Gpuvigil-*` headers say; None without them, ValueError when they are wrong."""
    if "gpuvigil-sequence" not in headers:
        return None
    names = {key: headers.get(f"gpuvigil-{key}", "") for key in ("cluster", "node", "boot", "lane")}
    for key, value in names.items():
        if not value:
            raise ValueError(f"Gpuvigil-{key.capitalize()} is missing")
        if len(value) > LONGEST_NAME:
            raise ValueError(
                f"Gpuvigil-{key.capitalize()} is longer than {LONGEST_NAME} characters"
            )
    if names["lane"] not in {"live", "backlog"}:
        raise ValueError("Gpuvigil-Lane is neither live nor backlog")
    text = headers["gpuvigil-sequence"]
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _LARGEST:
        raise ValueError("Gpuvigil-Sequence is not a whole number from 1")
    sent_at = _sent_at(headers.get("gpuvigil-sent-at", ""))
    version = headers.get("gpuvigil-version", "")[:LONGEST_NAME]
    return Identity(lane=Lane(**names), sequence=int(text), sent_at=sent_at, version=version)


def _sent_at(text: str) -> datetime | None:
    """None where it is no time, or one of a clock that was never set."""
    try:
        found = from_text(text)
    except ValueError:
        return None
    return found if EARLIEST_NS <= to_ns(found) <= LATEST_NS else None


class Spans:
    """A set of whole numbers, small while they have few gaps."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._spans, (number, _LARGEST)) - 1
        return index >= 0 and number <= self._spans[index][1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._spans)

    def add(self, first: int, last: int) -> None:
        """Take in `first` to `last`, both included."""
        # The spans that touch the new one lie side by side, and are joined with it.
        start = bisect_right(self._spans, (first - 1, -1))
        if start and self._spans[start - 1][1] >= first - 1:
            start -= 1
        end = start
        while end < len(self._spans) and self._spans[end][0] <= last + 1:
            first = min(first, self._spans[end][0])
            last = max(last, self._spans[end][1])
            end += 1
        self._spans[start:end] = [(first, last)]


@dataclass(slots=True)
class _Known:
    spans: Spans
    newest: Arrival


@dataclass(slots=True)
class Seen:
    """Every committed body with an identity, and for each node the newest."""

    _lanes: dict[Lane, _Known] = field(default_factory=dict)

    def __contains__(self, body: Identity) -> bool:
        known = self._lanes.get(body.lane)
        return known is not None and body.sequence in known.spans

    def add(self, arrivals: Iterable[Arrival]) -> None:
        """Remember what was committed."""
        for arrival in arrivals:
            known = self._lanes.setdefault(arrival.lane, _Known(Spans(), arrival))
            known.spans.add(arrival.first, arrival.last)
            if arrival.received_at >= known.newest.received_at:
                known.newest = arrival

    def compact(self, since: datetime) -> list[Arrival]:
        """The same set in as few arrivals as possible; lanes silent since `since` are forgotten."""
        for lane in [key for key, it in self._lanes.items() if it.newest.received_at < since]:
            del self._lanes[lane]
        return [
            replace(known.newest, first=first, last=last)
            for known in self._lanes.values()
            for first, last in known.spans
        ]

    def nodes(self) -> list[Arrival]:
        """The newest arrival of every node, by cluster and node."""
        newest: dict[tuple[str, str], Arrival] = {}
        for known in list(self._lanes.values()):
            key = (known.newest.lane.cluster, known.newest.lane.node)
            if key not in newest or known.newest.received_at > newest[key].received_at:
                newest[key] = known.newest
        return [newest[key] for key in sorted(newest)]
