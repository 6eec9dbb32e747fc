"""Confidence intervals, two-sided, 95 % by default; sources beside each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats

LEVEL = 0.95
Interval = tuple[float, float]


def wilson(hits: int, of: int, level: float = LEVEL) -> Interval:
    """Of a share: Wilson's score interval (Wilson, JASA 22, 1927); all of 0 to 1 without trials."""
    if of == 0:
        return 0.0, 1.0
    z = float(scipy.stats.norm.ppf(0.5 + level / 2.0))
    share, scale = hits / of, 1.0 + z * z / of
    middle = (share + z * z / (2.0 * of)) / scale
    half = z / scale * (share * (1.0 - share) / of + z * z / (4.0 * of * of)) ** 0.5
    return (0.0 if hits == 0 else middle - half), (1.0 if hits == of else middle + half)


def exact_share(hits: int, of: int, level: float = LEVEL) -> Interval:
    """Of a share: the exact interval (Clopper and Pearson, Biometrika 26, 1934)."""
    if of == 0:
        return 0.0, 1.0
    tail = (1.0 - level) / 2.0
    low = 0.0 if hits == 0 else float(scipy.stats.beta.ppf(tail, hits, of - hits + 1))
    high = 1.0 if hits == of else float(scipy.stats.beta.ppf(1.0 - tail, hits + 1, of - hits))
    return low, high


def exact_rate(count: int, exposure: float, level: float = LEVEL) -> Interval:
    """Of a rate of rare events: the exact Poisson interval (Garwood, Biometrika 28, 1936).

    Without exposure nothing is known: 0 to infinity.
    """
    if exposure <= 0.0:
        return 0.0, float("inf")
    tail = (1.0 - level) / 2.0
    low = 0.0 if count == 0 else float(scipy.stats.chi2.ppf(tail, 2 * count)) / 2.0
    high = float(scipy.stats.chi2.ppf(1.0 - tail, 2 * count + 2)) / 2.0
    return low / exposure, high / exposure


def bootstrap_f1(
    counts: Sequence[tuple[int, int, int]], seed: int = 1, level: float = LEVEL
) -> Interval:
    """Of F1 from (true positives, false positives, misses) of independent fleets.

    Windows of a machine hang together, so whole fleets are drawn (Efron, Ann. Statist. 7, 1979);
    with fewer than two of them nothing can be said: 0 to 1.
    """
    if len(counts) < 2:
        return 0.0, 1.0
    table: Any = np.array(counts, float)
    drawn = np.random.default_rng(seed).integers(0, len(counts), (2000, len(counts)))
    tp, fp, fn = (table[drawn, column].sum(axis=1) for column in range(3))
    scores = 2.0 * tp / np.maximum(2.0 * tp + fp + fn, 1.0)
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(scores, [tail, 100.0 - tail])
    return float(low), float(high)
