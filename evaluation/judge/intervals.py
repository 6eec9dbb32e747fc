"""Confidence intervals, two-sided, 95 %; sources beside each."""

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


def mcnemar(lost: int, gained: int) -> float:
    """How likely so many losses are, or more, if either were as likely: exact, one-sided.

    McNemar, Psychometrika 12, 1947; of pairs that differ, half would be losses by chance.
    """
    if lost + gained == 0:
        return 1.0
    return float(scipy.stats.binom.sf(lost - 1, lost + gained, 0.5))
