"""How soon an incident must come back to be the same one."""

from datetime import timedelta

from gpuvigil.lifecycle import Patience
from gpuvigil.model import Incident

from ..window.fault_kinds import REPAIRED


def comes_back_within(incident: Incident, patience: Patience) -> timedelta:
    """Return how soon an incident must return to be the same one.

    The window is longer for faults that a reset or a reboot ends: only the next job shows whether
    the repair held.
    """
    return patience.repair_window if incident.fault in REPAIRED else patience.flap_window
