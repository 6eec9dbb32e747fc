"""For how long kernels spin, and the longest that they did before."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone

from collector.rows import Number
from collector.spins import Spins

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
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
    at = NOON + timedelta(seconds=seconds)
    fields = spins.take("GPU-1", values.get, processes, at)
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
    # A GPU without NVLink has nothing to be still.
    alone = {key: value for key, value in SPINS.items() if "nvlink" not in key}
    assert told(Spins(), 0, alone) == (0.0, 0.0)
