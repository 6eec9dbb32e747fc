"""A mapping that changes while others read earlier copies of it."""

from collections.abc import Mapping
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Copied(Generic[Value]):
    """Values by key, handed out as read-only copies: the same copy until a value changes.

    So a reader that gets the same mapping twice knows that nothing in it has changed.
    """

    __slots__ = ("_copy", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._copy: Mapping[str, Value] | None = None

    def get(self, key: str) -> Value | None:
        """Return the value of a key, None if it has none."""
        return self._values.get(key)

    def put(self, key: str, value: Value) -> None:
        """Set or replace the value of a key."""
        self._values[key] = value
        self._copy = None

    def drop(self, key: str) -> None:
        """Forget the value of a key, if it has one."""
        if self._values.pop(key, None) is not None:
            self._copy = None

    def copy(self) -> Mapping[str, Value]:
        """Return all current values by key; later changes do not show in the copy."""
        if self._copy is None:
            self._copy = dict(self._values)
        return self._copy
