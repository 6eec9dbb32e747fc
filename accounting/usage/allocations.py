"""Holders of GPUs in a span, from the hub, without what ended long before."""

from collections.abc import Sequence
from datetime import datetime

from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, AllocationState, Record, RecordKind, readable

# The most that the hub gives in one answer.
MOST_RECORDS = 100_000
_FEW_ENDED = 1_000


def held_since(hub: Hub, subject: str | None, oldest: datetime) -> list[Record]:
    """Allocations that are open, or that ended after `oldest`; None is those of all clusters."""
    states, kind = AllocationState, RecordKind.ALLOCATION
    held = hub.records(kind, subject=subject, states=[states.HELD], limit=MOST_RECORDS)
    limit = _FEW_ENDED
    while True:
        ended = hub.records(kind, subject=subject, states=[states.ENDED], limit=limit)
        if len(ended) < limit or limit >= MOST_RECORDS or _reaches_back(ended, oldest):
            return [*held, *ended]
        limit *= 10


def _reaches_back(ended: Sequence[Record], oldest: datetime) -> bool:
    """Whether nothing older is missing: the oldest commits all speak of earlier times.

    One that came late from a spool was committed later, and is among the newer ones.
    """
    first = ended[: len(ended) // 4]
    return all(
        one.ended_at is None or one.ended_at < oldest
        for one in readable(first, Allocation.from_record)
    )
