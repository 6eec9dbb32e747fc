"""A cache by object identity: a result is made once as long as its inputs are the same objects."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


class IdentityCache:
    """Keeps the last result of each thing; for one thread at a time."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[tuple[object, ...], Any]] = {}

    def get(self, what: Hashable, given: tuple[object, ...], make: Callable[[], _T]) -> _T:
        """Return the last result for `what` if it was made of the very same objects, else make it."""
        before = self._made.get(what)
        if before is None or any(one is not it for one, it in zip(before[0], given, strict=True)):
            before = self._made[what] = given, make()
        found: _T = before[1]
        return found
