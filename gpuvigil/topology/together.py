"""Infers a port's switch from the ports that went down together with it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from ..model import Event, EventKind
from .model import Fact, Link, Source
from .pods import AGREE, PEERS

# A collector looks once a second (`port_poll_seconds`), and nodes' clocks differ a little.
_TOGETHER = timedelta(seconds=2)

Port = tuple[str, str, str]


def switches(links: Sequence[Link], events: Iterable[Event]) -> dict[Port, Fact]:
    """Return the switches of ports without a known one, from those that went down with them.

    Evidence is a group in which nearly all known ports of one switch went down, at least three, and hardly
    any others. A node that lost several ports at once may have failed itself and does not count.
    """
    leaf_of = {_key(one): one.switch.value for one in links if one.switch is not None}
    sizes = Counter(leaf_of.values())
    unknown = {_key(one) for one in links if one.switch is None and one.role == "fabric"}
    votes: dict[Port, set[Fact]] = defaultdict(set)
    for group in _groups(events):
        lost = Counter(node for node, _, _ in group)
        known = Counter(leaf_of[port] for port in group if port in leaf_of)
        if not known:
            continue
        ((leaf, down),) = known.most_common(1)
        share = down / known.total()
        if down < PEERS or share < AGREE or down < AGREE * sizes[leaf]:
            continue
        for port in group & unknown:
            if lost[port[0]] == 1:
                fact = Fact(value=leaf, source=Source.DOWN_TOGETHER, confidence=round(share, 3))
                votes[port].add(fact)
    return {
        port: min(said, key=lambda one: one.confidence)
        for port, said in votes.items()
        if len({one.value for one in said}) == 1
    }


def _groups(events: Iterable[Event]) -> Iterator[set[Port]]:
    """Yield ports that went down within two looks of the first of them."""
    downs = [one for one in events if one.kind is EventKind.PORT_DOWN and not one.gone]
    group: list[Event] = []
    for event in sorted(downs, key=lambda one: one.at):
        if group and event.at - group[0].at > _TOGETHER:
            yield _ports(group)
            group = []
        group.append(event)
    if group:
        yield _ports(group)


def _ports(events: Iterable[Event]) -> set[Port]:
    subjects = [one.subject for one in events]
    return {(one.node or "", one.device or "", one.port or "1") for one in subjects}


def _key(link: Link) -> Port:
    return link.node, link.device, link.port
