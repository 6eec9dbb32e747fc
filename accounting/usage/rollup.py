"""Roll-ups of usage by hour, six hours and day, made again whenever a quarter in them is counted."""

from datetime import datetime, timedelta

from gpuvigil.hub_client import Hub

from .ledger import DAY, HOUR, SIX_HOURS, Ledger, summed
from .ledger_query import cover, floor_of
from .model import BUCKET, Bucket

# A quarter is counted again after this time, when most late data of its hour has arrived.
SETTLE = timedelta(hours=1)
# The parts of each length, the largest first.
_PARTS = {HOUR: (BUCKET,), SIX_HOURS: (HOUR, BUCKET), DAY: (SIX_HOURS, HOUR, BUCKET)}


def rolled(hub: Hub, bucket: Bucket, now: datetime) -> list[Ledger]:
    """Return the roll-ups that contain the quarter, from the records and with `bucket` in its own place.

    Each is made anew from its parts, so that a second count changes only what it counted. Raises HubError when
    the hub does not answer.
    """
    quarter = Ledger.of(bucket)
    instead, found = {(quarter.start, BUCKET): quarter}, []
    for length, parts in _PARTS.items():
        start = floor_of(bucket.start, length)
        if start + length + SETTLE > now:
            break
        within = start, start + length
        of = cover(hub, bucket.cluster, within, parts, instead)
        whole = summed(of, bucket.cluster, start, length, now)
        instead[start, length] = whole
        found.append(whole)
    return found
