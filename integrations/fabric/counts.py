"""Error counts of a port over an hour, and its traffic over the last minutes.

A busy port's traffic counts are others at every look. Kept as errors are, they would make most of
a switch's record, and every look would be news.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.model import ERROR_COUNTS, ErrorCount

from .seen import SeenPort

Errors = tuple[int | None, ...]
"""By kind; None is not measured."""

# The counts of an hour are kept, and the one before them.
_KEPT = timedelta(hours=1)
# Growth is judged over ten minutes: of traffic the newest count from before them is kept, and every few minutes one.
_SPAN, _TRAFFIC_EVERY = timedelta(minutes=10), timedelta(minutes=5)


def counts(before: Sequence[ErrorCount], seen: SeenPort, at: datetime) -> tuple[ErrorCount, ...]:
    """`before` with what a look at `at` read: at most five of them, and one for each change of errors within the hour."""
    every = tuple(before)
    if seen.counters is not None:
        now = ErrorCount(at=at, **seen.counters)
        same = bool(every) and replace(now, at=every[-1].at) == every[-1]
        if not same and len(every) > 1 and _only_traffic(every[-2], every[-1], now):
            every = every[:-1]
        every = every if same else (*every, now)
    every = _without_old_traffic(every, at)
    old = sum(count.at < at - _KEPT for count in every)
    return every[max(old - 1, 0) :]


def errors(count: ErrorCount) -> Errors:
    """Without its moment and what its traffic made it count: equal where no error came."""
    return tuple(getattr(count, name) for name in ERROR_COUNTS)


def last_errors(every: Sequence[ErrorCount]) -> Errors | None:
    """What was counted of errors last; None where nothing was."""
    return errors(every[-1]) if every else None


def changes(every: Sequence[ErrorCount]) -> list[datetime]:
    """The moments at which other errors were counted than before."""
    known = [errors(count) for count in every]
    return [every[n].at for n in range(1, len(every)) if known[n] != known[n - 1]]


def _only_traffic(earlier: ErrorCount, last: ErrorCount, now: ErrorCount) -> bool:
    """Whether `now` may stand in the place of `last`."""
    return now.at - earlier.at < _TRAFFIC_EVERY and errors(earlier) == errors(last) == errors(now)


def _without_old_traffic(every: tuple[ErrorCount, ...], at: datetime) -> tuple[ErrorCount, ...]:
    """From before the last minutes only one count of traffic, and those of errors with the one before them."""
    start = max((count.at for count in every if count.at <= at - _SPAN), default=None)
    if start is None:
        return every
    moments = {every[0].at, *changes(every)}
    kept = tuple(count for count in every if count.at >= start or count.at in moments)
    first_is_told_again = len(kept) > 1 and errors(kept[0]) == errors(kept[1])
    return kept[1:] if first_is_told_again and kept[0].at < start else kept
