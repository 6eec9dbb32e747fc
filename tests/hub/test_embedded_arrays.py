"""Sums of lines, however these are split, put together, spread by slot and packed, are those of all lines."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.embedded import dense_arrays, line_arrays
from hub.embedded.aggregates import Piece
from hub.embedded.dense_arrays import SlotAggregates, dense
from hub.embedded.line_arrays import PartialAggregates, known_of_lines, nothing, ones, reduced, runs

STEP = 10
# A subject, a time, and a value of a field of floats and one of whole numbers.
Line = tuple[int, int, float | None, int | None]
Row = tuple[Any, ...]

SPLIT = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(0, 99),
            st.none() | st.integers(-1000, 1000).map(float),
            st.none() | st.integers(-(2**40), 2**40),
        ),
        max_size=12,
    ),
    max_size=5,
)


def unlike(split: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Two lines of one subject and time have no order: only the first of them stays."""
    taken = set[tuple[int, int]]()
    found = []
    for lines in split:
        fresh = []
        for line in lines:
            if line[:2] not in taken:
                taken.add(line[:2])
                fresh.append(line)
        found.append(fresh)
    return found


def parts_of(lines: Iterable[Line], *, stepped: bool) -> PartialAggregates:
    """A row for each line."""
    rows = list(lines)
    at = np.array([it[1] for it in rows], np.int64)
    return PartialAggregates(
        subject=np.array([it[0] for it in rows], np.int64),
        step_ns=at // STEP * STEP if stepped else None,
        lines=np.ones(len(rows), np.int64),
        first_ns=at,
        last_ns=at,
        offset_ns=(at % STEP).astype(np.float64) if stepped else None,
        fields={"f": _pieces(rows, 2, np.float64), "i": _pieces(rows, 3, np.int64)},
    )


def _pieces(rows: Sequence[Line], column: int, kind: Any) -> dict[Piece, Any]:
    least, most = (-np.inf, np.inf) if kind is np.float64 else (-(2**63), 2**63 - 1)
    first, last = 2**63 - 1, -(2**63)
    none: dict[Piece, tuple[Any, Any]] = {
        Piece.SUM: (0.0, np.float64),
        Piece.MIN: (most, kind),
        Piece.MAX: (least, kind),
        Piece.FIRST: (0, kind),
        Piece.LAST: (0, kind),
    }
    told = [row[column] for row in rows]
    known = [it is not None for it in told]
    pieces = {
        piece: np.array([nil if it is None else it for it in told], of)
        for piece, (nil, of) in none.items()
    }
    at = np.array([row[1] for row in rows], np.int64)
    pieces[Piece.COUNT] = np.array(known, np.int64)
    pieces[Piece.FIRST_AT] = np.where(known, at, first)
    pieces[Piece.LAST_AT] = np.where(known, at, last)
    return pieces


def rows_of(parts: PartialAggregates | None) -> list[Row]:
    """What parts say, row by row; of a field without a value only that."""
    if parts is None:
        return []
    found = []
    for n in range(len(parts.subject)):
        step = None if parts.step_ns is None else int(parts.step_ns[n])
        offset = None if parts.offset_ns is None else float(parts.offset_ns[n])
        span = int(parts.lines[n]), int(parts.first_ns[n]), int(parts.last_ns[n])
        fields = [
            tuple(pieces[piece][n].item() for piece in Piece) if pieces[Piece.COUNT][n] else 0
            for pieces in parts.fields.values()
        ]
        found.append((int(parts.subject[n]), step, *span, offset, *fields))
    return found


def expected(lines: Iterable[Line], *, stepped: bool) -> list[Row]:
    """The same of all lines, one after the other."""
    groups: dict[tuple[int, int | None], list[Line]] = {}
    for line in sorted(lines, key=lambda it: it[:2]):
        step = line[1] // STEP * STEP if stepped else None
        groups.setdefault((line[0], step), []).append(line)
    found = []
    for (subject, step), of in groups.items():
        times = [it[1] for it in of]
        offset = float(sum(at % STEP for at in times)) if stepped else None
        fields = [_summed([(it[1], it[n]) for it in of if it[n] is not None]) for n in (2, 3)]
        found.append((subject, step, len(of), times[0], times[-1], offset, *fields))
    return found


def _summed(told: Sequence[tuple[int, Any]]) -> tuple[Any, ...] | int:
    if not told:
        return 0
    values = [value for _, value in told]
    bounds = len(told), float(sum(values)), min(values), max(values)
    return (*bounds, values[0], told[0][0], values[-1], told[-1][0])


@given(split=SPLIT, stepped=st.booleans())
def test_lines_put_together_are_a_row_for_each_subject_and_step(
    split: list[list[Line]], stepped: bool
) -> None:
    lines = unlike(split)
    whole = line_arrays.together([parts_of(it, stepped=stepped) for it in lines])
    every = [line for some in lines for line in some]
    assert rows_of(whole) == expected(every, stepped=stepped)
    if whole is not None:
        # What is in order is left as it is.
        assert line_arrays.together([whole]) is whole


@given(split=SPLIT, stepped=st.booleans())
def test_what_is_known_of_lines_in_order_need_not_be_looked_for(
    split: list[list[Line]], stepped: bool
) -> None:
    every = sorted((line for some in unlike(split) for line in some), key=lambda it: it[:2])
    parts = parts_of(every, stepped=stepped)
    starts = runs(parts.subject, parts.step_ns)
    if not every:
        assert not len(starts)
        return
    known = known_of_lines(parts.lines, starts, parts.first_ns)
    assert rows_of(reduced(parts, starts, known)) == expected(every, stepped=stepped)
    # Times that are not given are not known.
    assert len(known_of_lines(parts.lines, starts)) == 1


def test_to_put_nothing_together_gives_nothing() -> None:
    assert line_arrays.together([]) is None


@given(split=SPLIT, more=st.integers(0, 3))
def test_lines_by_slot_are_what_they_are_by_subject(split: list[list[Line]], more: int) -> None:
    lines = unlike(split)
    of_each = [line_arrays.together([parts_of(it, stepped=False)]) for it in lines]
    # The first has a slot for every subject; of the others each only as many as it needs.
    least = [max((it[0] for it in some), default=-1) + 1 for some in lines]
    sizes = [6 + more, *least[1:]]
    made = [dense(parts, size) for parts, size in zip(of_each, sizes, strict=False) if parts]
    if not made:
        return
    packed = [it.packed() for it in made]
    assert all(one.bytes <= other.bytes for one, other in zip(packed, made, strict=True))
    assert made[0].bytes == 8 * 19 * sizes[0]
    # One after the other, or all others put together before.
    assert of_each[0] is not None
    first = dense(of_each[0], sizes[0])
    summed = dense_arrays.summed(made[0], packed[1:])
    dense_arrays.together(made[0], packed[1:])
    every = [line for some in lines for line in some]
    places = np.arange(sizes[0])[::-1].copy()
    found = rows_of(made[0].parts(places))
    dense_arrays.together(first, [summed])
    assert rows_of(first.parts(places)) == found
    turned = [(int(places[it[0]]), *it[1:]) for it in expected(every, stepped=False)]
    assert found == turned


@pytest.mark.parametrize(
    ("least", "most", "kind"),
    [
        (-128, 127, np.int8),
        (-129, 0, np.int16),
        (0, 128, np.int16),
        (-(2**15), 2**15 - 1, np.int16),
        (-(2**15) - 1, 0, np.int32),
        (0, 2**15, np.int32),
        (-(2**31), 2**31 - 1, np.int32),
        (-(2**31) - 1, 0, np.int64),
        (0, 2**31, np.int64),
        (0.0, 1.0, np.float64),
    ],
)
def test_numbers_are_packed_into_the_fewest_bytes(least: float, most: float, kind: Any) -> None:
    values = np.array([least, most, least])
    found = packed(values)
    assert (found.dtype, found.tolist()) == (kind, values.tolist())


def packed(values: Any) -> Any:
    return SlotAggregates(lines=values, first_ns=values, last_ns=values, fields={}).packed().lines


def test_equal_numbers_are_packed_into_one_and_none_stay_none() -> None:
    same = SlotAggregates(
        lines=np.full(9, 2**40), first_ns=np.zeros(9), last_ns=np.zeros(9), fields={}
    )
    assert same.packed().bytes == 3 * 8
    assert same.packed().lines.tolist() == [2**40] * 9
    assert packed(np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize("stepped", [False, True])
def test_parts_take_what_their_arrays_take(stepped: bool) -> None:
    parts = parts_of([(1, 2, 3.0, 4), (2, 3, None, 5)], stepped=stepped)
    sizes = list[int]()

    def noted(values: Any) -> Any:
        sizes.append(values.nbytes)
        return values

    parts.changed(noted)
    assert parts.bytes == sum(sizes)


def test_where_no_value_is_any_goes_before_it() -> None:
    whole, real = np.iinfo(np.int64), np.float64("inf")
    assert [nothing(it, np.int64) for it in (Piece.MIN, Piece.MAX)] == [whole.max, whole.min]
    assert [nothing(it, np.float64) for it in (Piece.MIN, Piece.MAX)] == [real, -real]
    times = [nothing(it, np.int64) for it in (Piece.FIRST_AT, Piece.LAST_AT)]
    assert times == [whole.max, whole.min]
    for piece in (Piece.COUNT, Piece.SUM, Piece.FIRST, Piece.LAST):
        assert nothing(piece, np.int64) == 0


@pytest.mark.parametrize("count", [0, 1, 1 << 20])
def test_a_row_for_each_line_costs_no_memory(count: int) -> None:
    found = ones(count)
    assert (len(found), int(found.sum())) == (count, count)
    assert found.strides == (0,)
