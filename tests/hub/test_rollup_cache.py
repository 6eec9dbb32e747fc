"""Questions that come again while time goes on are answered as if every line were read."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from gpuvigil.clock import from_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.memory import MemoryStore
from hub.embedded import Embedded, Window
from hub.embedded.dense_arrays import SlotAggregates
from hub.embedded.rollup_cache import Plan, RollupCache
from hub.embedded.subject_slots import SubjectSlots

from .test_embedded_property import Store, assert_alike

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
START = 500_000 * HOUR + 300 * SECOND
GPU = MEASUREMENTS["gpu"]
FIELDS = ("power_watts", "pcie_replays")
EVERY = tuple(Aggregate(function=it, field=field) for field in FIELDS for it in Function)
SUBJECTS = tuple((f"n{n}", f"GPU-{n}-{gpu}") for n in range(3) for gpu in range(2))
LENGTH = 600 * SECOND


def a_line(subject: int, at_ns: int, watts: float | None, replays: int | None) -> bytes:
    node, uuid = SUBJECTS[subject]
    tags = {"cluster": "test", "node": node, "uuid": uuid, "model": "H200"}
    line = encode("gpu", tags, {"power_watts": watts, "pcie_replays": replays, "index": 0}, at_ns)
    assert line is not None
    return line.encode()


def asked(start_ns: int, end_ns: int) -> Window:
    return Window(measurement=GPU, aggregates=EVERY, start_ns=start_ns, end_ns=end_ns)


def _new_folders(below: Path) -> Iterator[Path]:
    for number in itertools.count():
        (below / str(number)).mkdir()
        yield below / str(number)


class Watching(RuleBasedStateMachine):
    """Somebody asks for the last ten minutes, over and over, while lines come in time and late, are
    sealed and forgotten, and the hub starts again.
    """

    folders: Iterator[Path]

    def __init__(self) -> None:
        super().__init__()
        self.folder = next(self.folders)
        self.store = Store(self.folder)
        self.twin = MemoryStore()
        self.now_ns = START
        self.taken: set[tuple[int, int]] = set()
        # Half of them of the hour before, which may be sealed at any time.
        past = range(START - LENGTH, START, 60 * SECOND)
        self._write([a_line(it, at + it, 300.0, it) for at in past for it in range(3)])
        self.look()

    def teardown(self) -> None:
        self.store.opened.close()

    @rule(seconds=st.integers(1, 90), measured=st.sets(st.integers(0, len(SUBJECTS) - 1)))
    def time_goes_on(self, seconds: int, measured: set[int]) -> None:
        for second in range(0, seconds, 10):
            times = ((it, self.now_ns + (second + it) * SECOND) for it in sorted(measured))
            self._write([a_line(it, at, float(second), at % 97) for it, at in times])
        self.now_ns += seconds * SECOND
        self.look()

    @rule(
        subject=st.integers(0, len(SUBJECTS) - 1),
        ago=st.integers(1, 700_000),
        watts=st.none() | st.floats(-1e6, 1e6),
        replays=st.none() | st.integers(-(2**40), 2**40),
    )
    def a_line_comes_late(
        self, subject: int, ago: int, watts: float | None, replays: int | None
    ) -> None:
        at = self.now_ns - ago * 1_000_000 + 1
        if (subject, at) not in self.taken:
            self.taken.add((subject, at))
            self._write([a_line(subject, at, watts, replays)])
        self.look()

    @rule(hours=st.integers(0, 1))
    def an_hour_is_sealed(self, hours: int) -> None:
        self.store.opened.seal(self.now_ns + 24 * HOUR, (24 + hours) * HOUR)
        self.look()

    @rule(ago=st.integers(60, 500))
    def some_is_forgotten(self, ago: int) -> None:
        before = self.now_ns - ago * SECOND
        self.store.opened.forget(before)
        self.twin.forget(from_ns(before))
        self.look()

    @rule()
    def the_hub_starts_again(self) -> None:
        self.store.restart()
        self.look()

    def look(self) -> None:
        """Two readers, of whom one's clock is behind."""
        for behind_ns in (0, 7 * SECOND):
            end = self.now_ns - behind_ns
            found = self.store.opened.answer(asked(end - LENGTH, end))
            expected = self.twin.window("gpu", EVERY, from_ns(end - LENGTH), from_ns(end))
            assert_alike(found, expected)

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            self.store.write(b"\n".join(lines))
            self.twin.write(b"\n".join(lines))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_question_that_comes_again_is_answered_of_all_lines(tmp_path: Path) -> None:
    class There(Watching):
        folders = _new_folders(tmp_path)

    quick = settings(
        max_examples=8,
        stateful_step_count=10,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(There, settings=quick)


def rows(at_ns: int, count: int = 4) -> dict[str, pa.Table]:
    columns = {
        "cluster": ["test"] * count,
        "node": [f"n{n}" for n in range(count)],
        "uuid": [f"GPU-{n}" for n in range(count)],
        "model": ["H200"] * count,
        "at": pa.array([at_ns] * count, pa.timestamp("ns")),
        "power_watts": [float(at_ns // SECOND % 1000)] * count,
    }
    return {"gpu": pa.table(columns)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Embedded]:
    opened = Embedded(tmp_path / "telemetry.duckdb", 512 * 1024 * 1024, 1)
    yield opened
    opened.close()


def test_what_was_read_is_kept_until_a_line_comes_that_is_in_it() -> None:
    slices, times = RollupCache(1 << 20), np.array([START - 100 * SECOND])
    for _ in range(2):
        with slices.planned(asked(START - LENGTH, START)) as plan:
            pass
    step = plan.making[-1][1] - plan.making[-1][0]
    held = _read_all(slices)
    assert sum(end - start for start, end in held.rest) < 2 * step + 5 * SECOND
    # Of the slices only the one with that line in it is read again, and of another table's none.
    with slices.changing({"port": times}):
        pass
    assert not _planned(slices).making
    with slices.changing({"gpu": times}):
        pass
    (again,) = _planned(slices).making
    assert again[0] <= times[0] < again[1]
    with slices.changing(None):
        pass
    assert not _planned(slices).known


def test_what_was_read_beside_a_commit_is_not_kept_nor_believed() -> None:
    slices = RollupCache(1 << 20)
    _read_all(slices)
    late = {"gpu": np.array([START - 100 * SECOND])}
    with slices.planned(asked(START - LENGTH, START)) as plan:
        # Also where another question was begun and answered meanwhile.
        _planned(slices)
        assert slices.holds(plan)
        with slices.changing(late):
            pass
        assert not slices.holds(plan)
    with slices.changing(late):
        missing = _planned(slices, keep=True).making
        assert len(missing) == 1
    # Whoever read it while the commit was under way may have read it without that line.
    assert _planned(slices).making == missing


def test_kinds_that_find_no_room_are_not_kept() -> None:
    slices = RollupCache(0)
    for _ in range(3):
        assert _planned(slices).kind is None


def _planned(slices: RollupCache, keep: bool = False) -> Plan:
    with slices.planned(asked(START - LENGTH, START)) as plan:
        if keep:
            none = np.zeros(2, np.int64)
            made = SlotAggregates(lines=none, first_ns=none, last_ns=none, fields={})
            plan.made = {start: made for start, _ in plan.making}
    return plan


def _read_all(slices: RollupCache) -> Plan:
    return [_planned(slices, keep=True) for _ in range(10)][-1]


@pytest.mark.slow
def test_lines_that_come_while_it_is_asked_are_all_there_or_none(store: Embedded) -> None:
    """A body has a line in a slice that is kept and one that is not: who sees one sees the other."""
    for second in range(0, 600, 10):
        store.append(rows(START + second * SECOND), [])
    done, torn = threading.Event(), list[int]()
    end = START + 600 * SECOND

    def ask() -> None:
        while not done.is_set():
            samples = store.answer(asked(end - LENGTH, end))["samples"].to_pylist()
            if len(set(samples)) != 1 or samples[0] % 2:
                torn.append(samples[0])

    reader = threading.Thread(target=ask)
    reader.start()
    for n in range(1, 25):
        early, late = rows(START + 100 * SECOND + n)["gpu"], rows(end - n)["gpu"]
        store.append({"gpu": pa.concat_tables([early, late])}, [])
    done.set()
    reader.join()
    assert not torn
    assert store.answer(asked(end - LENGTH, end))["samples"].to_pylist() == [60 + 48] * 4


@pytest.mark.slow
def test_what_is_kept_and_was_sealed_since_is_there_once(store: Embedded) -> None:
    for second in range(0, 600, 10):
        store.append(rows(START - (600 - second) * SECOND), [])

    def samples() -> list[list[int]]:
        ends = (START - late * SECOND for late in range(4))
        return [store.answer(asked(end - LENGTH, end))["samples"].to_pylist() for end in ends]

    before = samples()
    assert before == [[60] * 4] * 4
    # The hour before is half of what was asked for, and the rest is still kept.
    assert store.seal(START + 24 * HOUR, 24 * HOUR) == 1
    assert samples() == before


def test_subjects_whose_names_are_one_text_are_told_apart() -> None:
    slots, tags = SubjectSlots(2), ("cluster", "node")
    first = pa.table({"cluster": ["a", "a\x1fb"], "node": ["b\x1fc", "d"]})
    other = pa.table({"cluster": ["a\x1fb", "a"], "node": ["c", "b\x1fc"]})
    assert slots.of(first, tags).tolist() == [0, 1]
    assert slots.of(other, tags).tolist() == [2, 0]
    assert slots.of(first, tags).tolist() == [0, 1]
