"""What each holder had over a span, and how much was idle by the rule, whether or not anybody was notified.

By the idle rule a GPU is idle when it is held and computes nothing for half an hour. Spells of that
length are counted with each quarter of an hour (`Share.idle_long`); the part of a spell before the quarter
in which it reached that length is put back into the earlier quarters. A quarter that an earlier version or
another idle threshold counted is judged by what computed nothing in all of it (`Share.quiet`): GPUs quiet
in enough quarters in a row are idle, and the ends of such a run are what was at 0 % right before and after
it. Incidents are used only for the hours in which a fault kept a holder from working (`excused`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from itertools import pairwise
from typing import Any

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
_AMOUNTS = (
    *("allocated", "measured", "used", "idle", "quiet", "energy_joules"),
    *("idle_long", "idle_long_before"),
)
_COLUMNS = pa.schema([SHARES.field(name) for name in (*_KEY, "gpus", *_AMOUNTS)])
_MOST_NUMBERS = 2**62  # fits a 64-bit integer
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Hourly = tuple[float, float, float]
Span = tuple[datetime, datetime]
Excused = Mapping[str, Sequence[Span]]  # by holder: when a fault kept it from working


class Hours(Mapping[int, Hourly]):
    """One holder's part of the hourly columns of all holders; values are made on first access."""

    __slots__ = ("_columns", "_first", "_last", "_values")

    def __init__(self, columns: Sequence[npt.NDArray[Any]], first: int, last: int) -> None:
        """Keep `columns`, the hour numbers and their amounts, and the range of this holder's rows in them."""
        self._columns, self._first, self._last = columns, first, last
        self._values: dict[int, Hourly] | None = None

    def __getitem__(self, hour: int) -> Hourly:
        return self._all()[hour]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return self._last - self._first

    def _all(self) -> dict[int, Hourly]:
        if self._values is None:
            rows = slice(self._first, self._last)
            number, held, idle, used = (one[rows].tolist() for one in self._columns)
            self._values = dict(zip(number, zip(held, idle, used, strict=True), strict=True))
        return self._values


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The usage of one holder on GPUs of one model, in GPU-hours."""

    holder: str
    user: str
    account: str
    project: str
    partition: str
    model: str
    gpus: int  # most different GPUs in one quarter
    allocated: float
    measured: float
    used: float
    idle: float  # by the idle rule
    idle_most: float  # an upper bound: `idle`, and all that was at 0 % in quarters without `quiet`
    excused: float  # idle by the rule, while a fault kept it from working
    still: int  # GPUs idle by the rule at the span's end that no fault explains
    price: float | None  # of a GPU-hour; None where no part of the holding has one
    kilowatt_hours: float
    # By number of a clock hour, counted from that of the first bucket: GPU-hours held, of them idle by the
    # rule, and used. Hours in which nothing was held are left out.
    hourly: Mapping[int, Hourly] = field(compare=False, repr=False)

    @property
    def is_one(self) -> bool:
        """Whether this is one job or one user's processes, and not the rest of many."""
        return self.holder not in {OTHERS, NOBODY_KNOWN}


def holdings(
    buckets: Sequence[Bucket],
    prices: Prices,
    after: timedelta,
    excused: Excused | None = None,
) -> tuple[Holding, ...]:
    """Return a row per holder and model, the largest allocation first."""
    if not buckets:
        return ()
    rows, quarter = _rows(buckets)
    if not rows.num_rows:
        return ()
    of, heads = _numbered(rows)
    known = {name: _column(rows, name) for name in _AMOUNTS}
    amounts = {name: np.nan_to_num(one) for name, one in known.items()}
    sums = {name: _sums(of, one, len(heads)) for name, one in amounts.items()}
    cells = _Cells(buckets, of, quarter)
    held, quiet, used = (cells.sums(amounts[name]) for name in ("allocated", "quiet", "used"))
    by_rule = cells.in_rows(quiet, cells.sums(known["idle"]), max(after // BUCKET, 1))
    spells = cells.sums(known["idle_long"]), cells.sums(known["idle_long_before"])
    counted = np.array([one.idle_after == after for one in buckets])[quarter]
    if counted.any():
        by_rule = cells.put_back(by_rule, spells, counted, held - used, after)
    by_rule_of = _sums(cells.holder, by_rule, len(heads))
    dark = _sums(of, np.where(np.isnan(known["quiet"]), known["idle"], 0.0), len(heads))
    spans = [(excused or {}).get(head[0], ()) for head in heads]
    gpus = np.zeros(len(heads), np.int64)
    np.maximum.at(gpus, of, rows["gpus"].to_numpy())
    columns = {
        "gpus": gpus.tolist(),
        **{name: (sums[name] / _HOUR).tolist() for name in ("allocated", "measured", "used")},
        "idle": (by_rule_of / _HOUR).tolist(),
        "idle_most": ((by_rule_of + dark) / _HOUR).tolist(),
        "excused": (cells.within(by_rule, spans) / _HOUR).tolist(),
        "still": _still(buckets[-1], cells, by_rule, spans),
        "price": _prices(buckets, heads, of, quarter, known["allocated"], prices),
        "kilowatt_hours": (sums["energy_joules"] / 3.6e6).tolist(),
        "hourly": cells.by_hour((held, by_rule, used), len(heads)),
    }
    names = (*_KEY, *columns)
    found = (
        Holding(**dict(zip(names, (*head, *row), strict=True)))
        for head, *row in zip(heads, *columns.values(), strict=True)
    )
    return tuple(sorted(found, key=lambda one: (-one.allocated, one.holder, one.user, one.model)))


def _still(
    last: Bucket, cells: "_Cells", idle: Floats, spans: Sequence[Sequence[Span]]
) -> list[int]:
    """Return the number of GPUs that are idle in the last quarter per holder; 0 where a fault explains it."""
    seconds = _sums(cells.holder, np.where(cells.is_last, idle, 0.0), len(spans))
    gpus = (seconds / max(last.counted.total_seconds(), 1.0)).tolist()
    return [
        0 if of_holder and _in_any(last.start, of_holder) else round(number)
        for number, of_holder in zip(gpus, spans, strict=True)
    ]


def idle_by_rule(quiet: Floats, idle: Floats, quarters: int) -> Floats:
    """Return the idle seconds of each holder (rows) and quarter (columns), from seconds quiet and at 0 %.

    In a run of `quarters` in a row, the least quiet seconds are idle in all of them. Right before and after
    such a run, time at 0 % counts as idle as well, up to the number of GPUs of the run.
    """
    starts = quiet.shape[-1] - quarters + 1
    found = np.zeros_like(quiet)
    if starts > 0:
        in_a_row = [quiet[..., shift : shift + starts] for shift in range(quarters)]
        least = reduce(np.minimum, in_a_row)
        for shift in range(quarters):
            part = found[..., shift : shift + starts]
            np.maximum(part, least, out=part)
    beside = np.zeros_like(found)
    beside[..., 1:] = found[..., :-1]
    beside[..., :-1] = np.maximum(beside[..., :-1], found[..., 1:])
    ends = np.minimum(np.maximum(idle - found, 0.0), np.maximum(beside - found, 0.0))
    total: Floats = found + ends
    return total


def excused_by(
    incidents: Iterable[Incident], end: datetime, alone: Collection[str] = ()
) -> Excused:
    """Return the spans in which a fault kept each holder from working; `alone` are holders on one node."""
    found: defaultdict[str, list[Span]] = defaultdict(list)
    for one in incidents:
        for holder in held_up(one, alone):
            found[holder].append((one.since, one.resolved_at or end))
    return found


class _Cells:
    """The quarters in which each holder had anything; over a week these are few of all quarters."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        of: Ints,
        quarter: Ints,
    ) -> None:
        self._first = buckets[0].start
        places = np.array([(one.start - self._first) // BUCKET for one in buckets], np.int64)
        width = int(places[-1]) + 1
        found, self._cell = np.unique(of * width + places[quarter], return_inverse=True)
        self.holder, self.place = np.divmod(found, width)
        self.is_last = self.place == places[-1]
        # One empty cell before each holder and each gap separates what is not consecutive.
        apart = (np.diff(found) > 1) | (np.diff(self.holder) > 0)
        self._at = np.arange(len(found)) + np.concatenate(([0], np.cumsum(apart)))

    def sums(self, values: Floats) -> Floats:
        """Return the sums of row amounts by cell."""
        return _sums(self._cell, values, len(self.holder))

    def in_rows(self, quiet: Floats, idle: Floats, quarters: int) -> Floats:
        """Return the idle seconds of each cell by the rule."""
        found = idle_by_rule(self._line(quiet), self._line(idle), quarters)
        return np.asarray(found[self._at])

    def put_back(
        self,
        by_quarters: Floats,
        spells: tuple[Floats, Floats],
        counted: npt.NDArray[np.bool_],
        unused: Floats,
        after: timedelta,
    ) -> Floats:
        """Return the idle seconds of each cell from its spells, the time before them put back; else by quarters.

        `counted` says of each row whether its spells were counted. A cell gets no more than was unused in it;
        what would fall before the holder's first cell or the span is dropped.
        """
        own = np.isfinite(spells[0]) & (self.sums(np.where(counted, 0.0, 1.0)) == 0)
        found = self._line(np.where(own, spells[0], by_quarters))
        room = np.maximum(self._line(np.where(own, unused, 0.0)) - found, 0.0)
        there, left = self._line(np.ones(len(own))), self._line(np.where(own, spells[1], 0.0))
        for _ in range(-(-after // BUCKET) + 1):
            left = np.append(left[1:], 0.0) * there
            taken = np.minimum(left, room)
            found, room, left = found + taken, room - taken, left - taken
        return np.asarray((found + left)[self._at])

    def _line(self, values: Floats) -> Floats:
        line = np.zeros(self._at[-1] + 1)
        line[self._at] = values
        return line

    def by_hour(self, seconds: tuple[Floats, Floats, Floats], holders: int) -> list[Hours]:
        """Return each holder's GPU-hours by clock hour, from the seconds of its cells."""
        quarters = timedelta(hours=1) // BUCKET
        hour = (self.place + timedelta(minutes=self._first.minute) // BUCKET) // quarters
        starts = np.nonzero(np.diff(self.holder, prepend=-1) | np.diff(hour, prepend=-1))[0]
        amounts = [np.add.reduceat(one, starts) / _HOUR for one in seconds]
        columns = hour[starts], *amounts
        edges = np.searchsorted(self.holder[starts], np.arange(holders + 1)).tolist()
        return [Hours(columns, *edge) for edge in pairwise(edges)]

    def within(self, idle: Floats, spans: Sequence[Sequence[Span]]) -> Floats:
        """Return each holder's idle seconds in quarters that overlap one of its spans."""
        found = np.zeros(len(spans))
        some = np.isin(self.holder, [number for number, one in enumerate(spans) if one])
        for cell in np.nonzero(some & (idle > 0))[0].tolist():
            holder, at = int(self.holder[cell]), self._first + int(self.place[cell]) * BUCKET
            if _in_any(at, spans[holder]):
                found[holder] += idle[cell]
        return found


def _rows(buckets: Sequence[Bucket]) -> tuple[pa.Table, Ints]:
    """Return all shares as one table, and the bucket index of each."""
    quarter = np.repeat(np.arange(len(buckets)), [len(one.shares) for one in buckets])
    if any(isinstance(one.shares, Rows) for one in buckets):
        tables = [table_of(one.shares, SHARES) for one in buckets]
    else:
        tables = [table_of([share for one in buckets for share in one.shares], SHARES)]
    return together(tables, _COLUMNS), quarter


def _numbered(rows: pa.Table) -> tuple[Ints, list[tuple[str, ...]]]:
    """Return a number for each row's holder, and the key of each number."""
    code, numbers = np.zeros(rows.num_rows, np.int64), 1
    columns = []
    for name in _KEY:
        of_rows = rows[name].combine_chunks()
        column = pc.fill_null(of_rows.indices, -1).to_numpy()
        # The last index stands for null.
        names = [*(one or "" for one in of_rows.dictionary.to_pylist()), ""]
        columns.append((column, names))
        if numbers * len(names) > _MOST_NUMBERS:
            known, code = _different(code)
            numbers = len(known)
        numbers *= len(names)
        code = code * len(names) + column + 1
    first, number = _different(code)
    heads = ([names[at] for at in column[first].tolist()] for column, names in columns)
    return number, list(zip(*heads, strict=True))


def _different(codes: Ints) -> tuple[Ints, Ints]:
    """Return the first row of each distinct code, in the order of codes, and the code number of each row.

    Codes are hashed, since most rows repeat a code: a fraction of the time that sorting all rows takes.
    """
    coded = pa.array(codes).dictionary_encode()
    number = coded.indices.to_numpy()
    first = np.nonzero(np.diff(np.maximum.accumulate(number), prepend=-1))[0]
    order = np.argsort(coded.dictionary.to_numpy())
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[number]


def _column(rows: pa.Table, name: str) -> Floats:
    found: Floats = rows[name].to_numpy()
    return found.astype(np.float64, copy=False)


def _prices(
    buckets: Sequence[Bucket],
    heads: Sequence[tuple[str, ...]],
    of: Ints,
    quarter: Ints,
    allocated: Floats,
    prices: Prices,
) -> list[float | None]:
    """Return the mean price of each holder's priced GPU-hours; None where none has a price."""
    if not prices:
        return [None] * len(heads)
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
    priced = _sums(of, np.where(known, allocated, 0.0), len(heads))
    pairs = zip(cost.tolist(), priced.tolist(), strict=True)
    return [amount / seconds if seconds > 0 else None for amount, seconds in pairs]


def _sums(of: Ints, values: Floats, size: int) -> Floats:
    found: Floats = np.bincount(of, values, size).astype(np.float64)
    return found


def _price(prices: Prices, cluster: str, model: str, at: datetime) -> float:
    found = prices.price(cluster, model or None, at)
    return float("nan") if found is None else found.per_gpu_hour


def _in_any(quarter: datetime, spans: Iterable[Span]) -> bool:
    """Return whether the quarter overlaps any of the spans."""
    return any(since < quarter + BUCKET and quarter < until for since, until in spans)
