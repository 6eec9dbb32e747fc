"""Which events came late, out of a spool: they open incidents, and page nobody."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import from_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """When an answer of the hub came, and when the one before; on the analyzer's clock.

    `away` is, after a gap, from when to when the hub could be told nothing; None for unknown.
    """

    at: datetime
    before: datetime
    away: tuple[datetime, datetime] | None = None


def is_late(happened_at: datetime, arrival: Arrival, limit: timedelta) -> bool:
    """Whether an event that came with an answer had been on its way for longer than `limit`.

    What came while we were not listening may have been in time: that is not called late, unless
    the hub itself was away, and came back too long after it happened.
    """
    if arrival.at - arrival.before <= limit:
        return arrival.at - happened_at > limit
    if arrival.away is None:
        return False
    gone, back = arrival.away
    return gone < happened_at and back - happened_at > limit


def absence(
    status: Mapping[str, Any], now: datetime, lost_at: datetime | None
) -> tuple[datetime, datetime] | None:
    """From when to when the one hub was away that says this of itself; None when it was there.

    `lost_at`: when it did not answer for the first time. A hub that was started since cannot have
    taken anything in between.
    """
    if lost_at is None:
        return None
    started_at = from_text(status["started_at"]) + (now - from_text(status["now"]))
    return (lost_at, started_at) if started_at > lost_at else None
