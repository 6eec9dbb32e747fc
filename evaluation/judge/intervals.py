"""Two-sided 95 % confidence intervals of shares, and a test of pairs; the sources are beside each."""

import scipy.stats

from accounting.chance import LEVEL, Interval


def wilson(hits: int, of: int, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of a share (Wilson, JASA 22, 1927); (0.0, 1.0) without trials."""
    if of == 0:
        return 0.0, 1.0
    z = float(scipy.stats.norm.ppf(0.5 + level / 2.0))
    share, scale = hits / of, 1.0 + z * z / of
    middle = (share + z * z / (2.0 * of)) / scale
    half = z / scale * (share * (1.0 - share) / of + z * z / (4.0 * of * of)) ** 0.5
    return (0.0 if hits == 0 else middle - half), (1.0 if hits == of else middle + half)


def mcnemar(lost: int, gained: int) -> float:
    """Return the probability of at least so many losses, were losses and gains equally likely: exact, one-sided.

    McNemar, Psychometrika 12, 1947: by chance, half of the pairs that differ would be losses.
    """
    if lost + gained == 0:
        return 1.0
    return float(scipy.stats.binom.sf(lost - 1, lost + gained, 0.5))
