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
class Course:
    """One counter: its last reading, and what to add to it."""

    last: float | int
    offset: float | int = 0


@dataclass(slots=True)
class Monotone:
    """The counters of one node, by name."""

    courses: dict[str, Course] = field(default_factory=dict)

    def take(
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
        course = self.courses.get(name)
        if course is None:
            course = Course(last=raw, offset=-raw if from_zero else 0)
            self.courses[name] = course
        if raw >= course.last:
            course.last = raw
            return raw + course.offset, False
        # A sum of wrapping counters falls by one range when one of them wraps, and by any number
        # when it was reset.
        wrapped = wraps_at is not None and (
            0 <= raw + wraps_at - course.last < wraps_at * _MOST_OF_RANGE
        )
        course.offset += wraps_at if wrapped and wraps_at is not None else course.last
        course.last = raw
        return raw + course.offset, not wrapped

    def is_full(self, name: str, raw: float | int, stays_at: int) -> bool:
        """Return whether a saturating counter was already at its maximum at the last reading.

        How much it would have counted since is not known. What it took to get there is reported
        once.
        """
        course = self.courses.get(name)
        return course is not None and raw == course.last == stays_at

    def restart(self, which: Callable[[str], bool]) -> None:
        """Restart the counters with these names at 0: for a boot, which not every reading shows."""
        for name, course in self.courses.items():
            if which(name):
                course.offset += course.last
                course.last = 0

    def to_json(self) -> dict[str, list[float | int]]:
        """Return what `from_json` takes, to go on after a restart."""
        return {name: [course.last, course.offset] for name, course in self.courses.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, list[float | int]]) -> "Monotone":
        """Load what `to_json` wrote; ValueError or TypeError for anything else."""
        return cls({name: Course(last, offset) for name, (last, offset) in value.items()})
