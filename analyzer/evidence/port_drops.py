"""Ports that lost their link, and which of them share one cause.

An event reports within a second or two that a port went down. Whether its cable or its switch is
gone shows in what other ports do at the same time.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.model import Event, EventKind, Inventory, Subject

from ..window.window import Span, Window
from .planned_silence import LAST_WORDS

# Ports of one switch lose their link in the same moment; collectors look once a second.
NEIGHBOUR = timedelta(seconds=2)
# A switch's ports are complete once none has followed for `QUIET`, or at the latest `COMPLETE`
# after the first.
QUIET, COMPLETE = timedelta(seconds=2), timedelta(seconds=10)
# Ports of the same name share a cause within a minute, ports of other names within seconds.
SAME_NAME, OTHER_NAME = timedelta(seconds=60), timedelta(seconds=5)
# Two nodes may be chance, but not if they are all of a known rack, or nearly all of a larger one.
NODES, WHOLE_NODES, WHOLE_SHARE = 3, 2, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A port that went down, at a time corrected for its node's clock, and when that became known."""

    port: Subject
    at: datetime
    came_at: datetime
    within: timedelta = timedelta(0)  # it went down up to this much before `at`: no event says when

    @property
    def earliest(self) -> datetime:
        return self.at - self.within

    @property
    def name(self) -> tuple[str | None, str | None]:
        """Device and port: on a rail-optimised fabric ports of one name share a leaf."""
        return self.port.device, self.port.port


def may_share_switch(one: Subject, other: Subject, racks: Mapping[str, str]) -> bool:
    """Tell whether one switch could serve both ports; `racks`: by node key, where known.

    A leaf serves the ports of one name of several racks, or all ports of one rack.
    """
    if one.cluster != other.cluster:
        return False
    mine, theirs = racks.get(one.of_node().key), racks.get(other.of_node().key)
    same_name = (one.device, one.port) == (other.device, other.port)
    return same_name or mine is None or theirs is None or mine == theirs


def group_drops(drops: Iterable[Drop], racks: Mapping[str, str]) -> list[list[Drop]]:
    """Return drops of fabric ports in groups with one cause, oldest first; one may stand alone."""
    groups: list[list[Drop]] = []
    for run in sorted(_runs(drops), key=_order):
        group = next((g for g in groups if _is_one_cause(g, run, racks)), None)
        if group is None:
            groups.append(run)
        else:
            group += run
    return [sorted(group, key=_order_of_drop) for group in groups]


def _runs(drops: Iterable[Drop]) -> Iterator[list[Drop]]:
    """Yield runs of ports of one name that went down within a minute of the first."""
    by_name: dict[object, list[Drop]] = {}
    for drop in sorted(drops, key=_order_of_drop):
        by_name.setdefault((drop.port.cluster, *drop.name), []).append(drop)
    for left in by_name.values():
        first = 0
        while first < len(left):
            last = left[first].at + SAME_NAME
            end = next((n for n in range(first, len(left)) if left[n].earliest > last), len(left))
            yield left[first:end]
            first = end


def _is_one_cause(group: Sequence[Drop], run: Sequence[Drop], racks: Mapping[str, str]) -> bool:
    begin = min(drop.at for drop in group)
    return min(drop.earliest for drop in run) - begin <= OTHER_NAME and any(
        may_share_switch(one.port, other.port, racks) for one in group for other in run
    )


def _order(run: Sequence[Drop]) -> tuple[datetime, Subject]:
    return _order_of_drop(run[0])


def _order_of_drop(drop: Drop) -> tuple[datetime, Subject]:
    return drop.at, drop.port


def is_complete(group: Collection[Drop], now: datetime) -> bool:
    """Tell whether all ports of a switch have been heard of, or are no longer waited for, and one is known."""
    last, first = max(d.came_at for d in group), min(d.at for d in group)
    known = min(d.came_at for d in group) <= now
    return known and now >= min(last + QUIET, first + COMPLETE)


def is_switch(group: Collection[Drop], peers: int | None) -> bool:
    """Tell whether a group is too large for cables; `peers`: nodes of its one rack, None if unknown."""
    nodes = {drop.port.of_node() for drop in group}
    if len(nodes) >= NODES:
        return True
    if peers is None or len(nodes) < max(WHOLE_NODES, WHOLE_SHARE * peers):
        return False
    return max(d.at for d in group) - min(d.earliest for d in group) <= NEIGHBOUR


def racks_of(window: Window) -> Mapping[str, str]:
    """Return the rack in each node's inventory, by node key; nodes without a rack are left out."""
    return window.once(_racks, None)


def _racks(window: Window, _: None) -> Mapping[str, str]:
    return {key: one.rack for key, one in window.inventories.items() if one.rack}


def drop_of(window: Window, event: Event) -> Drop:
    """Return the drop that an event reports."""
    ahead = timedelta(seconds=window.clocks.get(event.subject.of_node().key, 0.0))
    at = event.at - ahead
    return Drop(port=event.subject, at=at, came_at=window.came.get(event.id, at))


def is_leaving(window: Window, drop: Drop) -> bool:
    """Tell whether a drop's node was just going down in order: its ports go with it."""
    words = window.node_events(drop.port.of_node(), EventKind.SHUTDOWN, EventKind.BOOT)
    *_, last = (None, *words)
    leaves = last is not None and last.kind is EventKind.SHUTDOWN
    return last is not None and leaves and abs(last.at - drop.at) <= LAST_WORDS


def role_of(inventory: Inventory | None, port: Subject) -> str:
    """Return a port's role by its node's inventory; empty if unknown."""
    ports = () if inventory is None else inventory.ports
    named = (p.role for p in ports if (p.device, p.port) == (port.device, port.port))
    return next(named, "")


def fabric_ports(window: Window, node: Subject) -> list[Subject]:
    """Return a node's fabric ports that were ever up and are not switched off."""
    inventory = window.inventories.get(node.key)
    rows = window.get("port", Span.NOW)
    found = []
    for known in () if inventory is None else inventory.ports:
        if known.role == "fabric" and known.was_up:
            port = Subject(
                cluster=node.cluster, node=node.node, device=known.device, port=known.port
            )
            row = rows.get(port)
            if row is None or row.get("enabled") != 0:
                found.append(port)
    return found
