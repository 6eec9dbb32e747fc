"""A mapping that grows while others read what it was."""

from collections.abc import Mapping
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Copied(Generic[Value]):
    """Values by key, given away as copies that nobody changes: the same one until a value changes.

    So who was given the same mapping twice knows that nothing in it is another.
    """

    __slots__ = ("_copy", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._copy: Mapping[str, Value] | None = None

    def get(self, key: str) -> Value | None:
        """What is known under a key."""
        return self._values.get(key)

    def put(self, key: str, value: Value) -> None:
        """Know a value, in the place of what was known under its key."""
        self._values[key] = value
        self._copy = None

    def drop(self, key: str) -> None:
        """Forget what is known under a key, if anything is."""
        if self._values.pop(key, None) is not None:
            self._copy = None

    def copy(self) -> Mapping[str, Value]:
        """Everything as it is now."""
        if self._copy is None:
            self._copy = dict(self._values)
        return self._copy
