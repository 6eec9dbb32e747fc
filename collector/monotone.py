"""Counters that only grow, made of counters that start again at resets, reloads and boots."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Course:
    """One counter: what was last read, and what to add to it."""

    last: float | int
    offset: float | int = 0


@dataclass(slots=True)
class Monotone:
    """The counters of one node, by a name for each."""

    courses: dict[str, Course] = field(default_factory=dict)

    def take(
        self, name: str, raw: float | int, *, from_zero: bool = False
    ) -> tuple[float | int, bool]:
        """The counter's value now, never less than before; and whether `raw` has fallen.

        A counter that fell has started again at 0. With `from_zero` the value is what was counted
        since the counter was first seen.
        """
        course = self.courses.get(name)
        if course is None:
            course = Course(last=raw, offset=-raw if from_zero else 0)
            self.courses[name] = course
        fell = raw < course.last
        if fell:
            course.offset += course.last
        course.last = raw
        return raw + course.offset, fell

    def to_json(self) -> dict[str, list[float | int]]:
        """What `from_json` takes, to go on after a restart."""
        return {name: [course.last, course.offset] for name, course in self.courses.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, list[float | int]]) -> "Monotone":
        """ValueError or TypeError when `value` is not what `to_json` wrote."""
        return cls({name: Course(last, offset) for name, (last, offset) in value.items()})
