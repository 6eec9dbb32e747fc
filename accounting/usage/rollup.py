"""Roll-ups of usage by hour, by six hours and by day, made again whenever a quarter in them is counted."""

from datetime import datetime, timedelta

from gpuvigil.hub_client import Hub

from .ledger import DAY, HOUR, SIX_HOURS, Ledger, summed
from .ledger_query import cover, floor_of
from .model import BUCKET, Bucket

# A quarter is counted again an hour after it was: then its hour has most of what came late.
SETTLE = timedelta(hours=1)
# What each is made of, the largest first.
_PARTS = {HOUR: (BUCKET,), SIX_HOURS: (HOUR, BUCKET), DAY: (SIX_HOURS, HOUR, BUCKET)}


def rolled(hub: Hub, bucket: Bucket, now: datetime) -> list[Ledger]:
    """What the quarter is a part of, made of what is recorded and of `bucket` in its own place.

    Made anew from its parts each time, so that a second count changes nothing but what it counted.
    HubError when the hub does not answer.
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
