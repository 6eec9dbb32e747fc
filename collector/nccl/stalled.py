"""Which jobs on this node stand still, as their own GPUs show, and may be asked. Pure.

The limits are those by which the analyzer calls a job hung (docs/detectors.md, `gpu_hung`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpuvigil.model import Allocation

from ..rows.catalogue_rows import Number

_STEP_SECONDS, _STEP_TIMES = 60.0, 5.0
_SPIN_SECONDS, _SPIN_TIMES = 300.0, 3.0
# `step_phase`: a checkpoint or an evaluation may take this long; a rank stopped by a signal is no hang.
_PAUSES, _PAUSE_SECONDS, _STOPPED = frozenset({3, 4}), 1800.0, 5
ALL = "*"

Fields = Mapping[str, Number | None]
# By holder, its processes, and for each its GPUs: UUIDs by NVML's index.
Holders = Mapping[str, Mapping[int, Mapping[int, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """One GPU of this node: its fields, the processes on it, and its allocations."""

    uuid: str
    index: int
    fields: Fields
    pids: frozenset[int]
    held: tuple[Allocation, ...]

    @property
    def holder(self) -> str:
        """The only holder; "" where there is none, or where several share the GPU."""
        names = {str(one.holder) for one in self.held}
        return names.pop() if len(names) == 1 else ""


def stalled(gpus: Iterable[OnGpu]) -> frozenset[str]:
    """Return the holders with a GPU here that stands still, and none here that goes on.

    A job whose ranks here are all stopped by a signal is suspended, and does not count.
    """
    still, moving = set(), set()
    for gpu in gpus:
        steps = _steps_stopped(gpu.fields)
        if steps is False:
            moving.add(gpu.holder)
        elif (steps or _spins(gpu.fields)) and gpu.fields.get("step_phase") != _STOPPED:
            still.add(gpu.holder)
    return frozenset(still - moving - {""})


def stalled_seconds(gpus: Iterable[OnGpu], holder: str) -> float:
    """Return how long a holder's GPUs have stood still, at most."""
    names = ("step_age_seconds", "spin_seconds")
    said = [gpu.fields.get(name) for gpu in gpus if gpu.holder == holder for name in names]
    return max((float(seconds) for seconds in said if seconds is not None), default=0.0)


def _steps_stopped(fields: Fields) -> bool | None:
    paused = fields.get("step_phase_seconds")
    if fields.get("step_phase") in _PAUSES and paused is not None and paused < _PAUSE_SECONDS:
        return False
    age, longest = fields.get("step_age_seconds"), fields.get("step_p99_seconds")
    if age is None or longest is None:
        return None
    return age >= max(_STEP_SECONDS, _STEP_TIMES * longest)


def _spins(fields: Fields) -> bool:
    now, longest = fields.get("spin_seconds"), fields.get("longest_spin_seconds")
    return now is not None and now >= max(_SPIN_SECONDS, _SPIN_TIMES * (longest or 0.0))


def may_be_asked(
    gpus: Iterable[OnGpu],
    partitions: Collection[str],
    user_of: Mapping[int, int],
    age_of: Mapping[int, float],
    youngest_seconds: float,
) -> dict[int, Holders]:
    """Return, by user, the holders that may be asked, with their processes and GPUs.

    Behind a port the kernel picks any process of a user. So a user's jobs are not asked while
    another of the user's processes here goes on, is young, or is in a partition that is not asked.
    """
    gpus = list(gpus)
    still = stalled(gpus)
    found: dict[int, dict[str, dict[int, dict[int, str]]]] = defaultdict(dict)
    spoiled: set[int] = set()
    for gpu in gpus:
        asked = gpu.holder in still and any(_is_asked(one, partitions) for one in gpu.held)
        for pid in gpu.pids:
            user = user_of.get(pid)
            if user is None:
                continue
            if not asked or age_of.get(pid, 0.0) < youngest_seconds:
                spoiled.add(user)
                continue
            found[user].setdefault(gpu.holder, {}).setdefault(pid, {})[gpu.index] = gpu.uuid
    return {user: holders for user, holders in found.items() if user not in spoiled}


def _is_asked(one: Allocation, partitions: Collection[str]) -> bool:
    return ALL in partitions or (one.partition is not None and one.partition in partitions)
