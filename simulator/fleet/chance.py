"""Random numbers that are the same on every machine: integers are mixed, nothing is drawn in order.

A number depends on its key and its place alone (the finaliser of SplitMix64; Steele et al., "Fast
splittable pseudorandom number generators", OOPSLA 2014), so that nothing shifts when something
else is requested or left out.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
Floats = NDArray[np.float64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key(*parts: object) -> int:
    """Return 64 bits that depend on these words alone."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def keys(count: int, *parts: object) -> Bits:
    """Return a key for each of `count` things."""
    return mix(np.arange(count, dtype=np.uint64), key(*parts))


def mix(numbers: Bits, salt: int = 0) -> Bits:
    """Return each number thoroughly mixed."""
    mixed = (numbers + np.uint64(salt)) * np.uint64(_GOLDEN)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def over_time(of: Bits, ticks: NDArray[np.int64], salt: int) -> Bits:
    """Return [ticks x things]: bits for each thing at each tick."""
    return mix(of[None, :] ^ mix(ticks.astype(np.uint64), salt)[:, None])


def lane(bits: Bits, number: int) -> Floats:
    """Return one of the four numbers in (0, 1) that 64 bits hold."""
    part = (bits >> np.uint64(16 * number)) & np.uint64(0xFFFF)
    return (part.astype(np.float64) + 0.5) / 65536.0


def bell(bits: Bits) -> Floats:
    """Return nearly normal numbers, mean 0 and deviation 1: the sum of four uniform numbers (within 3.5)."""
    low = (bits & np.uint64(0x0000FFFF0000FFFF)) + (
        (bits >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    )
    total = (low & np.uint64(0xFFFFFFFF)) + (low >> np.uint64(32))
    return (total.astype(np.float64) - 131070.0) * (1.7320508075688772 / 65536.0)


class Dice:
    """A sequence of random numbers, for plans."""

    def __init__(self, *parts: object) -> None:
        self._state = key(*parts)

    def bits(self) -> int:
        self._state = (self._state + _GOLDEN) & _MASK
        mixed = self._state
        mixed = ((mixed ^ mixed >> 30) * _FIRST) & _MASK
        mixed = ((mixed ^ mixed >> 27) * _SECOND) & _MASK
        return mixed ^ mixed >> 31

    def share(self) -> float:
        """Return a uniform number in [0, 1)."""
        return (self.bits() >> 11) / 2**53

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.share()

    def below(self, count: int) -> int:
        """Return a whole number from 0 to count - 1."""
        return self.bits() % count

    def pick(self, choices: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        """Return one of the choices."""
        if weights is None:
            return choices[self.below(len(choices))]
        left = self.share() * sum(weights)
        for choice, weight in zip(choices, weights, strict=True):
            left -= weight
            if left < 0.0:
                return choice
        return choices[-1]

    def of(self, table: Sequence[tuple[float, float]]) -> float:
        """Draw from a distribution given by (share, value) points with straight lines between them."""
        return at_share(table, self.share())

    def gap(self, mean: float) -> float:
        """Return the time until the next of independent events, `mean` apart."""
        return mean * self.of(_GAPS)


def at_share(table: Sequence[tuple[float, float]], share: float) -> float:
    """Return the value below which that share of a distribution lies."""
    for (left, low), (right, high) in pairwise(table):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return table[-1][1]


# Points of the exponential distribution; a logarithm would differ between machines.
_GAPS = (
    (0.0, 0.0),
    (0.1, 0.10536),
    (0.2, 0.22314),
    (0.3, 0.35667),
    (0.4, 0.51083),
    (0.5, 0.69315),
    (0.6, 0.91629),
    (0.7, 1.20397),
    (0.8, 1.60944),
    (0.9, 2.30259),
    (0.95, 2.99573),
    (0.98, 3.91202),
    (0.99, 4.60517),
    (0.999, 6.90776),
    (1.0, 8.5),
)
