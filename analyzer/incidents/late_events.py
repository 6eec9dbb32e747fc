"""Which events arrived late, out of a spool: they open incidents, and page nobody."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import from_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """When an answer of the hub came, and when the one before did; on the analyzer's clock.

    `away`: after a gap, from when to when nothing could reach the hub; None if unknown.
    """

    at: datetime
    before: datetime
    away: tuple[datetime, datetime] | None = None


def is_late(happened_at: datetime, arrival: Arrival, limit: timedelta) -> bool:
    """Tell whether an event that came with an answer had been on its way for longer than `limit`.

    An event that came while the analyzer was not listening may have been in time: it is late only
    if the hub itself was away, and came back more than `limit` after the event happened.
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
    """Return from when to when the only hub was away, by its status; None when it was there.

    `lost_at`: when it first did not answer. A hub that was started after that cannot have taken
    in anything in between.
    """
    if lost_at is None:
        return None
    started_at = from_text(status["started_at"]) + (now - from_text(status["now"]))
    return (lost_at, started_at) if started_at > lost_at else None
