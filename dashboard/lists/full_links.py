"""Links that a job fills: no fault, but an answer to whoever asks what the job waits for."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np

from gpuvigil.model import Allocation, Holder
from gpuvigil.numbers_in_words import counted

from .jobs import JOB_KINDS
from .links import SPAN, Links, Mask, Port

# From this load on, in percent of its speed, a link is full: the rest is the protocol's share [own].
FULL_LOAD = 95.0
# A link that loses a packet a second, as a lossy path does (`analyzer/detectors/port_losses.py`), is not merely full.
_LOST_PER_HOUR = 3600.0
Node = tuple[str, str]  # cluster, node


def full(links: Links) -> Mask:
    """Return which links of the fabric carry all that they can and lose nothing that matters."""
    fabric = np.array([role == "fabric" for role in links.roles], bool)
    found: Mask = fabric & (links.load >= FULL_LOAD) & ~(links.losses >= _LOST_PER_HOUR)
    return found


def filled(
    links: Links, held: Mapping[Node, Sequence[Allocation]], now: datetime
) -> Mapping[Port, Holder]:
    """Return the job that fills each full link; `held` are the open allocations of all the node's GPUs.

    That is known where one job alone has GPUs of the link's node, for all of the measured minutes.
    """
    found: dict[Port, Holder] = {}
    for place in np.flatnonzero(full(links)).tolist():
        cluster, node, *_ = name = links.names[place]
        here = held.get((cluster, node), ())
        holders = {one.holder for one in here}
        if len(holders) == 1 and all(one.started_at <= now - SPAN for one in here):
            (holder,) = holders
            if holder.kind in JOB_KINDS:
                found[name] = holder
    return found


def by_node(allocations: Iterable[Allocation]) -> Mapping[Node, Sequence[Allocation]]:
    """Return the open allocations among these by node."""
    found: dict[Node, list[Allocation]] = {}
    for one in allocations:
        if one.ended_at is None:
            found.setdefault((one.subject.cluster, one.subject.node), []).append(one)
    return found


def in_words(found: Mapping[Port, Holder]) -> str:
    """Return `job 7 fills 2 of them`, or for several jobs the one that fills most first; "" without any."""
    if not found:
        return ""
    (first, most), *others = Counter(map(str, found.values())).most_common()
    more = f", and {counted(len(others), 'other job')} {len(found) - most:,}" if others else ""
    return f"{first} fills {most:,} of them{more}"
