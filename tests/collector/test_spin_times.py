"""For how long kernels spin, and the longest that they did before."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from analyzer.detectors.gpu_hung import hung_jobs
from collector.rows.catalogue_rows import Number
from collector.rows.events import EventMaker
from collector.rows.gpu_history import GpuBook
from collector.rows.monotone_counters import MonotoneCounters
from collector.rows.spin_times import Spins
from collector.samples.messages import LOADED, GpuTick, Tick
from gpuvigil.clock import ManualClock
from gpuvigil.model import Severity, Subject
from tests.analyzer.scene import allocation, gpu, healthy

from .test_gpu_history import NOW, SILENCE, identity

SPINS: Mapping[str, Number] = {
    "utilization_percent": 100,
    "memory_utilization_percent": 0,
    "power_watts": 130.0,
    "power_limit_watts": 700.0,
    "pcie_receive_bytes_per_second": 0,
    "nvlink_receive_bytes": 10**12,
}
WORKS = {**SPINS, "power_watts": 550.0}


def told(
    spins: Spins,
    seconds: float,
    values: Mapping[str, Number],
    processes: Iterable[int] | None = (7, 8),
) -> tuple[Number, Number] | None:
    fields = spins.update("GPU-1", values.get, processes, seconds)
    return (fields["spin_seconds"], fields["longest_spin_seconds"]) if fields else None


def test_a_spell_is_counted_and_is_the_longest_once_it_is_over() -> None:
    spins = Spins()
    assert told(spins, 0, WORKS) is None
    assert told(spins, 10, SPINS) == (0.0, 0.0)
    assert told(spins, 40, SPINS) == (30.0, 0.0)
    assert told(spins, 50, WORKS) == (0.0, 40.0)
    assert told(spins, 60, SPINS) == (0.0, 40.0)
    assert told(spins, 70, SPINS) == (10.0, 40.0)
    assert told(spins, 75, WORKS) == (0.0, 40.0)


def test_another_jobs_processes_begin_anew_and_helpers_do_not() -> None:
    spins = Spins()
    told(spins, 0, SPINS)
    assert told(spins, 30, SPINS, (8, 9)) == (30.0, 0.0)
    assert told(spins, 40, SPINS, None) == (40.0, 0.0)
    assert told(spins, 50, SPINS, (10,)) == (0.0, 0.0)
    told(spins, 60, WORKS, (10,))
    assert told(spins, 70, WORKS, (11,)) is None


def test_what_moves_over_links_or_is_not_measured_does_not_spin() -> None:
    spins = Spins()
    told(spins, 0, SPINS)
    assert told(spins, 10, {**SPINS, "nvlink_receive_bytes": 10**12 + 10**9}) == (0.0, 10.0)
    for name in ("power_watts", "power_limit_watts", "utilization_percent"):
        missing = {key: value for key, value in SPINS.items() if key != name}
        assert told(Spins(), 0, missing) is None, name
    memory = "memory_utilization_percent"
    assert told(Spins(), 0, {**SPINS, memory: 2}) is None
    assert told(Spins(), 0, {**SPINS, memory: 1}) == (0.0, 0.0)
    # A GPU without NVLink has nothing to be still.
    alone = {key: value for key, value in SPINS.items() if "nvlink" not in key}
    assert told(Spins(), 0, alone) == (0.0, 0.0)


class Node:
    """A node with one GPU, and a clock that somebody sets."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        events = EventMaker(node=Subject(cluster="c", node="n1"), boot="b1")
        self._gpus = GpuBook(
            events,
            {"GPU-0": identity(0)},
            MonotoneCounters(),
            SILENCE,
            monotonic=self.clock.monotonic,
        )

    def tick(self, values: Mapping[str, Number]) -> Mapping[str, Any]:
        now = self.clock.now()
        gpu = GpuTick(index=0, identity=identity(0), values=dict(values))
        said = Tick(at=now, state=LOADED, gpus=(gpu,))
        (row,) = self._gpus.update(said, now, None).rows
        return row.every


TICKS = st.lists(
    st.tuples(
        st.floats(0.5, 60.0),  # since the tick before
        st.floats(-86_400.0, 86_400.0),  # by which the wall clock was set meanwhile
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@given(TICKS)
def test_a_clock_that_is_set_makes_nobody_spin_longer(
    ticks: list[tuple[float, float, bool]],
) -> None:
    node = Node()
    since, longest = None, 0.0
    for passed, stepped, spins in ticks:
        node.clock.advance(passed)
        node.clock.step(stepped)
        told = node.tick(SPINS if spins else WORKS)
        at = node.clock.monotonic()
        if spins:
            since = at if since is None else since
        elif since is not None:
            longest, since = max(longest, at - since), None
        now = 0.0 if since is None else at - since
        assert told.get("spin_seconds", 0.0) == round(now, 3)
        assert told.get("longest_spin_seconds", 0.0) == round(longest, 3)


def test_one_tick_of_spinning_over_a_clock_step_of_two_hours_is_no_hang() -> None:
    node = Node()
    node.tick(SPINS)
    node.clock.advance(10.0)
    node.clock.step(7200.0)
    told = node.tick(SPINS)
    assert told["spin_seconds"] == 10.0
    spun = {name: told[name] for name in ("spin_seconds", "longest_spin_seconds")}
    scene = replace(healthy(seconds=120), allocations=(allocation(gpu(), "job 7"),))
    scene = scene.changed(gpu(), {**SPINS, **spun})
    assert Severity.WARNING not in [one.severity for one in hung_jobs(scene.window())]
