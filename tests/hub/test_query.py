"""What is asked of sealed files is what was asked of the lines when they were hot."""

import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpuvigil.clock import to_ns
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from hub.bodies.tables import TIME
from hub.embedded import Embedded, Question, Series, Window
from hub.embedded.answer_cache import AnswerCache, cost_bytes
from hub.embedded.manifest import Contents, Manifest

DAY = datetime(2026, 1, 30, tzinfo=timezone.utc)
MINUTE, HOUR = 60_000_000_000, 3_600_000_000_000
START = to_ns(DAY)
GPU = MEASUREMENTS["gpu"]
GPUS, MINUTES = 24, 1440  # more lines than one row group takes
EVERY = tuple(
    Aggregate(function=function, field=field)
    for function in Function
    for field in ("power_watts", "pcie_replays", "nvlink_receive_bytes", "fan_speed_percent")
)
# What needs no more of a line's time than whether it counts.
TIMELESS = tuple(it for it in EVERY if it.function not in {Function.FIRST, Function.LAST})
UNMEASURED = tuple(it for it in TIMELESS if it.field == "fan_speed_percent")


def a_day(minutes: range) -> pa.Table:
    """A line a minute of every GPU; some values are not there, and no fan is measured at all."""
    count = GPUS * len(minutes)
    chance = np.random.default_rng(1)
    gpu = np.repeat(np.arange(GPUS), len(minutes))
    at = START + np.tile(np.array(minutes) * MINUTE, GPUS) + gpu * 5_000_000_007
    return pa.table(
        {
            "cluster": ["test"] * count,
            "node": [f"n{number // 4}" for number in gpu],
            "uuid": [f"GPU-{number:02}" for number in gpu],
            "model": ["H200"] * count,
            "at": pa.array(at).cast(TIME),
            "power_watts": pa.array(chance.normal(400, 90, count), mask=chance.random(count) < 0.1),
            "pcie_replays": pa.array(chance.integers(0, 9, count), mask=gpu == 7),
            "nvlink_receive_bytes": pa.array(2**62 + chance.integers(0, 2**40, count)),
        }
    )


def window(start_ns: int, end_ns: int, aggregates: tuple[Aggregate, ...] = EVERY) -> Window:
    return Window(measurement=GPU, aggregates=aggregates, start_ns=start_ns, end_ns=end_ns)


def series(where: dict[str, str], start_ns: int, end_ns: int, step_ns: int) -> Series:
    return Series(
        measurement=GPU,
        fields=("power_watts", "pcie_replays", "fan_speed_percent"),
        where=tuple(where.items()),
        start_ns=start_ns,
        end_ns=end_ns,
        step_ns=step_ns,
    )


QUESTIONS: list[Question] = [
    window(START, START + 24 * HOUR),
    window(START + 90 * MINUTE + 1, START + 1000 * MINUTE),
    window(START, START + 25 * HOUR),
    window(START - HOUR, START),
    # Once more of the same lines, other fields first: whose they are is known by then.
    *(
        window(START, START + hours * HOUR - again, aggregates)
        for hours in (24, 25)
        for again, aggregates in enumerate((TIMELESS[:3], TIMELESS, UNMEASURED, TIMELESS[::-1]))
    ),
    *(
        series({"uuid": f"GPU-{n:02}"}, START + 9 * HOUR, START + 15 * HOUR, MINUTE)
        for n in (0, 31)
    ),
    series({"node": "n2"}, START, START + 24 * HOUR, 7 * MINUTE),
    series({}, START, START + 30 * HOUR, HOUR),
    series({"node": "n2", "uuid": "GPU-00"}, START, START + 24 * HOUR, HOUR),
    series({"uuid": "nobody"}, START, START + 24 * HOUR, HOUR),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Embedded]:
    opened = Embedded(tmp_path / "telemetry.duckdb", 512 * 1024 * 1024, 2)
    yield opened
    opened.close()


def assert_alike(found: list[pa.Table], expected: list[pa.Table]) -> None:
    for mine, other in zip(found, expected, strict=True):
        assert mine.schema == other.schema
        assert mine.num_rows == other.num_rows
        for name in other.column_names:
            if other[name].type == pa.float64():
                one, two = (it[name].to_numpy() for it in (mine, other))
                assert np.allclose(one, two, rtol=1e-9, equal_nan=True), name
            else:
                assert mine[name].to_pylist() == other[name].to_pylist(), name


@pytest.mark.slow
def test_sealed_joined_and_late_lines_answer_as_hot_ones(store: Embedded) -> None:
    store.append({"gpu": a_day(range(MINUTES))}, [])
    hot = [store.answer(question) for question in QUESTIONS]
    assert [table.num_rows for table in hot[:2]] == [GPUS, GPUS]
    later = START + 100 * HOUR
    assert store.seal(later, 0) == 24 + 1  # the last clock is a minute ahead
    assert_alike([store.answer(question) for question in QUESTIONS], hot)
    assert store.join(later, 0) == 1
    assert_alike([store.answer(question) for question in QUESTIONS], hot)
    files = [unit.lines_file(store.folder) for unit in store.units()]
    metadata = pq.read_metadata(max(files, key=lambda file: file.stat().st_size))
    assert metadata.num_row_groups > 1
    # What nobody has measured takes no room.
    assert "fan_speed_percent" not in metadata.schema.names


@pytest.mark.medium
def test_an_answer_is_remembered_until_a_commit_touches_it(store: Embedded) -> None:
    store.append({"gpu": a_day(range(60))}, [])
    early, late = window(START, START + HOUR), window(START + 2 * HOUR, START + 3 * HOUR)
    first = store.answer(early)
    assert store.answer(early) is first
    assert not store.answer(late).num_rows
    store.append({"gpu": a_day(range(120, 121))}, [])
    assert store.remembered(early) is first
    assert store.remembered(late) is None
    assert store.answer(late).num_rows == GPUS
    # What nothing is too old for is looked at each minute.
    store.expire(START, START)
    assert store.remembered(early) is first
    store.expire(START + 1, START)
    assert store.remembered(early) is None
    store.answer(early)
    store.forget(START + HOUR)
    assert store.remembered(early) is None
    assert store.answer(late).num_rows == GPUS


@pytest.mark.parametrize(
    ("change", "goes"),
    [
        (None, True),
        ({"node": (START, START)}, False),
        ({"gpu": (START - 9, START - 1)}, False),
        ({"gpu": (START - 9, START)}, True),
        ({"gpu": (START + HOUR - 1, START + HOUR)}, True),
        ({"gpu": (START + HOUR, START + HOUR)}, False),
    ],
)
def test_an_answer_goes_with_a_commit_of_its_range_and_with_one_that_may_touch_all(
    change: Mapping[str, tuple[int, int]] | None, goes: bool
) -> None:
    remembered, question = AnswerCache(), window(START, START + HOUR)
    remembered.answer(question, lambda _: pa.table({"a": [1]}))
    with remembered.changing(change):
        pass
    assert (remembered.known(question) is None) is goes


def test_an_answer_that_was_made_while_lines_came_is_not_remembered() -> None:
    remembered, question = AnswerCache(), window(START, START + HOUR)
    change = {"gpu": (START, START)}

    def during(_: object) -> pa.Table:
        with remembered.changing(change):
            pass
        return pa.table({"a": [1]})

    remembered.answer(question, during)
    assert remembered.known(question) is None
    with remembered.changing(change):
        remembered.answer(question, lambda _: pa.table({"a": [1]}))
        assert remembered.known(question) is None
    with remembered.changing({"gpu": (START + HOUR, START + HOUR), "node": (START, START)}):
        remembered.answer(question, lambda _: pa.table({"a": [1]}))
    assert remembered.known(question) is not None


def test_the_answers_asked_longest_ago_are_forgotten_first() -> None:
    table = pa.table({"a": np.zeros(1000)})
    questions = [window(START, START + n * HOUR) for n in range(1, 4)]
    remembered = AnswerCache(most_bytes=2 * cost_bytes(questions[0], table))
    for question in questions[:2]:
        remembered.answer(question, lambda _: table)
    assert remembered.known(questions[0]) is not None
    remembered.answer(questions[2], lambda _: table)
    assert [remembered.known(it) is not None for it in questions] == [True, False, True]
    # One that is larger than all may be is not kept, and nothing goes for it.
    large = pa.table({"a": np.zeros(10_000)})
    whole = window(START, START + 9 * HOUR)
    remembered = AnswerCache(most_bytes=cost_bytes(whole, large) - 1)
    remembered.answer(questions[0], lambda _: table)
    remembered.answer(whole, lambda _: large)
    assert [remembered.known(it) is not None for it in (questions[0], whole)] == [True, False]
    # One that is as large as all may be takes the place of all.
    remembered = AnswerCache(most_bytes=cost_bytes(whole, large))
    remembered.answer(questions[0], lambda _: table)
    remembered.answer(whole, lambda _: large)
    assert [remembered.known(it) is not None for it in (questions[0], whole)] == [False, True]


def test_answers_that_hold_nothing_are_remembered_up_to_a_number() -> None:
    nothing = pa.table({"a": pa.array([], pa.float64())})
    remembered = AnswerCache(most_bytes=1024 * 1024)
    asked = [series({"uuid": f"{n:0256}"}, START, START + HOUR, MINUTE) for n in range(100)]
    for question in asked:
        remembered.answer(question, lambda _: nothing)
    assert 1 < sum(remembered.known(it) is not None for it in asked) < 64


def test_what_was_sealed_is_read_once_for_all_who_ask_at_a_time() -> None:
    reads, go_on = list[None](), threading.Event()

    def read() -> tuple[Contents, dict[str, tuple[int, int]]]:
        reads.append(None)
        go_on.wait(timeout=30)
        return Contents(units={}, subjects={}), {"gpu": (START, START)}

    manifest, seen = Manifest(read), list[object]()
    threads = [threading.Thread(target=lambda: seen.append(manifest.view("gpu"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not reads:
        go_on.wait(timeout=0.01)
    go_on.wait(timeout=0.3)  # by then the others wait too
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert len(reads) == 1


@pytest.mark.slow
def test_questions_beside_commits_and_sealing_miss_nothing(store: Embedded) -> None:
    """A line is hot or sealed, and never neither nor both, whenever it is asked for."""
    done, wrong = threading.Event(), list[int]()
    store.append({"gpu": a_day(range(120))}, [])
    asked = window(START, START + 48 * HOUR)

    def ask() -> None:
        least = GPUS * 120
        while not done.is_set():
            samples = sum(store.answer(asked)["samples"].to_pylist())
            if samples < least:
                wrong.append(samples)
            least = samples

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    for hour in range(2, 8):
        store.append({"gpu": a_day(range(60 * hour, 60 * hour + 60))}, [])
        store.seal(START + (hour + 1) * HOUR, HOUR)
    store.join(START + 100 * HOUR, 0)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert sum(store.answer(asked)["samples"].to_pylist()) == GPUS * 480


@pytest.mark.slow
def test_what_the_catalogue_does_not_know_is_sealed_kept_and_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.duckdb"
    store = Embedded(path, 512 * 1024 * 1024, 2)
    hours = np.arange(3).repeat(2) * HOUR
    rows = {
        "at": pa.array(START + hours).cast(TIME),
        "measurement": ["weather"] * 6,
        "tags": ['{"it": "is"}'] * 6,
        "field": ["sun", "sky"] * 3,
        "value": [1.5, None] * 3,
        "text": [None, "blue"] * 3,
    }
    store.append({"extra": pa.table(rows)}, [])
    assert store.seal(START + 3 * HOUR, HOUR) == 2
    files = [unit.lines_file(store.folder) for unit in store.units()]
    assert [pq.read_table(file).to_pylist() for file in files] == [
        [
            {key: column[n] for key, column in pa.table(rows).to_pydict().items()}
            for n in (2 * hour + 1, 2 * hour)  # by field
        ]
        for hour in range(2)
    ]
    assert store.sizes()[0]["extra"] == 6
    assert store.verify().damaged == 0
    store.close()
    # The manifest is made anew of what the files say.
    for file in (path, path.with_name(path.name + ".wal")):
        file.unlink(missing_ok=True)
    store = Embedded(path, 512 * 1024 * 1024, 2)
    assert store.sizes()[0]["extra"] == 4
    assert store.join(START + 100 * HOUR, 0) == 0
    store.forget(START + HOUR)
    assert store.sizes()[0]["extra"] == 2
    # No roll-up of them is kept: nobody could ask for it.
    store.expire(START + 2 * HOUR, START - 400 * 24 * HOUR)
    assert not store.units()
    store.close()


@pytest.mark.slow
def test_room_that_was_given_up_in_the_file_is_not_held_against_what_is_sealed(
    store: Embedded,
) -> None:
    count, chance = 10_000, np.random.default_rng(1)
    columns = {
        it.name: chance.integers(0, 2**60, count) if it.integer else chance.random(count)
        for it in GPU.metrics
    }
    at = pa.array(START + np.arange(count) * 1_000_000).cast(TIME)
    tags = {tag: ["one"] * count for tag in GPU.tags}
    store.append({"gpu": pa.table({**tags, "at": at, **columns})}, [])
    store.ask("CHECKPOINT")
    assert store.seal(START + 100 * HOUR, 0) == 1
    store.ask("CHECKPOINT")
    sealed = sum(unit.bytes for unit in store.units())
    file_bytes = store.sizes()[1] - sealed
    assert file_bytes > 8_000_000
    assert store.shrink(sealed + file_bytes // 2).lines == 0
    assert store.shrink(sealed // 2).lines == count
    assert not store.units()
