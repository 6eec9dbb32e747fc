"""The network ports of a cluster as columns, and a single port as a `PortView`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from gpuvigil.model import Subject

from .gpus import Column, measured


@dataclass(frozen=True, slots=True, kw_only=True)
class PortView:
    """One network port; `up` is None without a trustworthy measurement."""

    subject: Subject
    kind: str
    role: str
    up: bool | None
    was_up: bool
    speed_bits_per_second: float | None

    @property
    def word(self) -> str:
        """The port's state in words, one of `PORT_WORDS`."""
        if self.up is None:
            return "unknown"
        if self.up:
            return "up"
        return "down" if self.was_up else "never connected"


# The states of a port, those that need attention first.
PORT_WORDS = ("down", "unknown", "up", "never connected")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ports(Sequence[PortView]):
    """Ports as columns of the same length, sorted by node, device and port."""

    subject: Sequence[Subject]
    kind: Sequence[str]
    role: Sequence[str]
    was_up: Column
    up: Column  # NaN: no trustworthy measurement
    speed_bits_per_second: Column

    def __len__(self) -> int:
        return len(self.subject)

    @overload
    def __getitem__(self, number: int) -> PortView: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[PortView, ...]: ...
    def __getitem__(self, number: int | slice) -> PortView | tuple[PortView, ...]:
        if isinstance(number, slice):
            return tuple(self[one] for one in range(*number.indices(len(self))))
        up = measured(self.up[number])
        return PortView(
            subject=self.subject[number],
            kind=self.kind[number],
            role=self.role[number],
            up=None if up is None else bool(up),
            was_up=bool(self.was_up[number]),
            speed_bits_per_second=measured(self.speed_bits_per_second[number]),
        )

    def of(self, subject: Subject) -> PortView | None:
        """Return the port of that name, or None."""
        return self[self.subject.index(subject)] if subject in self.subject else None

    def of_node(self, node: str) -> tuple[PortView, ...]:
        """Return the ports of one node."""
        return tuple(self[i] for i, subject in enumerate(self.subject) if subject.node == node)

    @property
    def counts(self) -> dict[str, int]:
        """The number of ports in each state."""
        return {word: len(self._numbers(word)) for word in PORT_WORDS}

    def first(self, words: Iterable[str], most: int) -> tuple[PortView, ...]:
        """Return at most `most` ports in these states, those in the first state first."""
        numbers = [number for word in words for number in self._numbers(word)[:most]]
        return tuple(self[number] for number in numbers[:most])

    def _numbers(self, word: str) -> list[int]:
        known, up = ~np.isnan(self.up), self.up > 0
        chosen = {
            "down": known & ~up & self.was_up,
            "unknown": ~known,
            "up": up,
            "never connected": known & ~up & ~self.was_up,
        }[word]
        found: list[int] = np.flatnonzero(chosen).tolist()
        return found
