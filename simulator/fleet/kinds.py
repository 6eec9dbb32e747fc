"""The one table of faults that the fleet can have."""

from collections.abc import Mapping

from . import gpu_faults, job_faults, link_faults, node_faults, port_faults, switch_faults
from .model import FleetSettings
from .site import FaultKind

KINDS: dict[str, FaultKind] = {
    kind.key: kind
    for faults in (gpu_faults, link_faults, port_faults, node_faults)
    for kind in faults.KINDS
}
# Further faults, only where somebody reads the switches: nobody else could see them.
OF_SWITCHES: dict[str, FaultKind] = {kind.key: kind for kind in switch_faults.KINDS}
# Further faults of jobs, where these report their steps.
OF_JOBS: dict[str, FaultKind] = {kind.key: kind for kind in job_faults.KINDS}


def kinds_of(settings: FleetSettings) -> Mapping[str, FaultKind]:
    """Return all kinds that this fleet may have: those of the table, and those in its settings."""
    known = KINDS | (OF_SWITCHES if settings.switches else {})
    known |= OF_JOBS if settings.steps else {}
    return known | {kind.key: kind for kind in settings.more_kinds}
