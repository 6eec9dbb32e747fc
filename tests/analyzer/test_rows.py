"""Columns for all subjects, rows for a few, and what is remembered between passes."""

import math
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.window.index import Index, Indices
from analyzer.window.rows import Rows
from gpuvigil.clock import micros
from gpuvigil.model import Subject
from gpuvigil.store.schema import TIME

from .scene import NOON, gpu, node

VALUES = st.lists(st.one_of(st.none(), st.integers(-5, 2**53)), max_size=6)


def table(values: list[int | None], first: int = 0) -> pa.Table:
    """GPU rows, two on each node; their first is not always the same."""
    gpus = [gpu(number // 2, number % 2) for number in range(first, first + len(values))]
    columns = {
        "cluster": ([it.cluster for it in gpus], pa.string()),
        "node": ([it.node for it in gpus], pa.string()),
        "uuid": ([it.gpu for it in gpus], pa.string()),
        "at": ([NOON + timedelta(microseconds=n) for n in range(len(gpus))], TIME),
        "value": (values, pa.int64()),
    }
    return pa.table({name: pa.array(*pair) for name, pair in columns.items()})


def plain(value: float) -> float | None:
    return None if math.isnan(value) else value


@pytest.mark.medium
@settings(max_examples=30)
@given(VALUES)
def test_a_column_says_what_the_rows_say(values: list[int | None]) -> None:
    rows = Rows(table(values))
    assert [plain(value) for value in rows.values("value")] == values
    assert rows.bits("value").tolist() == [value or 0 for value in values]
    assert [(row := rows.get(subject)) and row["value"] for subject in rows.subjects] == values
    assert [at - micros(NOON) for at in rows.values("at")] == list(range(len(values)))
    found = [(subject, row["value"]) for subject, row in rows.where(rows.values("value") > 3)]
    assert found == [
        (subject, value)
        for subject, value in zip(rows.subjects, values, strict=True)
        if value is not None and value > 3
    ]


@settings(max_examples=30)
@given(VALUES, VALUES, st.integers(0, 4))
def test_other_rows_are_found_by_their_subject(
    mine: list[int | None], others: list[int | None], first: int
) -> None:
    rows, other = Rows(table(mine)), Rows(table(others, first))
    known = dict(zip(other.subjects, others, strict=True)) if others else {}
    assert [plain(value) for value in other.beside(rows, "value")] == [
        known.get(subject) for subject in rows.subjects
    ]


def test_gpus_are_beside_their_node() -> None:
    nodes = pa.table({"cluster": ["c"], "node": ["node-1"], "value": [7]})
    rows = Rows(table([1, 2, 3, 4]))
    assert [plain(value) for value in Rows(nodes).beside(rows, "value")] == [None, None, 7, 7]


@settings(max_examples=30)
@given(VALUES)
def test_a_node_has_its_own_rows(values: list[int | None]) -> None:
    rows = Rows(table(values))
    for number in range(4):
        own = rows.of_node(node(number))
        here = [s for s in rows.subjects if s.of_node() == node(number)] if values else []
        assert list(own.subjects) == here
        assert [row["value"] for _, row in own.where(own.values("at") > 0)] == [
            values[rows.subjects.index(subject)] for subject in here
        ]


def test_a_cell_that_nobody_asked_for_has_no_value() -> None:
    row = Rows(table([1])).get(gpu(0, 0))
    assert row is not None
    assert row.get("value") == 1
    assert row.get("other") is None


def _square(_: Subject, number: int | None) -> float:
    return math.nan if number is None else number**2


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.integers(0, 3), st.integers(0, 9)), max_size=4))
def test_what_is_remembered_of_records_is_what_they_say_now(passes: list[dict[int, int]]) -> None:
    gpus = [gpu(1, number) for number in range(4)]
    index = Index(gpus)
    for records in passes:
        named = {gpus[number].key: value for number, value in records.items()}
        remembered = index.facts(_square, named)
        assert [plain(value) for value in remembered] == [
            plain(value) for value in Index(gpus).facts(_square, named)
        ]


def test_the_same_subjects_have_the_same_index() -> None:
    indices = Indices()
    first = indices.of(table([1, 2, 3]))
    assert indices.of(table([4, 5, 6])) is first
    assert indices.of(table([4, 5])) is not first
    assert indices.of(table([4, 5, 6], 1)) is not first
    assert indices.of(table([None, 5, 6])) is first
