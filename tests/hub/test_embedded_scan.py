"""Of a sealed file no more is read than a question needs: whatever else is in it may be garbled."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.bodies.tables import TIME
from hub.embedded import Series, Window
from hub.embedded.aggregates import Piece
from hub.embedded.damage import Unreadable
from hub.embedded.footer_cache import FooterCache
from hub.embedded.line_arrays import PartialAggregates, together
from hub.embedded.scan import ScanRange, SealedFileScan
from hub.embedded.subject_run_cache import SubjectRunCache
from hub.embedded.subjects import Subjects, subjects

NODE = MEASUREMENTS["node"]
FIELDS = ("load_average", "sweep_seconds", "space_used_share")
GROUP = 3  # lines of a row group
# Numbers with gaps; one of them has no name, and one name has two.
NAMES = {1: ("c", "a"), 2: ("c", "b"), 4: ("c", "d"), 5: ("c", "a"), 7: ("c", "e")}
KNOWN = subjects(NAMES.items(), NAMES.values(), 2)
# A number, a time and a value.
Line = tuple[int, int, float | None]

LINES = st.lists(
    st.tuples(
        st.sampled_from(sorted(NAMES)),
        st.integers(0, 40),
        st.none() | st.integers(-9, 9).map(float),
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda it: it[:2],
).map(lambda them: sorted(them, key=lambda it: it[:2]))


def written(path: Path, lines: Sequence[Line], group: int = GROUP) -> pq.FileMetaData:
    whole = pa.table(
        {
            "subject": pa.array([it[0] for it in lines], pa.int64()),
            "at": pa.array([it[1] for it in lines], pa.int64()).cast(TIME),
            **{name: pa.array([it[2] for it in lines], pa.float64()) for name in FIELDS[:1]},
        }
    )
    pq.write_table(whole, path, row_group_size=group)
    return pq.read_metadata(path)


def garble(path: Path, group: pq.RowGroupMetaData, names: Sequence[str]) -> None:
    """Leave nothing of some columns of a row group."""
    with path.open("r+b") as file:
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema in names:
                begin = column.dictionary_page_offset or column.data_page_offset
                file.seek(min(begin, column.data_page_offset))
                file.write(b"\xa5" * column.total_compressed_size)


def window(fields: Sequence[str] = FIELDS[:1], function: Function = Function.MEAN) -> Window:
    aggregates = tuple(Aggregate(function=function, field=it) for it in fields)
    return Window(measurement=NODE, aggregates=aggregates, start_ns=0, end_ns=100)


def series(step_ns: int, where: dict[str, str]) -> Series:
    return Series(
        measurement=NODE,
        fields=FIELDS[:1],
        where=tuple(where.items()),
        start_ns=0,
        end_ns=100,
        step_ns=step_ns,
    )


def stretch(path: Path, *spans: tuple[int, int], whole: bool = False) -> ScanRange:
    return ScanRange(path=path, rolled=False, spans=spans, whole=whole)


def rows(
    scan: SealedFileScan, of: ScanRange
) -> dict[tuple[str, int | None], tuple[int, int, float]]:
    """By node and step: lines, values and their sum."""
    parts = together(list(scan.read(of)))
    return {} if parts is None else _rows(parts, KNOWN)


def _rows(
    parts: PartialAggregates, known: Subjects
) -> dict[tuple[str, int | None], tuple[int, int, float]]:
    steps = [None] * len(parts.subject) if parts.step_ns is None else parts.step_ns.tolist()
    field = parts.fields[FIELDS[0]]
    told = zip(parts.lines, field[Piece.COUNT], field[Piece.SUM], strict=True)
    return {
        (known.names[place][1], step): (int(lines), int(count), float(total))
        for place, step, (lines, count, total) in zip(
            parts.subject.tolist(), steps, told, strict=True
        )
    }


def expected(
    lines: Sequence[Line], step_ns: int | None
) -> dict[tuple[str, int | None], tuple[int, int, float]]:
    found: dict[tuple[str, int | None], tuple[int, int, float]] = {}
    for number, at, value in lines:
        key = NAMES[number][1], None if step_ns is None else at // step_ns * step_ns
        count, known, total = found.get(key, (0, 0, 0.0))
        found[key] = (count + 1, known + (value is not None), total + (value or 0.0))
    return found


@given(
    lines=LINES,
    node=st.sampled_from([None, "a", "b", "d", "e", "nobody"]),
    step_ns=st.sampled_from([None, 7]),
    ends=st.lists(st.integers(-1, 42), min_size=4, max_size=4).map(sorted),
)
@example(lines=[(min(NAMES), 5, 1.0)], node=None, step_ns=None, ends=[5, 6, 6, 7])
def test_only_the_row_groups_are_read_that_may_have_a_line_of_the_subjects_and_times(
    lines: list[Line],
    node: str | None,
    step_ns: int | None,
    ends: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    assume(step_ns is not None or node is None)
    path = tmp_path_factory.mktemp("scan") / "lines.parquet"
    metadata, footers = written(path, lines), FooterCache()
    spans = (ends[0], ends[1]), (ends[2], ends[3])
    question: Window | Series = window()
    if step_ns is not None:
        question = series(step_ns, {} if node is None else {"node": node})
    wanted = [number for number, name in NAMES.items() if node in {None, name[1]}]

    def counts(line: Line) -> bool:
        return line[0] in wanted and any(start <= line[1] < end for start, end in spans)

    footers.of(path, "at")  # what it says of the groups is known before they are garbled
    for number in range(metadata.num_row_groups):
        inside = lines[number * GROUP : (number + 1) * GROUP]
        least, most = inside[0][0], inside[-1][0]
        first, last = min(it[1] for it in inside), max(it[1] for it in inside)
        ours = any(least <= it <= most for it in wanted)
        if not ours or not any(first < end and last >= start for start, end in spans):
            garble(path, metadata.row_group(number), ("subject", "at", *FIELDS))
    scan = SealedFileScan(question, KNOWN, footers, SubjectRunCache())
    found = rows(scan, stretch(path, *spans))
    assert found.keys() == expected([it for it in lines if counts(it)], step_ns).keys()
    for key, of in expected([it for it in lines if counts(it)], step_ns).items():
        assert found[key][:2] == of[:2]
        assert math.isclose(found[key][2], of[2], abs_tol=1e-9)


@given(lines=LINES, halves=st.booleans())
def test_of_a_file_that_was_read_whole_only_the_fields_are_read_the_next_time(
    lines: list[Line], halves: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("scan") / "lines.parquet"
    metadata, footers, heads = written(path, lines), FooterCache(), SubjectRunCache()
    of = stretch(path, (0, 100), whole=True)
    parts = [replace(of, share=(n, 2)) for n in (0, 1)] if halves else [of]

    def read(question: Window | Series) -> dict[tuple[str, int | None], tuple[int, int, float]]:
        scan = SealedFileScan(question, KNOWN, footers, heads)
        whole = together([it for some in parts for it in scan.read(some)])
        assert whole is not None
        return _rows(whole, KNOWN)

    first = read(window())
    assert first == expected(lines, None)
    for number in range(metadata.num_row_groups):
        garble(path, metadata.row_group(number), ("subject", "at"))
    assert read(window()) == first
    with pytest.raises(Unreadable):
        read(series(7, {}))


@pytest.mark.medium
@pytest.mark.parametrize("fields", [1, 2, 3])
def test_more_lines_than_are_read_at_a_time_are_each_counted_once(
    tmp_path: Path, fields: int
) -> None:
    count = 150_000
    path, heads, footers = tmp_path / "lines.parquet", SubjectRunCache(), FooterCache()
    number = np.repeat([1, 2, 4], count // 3)
    at = np.tile(np.arange(count // 3), 3)
    values = {name: (at % 7 + n).astype(np.float64) for n, name in enumerate(FIELDS)}
    columns = {"subject": number, "at": pa.array(at).cast(TIME), **values}
    pq.write_table(pa.table(columns), path, row_group_size=20_480)
    question = window(FIELDS[:fields])
    for _ in range(2):
        scan = SealedFileScan(question, KNOWN, footers, heads)
        parts = together(list(scan.read(stretch(path, (0, count), whole=True))))
        assert parts is not None
        assert parts.lines.tolist() == [count // 3] * 3
        assert (parts.first_ns.tolist(), parts.last_ns.tolist()) == ([0] * 3, [count // 3 - 1] * 3)
        for n in range(fields):
            of = parts.fields[FIELDS[n]]
            assert of[Piece.SUM].tolist() == [float((at[: count // 3] % 7 + n).sum())] * 3
            assert of[Piece.COUNT].tolist() == [count // 3] * 3


def test_a_file_that_is_another_than_it_was_is_told(tmp_path: Path) -> None:
    path, heads = tmp_path / "lines.parquet", SubjectRunCache()
    for lines, is_told in (([(1, 2, 3.0), (1, 3, 4.0)], False), ([(1, 2, 3.0)], True)):
        written(path, lines)
        scan = SealedFileScan(window(), KNOWN, FooterCache(), heads)
        if not is_told:
            assert rows(scan, stretch(path, (0, 100), whole=True)) == expected(lines, None)
            continue
        with pytest.raises(Unreadable, match="other rows"):
            rows(scan, stretch(path, (0, 100), whole=True))
    path.unlink()
    with pytest.raises(Unreadable):
        rows(
            SealedFileScan(window(), KNOWN, FooterCache(), SubjectRunCache()),
            stretch(path, (0, 100)),
        )
