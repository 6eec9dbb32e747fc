"""What `gpuvigil usage` asks: a span as one ledger, from as few records as there are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..clock import EPOCH
from ..hub import Hub
from ..model import Record, RecordKind, readable
from .ledger import DAY, HOUR, STATES, Ledger, summed
from .model import BUCKET, cluster_key, floor
from .query import quarters_from_store
from .read import MOST_RECORDS

# Quarters that nobody recorded yet are counted on the spot up to so many minutes of GPUs; of a
# larger fleet a long span ends with the newest quarter that was.
_AT_ONCE = 60_000
_LONG = timedelta(hours=6)
_Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A span of a cluster; `until` is before the ledger's end where the newest was not counted."""

    ledger: Ledger
    until: datetime
    asked_until: datetime


def answer(hub: Hub, cluster: str, start: datetime, end: datetime, now: datetime) -> Answer:
    """Usage over whole quarters of an hour, the running one cut at `now`.

    HubUnavailable, HubRefused or StoreError when the hub does not answer.
    """
    start = floor(start)
    until = asked = min(ceiling_of(end, BUCKET), now)
    found = cover(hub, cluster, (start, until))
    last = max(found, key=lambda one: one.end, default=None)
    recorded_until = start if last is None else min(last.end, until)
    rows = 0 if last is None else last.gpus * ((until - recorded_until) // timedelta(minutes=1))
    if rows > _AT_ONCE and until - start >= _LONG:
        until = recorded_until
    elif recorded_until < until:
        known = {one.start for one in found if one.length == BUCKET}
        span = recorded_until if found else start, until
        found += [Ledger.of(one) for one in quarters_from_store(hub, cluster, span, known, now)]
    whole = summed(found, cluster, start, max(until - start, timedelta()), now)
    return Answer(ledger=whole, until=until, asked_until=asked)


def cover(
    hub: Hub,
    cluster: str,
    span: _Span,
    lengths: Sequence[timedelta] = (DAY, HOUR, BUCKET),
    instead: Mapping[tuple[datetime, timedelta], Ledger] | None = None,
) -> list[Ledger]:
    """Ledgers that lie in a span and not over each other, the longest there are.

    What `instead` has by start and length is taken for what is recorded.
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
                taken |= _recorded(hub, cluster, (first, last), length)
                for (start, of), ledger in (instead or {}).items():
                    if of == length and first <= start < last:
                        taken[start] = ledger
        found += taken.values()
        gaps = [gap for one in gaps for gap in _without(one, sorted(taken), length)]
    return found


def _recorded(hub: Hub, cluster: str, span: _Span, length: timedelta) -> dict[datetime, Ledger]:
    kind = RecordKind.USAGE if length == BUCKET else RecordKind.USAGE_SPAN
    records: Sequence[Record] = hub.records(
        kind,
        subject=cluster_key(cluster),
        since=span[0],
        until=span[1],
        states=() if length == BUCKET else (STATES[length],),
        limit=MOST_RECORDS,
    )
    ledgers = readable(records, Ledger.from_record)
    return {
        one.start: one
        for one in ledgers
        if one.cluster == cluster and one.start == floor_of(one.start, length)
    }


def _without(span: _Span, starts: Sequence[datetime], length: timedelta) -> Iterator[_Span]:
    since, until = span
    for start in starts:
        if since <= start < until:
            if since < start:
                yield since, start
            since = start + length
    if since < until:
        yield since, until


def floor_of(at: datetime, length: timedelta) -> datetime:
    """The start of the quarter, hour or day in UTC that a time lies in."""
    return EPOCH + (at - EPOCH) // length * length


def ceiling_of(at: datetime, length: timedelta) -> datetime:
    """The first start of one at a time or after it."""
    down = floor_of(at, length)
    return down if down == at else down + length
