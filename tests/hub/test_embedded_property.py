"""Whatever is done to the store's files, and wherever it is broken off, the answers stay."""

import itertools
import math
import shutil
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.memory import MemoryStore
from hub.bodies.deduplication import Deduplicator
from hub.embedded import Embedded, Latest, Series, Window
from hub.telemetry.body import Body
from hub.telemetry.committer import commit

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 30, 22, tzinfo=timezone.utc)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOURS = 54  # so that a whole day lies between its two neighbours
FIELDS = ("power_watts", "pcie_replays", "up")
GPU = MEASUREMENTS["gpu"]
EVERY = tuple(Aggregate(function=it, field=field) for field in FIELDS for it in Function)
IN_ROLLUPS = tuple(it for it in EVERY if it.function not in {Function.FIRST, Function.LAST})

SUBJECTS = (("n1", "GPU-0"), ("n1", "GPU-1"), ("n2", "GPU-2"), ("n ü'x", "GPU-3"))
# Ends of hours, of days and of buckets, and anything between.
MOMENTS = st.one_of(
    st.integers(0, HOURS * 3_600_000 - 1),
    st.tuples(st.integers(0, HOURS * 6), st.integers(-1, 1)).map(
        lambda it: max(it[0] * 600_000 + it[1], 0)
    ),
)


class Crash(BaseException):
    """The process is gone."""


class Store:
    """The embedded store in a folder, which can break off at a step and be opened again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "telemetry.duckdb"
        self.steps_left: float = math.inf
        self.opened = self._open()

    def _open(self) -> Embedded:
        return Embedded(self.path, 512 * 1024 * 1024, 1, after_step=self._step)

    def _step(self, _name: str) -> None:
        if self.steps_left <= 0:
            raise Crash
        self.steps_left -= 1

    def restart(self) -> None:
        self.opened.close()
        self.opened = self._open()

    def write(self, text: bytes) -> None:
        body = Body(
            text=text, precision="ns", received_at=START, identity=None, done=lambda _: None
        )
        (outcome,) = commit(self.opened, Deduplicator(), [body])
        assert outcome.error is None
        assert not outcome.refused


def a_line(subject: tuple[str, str], milliseconds: int, values: dict[str, float | None]) -> str:
    node, uuid = subject
    tags = {"cluster": "test", "node": node, "uuid": uuid, "model": "H200"}
    at = START + timedelta(milliseconds=milliseconds)
    line = encode("gpu", tags, {**values, "index": 0}, to_ns(at))
    assert line is not None
    return line


class Life(RuleBasedStateMachine):
    """Lines come in any order, are sealed, joined, forgotten; the process dies now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="gpuvigil-store-"))
        self.store = Store(self.folder)
        self.twin = MemoryStore()
        self.taken: set[tuple[tuple[str, str], int]] = set()
        self.clock = itertools.count(1)

    def teardown(self) -> None:
        self.store.opened.close()
        shutil.rmtree(self.folder)

    @rule(
        lines=st.lists(
            st.tuples(
                st.sampled_from(SUBJECTS),
                MOMENTS,
                st.fixed_dictionaries(
                    {
                        "power_watts": st.none() | st.floats(-1e9, 1e9).map(lambda it: it + 0.0),
                        "pcie_replays": st.none() | st.integers(-(2**40), 2**40),
                        "up": st.none() | st.integers(0, 1),
                    }
                ),
            ),
            min_size=1,
            max_size=20,
        )
    )
    def write(self, lines: list[tuple[tuple[str, str], int, dict[str, float | None]]]) -> None:
        fresh = []
        for subject, milliseconds, values in lines:
            # Two lines of one subject and time have no order.
            if (subject, milliseconds) not in self.taken:
                self.taken.add((subject, milliseconds))
                fresh.append(a_line(subject, milliseconds, values))
        text = "\n".join(fresh).encode()
        self.store.write(text)
        self.twin.write(text)

    @rule(until=st.integers(1, HOURS), steps=st.none() | st.integers(0, 12))
    def seal(self, until: int, steps: int | None) -> None:
        self._tidy("seal", START + until * HOUR, steps)

    @rule(steps=st.none() | st.integers(0, 9))
    def join(self, steps: int | None) -> None:
        self._tidy("join", START + HOURS * HOUR, steps)

    @rule(milliseconds=MOMENTS, steps=st.none() | st.integers(0, 6))
    def forget(self, milliseconds: int, steps: int | None) -> None:
        before = START + timedelta(milliseconds=milliseconds)
        with self._breaking_off_after(steps):
            self.store.opened.forget(to_ns(before))
            # Broken off, nothing was forgotten.
            self.twin.forget(before)

    @rule()
    def restart(self) -> None:
        self.store.restart()

    @invariant()
    def answers_are_those_of_all_lines(self) -> None:
        for span in ((1 * MINUTE, HOURS * HOUR), (3 * HOUR, 31 * HOUR + 7 * MINUTE)):
            assert_alike(*self._windows(EVERY, span))
            assert_alike(*self._windows(IN_ROLLUPS, span))
            for step in (HOUR, timedelta(seconds=90)):
                assert_alike(*self._series(step, {}, span))
        assert_alike(*self._series(MINUTE, {"node": "n2"}, (HOUR, 20 * HOUR)))
        for since in (START, START + 20 * HOUR):
            asked = Latest(measurement=GPU, fields=FIELDS, since_ns=to_ns(since))
            assert_alike(self.store.opened.answer(asked), self.twin.latest("gpu", FIELDS, since))

    def _tidy(self, what: str, until: datetime, steps: int | None) -> None:
        # Late lines are sealed as if a day had gone by since the last time.
        now_ns = to_ns(START + next(self.clock) * 1000 * HOUR)
        with self._breaking_off_after(steps):
            getattr(self.store.opened, what)(now_ns, now_ns - to_ns(until))

    def _breaking_off_after(self, steps: int | None) -> "BreakingOff":
        return BreakingOff(self.store, steps)

    def _windows(
        self, aggregates: tuple[Aggregate, ...], span: tuple[timedelta, timedelta]
    ) -> tuple[pa.Table, pa.Table]:
        start, end = START + span[0], START + span[1]
        asked = Window(
            measurement=GPU, aggregates=aggregates, start_ns=to_ns(start), end_ns=to_ns(end)
        )
        return self.store.opened.answer(asked), self.twin.window("gpu", aggregates, start, end)

    def _series(
        self, step: timedelta, where: dict[str, str], span: tuple[timedelta, timedelta]
    ) -> tuple[pa.Table, pa.Table]:
        start, end = START + span[0], START + span[1]
        asked = Series(
            measurement=GPU,
            fields=FIELDS,
            where=tuple(where.items()),
            start_ns=to_ns(start),
            end_ns=to_ns(end),
            step_ns=step // timedelta(microseconds=1) * 1000,
        )
        expected = self.twin.series("gpu", FIELDS, where, (start, end), step)
        return self.store.opened.answer(asked), expected


class BreakingOff:
    """Let the process die after some steps, if it gets as far, and start it again."""

    def __init__(self, store: Store, steps: int | None) -> None:
        self._store = store
        self._steps = steps

    def __enter__(self) -> None:
        self._store.steps_left = math.inf if self._steps is None else self._steps

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._store.steps_left = math.inf
        if kind is Crash:
            self._store.restart()
        return kind is Crash


def assert_alike(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema == expected.schema
    for mine, other in zip(found.to_pylist(), expected.to_pylist(), strict=True):
        for key, value in other.items():
            if isinstance(value, float):
                assert math.isclose(mine[key], value, rel_tol=1e-9, abs_tol=1e-5), (key, mine)
            else:
                assert mine[key] == value, (key, mine, other)


@pytest.mark.timeout(600)
def test_any_life_of_the_files_leaves_the_answers_as_they_were() -> None:
    quick = settings(
        max_examples=6,
        stateful_step_count=10,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Life, settings=quick)
