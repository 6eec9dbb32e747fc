"""How long each GPU's kernels have spun, and the longest time that they spun before.

The limits are those by which the analyzer calls a GPU hung (docs/detectors.md, `gpu_hung`); only a
collector sees every tick of a job. Times are monotonic: setting a clock makes no spin longer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .catalogue_rows import Number

_BUSY_PERCENT, _MEMORY_PERCENT, _POWER_SHARE = 98, 2, 0.4
# Per second; heartbeats and polling move a little.
_NVLINK_BYTES, _PCIE_BYTES = 1e6, 50e6
Ask = Callable[[str], Number | None]


@dataclass(slots=True)
class _SpinState:
    """One GPU under its present processes."""

    processes: frozenset[int]
    since: float | None = None
    longest: float = 0.0
    moved: tuple[float, Number] | None = None  # monotonic time, and bytes received over NVLink


class Spins:
    """The spin times of a node's GPUs, by UUID."""

    def __init__(self) -> None:
        self._states: dict[str, _SpinState] = {}

    def update(
        self, uuid: str, ask: Ask, processes: Iterable[int] | None, monotonic: float
    ) -> Mapping[str, Number]:
        """Return the fields of a tick; none for a GPU that never spun under its present processes.

        `ask` returns what was measured, by metric. `processes` None is unknown: the previous ones
        count. `monotonic` is the tick's time in seconds by a clock that nobody sets.
        """
        state = self._state(uuid, processes)
        spins = _spins(ask) and self._is_still(state, ask("nvlink_receive_bytes"), monotonic)
        if spins:
            state.since = monotonic if state.since is None else state.since
        elif state.since is not None:
            state.longest = max(state.longest, monotonic - state.since)
            state.since = None
        if state.since is None and not state.longest:
            return {}
        now = 0.0 if state.since is None else monotonic - state.since
        return {"spin_seconds": round(now, 3), "longest_spin_seconds": round(state.longest, 3)}

    def _state(self, uuid: str, processes: Iterable[int] | None) -> _SpinState:
        state = self._states.get(uuid)
        known = state.processes if state is not None else frozenset[int]()
        pids = known if processes is None else frozenset(processes)
        # A job's helpers come and go: it is another job only when none of its processes is left.
        if state is None or (pids != known and pids.isdisjoint(known)):
            state = self._states[uuid] = _SpinState(processes=pids)
        state.processes = pids
        return state

    @staticmethod
    def _is_still(state: _SpinState, moved: Number | None, monotonic: float) -> bool:
        """Return whether NVLink moved next to nothing since the last tick; true where it is unread."""
        before, state.moved = state.moved, None if moved is None else (monotonic, moved)
        if moved is None or before is None:
            return True
        seconds = monotonic - before[0]
        return seconds <= 0 or moved - before[1] < _NVLINK_BYTES * seconds


def _spins(ask: Ask) -> bool:
    """Return whether the GPU is fully used at low power, with memory and PCIe silent.

    False where power, its limit or a utilisation is not measured.
    """
    watts, limit = ask("power_watts"), ask("power_limit_watts")
    busy, memory = ask("utilization_percent"), ask("memory_utilization_percent")
    if watts is None or limit is None or busy is None or memory is None:
        return False
    copied = ask("pcie_receive_bytes_per_second") or 0
    return (
        busy >= _BUSY_PERCENT
        and memory < _MEMORY_PERCENT
        and watts < _POWER_SHARE * limit
        and copied < _PCIE_BYTES
    )
