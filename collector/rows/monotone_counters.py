"""Counters that only grow, made from counters that restart at resets, reloads and boots.

A restart is concluded from the readings alone, never from a clock, so that setting a clock changes
nothing. What was counted between the last reading and a reset was seen by nobody, and is not made
up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# A counter that fell counts as wrapped if it then grew by less than this share of its range; else it
# was reset, and counts from 0. Either may be wrong, but a reset that is taken for a wrap would add
# billions that nobody counted.
_MOST_OF_RANGE = 1 / 8


@dataclass(slots=True)
class CounterState:
    """One counter: its last reading, and what to add to it."""

    last: float | int
    offset: float | int = 0


@dataclass(slots=True)
class MonotoneCounters:
    """The counters of one node, by name."""

    states: dict[str, CounterState] = field(default_factory=dict)

    def update(
        self,
        name: str,
        raw: float | int,
        *,
        from_zero: bool = False,
        wraps_at: int | None = None,
    ) -> tuple[float | int, bool]:
        """Return the counter's value, never less than before, and whether it restarted at 0.

        With `from_zero` the value is what was counted since the counter was first read. `wraps_at`
        is the value at which the hardware goes on with 0, such as `2**32`; None for a counter that
        saturates or never fills. A wrap is no restart.
        """
        state = self.states.get(name)
        if state is None:
            state = CounterState(last=raw, offset=-raw if from_zero else 0)
            self.states[name] = state
        if raw >= state.last:
            state.last = raw
            return raw + state.offset, False
        # A sum of wrapping counters falls by one range when one of them wraps, and by any number
        # when it was reset.
        wrapped = wraps_at is not None and (
            0 <= raw + wraps_at - state.last < wraps_at * _MOST_OF_RANGE
        )
        state.offset += wraps_at if wrapped and wraps_at is not None else state.last
        state.last = raw
        return raw + state.offset, not wrapped

    def is_full(self, name: str, raw: float | int, stays_at: int) -> bool:
        """Return whether a saturating counter was already at its maximum at the last reading.

        How much it would have counted since is not known. What it took to get there is reported
        once.
        """
        state = self.states.get(name)
        return state is not None and raw == state.last == stays_at

    def restart(self, which: Callable[[str], bool]) -> None:
        """Restart the counters with these names at 0: for a boot, which not every reading shows."""
        for name, state in self.states.items():
            if which(name):
                state.offset += state.last
                state.last = 0

    def to_json(self) -> dict[str, list[float | int]]:
        """Return what `from_json` takes, to go on after a restart."""
        return {name: [state.last, state.offset] for name, state in self.states.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, list[float | int]]) -> "MonotoneCounters":
        """Load what `to_json` wrote; ValueError or TypeError for anything else."""
        return cls({name: CounterState(last, offset) for name, (last, offset) in value.items()})
