"""Confidence intervals of shares, two-sided, 95 %, and of pairs; sources beside each."""

import scipy.stats

from accounting.chance import LEVEL, Interval


def wilson(hits: int, of: int, level: float = LEVEL) -> Interval:
    """Of a share: Wilson's score interval (Wilson, JASA 22, 1927); all of 0 to 1 without trials."""
    if of == 0:
        return 0.0, 1.0
    z = float(scipy.stats.norm.ppf(0.5 + level / 2.0))
    share, scale = hits / of, 1.0 + z * z / of
    middle = (share + z * z / (2.0 * of)) / scale
    half = z / scale * (share * (1.0 - share) / of + z * z / (4.0 * of * of)) ** 0.5
    return (0.0 if hits == 0 else middle - half), (1.0 if hits == of else middle + half)


def mcnemar(lost: int, gained: int) -> float:
    """How likely so many losses are, or more, if either were as likely: exact, one-sided.

    McNemar, Psychometrika 12, 1947; of pairs that differ, half would be losses by chance.
    """
    if lost + gained == 0:
        return 1.0
    return float(scipy.stats.binom.sf(lost - 1, lost + gained, 0.5))
