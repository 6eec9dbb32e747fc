"""Whether an incident stops work, or only slows it: by the columns of the fault table."""

from ..model import Incident, Severity
from . import FAULTS, Stops


def only_slows(one: Incident) -> bool:
    """Return whether an incident's fault slows a GPU and stops nobody, however severe it is."""
    row = FAULTS.get(one.fault)
    return row is not None and row.slows and row.stops is Stops.NOBODY


def stops_work(one: Incident) -> bool:
    """Return whether an incident keeps somebody from computing: by its fault, or because it is critical."""
    row = FAULTS.get(one.fault)
    if one.severity is Severity.CRITICAL and not only_slows(one):
        return True
    return row is not None and row.stops is not Stops.NOBODY and one.severity is not Severity.INFO
