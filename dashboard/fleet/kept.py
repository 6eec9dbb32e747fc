"""What is made of values that stay the same objects is made once."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Kept:
    """For one thread at a time; of each thing the last value is kept."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[tuple[object, ...], Any]] = {}

    def of(self, what: Hashable, given: tuple[object, ...], make: Callable[[], _T]) -> _T:
        """What `make` gave when `what` was last made of the very same objects, else what it gives."""
        before = self._made.get(what)
        if before is None or any(one is not it for one, it in zip(before[0], given, strict=True)):
            before = self._made[what] = given, make()
        found: _T = before[1]
        return found
