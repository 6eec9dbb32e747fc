"""Usage as columns: a quarter, one or six hours or a day of one cluster, added up by Arrow.

Amounts add up in any order: an hour is the sum of its quarters and a day that of its hours, and a query
about a week reads seven days instead of 672 quarters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import from_text, micros, to_text
from gpuvigil.model import Record, RecordKind

from .amounts import AMOUNTS, OTHERS, Place, Seconds
from .columns import HOLDER, PLACE, PLACES, SECONDS, SHARES, packed, table_of, together, unpacked
from .model import BUCKET, Bucket, cluster_key

HOUR, SIX_HOURS, DAY = timedelta(hours=1), timedelta(hours=6), timedelta(days=1)
# The name of a span in its record; a quarter has the kind `usage`.
STATES = {HOUR: "hour", SIX_HOURS: "six_hours", DAY: "day"}
_LENGTHS = {state: length for length, state in STATES.items()}
# Above this many holders in a span, the smallest are merged by user, account, partition, project and model.
MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Usage of one cluster from `start` on.

    `places` has a row per node and model, `holders` one per holder and model. An unknown name is empty in
    `places` and null in `holders`.
    """

    cluster: str
    start: datetime
    length: timedelta
    counted_at: datetime
    gpus: int  # most installed at once
    quarters: int  # counted ones
    places: pa.Table
    holders: pa.Table

    @property
    def end(self) -> datetime:
        return self.start + self.length

    @property
    def seconds(self) -> Seconds:
        """The sum over all places."""
        return Seconds(*(pc.sum(self.places[name]).as_py() or 0.0 for name in SECONDS))

    @classmethod
    def of(cls, bucket: Bucket) -> "Ledger":
        """Return the ledger of a quarter of an hour."""
        return cls(
            cluster=bucket.cluster,
            start=bucket.start,
            length=BUCKET,
            counted_at=bucket.counted_at,
            gpus=bucket.gpus,
            quarters=1,
            places=_places_of(bucket),
            holders=table_of(bucket.shares, SHARES),
        )

    def to_record(self) -> Record:
        """Return the record of one hour, six hours or a day; a later count replaces an earlier one."""
        state = STATES[self.length]
        return Record(
            kind=RecordKind.USAGE_SPAN,
            id=f"{cluster_key(self.cluster)}|{to_text(self.start)}|{state}",
            at=self.start,
            subject=cluster_key(self.cluster),
            # Of two counts at the same moment the one with more quarters wins.
            version=micros(self.counted_at) + self.quarters,
            body={
                "state": state,
                "counted_at": to_text(self.counted_at),
                "gpus": self.gpus,
                "quarters": self.quarters,
                "seconds": {name: round(getattr(self.seconds, name), 3) for name in SECONDS},
                "places": packed(self.places),
                "holders": packed(self.holders),
            },
        )

    @classmethod
    def from_record(cls, record: Record, *, places: bool = True, holders: bool = True) -> "Ledger":
        """Read a quarter, an hour, six or a day; ValueError, KeyError or TypeError for any other record.

        Reading the tables is most of the work of a query: without `places` they are merged into one row, and
        without `holders` there are none.
        """
        body = record.body
        if record.kind is RecordKind.USAGE:
            length = BUCKET
            if "places" not in body:  # written by a version without places
                return cls.of(Bucket.from_record(record))
        else:
            length = _LENGTHS[body["state"]]
        return cls(
            cluster=unquote(record.subject),
            start=record.at,
            length=length,
            counted_at=from_text(body["counted_at"]),
            gpus=int(body["gpus"]),
            quarters=int(body.get("quarters", 1)),
            places=unpacked(body["places"], PLACES)
            if places or "seconds" not in body
            else _as_one(Seconds(*(float(body["seconds"].get(name, 0.0)) for name in SECONDS))),
            holders=unpacked(body["holders"], SHARES) if holders else SHARES.empty_table(),
        )


def summed(
    ledgers: Iterable[Ledger],
    cluster: str,
    start: datetime,
    length: timedelta,
    at: datetime,
    most_rows: int = MOST_ROWS,
) -> Ledger:
    """Sum one cluster's ledgers into one, counted at `at`; without ledgers its tables are empty.

    Beyond `most_rows` holders, the smallest are merged by user, account, partition, project and model.
    """
    them = list(ledgers)
    places = together((one.places for one in them), PLACES)
    holders = together((one.holders for one in them), SHARES)
    return Ledger(
        cluster=cluster,
        start=start,
        length=length,
        counted_at=at,
        gpus=max((one.gpus for one in them), default=0),
        quarters=sum(one.quarters for one in them),
        places=_grouped(places, PLACE, [(name, "sum") for name in SECONDS]).cast(PLACES),
        holders=_bounded(_joined(holders), most_rows),
    )


def _places_of(bucket: Bucket) -> pa.Table:
    """Return the places; a bucket recorded by a version without any becomes one row with the right sums."""
    return table_of(bucket.places, PLACES) if bucket.places else _as_one(bucket.seconds)


def _as_one(seconds: Seconds) -> pa.Table:
    return table_of((Place(node="", model="", seconds=seconds),), PLACES)


def _joined(holders: pa.Table) -> pa.Table:
    """Return a row per holder and model; texts stay dictionaries, as `together` makes them.

    Of several commands, the last by name stands for a holder: numbers in that order are faster to group than
    texts.
    """
    place = holders.column_names.index("command")
    command = holders.column(place).combine_chunks()
    names = command.dictionary
    order = pc.sort_indices(names).to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    ranks = pa.array(rank).take(command.indices)
    aggregates = [("command", "max"), ("gpus", "max"), *((name, "sum") for name in AMOUNTS)]
    found = _grouped(holders.set_column(place, "command", ranks), HOLDER, aggregates)
    ranks = found.column(place).combine_chunks()
    commands = pa.DictionaryArray.from_arrays(ranks, names.take(pa.array(order)))
    return found.set_column(place, "command", commands)


def _bounded(holders: pa.Table, most_rows: int) -> pa.Table:
    """Return the largest rows, and the rest merged by user, account, partition, project and model."""
    if holders.num_rows <= most_rows:
        return holders.cast(SHARES)
    largest = _largest(holders, most_rows)
    rest = pc.fill_null(pc.equal(holders["holder"], OTHERS), False).to_numpy() | ~largest
    others = holders.filter(pa.array(rest)).cast(SHARES)
    size = others.num_rows
    for name, column in (
        ("holder", pa.array([OTHERS] * size, pa.string())),
        ("command", pa.nulls(size, pa.string())),
    ):
        others = others.set_column(others.column_names.index(name), name, column)
    joined = _joined(together((others,), SHARES))
    return pa.concat_tables(
        [holders.filter(pa.array(~rest)).cast(SHARES), joined.cast(SHARES)]
    ).combine_chunks()


def _largest(holders: pa.Table, most_rows: int) -> npt.NDArray[np.bool_]:
    """Return which rows are the `most_rows` largest by allocation; of equals the first by name."""
    amounts = holders["allocated"].to_numpy()
    least = np.partition(amounts, -most_rows)[-most_rows]
    found: npt.NDArray[np.bool_] = amounts > least
    equal = np.nonzero(amounts == least)[0]
    names = holders["holder"].take(pa.array(equal)).to_pylist()
    by_name = sorted(range(len(equal)), key=lambda one: (names[one] or "", one))
    found[equal[by_name[: most_rows - int(found.sum())]]] = True
    return found


def _grouped(
    table: pa.Table, keys: Sequence[str], aggregates: Sequence[tuple[str, str]]
) -> pa.Table:
    found = table.group_by(list(keys), use_threads=False).aggregate(list(aggregates))
    names = {f"{name}_{how}": name for name, how in aggregates}
    return found.rename_columns([names.get(name, name) for name in found.column_names]).select(
        table.column_names
    )
