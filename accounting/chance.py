"""Exact confidence intervals for rates of rare events and their ratios, with nothing but `math`."""

import math
from collections.abc import Callable

LEVEL = 0.95
Interval = tuple[float, float]
# A double has no more bits than this many halvings resolve.
_HALVINGS = 60
# A term smaller than this share of the sum no longer changes it.
_SMALL = 1e-13
# The tail beyond this many standard deviations is smaller than any level asks for.
_FAR = 8.0


def at_least(count: int, expected: float) -> float:
    """Return the chance that a Poisson variable of mean `expected` is `count` or more; exact also where it is tiny."""
    term = math.exp(-expected + count * math.log(expected) - math.lgamma(count + 1))
    total, number = 0.0, count
    while term > total * _SMALL:
        total += term
        number += 1
        term *= expected / number
    return min(total, 1.0)


def exact_rate(count: int, exposure: float, level: float = LEVEL) -> Interval:
    """Return the exact Poisson interval of a rate of rare events (Garwood, Biometrika 28, 1936).

    Without exposure nothing is known, and the interval is 0 to infinity.
    """
    if exposure <= 0.0:
        return 0.0, math.inf
    tail, more = (1.0 - level) / 2.0, count + 1
    low = _where(lambda mean: at_least(count, mean) - tail, 0.0, count) if count else 0.0
    far = more + _FAR * (math.sqrt(more) + _FAR)
    high = _where(lambda mean: at_least(more, mean) - (1.0 - tail), count, far)
    return low / exposure, high / exposure


def rate_ratio(
    count: int, exposure: float, other: int, other_exposure: float, level: float = LEVEL
) -> Interval:
    """Return the exact interval of the first rate divided by the other, given the total number of events.

    Each event falls to the first side with the same chance; its interval (Clopper and Pearson,
    Biometrika 26, 1934) gives that of the ratio (Przyborowski and Wilenski, Biometrika 31, 1940).
    Without any event, or without exposure on either side, the interval is 0 to infinity.
    """
    of = count + other
    if not of or exposure <= 0.0 or other_exposure <= 0.0:
        return 0.0, math.inf
    tail = (1.0 - level) / 2.0
    scale = other_exposure / exposure
    low, others = _least_share(count, of, tail), _least_share(other, of, tail)
    return scale * low / (1.0 - low), math.inf if others == 0.0 else scale * (1.0 - others) / others


def _least_share(hits: int, of: int, tail: float) -> float:
    """Return the share below which `hits` or more of `of` are rarer than `tail`."""
    if not hits:
        return 0.0
    return _where(lambda share: _hits_at_least(hits, of, share) - tail, 0.0, hits / of)


def _hits_at_least(hits: int, of: int, share: float) -> float:
    """Return the chance of `hits` or more out of `of`, where no more than `hits` are expected."""
    missed = of - hits
    ways = math.lgamma(of + 1) - math.lgamma(hits + 1) - math.lgamma(missed + 1)
    term = math.exp(ways + hits * math.log(share) + missed * math.log1p(-share))
    total, odds = 0.0, share / (1.0 - share)
    while term > total * _SMALL:
        total += term
        term *= missed / (of - missed + 1) * odds
        missed -= 1
    return total


def _where(rises: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a function that rises from below 0 to above it, between `low` and `high`."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if rises(middle) < 0.0:
            low = middle
        else:
            high = middle
    return high
