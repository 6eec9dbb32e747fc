"""Rows of an answer are those of `to_pylist`, whatever is in them."""

import math
from datetime import datetime, timezone

import pyarrow as pa

from gpuvigil.store.rows import rows

AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=timezone.utc)


def test_rows_are_those_of_arrow_with_what_was_not_measured() -> None:
    table = pa.table(
        {
            "node": pa.array(["n-1", "", None], pa.string()),
            "at": pa.array([AT, AT, AT], pa.timestamp("us", "UTC")),
            "last_at": pa.array([AT, None, AT], pa.timestamp("us", "UTC")),
            "on": pa.array([True, None, False]),
            "samples": pa.array([1, 2**63 - 1, 0], pa.int64()),
            "bytes": pa.array([None, 2**63 - 1, 0], pa.int64()),
            "percent": pa.array([0.5, None, 0.0]),
            "all": pa.array([None, None, None], pa.float64()),
        }
    )
    assert rows(table) == table.to_pylist()
    in_pieces = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert rows(in_pieces) == table.to_pylist()
    assert rows(table.slice(0, 0)) == []
    (nan,) = rows(pa.table({"percent": [math.nan]}))
    assert math.isnan(nan["percent"])
    (first, *_) = rows(table)
    assert first["at"].tzinfo is timezone.utc
