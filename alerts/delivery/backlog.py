"""The backlog of a channel: how many notices it takes in hand, and when the others are looked at again; pure.

What a receiver cannot take at once stays in the hub, due at the time at which it will probably have
its turn: a backlog of ten thousand is not claimed again and again for the ten that can go out.
"""

import math
from dataclasses import dataclass, replace

from ..messages.channel import Pace
from .hub_access import LEASE_SECONDS

# What is in hand goes out well before its lease ends.
IN_HAND_SECONDS = LEASE_SECONDS / 2
# Turns are handed out in steps, so that what waits is claimed by the dozen.
STEP_SECONDS = 5.0
# Nothing waits for its turn longer without another look: the receiver may have mended.
LONGEST_SECONDS = 300.0
# What would be later than that is looked at again over the last of it, and not all at one moment.
_LAST_PART = 0.5
# Its multiples, less their whole parts, lie evenly however many there are (the golden ratio's).
_EVENLY = (math.sqrt(5.0) - 1.0) / 2.0


def most_in_hand(pace: Pace) -> int:
    """What goes out before the leases end, if the receiver takes it."""
    return pace.burst + math.ceil(pace.per_second * IN_HAND_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Until when the turns of one channel are given away, per severity, on the monotonic clock."""

    pace: Pace
    until: tuple[float, ...]  # by `Severity.rank`: the most severe is 0
    beyond: int = 0  # turns that would have been too late

    @classmethod
    def empty(cls, pace: Pace, ranks: int) -> "Backlog":
        return cls(pace=pace, until=(float("-inf"),) * ranks)

    def give(self, rank: int, now: float, free_at: float) -> "tuple[Backlog, float]":
        """A turn at `free_at` or later, in seconds from `now`; what is less severe comes after it."""
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
