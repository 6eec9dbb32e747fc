"""What each holder had over a span, and how much of it was idle by the rule, whether or not anybody was told.

The idle rule asks for a GPU that is held and computes nothing for half an hour. Of each quarter it is kept
how many GPU-seconds were of GPUs that computed nothing in all of it (`Share.quiet`): quarters in a row of
which each has so many are idle, and the two ends of such a row are what was at 0 % right before and after
it. Nothing is asked of incidents but whom a fault kept from working: those hours are `excused`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.model import Incident

from ..cost.money import Prices
from ..usage import Bucket
from ..usage.amounts import OTHERS
from ..usage.columns import SHARES, Rows, table_of, together
from ..usage.model import BUCKET
from ..usage.ownership import NOBODY_KNOWN
from .idle_query import held_up

_HOUR = 3600.0
_KEY = ("holder", "user", "account", "project", "partition", "model")
_AMOUNTS = ("allocated", "measured", "used", "idle", "quiet", "energy_joules")
Floats = npt.NDArray[np.float64]
Span = tuple[datetime, datetime]
Excused = Mapping[str, Sequence[Span]]  # by holder: when a fault kept it from working


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one holder had on GPUs of one model, in GPU-hours."""

    holder: str
    user: str
    account: str
    project: str
    partition: str
    model: str
    gpus: int  # different ones in a quarter, at most
    allocated: float
    measured: float
    used: float
    idle: float  # by the rule
    idle_most: float  # with the quarters of which it is not known: all that was at 0 % in them
    excused: float  # idle by the rule, while a fault kept it from working
    still: int  # GPUs that are idle by the rule at the span's end, and no fault explains it
    price: float | None  # of a GPU-hour; None where no part of it has one
    kilowatt_hours: float
    # Of each clock hour from that of the first bucket on: GPU-hours that it held, and of them idle by the rule.
    hourly: tuple[Floats, Floats] = field(compare=False, repr=False)

    @property
    def is_one(self) -> bool:
        """Whether it is one job or a user's processes, and not what is left of many."""
        return self.holder not in {OTHERS, NOBODY_KNOWN}


def holdings(
    buckets: Sequence[Bucket],
    prices: Prices,
    after: timedelta,
    excused: Excused | None = None,
) -> tuple[Holding, ...]:
    """A row per holder and model, those that had most first."""
    if not buckets:
        return ()
    rows, quarter = _rows(buckets)
    if not rows.num_rows:
        return ()
    of, heads = _numbered(rows)
    amounts = {name: _column(rows, name) for name in _AMOUNTS}
    grid = _Grid(buckets, of, quarter, len(heads))
    sums = {name: _sums(of, np.nan_to_num(one), len(heads)) for name, one in amounts.items()}
    quiet, idle = grid.of(np.nan_to_num(amounts["quiet"])), grid.of(amounts["idle"])
    by_rule = idle_by_rule(quiet, idle, max(after // BUCKET, 1))
    dark = _sums(of, np.where(np.isnan(amounts["quiet"]), amounts["idle"], 0.0), len(heads))
    hourly = tuple(
        _by_hour(one, buckets[0].start)
        for one in (grid.of(np.nan_to_num(amounts["allocated"])), by_rule)
    )
    cost, priced = _costs(buckets, heads, of, quarter, amounts["allocated"], prices)
    last = by_rule[:, -1] / max(buckets[-1].counted.total_seconds(), 1.0)
    gpus = np.zeros(len(heads), np.int64)
    np.maximum.at(gpus, of, rows["gpus"].to_numpy())
    found = []
    for number, head in enumerate(heads):
        spans = (excused or {}).get(head[0], ())
        idle_seconds = float(by_rule[number].sum())
        found.append(
            Holding(
                **dict(zip(_KEY, head, strict=True)),
                gpus=int(gpus[number]),
                allocated=float(sums["allocated"][number]) / _HOUR,
                measured=float(sums["measured"][number]) / _HOUR,
                used=float(sums["used"][number]) / _HOUR,
                idle=idle_seconds / _HOUR,
                idle_most=(idle_seconds + float(dark[number])) / _HOUR,
                excused=_within(by_rule[number], buckets, spans) / _HOUR,
                still=0 if _in_any(buckets[-1].start, spans) else round(float(last[number])),
                price=float(cost[number] / priced[number]) if priced[number] > 0 else None,
                kilowatt_hours=float(sums["energy_joules"][number]) / 3.6e6,
                hourly=(hourly[0][number], hourly[1][number]),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.allocated, one.holder, one.user, one.model)))


def idle_by_rule(quiet: Floats, idle: Floats, quarters: int) -> Floats:
    """Idle seconds of each holder (down) and quarter (across), from those that were quiet and at 0 %.

    Of so many quarters in a row the least quiet one is idle in all of them; right before and after, what
    was at 0 % besides belongs to it as far as the row has so many GPUs.
    """
    width = quiet.shape[1]
    found = np.zeros_like(quiet)
    for start in range(width - quarters + 1):
        least = quiet[:, start : start + quarters].min(axis=1)
        part = found[:, start : start + quarters]
        np.maximum(part, least[:, None], out=part)
    beside = np.zeros_like(found)
    beside[:, 1:] = found[:, :-1]
    beside[:, :-1] = np.maximum(beside[:, :-1], found[:, 1:])
    ends = np.minimum(np.maximum(idle - found, 0.0), np.maximum(beside - found, 0.0))
    total: Floats = found + ends
    return total


def excused_by(
    incidents: Iterable[Incident], end: datetime, alone: Collection[str] = ()
) -> Excused:
    """Whom a fault kept from working, and when: nobody is ranked for those hours. `alone`: on one node."""
    found: defaultdict[str, list[Span]] = defaultdict(list)
    for one in incidents:
        for holder in held_up(one, alone):
            found[holder].append((one.since, one.resolved_at or end))
    return found


class _Grid:
    """Amounts by holder and quarter; a quarter that was not counted is 0."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        of: npt.NDArray[np.int64],
        quarter: npt.NDArray[np.int64],
        holders: int,
    ) -> None:
        first = buckets[0].start
        place = np.array([(one.start - first) // BUCKET for one in buckets], np.int64)
        self._shape = holders, int(place[-1]) + 1
        self._cell = of * self._shape[1] + place[quarter]

    def of(self, values: Floats) -> Floats:
        found: Floats = _sums(self._cell, values, self._shape[0] * self._shape[1])
        return found.reshape(self._shape)


def _by_hour(seconds: Floats, first: datetime) -> Floats:
    """GPU-hours of clock hours (across), from the seconds of quarters."""
    quarters = timedelta(hours=1) // BUCKET
    left = quarters - timedelta(minutes=first.minute) // BUCKET
    starts = [0, *range(left, seconds.shape[1], quarters)]
    found: Floats = np.add.reduceat(seconds, starts, axis=1) / _HOUR
    return found


def _rows(buckets: Sequence[Bucket]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """All shares as one table, and the bucket of each."""
    quarter = np.repeat(np.arange(len(buckets)), [len(one.shares) for one in buckets])
    if any(isinstance(one.shares, Rows) for one in buckets):
        tables = [table_of(one.shares, SHARES) for one in buckets]
    else:
        tables = [table_of([share for one in buckets for share in one.shares], SHARES)]
    return together(tables, SHARES), quarter


def _numbered(rows: pa.Table) -> tuple[npt.NDArray[np.int64], list[tuple[str, ...]]]:
    """A number for each row's holder, and what each number is."""
    code = np.zeros(rows.num_rows, np.int64)
    columns = []
    for name in _KEY:
        column = pc.fill_null(rows[name].combine_chunks().indices, -1).to_numpy()
        names = rows[name].combine_chunks().dictionary.to_pylist()
        columns.append((column, names))
        code = np.unique(code * (len(names) + 1) + column + 1, return_inverse=True)[1]
    _, first = np.unique(code, return_index=True)
    heads = [
        tuple("" if column[at] < 0 else names[column[at]] or "" for column, names in columns)
        for at in first.tolist()
    ]
    return code, heads


def _column(rows: pa.Table, name: str) -> Floats:
    found: Floats = rows[name].to_numpy()
    return found.astype(np.float64)


def _costs(
    buckets: Sequence[Bucket],
    heads: Sequence[tuple[str, ...]],
    of: npt.NDArray[np.int64],
    quarter: npt.NDArray[np.int64],
    allocated: Floats,
    prices: Prices,
) -> tuple[Floats, Floats]:
    """What each holder's GPU-seconds cost by the hour, and how many of them have a price."""
    if not prices:
        return np.zeros(len(heads)), np.zeros(len(heads))
    models = sorted({head[-1] for head in heads})
    changes = prices.changes(buckets[0].start, buckets[-1].start + BUCKET)
    period = np.array([sum(at <= one.start for at in changes) for one in buckets])
    begins = (buckets[0].start, *changes)
    table = np.array(
        [[_price(prices, buckets[0].cluster, model, at) for at in begins] for model in models]
    )
    model = np.array([models.index(head[-1]) for head in heads])
    price = table[model[of], period[quarter]]
    known = ~np.isnan(price)
    cost = _sums(of, np.where(known, allocated * price, 0.0), len(heads))
    return cost, _sums(of, np.where(known, allocated, 0.0), len(heads))


def _sums(of: npt.NDArray[np.int64], values: Floats, size: int) -> Floats:
    found: Floats = np.bincount(of, values, size).astype(np.float64)
    return found


def _price(prices: Prices, cluster: str, model: str, at: datetime) -> float:
    found = prices.price(cluster, model or None, at)
    return float("nan") if found is None else found.per_gpu_hour


def _within(idle: Floats, buckets: Sequence[Bucket], spans: Sequence[Span]) -> float:
    """Seconds of one holder's idle ones in quarters that lie in one of the spans in part."""
    if not spans:
        return 0.0
    first, total = buckets[0].start, 0.0
    for number in np.nonzero(idle)[0].tolist():
        at = first + number * BUCKET
        if _in_any(at, spans):
            total += float(idle[number])
    return total


def _in_any(quarter: datetime, spans: Iterable[Span]) -> bool:
    """Whether a part of it lies in one of them."""
    return any(since < quarter + BUCKET and quarter < until for since, until in spans)
