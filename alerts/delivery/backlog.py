"""The backlog of a channel: how many notices are in hand, and when the others are due again; pure.

What a receiver cannot take at once stays in the hub, due when its turn will probably come: a
backlog of ten thousand is not claimed again and again for the ten that can go out.
"""

import math
from dataclasses import dataclass, replace

from ..messages.channel import Pace
from .hub_access import LEASE_SECONDS

# What is in hand goes out well before its lease ends.
IN_HAND_SECONDS = LEASE_SECONDS / 2
# Turns are given in steps, so that waiting notices are claimed by the dozen.
STEP_SECONDS = 5.0
# No notice waits longer for its turn without another look: the receiver may work again.
LONGEST_SECONDS = 300.0
# Turns that would be later are spread over the last part of that time, and not all at one moment.
_LAST_PART = 0.5
# The fractions of its multiples are spread evenly, however many there are (the golden ratio's).
_EVENLY = (math.sqrt(5.0) - 1.0) / 2.0


def most_in_hand(pace: Pace) -> int:
    """Return how many notices go out before their leases end, if the receiver takes them."""
    return pace.burst + math.ceil(pace.per_second * IN_HAND_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Until when the turns of one channel are taken, per severity, on the monotonic clock."""

    pace: Pace
    until: tuple[float, ...]  # by `Severity.rank`: the most severe is 0
    beyond: int = 0  # turns that would have been too late

    @classmethod
    def empty(cls, pace: Pace, ranks: int) -> "Backlog":
        return cls(pace=pace, until=(float("-inf"),) * ranks)

    def give(self, rank: int, now: float, free_at: float) -> "tuple[Backlog, float]":
        """Give a turn at `free_at` or later, in seconds from `now`, ahead of less severe notices."""
        begin = max(now + IN_HAND_SECONDS, free_at)
        turn = max(self.until[rank], begin)
        last = max(now, free_at) + LONGEST_SECONDS
        used = 1.0 / self.pace.per_second
        until = tuple(
            one if of < rank else min(max(one, begin) + used, last)
            for of, one in enumerate(self.until)
        )
        beyond = self.beyond
        if turn >= last:
            beyond += 1
            turn = last - _LAST_PART * LONGEST_SECONDS * (beyond * _EVENLY % 1.0)
        stepped = math.ceil((turn - now) / STEP_SECONDS) * STEP_SECONDS
        return replace(self, until=until, beyond=beyond), stepped
