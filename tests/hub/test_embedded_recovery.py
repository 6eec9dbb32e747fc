"""How a store takes in what its tables do not know, wherever that was broken off or could not be read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gpuvigil.clock import to_ns
from gpuvigil.errors import StoreError
from hub.embedded import Embedded
from tests.hub.hours import (
    HOUR,
    HOURS,
    LATER_NS,
    LINES,
    NOON,
    aged,
    garble,
    latest,
    samples,
    seal,
    write,
)
from tests.hub.test_embedded_upkeep import HOUR_NS, MIB, held


class Crash(BaseException):
    """The process is gone."""


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(3))
def test_a_recovery_that_is_broken_off_goes_on_at_the_next_start(
    path: Path, opened: Callable[[], Embedded], steps: int
) -> None:
    """Before a file was entered, after the first, or after the last."""
    aged(opened())
    store = opened()
    known = [replace(it, sealed_ns=0) for it in store.units()]
    store.close()
    garble(path, 0.0)
    left = iter(range(steps))

    def die(_name: str) -> None:
        if next(left, None) is None:
            raise Crash

    with pytest.raises(Crash):
        Embedded(path, 256 * MIB, 1, after_step=die)
    store = opened()
    assert [replace(it, sealed_ns=0) for it in store.units()] == known
    assert (samples(store), latest(store)) == (2 * LINES, LINES)
    assert not (store.folder / ".adopting").exists()


@pytest.mark.slow
def test_a_file_and_its_log_that_are_both_damaged_are_both_put_away(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    aged(opened())
    opened().close()
    garble(path, 0.0)
    log = path.with_name(path.name + ".wal")
    log.write_bytes(b"\xa5" * 8)
    store = opened()
    assert {it["file"] for it in store.damaged()} == {str(path), str(log)}
    assert samples(store) == 2 * LINES


@pytest.mark.slow
def test_a_recovery_that_meets_a_file_of_a_newer_version_leaves_all_as_it_is(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    aged(opened())
    store = opened()
    rolled = store.units()[0].rolled_file(store.folder)
    store.close()
    garble(path, 0.0)
    kept = rolled.read_bytes()
    newer = pq.read_table(rolled)
    pq.write_table(
        newer.replace_schema_metadata({**newer.schema.metadata, b"version": b"2"}), rolled
    )
    with pytest.raises(StoreError, match="newer gpuvigil"):
        Embedded(path, 256 * MIB, 1)
    assert not held(path)
    rolled.write_bytes(kept)
    store = opened()
    assert samples(store) == 2 * LINES


@pytest.mark.medium
def test_a_start_that_cannot_open_what_it_is_to_take_in_lets_its_file_go(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    store = opened()
    write(store, 0)
    assert seal(store, 1) == 1
    store.close()
    # As a recovery that was broken off leaves it; a link to itself is what cannot be opened now.
    mark, closed = store.folder / ".adopting", store.folder / "gpu" / "x.rolled.parquet"
    mark.touch()
    closed.symlink_to(closed.name)
    with pytest.raises(StoreError, match="symbolic links"):
        Embedded(path, 256 * MIB, 1)
    assert not held(path)
    closed.unlink()
    assert samples(opened()) == LINES
    assert not mark.exists()


@pytest.mark.slow
def test_what_was_sealed_since_the_tables_were_written_is_found_beside_what_they_know(
    path: Path, opened: Callable[[], Embedded]
) -> None:
    """The log is lost with all that was in it: an hour that is known, one that is not, one that came
    late for the first, and lines that were never sealed.
    """
    store = opened()
    for hour in range(HOURS):
        write(store, hour)
    assert seal(store, 1) == 1
    store = opened()
    assert seal(store, 2) == 1
    write(store, 0.5)
    late = store.seal(LATER_NS + HOUR_NS, LATER_NS + HOUR_NS - to_ns(NOON + HOUR))
    assert late == 1
    known = store.units()
    write(store, 2.5)
    log = path.with_name(path.name + ".wal")
    kept = path.read_bytes(), log.read_bytes()
    store.close()
    path.write_bytes(kept[0])
    log.write_bytes(b"\xa5" * 8 + kept[1][8:])
    store = opened()
    assert {it.name for it in store.units()} == {it.name for it in known}
    assert [it["file"] for it in store.damaged()] == [str(log)]
    assert samples(store) == 4 * LINES
    assert samples(opened()) == 4 * LINES
