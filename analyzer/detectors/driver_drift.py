"""A node whose driver is of another version than that of its rack."""

from collections import Counter, defaultdict
from datetime import timedelta

from gpuvigil.faults import FAULTS
from gpuvigil.model import Evidence, Finding, Inventory

from ..window import Window

_FAULT = FAULTS["driver_drift"]
# In a rack of three or fewer nobody can say who is right; in a larger one most must agree.
_NODES, _SHARE = 4, 0.75
# A rolling upgrade goes through a rack node by node.
_PATIENCE = timedelta(minutes=15)


def drifted_drivers(window: Window) -> list[Finding]:
    """Nodes that for a while have had another driver than most nodes of their rack."""
    racks: dict[tuple[str, str], list[Inventory]] = defaultdict(list)
    for inventory in window.inventories.values():
        if inventory.rack and inventory.driver:
            racks[inventory.subject.cluster, inventory.rack].append(inventory)
    found = []
    for (_, rack), inventories in sorted(racks.items()):
        (usual, times), *_ = Counter(i.driver for i in inventories).most_common(1)
        if len(inventories) < _NODES or times < _SHARE * len(inventories):
            continue
        odd = [i for i in inventories if i.driver != usual and window.now - i.at >= _PATIENCE]
        found += [_finding(one, rack, usual, times) for one in sorted(odd, key=lambda i: i.subject)]
    return found


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
    )
