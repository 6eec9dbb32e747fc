"""How soon an incident must come back to be the same one."""

from datetime import timedelta

from gpuvigil.lifecycle import Patience
from gpuvigil.model import Incident

from ..window.fault_kinds import REPAIRED


def comes_back_within(incident: Incident, patience: Patience) -> timedelta:
    """Longer of what a reset or a reboot ends: that it held shows only under the next job."""
    return patience.repair_window if incident.fault in REPAIRED else patience.flap_window
