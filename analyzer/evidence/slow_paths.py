"""The port whose cable a job's packets wait for, found from late answers between ports.

No host counts what waits beyond its port. But if the way to one host is full, packets to it are
answered late, and so are those it sends itself, since the answers come the same way: it is the end
that all of a job's late paths share.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuvigil.model import Subject

from ..window.columns import Mask, fabric
from ..window.window import Span, Window
from .port_rates import (
    DELAY,
    SENT,
    SENT_BYTES,
    Rates,
    Timescale,
    delay_of,
    jobs_through,
    lately,
    queue_begins,
    rates_of,
)

# Both ends of one narrow place are late by about as much; a busy host's answers are by far less.
_ALIKE = 1.0 / 3.0
# With more ports than this, the fabric itself is full.
_MOST_NAMED = 64
Path = tuple[Subject, Subject]
"""A sending port, and the one whose answers to it are late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A port that late paths of a job lead to or from."""

    port: Subject
    job: str  # a `holder_key`
    paths: tuple[Path, ...]
    others: tuple[Subject, ...]  # ports that may be the slow one as well


def slow_ports(window: Window, scale: Timescale) -> Iterator[Slow]:
    """Yield the ends that most late paths share first; none if a node's own queue explains them."""
    for job, paths in sorted(window.once(_late_paths, scale).items()):
        left = _Left(paths)
        while left.paths and left.popped < _MOST_NAMED:
            ports = left.most()
            # A lone path had a bad moment, or is the first of several.
            if not ports and (left.shared or _more_may_come(window, job, scale, paths)):
                break
            # For a single path, take the receiving end: the sender's own queue would show on its
            # node.
            first, *others = ports or [min(left.paths)[1]]
            yield Slow(port=first, job=job, paths=left.pop(first), others=tuple(others))


class _Left:
    """Late paths of a job without a named end yet."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = set(paths)
        self.popped, self.shared = 0, False
        self._by_port: dict[Subject, set[Path]] = defaultdict(set)
        for path in self.paths:
            for port in path:
                self._by_port[port].add(path)

    def most(self) -> list[Subject]:
        """Return the ports that most paths share; none if no two paths share one."""
        most = max(map(len, self._by_port.values()))
        return sorted(it for it, them in self._by_port.items() if len(them) == most > 1)

    def pop(self, port: Subject) -> tuple[Path, ...]:
        """Remove and return the paths that lead to or from a port."""
        those = self._by_port.pop(port)
        for path in those:
            for end in path:
                self._by_port.get(end, set()).discard(path)
        self.paths -= those
        self.popped, self.shared = self.popped + 1, self.shared or len(those) > 1
        return tuple(sorted(those))


def _more_may_come(window: Window, job: str, scale: Timescale, paths: Sequence[Path]) -> bool:
    """Tell whether ports of the job on none of these paths have begun to be answered as late.

    One that did not report its delay in the last minute, and did before, may have.
    """
    now = window.once(_late_now, scale)
    known = {port for path in paths for port in path}
    least = _ALIKE * max(now.get(sender, 0.0) for sender, _ in paths)
    nodes = window.holdings[job].nodes
    begun = {port for port, seconds in now.items() if seconds >= least}
    others = (begun | window.once(_unheard, scale)) - known
    return any(port.of_node() in nodes for port in others)


def _late_paths(window: Window, scale: Timescale) -> Mapping[str, list[Path]]:
    rates = window.once(rates_of, scale)
    late = _late(window, rates, scale) if len(rates.rows) else np.zeros(0, dtype=bool)
    if not late.any():
        return {}
    found: dict[str, list[Path]] = defaultdict(list)
    for number in np.flatnonzero(late).tolist():
        port = rates.rows.subjects[number]
        for job in jobs_through(window, port, scale):
            nodes = window.holdings[job].nodes
            far = (it for it in _answering_late(window, port) if it.of_node() in nodes)
            found[job] += [(port, it) for it in far if it != port]
    # A node that keeps packets in its own queue is found by that.
    kept = np.flatnonzero(queue_begins(window, rates)).tolist()
    own = {rates.rows.subjects[number] for number in kept}
    return {job: them for job, them in found.items() if them and own.isdisjoint(sum(them, ()))}


def _late(window: Window, rates: Rates, scale: Timescale) -> Mask:
    """Tell which ports' packets are answered late, also in the last minute, while less gets through."""
    found: Mask = rates.delayed & (rates.fall >= scale.least_fall) & fabric(window, rates.rows)
    # A rare packet is acknowledged late anyway (Linux, TCP_DELACK_MIN: 40 ms).
    found &= lately(window, rates, SENT) >= SENT_BYTES
    return found & _lately(window, rates)


def _lately(window: Window, rates: Rates) -> Mask:
    recent = window.get("port", Span.RECENT).beside(rates.rows, DELAY.column)
    found: Mask = recent >= delay_of(rates.delay_before)
    return found


def _late_now(window: Window, scale: Timescale) -> Mapping[Subject, float]:
    """Return by port how many seconds answers were late in the last minute, where they were."""
    rates = window.once(rates_of, scale)
    if not len(rates.rows):
        return {}
    recent = window.get("port", Span.RECENT).beside(rates.rows, DELAY.column)
    late = np.flatnonzero(_lately(window, rates)).tolist()
    return {rates.rows.subjects[number]: float(recent[number]) for number in late}


def _unheard(window: Window, scale: Timescale) -> set[Subject]:
    """Return the ports whose delay was measured over the longer span, but not in the last minute."""
    rates = window.once(rates_of, scale)
    recent = window.get("port", Span.RECENT).beside(rates.rows, DELAY.column)
    long = window.get("port", scale.long).beside(rates.rows, DELAY.column)
    unheard = np.flatnonzero(np.isnan(recent) & ~np.isnan(long)).tolist()
    return {rates.rows.subjects[number] for number in unheard}


def _answering_late(window: Window, port: Subject) -> Iterator[Subject]:
    """Yield the ports whose addresses a port waits for; unknown addresses are left out."""
    inventory = (window.whole or window).inventories.get(port.of_node().key)
    at = window.once(_by_address, port.cluster)
    for told in () if inventory is None else inventory.ports:
        if (told.device, told.port) == (port.device, port.port):
            yield from (it for address in told.waits_for if (it := at.get(address)) is not None)


def _by_address(window: Window, cluster: str) -> Mapping[str, Subject]:
    """Return the cluster's ports by address; addresses that several ports have are left out."""
    found: dict[str, Subject | None] = {}
    for inventory in (window.whole or window).inventories.values():
        node = inventory.subject
        for told in inventory.ports if node.cluster == cluster else ():
            port = Subject(cluster=cluster, node=node.node, device=told.device, port=told.port)
            for address in told.addresses:
                found[address] = port if found.get(address, port) == port else None
    return {address: port for address, port in found.items() if port is not None}
