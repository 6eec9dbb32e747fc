"""Whose cable a job's packets wait for, by who answers late to whom.

What waits beyond a port is counted by no host. But where the way to one host is full, what is sent to
it is answered late, and so is what it sends itself, since the answers come the same way: of a job's
late paths it is the end that all have in common.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuvigil.model import Subject

from ..window.columns import Mask, fabric
from ..window.window import Span, Window
from .port_rates import DELAY, Look, Rates, delay_of, jobs_through, rates_of

# Both ends of one narrow place are late by about as much; a busy host's answers are by far less.
_ALIKE = 1.0 / 3.0
Path = tuple[Subject, Subject]
"""A port that sends, and the one whose answers are late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A port that late paths of a job lead to or from."""

    port: Subject
    job: str  # a `holder_key`
    paths: tuple[Path, ...]
    others: tuple[Subject, ...]  # which may as well be it


def slow_ports(window: Window, look: Look) -> Iterator[Slow]:
    """The ends that late paths have in common; none where a node's own queue of a port explains them."""
    for job, paths in sorted(window.once(_late_paths, look).items()):
        left, shared = list(paths), False
        while left:
            common = Counter(port for path in left for port in path)
            most = max(common.values())
            if most == 1 and (shared or _others(window, job, look, paths)):
                break  # a lone one had a bad moment, or is the first to be seen of several
            # Of a single path, the end that is sent to: what the other's own queue held, its node would tell.
            shared |= most > 1
            first, *others = [left[0][1]] if most == 1 else _most(common, most)
            of = tuple(path for path in left if first in path)
            yield Slow(port=first, job=job, paths=of, others=tuple(others))
            left = [path for path in left if first not in path]


def _others(window: Window, job: str, look: Look, paths: Sequence[Path]) -> bool:
    """Whether ports of the job that are on none of these paths have begun to be answered as late."""
    now = window.once(_late_now, look)
    known = {port for path in paths for port in path}
    least = _ALIKE * max(now.get(sender, 0.0) for sender, _ in paths)
    nodes = window.holdings[job].nodes
    return any(
        seconds >= least and port.of_node() in nodes
        for port, seconds in now.items()
        if port not in known
    )


def _most(common: Counter[Subject], most: int) -> list[Subject]:
    return sorted(port for port, count in common.items() if count == most)


def _late_paths(window: Window, look: Look) -> Mapping[str, list[Path]]:
    rates = window.once(rates_of, look)
    if not len(rates.rows):
        return {}
    late = _late(window, rates, look)
    found: dict[str, list[Path]] = defaultdict(list)
    for number in np.flatnonzero(late).tolist():
        port = rates.rows.subjects[number]
        for job in jobs_through(window, port, look):
            nodes = window.holdings[job].nodes
            far = (it for it in _answering_late(window, port) if it.of_node() in nodes)
            found[job] += [(port, it) for it in far if it != port]
    # What a node keeps back itself is told of it.
    own = {rates.rows.subjects[number] for number in np.flatnonzero(rates.queues).tolist()}
    return {job: them for job, them in found.items() if them and own.isdisjoint(sum(them, ()))}


def _late(window: Window, rates: Rates, look: Look) -> Mask:
    """Which ports' packets are answered late while less gets through, in the last minute, too."""
    found: Mask = rates.delayed & (rates.fall >= look.least_fall) & fabric(window, rates.rows)
    return found & _lately(window, rates)


def _lately(window: Window, rates: Rates) -> Mask:
    recent = window.get("port", Span.RECENT).beside(rates.rows, DELAY.column)
    found: Mask = recent >= delay_of(rates.delay_before)
    return found


def _late_now(window: Window, look: Look) -> Mapping[Subject, float]:
    """By how many seconds answers are late in the last minute, where they are."""
    rates = window.once(rates_of, look)
    if not len(rates.rows):
        return {}
    recent = window.get("port", Span.RECENT).beside(rates.rows, DELAY.column)
    late = np.flatnonzero(_lately(window, rates)).tolist()
    return {rates.rows.subjects[number]: float(recent[number]) for number in late}


def _answering_late(window: Window, port: Subject) -> Iterator[Subject]:
    """The ports of the addresses that a port waits for; nobody's address is told of nobody."""
    inventory = (window.whole or window).inventories.get(port.of_node().key)
    at = window.once(_by_address, port.cluster)
    for told in () if inventory is None else inventory.ports:
        if (told.device, told.port) == (port.device, port.port):
            yield from (it for address in told.waits_for if (it := at.get(address)) is not None)


def _by_address(window: Window, cluster: str) -> Mapping[str, Subject]:
    """The cluster's ports by their addresses; one that several have names none of them."""
    found: dict[str, Subject | None] = {}
    for inventory in (window.whole or window).inventories.values():
        node = inventory.subject
        for told in inventory.ports if node.cluster == cluster else ():
            port = Subject(cluster=cluster, node=node.node, device=told.device, port=told.port)
            for address in told.addresses:
                found[address] = port if found.get(address, port) == port else None
    return {address: port for address, port in found.items() if port is not None}
