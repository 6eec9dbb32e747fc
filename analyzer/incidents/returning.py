"""How soon an incident must come back to be the same one, and whether a repair was to end it."""

from datetime import timedelta

from gpuvigil.lifecycle import Patience
from gpuvigil.model import Incident, Severity

from ..window.fault_kinds import REPAIRED, REPAIRED_IF_CRITICAL


def comes_back_within(incident: Incident, patience: Patience) -> timedelta:
    """Return how soon an incident must return to be the same one.

    The window is longer for faults that a reset or a reboot ends: only the next job shows whether
    the repair held.
    """
    return patience.repair_window if is_repaired(incident) else patience.flap_window


def is_repaired(incident: Incident) -> bool:
    """Tell whether people reset or reboot for it: of some faults only where they are critical."""
    critical = incident.severity is Severity.CRITICAL
    return incident.fault in REPAIRED or (critical and incident.fault in REPAIRED_IF_CRITICAL)
