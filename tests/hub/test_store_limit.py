"""How much the store may take, counted by what is in use; and who is dropped for it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import HubSettings
from hub.bodies.tables import TIME
from hub.embedded import Embedded
from hub.embedded.statistics import beyond, is_crowded, room_bytes
from hub.telemetry.counters import Counters
from hub.telemetry.retention import Retention
from tests.hub.hours import GPU, HOUR, LATER_NS, NOON

LINES = 4_000


@pytest.fixture
def store(tmp_path: Path) -> Embedded:
    return Embedded(tmp_path / "telemetry.duckdb", 256 * 1024 * 1024, 1)


def fill(store: Embedded, hours: int) -> None:
    """Lines that cannot be compressed, in as many hours from noon."""
    chance = np.random.default_rng(hours)
    for hour in range(hours):
        at = to_ns(NOON + hour * HOUR) + np.arange(LINES) * 1_000_000
        values = {
            it.name: chance.integers(0, 2**60, LINES) if it.integer else chance.random(LINES)
            for it in GPU.metrics
        }
        tags = {tag: ["one"] * LINES for tag in GPU.tags}
        store.append({"gpu": pa.table({**tags, "at": pa.array(at).cast(TIME), **values})}, [])


def sealed_bytes(store: Embedded) -> int:
    return sum(unit.bytes for unit in store.units())


@pytest.mark.slow
def test_what_the_file_gives_up_is_counted_before_sealed_lines_are_dropped(store: Embedded) -> None:
    """Sealed lines stay in the blocks and in the log of the DuckDB file until its next checkpoint."""
    fill(store, 4)
    store.ask("CHECKPOINT")
    fill(store, 1)
    assert store.seal(LATER_NS, LATER_NS - to_ns(NOON + 4 * HOUR)) == 4
    before = store.held_bytes()
    sealed = sealed_bytes(store)
    # Counted as the file was, each of them would have to go.
    most = sealed + before // 2
    assert len(beyond(most - before, store.units())) > 1
    assert store.shrink(most).lines == 0
    assert store.held_bytes() < before // 4
    just = sealed + store.held_bytes()
    assert store.shrink(just).lines == 0
    assert store.shrink(just - 1).lines == store.dropped.lines
    assert len(store.units()) == 3
    store.close()


@pytest.mark.slow
def test_recent_lines_that_are_too_many_never_cost_all_that_is_sealed(
    store: Embedded, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 6)
    assert store.seal(LATER_NS, LATER_NS - to_ns(NOON + 2 * HOUR)) == 2
    most = 2 * sealed_bytes(store) - 2
    settings = HubSettings(store_bytes=most)
    retention = Retention(store, settings, SystemClock(), Counters())
    retention.make_room()
    retention.make_room()
    (unit,) = store.units()
    assert unit.bytes <= most // 2 < 2 * unit.bytes
    assert caplog.text.count("recent telemetry alone") == 1
    # Recent lines alone take more than all may.
    assert store.held_bytes() > most
    retention = Retention(store, HubSettings(store_bytes=8 * most), SystemClock(), Counters())
    retention.make_room()
    assert caplog.text.count("recent telemetry alone") == 1
    store.close()


def test_half_of_the_room_is_left_to_sealed_files_just_below_and_just_above() -> None:
    assert room_bytes(100, 49) == 51
    assert room_bytes(100, 51) == 50
    assert room_bytes(100, 500) == 50
    assert not is_crowded(100, 50)
    assert is_crowded(100, 51)
