"""The table: what can be wrong, a row for each."""

from collections.abc import Callable, Mapping

from . import gpus, hosts, kernel, network, network_setup, nodes, speed, users
from .model import Fault

# Of several that stand, the earlier row gives the reason of a GPU's state.
FAULTS: Mapping[str, Fault] = {
    row.key: row
    for rows in (
        nodes.ROWS,
        hosts.ROWS,
        kernel.ROWS,
        gpus.ROWS,
        speed.ROWS,
        users.ROWS,
        network.ROWS,
        network_setup.ROWS,
    )
    for row in rows
}

# Xids that name a fault of their own, so that the code and the lost GPU are one incident.
XID_FAULTS: Mapping[int, str] = {code: row.key for row in FAULTS.values() for code in row.xids}


def where(holds: Callable[[Fault], bool]) -> frozenset[str]:
    """Keys of the faults in whose row it holds."""
    return frozenset(key for key, row in FAULTS.items() if holds(row))


def found_by(detector: str) -> tuple[str, ...]:
    """Keys of the faults that a detector finds, by its module's name."""
    return tuple(key for key, row in FAULTS.items() if row.detector == detector)
