"""Reads and writes more than the hub takes at once, in as many requests as needed."""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from gpuvigil.errors import HubRefused
from gpuvigil.hub_client import Hub
from gpuvigil.model import Record, RecordKind

MOST = 10_000  # records in one answer
# Items in the first body; when they are too large, later bodies have fewer.
_MOST_WRITTEN = 500
# The hub's status for a body that is too large.
_TOO_LARGE = 413

T = TypeVar("T")


def all_of(
    hub: Hub,
    kind: RecordKind,
    states: Collection[str],
    begin: datetime,
    end: datetime,
    most: int = MOST,
) -> Iterator[Record]:
    """Yield the records of a kind in one of the states whose time is from `begin` to `end`.

    Where one answer does not hold them, the time is split by the times of those that it did hold.
    """
    found = hub.records(kind, states=states, since=begin, until=end, limit=most)
    later = sorted(one.at for one in found if one.at > begin)
    if len(found) < most or not later:
        yield from found
        return
    del found
    middle = later[len(later) // 2]
    yield from all_of(hub, kind, states, begin, middle, most)
    yield from all_of(hub, kind, states, middle, end, most)


def in_parts(
    items: Sequence[T],
    write: Callable[[Sequence[T]], object],
    left_out: Callable[[T, HubRefused], None],
) -> None:
    """Call `write` with all items in turn, as many at once as the hub takes in one body.

    An item that is too large by itself is passed to `left_out`, and does not stop the others.
    """
    most = _MOST_WRITTEN
    while items:
        part = items[:most]
        try:
            write(part)
        except HubRefused as error:
            if error.status != _TOO_LARGE:
                raise
            if len(part) > 1:
                most = len(part) // 2
                continue
            left_out(part[0], error)
        items = items[len(part) :]
