"""All records of a time, in as many of the hub's answers as that takes."""

from collections.abc import Collection, Iterator
from datetime import datetime

from gpuvigil.hub import Hub
from gpuvigil.model import Record, RecordKind

MOST = 10_000  # of one answer


def all_of(
    hub: Hub,
    kind: RecordKind,
    states: Collection[str],
    begin: datetime,
    end: datetime,
    most: int = MOST,
) -> Iterator[Record]:
    """Those of a kind in one of the states whose time is from `begin` to `end`.

    Where one answer does not hold them the time is parted, by the times of what it did hold.
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
