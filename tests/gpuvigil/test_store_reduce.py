"""Lines that are reduced in Arrow say the same as the store in memory."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import GPU
from gpuvigil.store import Aggregate, Function, reduction
from gpuvigil.store.memory import MemoryStore
from gpuvigil.store.schema import latest_schema

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
FIELDS = ("power_watts", "index")
EVERY = [Aggregate(function=function, field=field) for field in FIELDS for function in Function]
TAGS = {"cluster": "c", "node": "n", "model": ""}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "uuid": st.sampled_from(["GPU-0", "GPU-1", "GPU-ü"]),
            "second": st.integers(0, 3599),
            "power_watts": st.none() | st.floats(-1e6, 1e6).map(lambda it: it + 0.0),
            "index": st.none() | st.integers(-(2**53), 2**53),
            "up": st.just(1),
        }
    ),
    unique_by=lambda row: (row["uuid"], row["second"]),
    max_size=20,
)


def lines(rows: Sequence[dict[str, Any]]) -> pa.Table:
    found = [
        {**TAGS, "uuid": row["uuid"], "at": at(row), **{name: row[name] for name in FIELDS}}
        for row in rows
    ]
    return pa.Table.from_pylist(found, schema=latest_schema(GPU, FIELDS))


def at(row: dict[str, Any]) -> datetime:
    return NOON + timedelta(seconds=row["second"])


def memory(rows: Sequence[dict[str, Any]]) -> MemoryStore:
    store = MemoryStore()
    for row in rows:
        fields = {name: row[name] for name in (*FIELDS, "up")}
        line = encode("gpu", {**TAGS, "uuid": row["uuid"]}, fields, to_ns(at(row)))
        assert line is not None
        store.write(line.encode())
    return store


def assert_alike(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema == expected.schema
    for mine, other in zip(found.to_pylist(), expected.to_pylist(), strict=True):
        for key, value in other.items():
            near = isinstance(value, float)
            assert mine[key] == (pytest.approx(value, rel=1e-9, abs=1e-6) if near else value), key


@pytest.mark.medium
@given(rows=ROWS, step=st.sampled_from([1, 7, 60, 3600]))
def test_lines_are_reduced_as_the_store_in_memory_does(
    rows: list[dict[str, Any]], step: int
) -> None:
    store, table = memory(rows), lines(rows)
    span = (NOON, NOON + HOUR)
    assert_alike(reduction.window(GPU, EVERY, table), store.window("gpu", EVERY, *span))
    found = reduction.series(GPU, FIELDS, table, step * SECOND)
    assert_alike(found, store.series("gpu", FIELDS, {}, span, step * SECOND))
    assert_alike(reduction.latest(GPU, FIELDS, table), store.latest("gpu", FIELDS, NOON))


@pytest.mark.medium
@given(rows=ROWS, cuts=st.lists(st.integers(0, 3600), max_size=4))
def test_a_window_is_the_same_when_it_is_put_together_from_parts(
    rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    wanted = reduction.asked(EVERY)
    edges = [0, *sorted(cuts), 3600]
    parts = [
        reduction.window(GPU, wanted, lines([it for it in rows if start <= it["second"] < end]))
        for start, end in pairwise(edges)
    ]
    joined = reduction.joined_windows(GPU, parts, wanted)
    found = reduction.finished_window(GPU, EVERY, joined)
    assert_alike(found, memory(rows).window("gpu", EVERY, NOON, NOON + HOUR))
