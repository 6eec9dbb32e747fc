"""A node whose driver version differs from that of its rack."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Inventory, with_kind

from ..window.index import Remembered
from ..window.window import Window
from . import Detector

_FAULT = FAULTS["driver_drift"]
# In a rack of three or fewer nodes nobody can say which driver is right; in a larger one most must agree.
_NODES, _SHARE = 4, 0.75
# A rolling upgrade goes through a rack node by node; it may still be under way until no driver has changed
# for this long.
_PATIENCE = timedelta(minutes=15)


def drifted_drivers(window: Window) -> list[Finding]:
    """Return nodes whose driver differs from that of most nodes in their rack, once no node there changed its own
    for a while.
    """
    found = []
    for one, rack, usual, times, nodes in _odd(window.inventories.values()):
        # A live node sends an inventory every ten minutes, so the age of the newest says nothing.
        known = window.drivers.get(one.subject.key)
        since = one.at if known is None else known.at
        if window.now - max([since, *_changes(window, nodes)]) >= _PATIENCE:
            found.append(_finding(one, rack, usual, times, since))
    return found


def _changes(window: Window, nodes: Iterable[Inventory]) -> Iterator[datetime]:
    """Yield when each of these nodes was seen to change to its present driver."""
    told = (window.drivers.get(one.subject.key) for one in nodes)
    return (it.at for it in told if it is not None and it.changed)


# The node, its rack, the rack's usual driver, how many of its nodes have that, and the rack's inventories.
_Odd = tuple[Inventory, str, str | None, int, Sequence[Inventory]]


def _drifted(inventories: Sequence[Inventory]) -> Sequence[_Odd]:
    racks: dict[tuple[str, str], list[Inventory]] = defaultdict(list)
    for inventory in inventories:
        if inventory.rack and inventory.driver:
            racks[inventory.subject.cluster, inventory.rack].append(inventory)
    found: list[_Odd] = []
    for (_, rack), them in sorted(racks.items()):
        ((usual, times),) = Counter(i.driver for i in them).most_common(1)
        if len(them) < _NODES or times < _SHARE * len(them):
            continue
        odd = sorted((i for i in them if i.driver != usual), key=lambda i: i.subject)
        found += [(one, rack, usual, times, them) for one in odd]
    return found


_odd = Remembered(_drifted)


def _finding(
    inventory: Inventory, rack: str, usual: str | None, times: int, since: datetime
) -> Finding:
    return Finding(
        fault="driver_drift",
        subject=inventory.subject,
        severity=_FAULT.severity,
        since=since,
        evidence=(
            Evidence(
                name="driver",
                value=str(inventory.driver),
                peers=f"{usual} on {times} nodes of {with_kind('rack', rack)}",
            ),
        ),
        detector="driver_drift",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
    )


DETECTOR = Detector(
    name="driver_drift",
    find=drifted_drivers,
    faults=found_by("driver_drift"),
    needs=(),
    sentence="A node with another driver version than most of its rack.",
    source="the majority of the rack's inventories",
)
