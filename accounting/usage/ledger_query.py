"""The query behind `gpuvigil usage`: a span as one ledger, from as few records as possible."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

from gpuvigil.clock import EPOCH
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind, readable

from .allocations import MOST_RECORDS
from .grid import MINUTE
from .ledger import DAY, HOUR, SIX_HOURS, STATES, Ledger, summed
from .model import BUCKET, cluster_key, floor
from .query import COUNTED_HERE, quarters_from_store

# Unrecorded quarters are counted on the spot up to this many GPU-minutes; for a larger fleet, a long span
# ends with the newest recorded quarter.
_AT_ONCE = 60_000
_LONG = timedelta(hours=6)
_Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A span of a cluster; `until` is before the ledger's end where the newest quarters were not counted."""

    ledger: Ledger
    until: datetime
    asked_until: datetime
    parts: tuple[Ledger, ...]  # the same, cut at the requested times
    # Uncounted quarters between the first counted one and `until`: they are in no number here.
    missing: int = 0
    counted_since: datetime | None = None  # the first counted quarter; None without any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The wanted parts of an answer; parts that are not read cost nothing."""

    cuts: Sequence[datetime] = ()  # midnights in UTC at which a part begins
    places: bool = True  # otherwise merged into one
    holders: bool = True


_WHOLE = Shape()


def answer(
    hub: Hub,
    cluster: str,
    start: datetime,
    end: datetime,
    now: datetime,
    shape: Shape = _WHOLE,
) -> Answer:
    """Return the usage over whole quarters of an hour, the running one cut at `now`.

    `parts` begin at the start and at those cuts that lie within the span. Raises HubUnavailable, HubRefused
    or StoreError when the hub does not answer.
    """
    start, asked = _in_quarters((start, end), now)
    found, until = ledgers(hub, cluster, (start, end), now, shape)
    length = max(until - start, timedelta())
    parts = _cut(found, cluster, (start, start + length), shape.cuts, now)
    whole = parts[0] if not parts[1:] else summed(parts, cluster, start, length, now)
    return Answer(
        ledger=whole,
        until=until,
        asked_until=asked,
        parts=parts,
        missing=_missing(found, until),
        counted_since=min((_began(one) for one in found), default=None),
    )


def ledgers(
    hub: Hub, cluster: str, span: _Span, now: datetime, shape: Shape = _WHOLE
) -> tuple[list[Ledger], datetime]:
    """Return the ledgers that `answer` adds up, in no order, and until when they reach."""
    start, until = _in_quarters(span, now)
    found = cover(hub, cluster, (start, until), shape=shape)
    last = max(found, key=lambda one: one.end, default=None)
    recorded_until = start if last is None else min(last.end, until)
    gpus = 0 if last is None else last.gpus
    if gpus * ((until - recorded_until) // MINUTE) > _AT_ONCE and until - start >= _LONG:
        until = recorded_until
    for hole in _worth_counting(found, (start, until), gpus, now):
        found += map(Ledger.of, quarters_from_store(hub, cluster, hole, (), now))
    return found, until


def _in_quarters(span: _Span, now: datetime) -> _Span:
    return floor(span[0]), min(ceiling_of(span[1], BUCKET), now)


def _worth_counting(
    found: Sequence[Ledger], span: _Span, gpus: int, now: datetime
) -> Iterator[_Span]:
    """Yield the gaps to count on the spot: the last, and of the others the newest while they are small.

    After an outage the newest quarters are counted first, so the recorded ones may have gaps anywhere.
    """
    gaps = [span]
    for one in found:
        gaps = [gap for of in gaps for gap in _without(of, [one.start], one.length)]
    oldest = floor(now - COUNTED_HERE)
    rows = 0
    for since, until in sorted(gaps, reverse=True):
        since = max(since, oldest)  # noqa: PLW2901 - what is older was forgotten
        rows += gpus * ((until - since) // MINUTE)
        if since < until and (until == span[1] or rows <= _AT_ONCE):
            yield since, until


def _began(one: Ledger) -> datetime:
    """Return when counting began in a ledger, if no quarter is missing after its first one."""
    return max(one.start, one.end - one.quarters * BUCKET)


def _missing(found: Sequence[Ledger], until: datetime) -> int:
    """Return the number of whole quarters, from the first counted one on, that are in none of the ledgers."""
    whole = [one for one in found if one.end <= until]
    if not whole:
        return 0
    first = min(whole, key=lambda one: one.start)
    # For the first day, nobody knows which of its quarters was the first.
    unknown = first.length // BUCKET - first.quarters
    return (until - first.start) // BUCKET - unknown - sum(one.quarters for one in whole)


def _cut(
    found: Sequence[Ledger], cluster: str, span: _Span, cuts: Sequence[datetime], now: datetime
) -> tuple[Ledger, ...]:
    edges = (span[0], *(one for one in sorted(cuts) if span[0] < one < span[1]), span[1])
    return tuple(
        summed(
            [one for one in found if since <= one.start < until],
            cluster,
            since,
            until - since,
            now,
        )
        for since, until in pairwise(edges)
    )


def cover(
    hub: Hub,
    cluster: str,
    span: _Span,
    lengths: Sequence[timedelta] = (DAY, SIX_HOURS, HOUR, BUCKET),
    instead: Mapping[tuple[datetime, timedelta], Ledger] | None = None,
    shape: Shape = _WHOLE,
) -> list[Ledger]:
    """Return ledgers that lie in a span without overlap, the longest there are.

    A ledger in `instead`, by start and length, replaces the recorded one.
    """
    found: list[Ledger] = []
    gaps = [span]
    for length in lengths:
        taken: dict[datetime, Ledger] = {}
        for since, until in gaps:
            first, last = ceiling_of(since, length), floor_of(until, length)
            if length == BUCKET:
                last = until
            if first < last:
                taken |= _recorded(hub, cluster, (first, last), length, shape)
                for (start, of), ledger in (instead or {}).items():
                    if of == length and first <= start < last:
                        taken[start] = ledger
        found += taken.values()
        gaps = [gap for one in gaps for gap in _without(one, sorted(taken), length)]
    return found


def _recorded(
    hub: Hub, cluster: str, span: _Span, length: timedelta, shape: Shape
) -> dict[datetime, Ledger]:
    kind = RecordKind.USAGE if length == BUCKET else RecordKind.USAGE_SPAN
    records: Sequence[Record] = hub.records(
        kind,
        subject=cluster_key(cluster),
        since=span[0],
        until=span[1],
        states=() if length == BUCKET else (STATES[length],),
        limit=MOST_RECORDS,
    )
    read = partial(Ledger.from_record, places=shape.places, holders=shape.holders)
    ledgers = readable(records, read)
    return {
        one.start: one
        for one in ledgers
        if one.cluster == cluster and one.start == floor_of(one.start, length)
    }


def _without(span: _Span, starts: Sequence[datetime], length: timedelta) -> Iterator[_Span]:
    """Yield the pieces of a span outside the ledgers that begin at `starts`, including empty pieces."""
    since, until = span
    for start in starts:
        if since <= start < until:
            yield since, start
            since = start + length
    yield since, until


def floor_of(at: datetime, length: timedelta) -> datetime:
    """Return the start of the quarter, hour or day in UTC that a time lies in."""
    return EPOCH + (at - EPOCH) // length * length


def ceiling_of(at: datetime, length: timedelta) -> datetime:
    """Return the first such start at or after a time."""
    down = floor_of(at, length)
    return down if down == at else down + length
