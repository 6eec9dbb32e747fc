"""Allocations of GPUs in a span, from the hub, without those that ended long before."""

from collections.abc import Sequence
from datetime import datetime

from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, AllocationState, Record, RecordKind, readable

# The most records that the hub returns in one answer.
MOST_RECORDS = 100_000
_FEW_ENDED = 1_000


def held_since(hub: Hub, subject: str | None, oldest: datetime) -> list[Record]:
    """Return allocations that are open, or that ended after `oldest`; a subject of None is all clusters."""
    states, kind = AllocationState, RecordKind.ALLOCATION
    held = hub.records(kind, subject=subject, states=[states.HELD], limit=MOST_RECORDS)
    limit = _FEW_ENDED
    while True:
        ended = hub.records(kind, subject=subject, states=[states.ENDED], limit=limit)
        if len(ended) < limit or limit >= MOST_RECORDS or _reaches_back(ended, oldest):
            return [*held, *ended]
        limit *= 10


def _reaches_back(ended: Sequence[Record], oldest: datetime) -> bool:
    """Return whether nothing older is missing: the oldest quarter of the records ended before `oldest`.

    One that arrived late from a spool was committed later, and is among the newer ones.
    """
    first = ended[: len(ended) // 4]
    return all(
        one.ended_at is None or one.ended_at < oldest
        for one in readable(first, Allocation.from_record)
    )
