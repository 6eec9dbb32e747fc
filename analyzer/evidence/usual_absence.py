"""What is known of a node that nobody held when it fell silent: one of several, or as on other days.

An owner who switches a node off for the night, without a shutdown and without a scheduler that is
read, does so about the same time of day, and the node comes back by itself.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import median

from gpuvigil.clock import duration, moment
from gpuvigil.model import Evidence, Severity, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.silence_conditions import NodeSilence

from ..window.absences import Absence
from ..window.window import Window
from .scaled_down import is_scaled_down

# On so many of so many days before, it must have fallen silent within so long of the same time of day
# (ours): twice may be chance.
_DAYS, _OF_DAYS, _ABOUT = 3, 7, timedelta(hours=1)
# How much longer than usual it may stay away (ours): people do not come and go by the minute.
_LONGER = timedelta(hours=1)
_DAY = timedelta(days=1)


def why_free_node_left(
    window: Window, node: Subject, since: datetime, alike: int
) -> tuple[NodeSilence, Severity, tuple[Evidence, ...]] | None:
    """Return why a node that nobody held may have left at `since`; None where nothing says so.

    `alike` is how many idle nodes left one by one.
    """
    if is_scaled_down(alike):
        value = f"not allocated; {alike} such nodes left one by one within an hour"
        return NodeSilence.SCALED_DOWN, Severity.INFO, (Evidence(name="its GPUs", value=value),)
    days = same_time_of_day(window.absences.get(node.key, ()), since)
    if len(days) < _DAYS:
        return None
    usual = timedelta(seconds=median(it.total_seconds() for it in days))
    late = window.now - since >= usual + _LONGER
    evidence = Evidence(
        name="away at this hour before",
        value=f"on {counted(len(days), 'day')} of the last {_OF_DAYS}, mostly for {duration(usual)}",
        limit=f"a warning at {moment(since + usual + _LONGER)}",
    )
    how = NodeSilence.STAYS_AWAY if late else NodeSilence.AWAY
    return how, Severity.WARNING if late else Severity.INFO, (evidence,)


def same_time_of_day(past: Iterable[Absence], since: datetime) -> list[timedelta]:
    """Return how long a node was away on each earlier day on which it left at about this time of day."""
    longest: dict[int, timedelta] = {}
    for one in past:
        days = round((since - one.begin) / _DAY)
        if 1 <= days <= _OF_DAYS and abs(since - one.begin - days * _DAY) <= _ABOUT:
            longest[days] = max(longest.get(days, timedelta(0)), one.end - one.begin)
    return list(longest.values())
