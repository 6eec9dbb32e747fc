"""Changes of numbers: every fault and every event of normal operation is a list of these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from .chance import Floats, lane, mix

FOREVER = 1e12


class Quantity(Enum):
    """The kind of number that a change affects, which decides what its targets are."""

    PHYSICS = "physics"  # a name of `physics.PhysicsEffects`; GPUs
    WORK = "work"  # `spin`, `stall`, `pace`, or `wait` for the fabric (a share); GPUs
    GPU = "gpu"  # a field; GPUs
    PORT = "port"  # a field; ports
    NODE = "node"  # a field; nodes
    SWITCH_PORT = (
        "switch port"  # a name of `switches.PORT_FIELDS`; ports by their place in the cabling
    )
    SWITCH = "switch"  # `lost` or `unread`; switches by number in the cabling
    LINK = "link"  # a name of `links.NEWS`; links as `topology.LINKS` numbers them
    STEPS = "steps"  # `phase`, `gone` or `still` of the ranks on them; GPUs
    DELIVERY = "delivery"  # `silent`, `late`, `step`, `lost`; nodes


class Operation(Enum):
    """What happens to a number from `start` on and before `end`."""

    SET = "set"
    ADD = "add"
    TIMES = "times"
    MOST = "most"  # at most the value
    RAMP = "ramp"  # adds 0 at the start and the whole value at the end
    CLOCK = "clock"  # the seconds since the start
    COUNT = "count"  # a counter that gains the value per second, unevenly, and keeps it
    STEP = "step"  # adds the value and keeps it after the end
    SWELL = "swell"  # times 1 + value, reached in a straight line over the first half


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one number on some targets, from when to when; seconds since the fleet's start."""

    on: Quantity
    name: str
    targets: tuple[int, ...]
    start: float
    end: float
    how: Operation
    value: float = 1.0


def apply(change: Change, numbers: Floats, seconds: Floats) -> None:
    """Change [ticks x all targets] in place."""
    first = int(np.searchsorted(seconds, change.start))
    lasts = change.how in {Operation.COUNT, Operation.STEP}
    last = len(seconds) if lasts else int(np.searchsorted(seconds, change.end))
    if first >= last:
        return
    targets = np.array(change.targets, dtype=np.int64)
    part = np.ix_(np.arange(first, last), targets)
    at = seconds[first:last, None]
    numbers[part] = _HOW[change.how](numbers[part], at, change)


def _progress(at: Floats, change: Change) -> Floats:
    return (at - change.start) / (change.end - change.start)


_SLOT_SECONDS = 60.0


def counted(at: Floats, change: Change) -> Floats:
    """Return what a counter has gained by then: between none and twice its rate, varying each minute."""
    end = np.minimum(at, change.end) - change.start
    slots = int((min(float(at[-1, 0]), change.end) - change.start) // _SLOT_SECONDS) + 1
    salt = int(change.start * 8.0) + 1
    weights = (lane(mix(np.arange(slots, dtype=np.uint64), salt), 0) * 512.0).astype(np.int64)
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(weights)])
    slot = np.minimum((end // _SLOT_SECONDS).astype(np.int64), slots - 1)
    gained = before[slot] * _SLOT_SECONDS + (end - slot * _SLOT_SECONDS) * weights[slot]
    return np.floor(change.value * gained / 256.0)


_HOW: dict[Operation, Callable[[Floats, Floats, Change], Any]] = {
    Operation.SET: lambda old, at, change: np.full_like(old, change.value),
    Operation.ADD: lambda old, at, change: old + change.value,
    Operation.TIMES: lambda old, at, change: old * change.value,
    Operation.MOST: lambda old, at, change: np.minimum(old, change.value),
    Operation.RAMP: lambda old, at, change: old + change.value * _progress(at, change),
    Operation.CLOCK: lambda old, at, change: np.zeros_like(old) + (at - change.start),
    Operation.COUNT: lambda old, at, change: old + counted(at, change),
    Operation.STEP: lambda old, at, change: old + change.value,
    Operation.SWELL: lambda old, at, change: (
        old * (1.0 + change.value * np.minimum(2.0 * _progress(at, change), 1.0))
    ),
}


def within(changes: Sequence[Change], start: float, end: float) -> list[Change]:
    """Return the changes that matter in the span: begun before its end, and not over before its start."""
    kept = {Operation.COUNT, Operation.STEP}
    return [c for c in changes if c.start < end and (c.end > start or c.how in kept)]
