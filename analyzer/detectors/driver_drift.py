"""A node whose driver is of another version than that of its rack."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Inventory

from ..window.index import Remembered
from ..window.window import Window
from . import Detector

_FAULT = FAULTS["driver_drift"]
# In a rack of three or fewer nobody can say who is right; in a larger one most must agree.
_NODES, _SHARE = 4, 0.75
# A rolling upgrade goes through a rack node by node.
_PATIENCE = timedelta(minutes=15)


def drifted_drivers(window: Window) -> list[Finding]:
    """Nodes that for a while have had another driver than most nodes of their rack."""
    return [
        _finding(one, rack, usual, times)
        for one, rack, usual, times in _odd(window.inventories.values())
        if window.now - one.at >= _PATIENCE
    ]


# A node, its rack, the rack's driver, and on how many of its nodes that is.
_Odd = tuple[Inventory, str, str | None, int]


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
        found += [(one, rack, usual, times) for one in odd]
    return found


_odd = Remembered(_drifted)


def _finding(inventory: Inventory, rack: str, usual: str | None, times: int) -> Finding:
    return Finding(
        fault="driver_drift",
        subject=inventory.subject,
        severity=_FAULT.severity,
        since=inventory.at,
        evidence=(
            Evidence(
                name="driver",
                value=str(inventory.driver),
                peers=f"{usual} on {times} nodes of rack {rack}",
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
