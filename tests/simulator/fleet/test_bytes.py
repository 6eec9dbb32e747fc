"""The same seed gives the same bytes: on any machine, however it is cut."""

from dataclasses import replace
from datetime import timedelta

import pytest

from simulator.fleet import FleetSettings, build
from tests.simulator.fleet import runs

pytestmark = pytest.mark.slow

# With life, faults, noise, loss and two models in it. A change of the fleet is a new hash.
SETTINGS = FleetSettings(
    seed=5, nodes=8, days=0.375, nodes_per_rack=2, models=("H100", "A100"), fault_rate=3000.0
)
DIGEST = "b3ce2d3a386ed4e2cebaa455bfdf5570644e7a9d720c85512b6845d6b80966ed"


def test_a_small_fleet_has_the_bytes_that_it_had_everywhere() -> None:
    assert runs.digest(runs.played(SETTINGS)) == DIGEST


def test_blocks_may_be_cut_anywhere() -> None:
    once = runs.played(SETTINGS)
    again = list(build(SETTINGS).blocks(tick_seconds=runs.TICK_SECONDS, block_seconds=2700.0))
    for measurement in ("gpu", "port", "node", "nvlink"):
        assert runs.whole(again, measurement).equals(runs.whole(once, measurement))
    assert [e.id for b in again for e in b.events] == [e.id for b in once for e in b.events]


def test_a_start_in_the_middle_shows_what_the_whole_shows_then() -> None:
    start = SETTINGS.start + timedelta(hours=5)
    late = list(build(SETTINGS).blocks(start=start, tick_seconds=runs.TICK_SECONDS))
    once = [block for block in runs.played(SETTINGS) if block.start >= start]
    assert late[0].start == start
    assert runs.whole(late).equals(runs.whole(once))
    assert [e.id for b in late for e in b.events] == [e.id for b in once for e in b.events]


def test_another_seed_is_another_fleet() -> None:
    other = replace(SETTINGS, seed=6)
    assert runs.digest(runs.played(other)) != runs.digest(runs.played(SETTINGS))
