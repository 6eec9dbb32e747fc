"""The rolling store answers what the store of the tests answers that had the same lines."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hub_queries import rows
from analyzer.window.rows import Rows
from analyzer.window.window import Need, Span
from evaluation.rolling_store import RollingStore
from gpuvigil.clock import ManualClock, micros, to_ns
from gpuvigil.config import AnalyzerSettings
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.memory import MemoryStore
from gpuvigil.store.schema import latest_schema

pytestmark = [pytest.mark.slow, pytest.mark.site]

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
STEP = timedelta(seconds=10)
SETTINGS = AnalyzerSettings(
    window_seconds=60.0, idle_after_seconds=410.0, underused_after_seconds=520.0
)
FIELDS = ("utilization_percent", "power_watts", "energy_joules", "memory_used_bytes")
AGGREGATES = tuple(Aggregate(function=f, field=name) for f in Function for name in FIELDS)
NEEDS = {
    ("gpu", Span.NOW): Need(measurement="gpu", span=Span.NOW, fields=("up", *FIELDS)),
    ("gpu", Span.RECENT): Need(measurement="gpu", span=Span.RECENT, aggregates=AGGREGATES),
    ("gpu", Span.IDLE): Need(measurement="gpu", span=Span.IDLE, aggregates=AGGREGATES[:5]),
    ("gpu", Span.UNDERUSED): Need(
        measurement="gpu", span=Span.UNDERUSED, aggregates=AGGREGATES[3:9]
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    gpu: int
    at: datetime
    arrived: datetime
    values: dict[str, Any]


WHOLE = st.none() | st.integers(-5, 5) | st.integers(-(2**63) + 1, 2**63 - 2)
FLOAT = st.none() | st.floats(-1e6, 1e6)
VALUES = st.fixed_dictionaries(
    {
        "up": st.integers(0, 1),
        "utilization_percent": WHOLE,
        "power_watts": FLOAT,
        "energy_joules": FLOAT,
        "memory_used_bytes": WHOLE,
    }
)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    at = NOON + timedelta(milliseconds=draw(st.integers(0, 400_000)))
    late = draw(st.sampled_from([0.0, 0.0, 0.0, 0.3, 11.0, 70.0, 300.0, -15.0, -90.0]))
    return Line(
        gpu=draw(st.integers(0, 3)),
        at=at,
        arrived=at + timedelta(seconds=late),
        values=draw(VALUES),
    )


def tags(line: Line) -> dict[str, str]:
    return {"cluster": "c", "node": f"n{line.gpu // 2}", "uuid": f"G{line.gpu}", "model": "H100"}


def table(found: list[Line]) -> pa.Table:
    schema = latest_schema(MEASUREMENTS["gpu"], ("up", *FIELDS))
    rows = [{**tags(line), "at": line.at, **line.values} for line in found]
    return pa.Table.from_pylist(rows, schema=schema)


def written(store: MemoryStore, found: list[Line]) -> None:
    for line in found:
        pairs = ",".join(
            f"{k}={v}{'i' if isinstance(v, int) else ''}"
            for k, v in line.values.items()
            if v is not None
        )
        name = ",".join(f"{k}={v}" for k, v in tags(line).items())
        store.write(f"gpu,{name} {pairs} {to_ns(line.at)}\n".encode())


def same(ours: Rows, theirs: Rows) -> None:
    assert ours.subjects == theirs.subjects if len(theirs) else not len(ours)
    for subject, row in theirs.where(np.ones(len(theirs), bool)):
        mine = ours.get(subject)
        assert mine is not None
        for name in set(theirs.table.column_names) - {"cluster", "node", "uuid", "model"}:
            if isinstance(row[name], float):
                assert math.isclose(mine[name], row[name], rel_tol=1e-9, abs_tol=1e-3), name
            else:
                assert mine[name] == row[name], name


@settings(max_examples=40, deadline=None)
@given(st.lists(lines(), max_size=60), st.integers(1, 4), st.booleans())
def test_it_answers_what_a_store_with_the_same_lines_answers(
    found: list[Line], passes_per_block: int, shuffled: bool
) -> None:
    block = STEP * passes_per_block
    ours = RollingStore(NEEDS, SETTINGS, STEP, block)
    theirs = MemoryStore(clock=ManualClock(NOON))
    # What has the same time is ordered by nothing: one line of a subject at a time.
    found = list({(line.gpu, line.at): line for line in found}.values())
    if not shuffled:
        found.sort(key=lambda line: line.at)
    now, waiting = NOON - timedelta(seconds=120), list(found)
    while now < NOON + timedelta(seconds=800):
        # A block holds what was measured in it; a fast clock dates it later.
        here = [line for line in found if now <= min(line.at, line.arrived) < now + block]
        ours.take("gpu", table(here), arrived_us=_us(here))
        for _ in range(passes_per_block):
            now += STEP
            seen = [line for line in waiting if line.arrived < now]
            waiting = [line for line in waiting if line not in seen]
            written(theirs, seen)
            ours.forward(now)
            mine = ours.rows()
            for key, answer in rows([theirs], NEEDS, now, SETTINGS).items():
                same(mine[key], answer)


def _us(found: list[Line]) -> Any:
    return np.array([micros(line.arrived) for line in found], np.int64)


@pytest.mark.parametrize("late", range(100, 500, 10))
def test_a_line_that_comes_too_late_to_be_kept_lets_nobody_see_ahead(late: int) -> None:
    """Its step has no place any more: another one, whose time has not come, has that by now."""
    need = {("gpu", Span.NOW): Need(measurement="gpu", span=Span.NOW, fields=("up",))}
    ours = RollingStore(need, SETTINGS, STEP, 4 * STEP)
    second = timedelta(seconds=1)
    values = {"up": 1, **dict.fromkeys(FIELDS)}

    def line(gpu: int, at: datetime, arrived: datetime) -> Line:
        return Line(gpu=gpu, at=at, arrived=arrived, values=values)

    ours.take("gpu", table([line(2, NOON - 700 * second, NOON - 700 * second)]))
    ours.forward(NOON)
    old = line(0, NOON + (5 - late) * second, NOON + 5 * second)
    ahead = [line(1, NOON + n * second, NOON + n * second) for n in (15, 25, 35)]
    ours.take("gpu", table([old, *ahead]), arrived_us=_us([old, *ahead]))
    ours.forward(NOON + STEP)
    assert ours.rows()["gpu", Span.NOW].subjects == ()
