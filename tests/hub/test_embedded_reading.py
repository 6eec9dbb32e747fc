"""What a question takes of sealed files: which of them, how much at a time, and what is kept of it."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.bodies.tables import TIME
from hub.embedded import Embedded, Series, TooLarge, Window
from hub.embedded.aggregates import BUCKET_NS
from hub.embedded.bounded_answer import BoundedAnswer, bounded
from hub.embedded.footer_cache import FooterCache
from hub.embedded.line_arrays import PartialAggregates
from hub.embedded.open_readers import OpenReaders
from hub.embedded.query import ROLLED_FROM_NS, stretches
from hub.embedded.scan import ScanRange
from hub.embedded.sealed_files import Unit
from hub.embedded.subject_run_cache import SubjectRunCache, SubjectRuns, joined

GPU = MEASUREMENTS["gpu"]
MEAN = Aggregate(function=Function.MEAN, field="power_watts")
LAST = Aggregate(function=Function.LAST, field="power_watts")
DAY_NS = 24 * 3_600_000_000_000
FOLDER = Path("sealed")


def unit(
    first_ns: int, last_ns: int, *, lines: bool = True, nodes: tuple[str, str] = ("b", "d")
) -> Unit:
    return Unit(
        name=f"{first_ns}.{last_ns}",
        measurement="gpu",
        lines=1,
        first_ns=first_ns,
        last_ns=last_ns,
        first_node=nodes[0],
        last_node=nodes[1],
        level=0,
        sealed_ns=0,
        lines_bytes=1 if lines else None,
        lines_sha256="",
        rolled_bytes=1,
        rolled_sha256="",
        layout="",
    )


def window(start_ns: int, end_ns: int, aggregate: Aggregate = MEAN) -> Window:
    return Window(measurement=GPU, aggregates=(aggregate,), start_ns=start_ns, end_ns=end_ns)


def series(start_ns: int, end_ns: int, step_ns: int, **where: str) -> Series:
    return Series(
        measurement=GPU,
        fields=("power_watts",),
        where=tuple(where.items()),
        start_ns=start_ns,
        end_ns=end_ns,
        step_ns=step_ns,
    )


def read(units: Sequence[Unit], question: Window | Series) -> list[ScanRange]:
    return list(stretches(units, FOLDER, question))


def inside(at: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


EDGES = st.tuples(st.integers(0, 300), st.sampled_from([-1, 0, 1, 7])).map(
    lambda it: max(it[0] * BUCKET_NS + it[1], 0)
)
SPANS = st.tuples(EDGES, EDGES).map(sorted)


@given(
    ends=SPANS,
    asked=SPANS,
    lines=st.booleans(),
    question=st.sampled_from(["mean", "last", "ten minutes", "a minute"]),
    at=st.lists(EDGES, max_size=20),
)
def test_each_line_of_a_range_is_read_once_and_no_other_from_its_lines_or_as_rollups(
    ends: list[int], asked: list[int], lines: bool, question: str, at: list[int]
) -> None:
    one, (start, end) = unit(ends[0], ends[1], lines=lines), asked
    questions: dict[str, Window | Series] = {
        "mean": window(start, end),
        "last": window(start, end, LAST),
        "ten minutes": series(start, end, BUCKET_NS),
        "a minute": series(start, end, BUCKET_NS // 10),
    }
    found = read([one], questions[question])
    long = end - start > ROLLED_FROM_NS and question in {"mean", "ten minutes"}
    first, last = -(-start // BUCKET_NS) * BUCKET_NS, end // BUCKET_NS * BUCKET_NS
    for time in (it for it in [*at, *ends, ends[1] - 1] if ends[0] <= it <= ends[1]):
        of_lines = sum(inside(time, it.spans) for it in found if not it.rolled)
        bucket = time // BUCKET_NS * BUCKET_NS
        of_rolled = sum(inside(bucket, it.spans) for it in found if it.rolled)
        whole_bucket = first <= bucket and bucket + BUCKET_NS <= last
        if long and whole_bucket:
            assert (of_lines, of_rolled) == (0, 1)
        elif lines:
            assert (of_lines, of_rolled) == (int(start <= time < end), 0)
        else:
            assert (of_lines, of_rolled) == (0, int(whole_bucket))
    buckets = range(ends[0] // BUCKET_NS * BUCKET_NS, ends[1] + 1, BUCKET_NS)
    for it in found:
        # No file is opened of which nothing can count.
        assert any(one.touches(*span) for span in it.spans)
        times = [*buckets, ends[1]]
        within = {next((n for n, s in enumerate(it.spans) if s[0] <= t < s[1]), -1) for t in times}
        assert it.whole == (len(within) == 1 and -1 not in within)
        assert it.share == (0, 1)
        assert it.path == (one.rolled_file if it.rolled else one.lines_file)(FOLDER)


def test_a_unit_is_read_whole_from_its_first_bucket_to_its_last_line() -> None:
    one = unit(BUCKET_NS + 5, 2 * BUCKET_NS)
    ends = {
        (BUCKET_NS, 2 * BUCKET_NS + 1): True,
        (BUCKET_NS + 1, 2 * BUCKET_NS + 1): False,
        (BUCKET_NS, 2 * BUCKET_NS): False,
    }
    assert {it: read([one], window(*it))[0].whole for it in ends} == ends


def test_more_than_a_day_is_read_of_rollups_and_a_day_of_lines() -> None:
    one = unit(0, 2 * DAY_NS)
    for asked, rolled in ((DAY_NS, [False]), (DAY_NS + 1, [False, True])):
        for start in (0, BUCKET_NS):
            found = read([one], window(start, start + asked))
            kept = [it.rolled for it in found if it.rolled or any(a < b for a, b in it.spans)]
            assert kept == rolled


def test_of_a_node_only_files_that_may_have_it_are_read_and_what_comes_behind_them() -> None:
    units = [unit(0, 5), unit(1, 9, nodes=("d", "f")), unit(20, 30), unit(2, 9, nodes=("a", "z"))]
    named = {
        node: [
            units.index(of) for of in units for it in read(units, asked) if of.name in str(it.path)
        ]
        for node in "abcdfz"
        for asked in [series(0, 10, 1, node=node)]
    }
    assert named == {"a": [3], "b": [0, 3], "c": [0, 3], "d": [0, 1, 3], "f": [1, 3], "z": [3]}
    assert len(read(units, series(0, 10, 1, uuid="a"))) == 3


@pytest.mark.parametrize("rows", [1, 250_000])
def test_an_answer_may_have_as_many_bytes_as_it_may_and_no_more(rows: int) -> None:
    with duckdb.connect() as connection:

        def answer(most_bytes: int) -> pa.Table:
            text = f"SELECT range AS a FROM range({rows})"
            return bounded(connection.execute(text), most_bytes)

        whole = answer(1 << 30)
        assert whole["a"].to_pylist() == list(range(rows))
        assert answer(whole.nbytes).num_rows == rows
        with pytest.raises(TooLarge):
            answer(whole.nbytes - 1)


def parts(subject: int) -> PartialAggregates:
    one = np.array([subject], np.int64)
    return PartialAggregates(
        subject=one, step_ns=None, lines=one, first_ns=one, last_ns=one, offset_ns=None, fields={}
    )


def test_parts_are_gathered_up_to_a_size_and_put_together_each_time_half_of_it_has_come() -> None:
    size = parts(0).bytes
    gathered = BoundedAnswer(10 * size)
    assert gathered.together() is None
    for subject in range(10):
        gathered.add(parts(subject))
    whole = gathered.together()
    assert whole is not None
    assert whole.subject.tolist() == list(range(10))
    # What is too large is told at once, or at the latest with the answer.
    gathered.add(parts(10))
    with pytest.raises(TooLarge):
        gathered.together()
    gathered = BoundedAnswer(10 * size)
    for subject in range(11):
        gathered.add(parts(subject))
    # Put together after 6, and not again before 6 more.
    with pytest.raises(TooLarge):
        gathered.add(parts(11))
    # Of one subject any number has room.
    gathered = BoundedAnswer(10 * size)
    for _ in range(100):
        gathered.add(parts(1))
    whole = gathered.together()
    assert whole is not None
    assert whole.lines.tolist() == [100]


def parquet(path: Path, subjects: Sequence[int | None], *, told: bool = True) -> Path:
    """Two row groups of such lines."""
    rows = pa.table(
        {
            "subject": pa.array(subjects, pa.int64()),
            "at": pa.array([10 * (it or 0) for it in subjects], pa.int64()).cast(TIME),
        }
    )
    pq.write_table(rows, path, row_group_size=2, write_statistics=told)
    return path


def test_a_footer_tells_the_bounds_of_each_row_group_or_that_any_may_be_in_it(
    tmp_path: Path,
) -> None:
    footer = FooterCache().of(parquet(tmp_path / "told", [3, 1, 7, 9]), "at")
    assert footer.rows.tolist() == [2, 2]
    assert footer.columns == {"subject", "at"}
    assert [it.tolist() for it in footer.numbers] == [[1, 7], [3, 9]]
    assert [it.tolist() for it in footer.times_ns] == [[10, 70], [30, 90]]
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    footer = FooterCache().of(parquet(tmp_path / "not", [3, 1, 7, 9], told=False), "at")
    assert [it.tolist() for it in footer.numbers] == [[least, least], [most, most]]
    footer = FooterCache().of(parquet(tmp_path / "none", [None, None, 7, 9]), "at")
    assert [it.tolist() for it in footer.numbers] == [[least, 7], [most, 9]]


def test_the_footers_asked_longest_ago_are_read_again(tmp_path: Path) -> None:
    paths = [parquet(tmp_path / name, [1, 2]) for name in "abc"]
    size = pq.read_metadata(paths[0]).serialized_size
    footers = FooterCache(2 * size)
    a, b = (footers.of(path, "at") for path in paths[:2])
    assert footers.of(paths[0], "at") is a
    c = footers.of(paths[2], "at")
    assert footers.of(paths[0], "at") is a
    assert footers.of(paths[2], "at") is c
    assert footers.of(paths[1], "at") is not b
    # For two of them a byte is missing.
    footers = FooterCache(2 * size - 1)
    a, b = (footers.of(path, "at") for path in paths[:2])
    assert footers.of(paths[1], "at") is b
    assert footers.of(paths[0], "at") is not a


def head(rows: int, starts: Sequence[int]) -> SubjectRuns:
    of = np.arange(len(starts))
    parts = PartialAggregates(
        subject=of, step_ns=None, lines=of, first_ns=of, last_ns=of, offset_ns=None, fields={}
    )
    return SubjectRuns(rows=rows, starts=np.array(starts, np.int64), parts=parts)


def test_heads_of_batches_are_one_of_all_their_rows() -> None:
    one = head(5, [0, 3])
    assert joined([one]) is one
    whole = joined([one, head(4, [0]), head(2, [0, 1])])
    assert (whole.rows, whole.starts.tolist()) == (11, [0, 3, 5, 9, 10])
    assert whole.parts.subject.tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize(("short", "kept"), [(0, [True, False, True]), (1, [False, False, True])])
def test_the_heads_asked_longest_ago_are_read_again(short: int, kept: list[bool]) -> None:
    size = 8 * 4 * 3 + 8 * 3  # four columns of parts, and where they start
    heads, path, of = SubjectRunCache(2 * size - short), Path("a"), [head(3, [0, 1, 2])]
    for part in range(2):
        heads.keep(path, (part, 3), of)
        heads.keep(path, (part, 3), of)  # another thread has read the same
    heads.of(path, (0, 3))
    heads.keep(path, (2, 3), of)
    assert [heads.of(path, (part, 3)) is of for part in range(3)] == kept
    assert heads.of(Path("b"), (2, 3)) is None


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["begin", "end", "doom"]), st.integers(0, 3)), max_size=30
    )
)
def test_a_file_stays_while_somebody_reads_who_came_before_it_was_doomed(
    steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, readers = tmp_path_factory.mktemp("read"), OpenReaders()
    reading, began = dict[int, ExitStack](), dict[int, int]()
    doomed = dict[Path, set[int]]()
    for number, (what, who) in enumerate(steps):
        if what == "begin" and who not in reading:
            reading[who], began[who] = ExitStack(), number
            reading[who].enter_context(readers.reading())
        elif what == "end" and who in reading:
            reading.pop(who).close()
            del began[who]
        elif what == "doom":
            path = folder / str(number)
            path.touch()
            doomed[path] = set(began.values())
            # One that is gone by itself is no trouble.
            readers.doom([folder / "gone", path])
        assert all(path.exists() == bool(of & set(began.values())) for path, of in doomed.items())
    for entered in reading.values():
        entered.close()
    assert not list(folder.iterdir())


@pytest.mark.medium
@pytest.mark.parametrize("files", [1, 2])
def test_several_files_are_read_by_threads_that_end_with_the_store(
    tmp_path: Path, files: int
) -> None:
    before = set(threading.enumerate())
    store = Embedded(tmp_path / "telemetry.duckdb", 256 * 1024 * 1024, 2)
    hours = np.arange(files) * 3_600_000_000_000
    rows = {tag: ["x"] * files for tag in GPU.tags} | {"at": pa.array(hours).cast(TIME)}
    store.append({"gpu": pa.table(rows)}, [])
    assert store.seal(DAY_NS, 0) == files
    assert store.answer(window(0, DAY_NS))["samples"].to_pylist() == [files]
    # One alone is read by who asks.
    assert (set(threading.enumerate()) > before) is (files > 1)
    store.close()
    assert set(threading.enumerate()) <= before
