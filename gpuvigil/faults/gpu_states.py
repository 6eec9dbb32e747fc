"""The state of a GPU, decided in one place for everything that shows or counts it."""

from collections.abc import Mapping
from typing import Any

from ..model import GpuState, Severity, Unmeasured
from . import FAULTS, Shows, where

# With these faults no program on the GPU makes progress; with the others it may suffer.
STOPPING = where(lambda row: row.shows in {Shows.HANGS, Shows.LOST})
# Faults that hide the GPU's state and are defects themselves.
HUNG = tuple(key for key, row in FAULTS.items() if row.shows is Shows.HANGS)
# Nobody hears from the node: whether the node or its collector failed is not known yet.
UNHEARD = where(lambda row: row.shows is Shows.UNHEARD)
_STATES = {
    Shows.UNHEARD: GpuState.UNKNOWN,
    Shows.HANGS: GpuState.UNKNOWN,
    Shows.LOST: GpuState.UNAVAILABLE,
    Shows.LOST_IF_CRITICAL: GpuState.UNAVAILABLE,
}
# The first fault that stands gives the reason.
_SHOWN = tuple(row for shows in _STATES for row in FAULTS.values() if row.shows is shows)
# Why it is not known whether a GPU that answers is idle.
NO_UTILIZATION, NO_PROCESSES = "utilisation not measured", "processes not measured"
# Read errors and hung calls leave the GPU in place; only "lost" says that it is gone.
_GONE = frozenset({Unmeasured.LOST})


def gpu_state(
    row: Mapping[str, Any] | None,
    *,
    held: bool,
    faults: Mapping[str, Severity],
    out: str = "",
) -> tuple[GpuState, str]:
    """Return the state of a GPU and its reason in words.

    `row` is its newest row of measurement `gpu`, None when there is none recent enough. `held`: an
    allocation is open on it. `faults`: the active faults of the GPU and of its node, by key. `out`:
    why its node is out of service; what would be unknown or free there is unavailable.

    Otherwise the first rule that applies decides:
        unknown      its driver or the GPU itself is silent, or its node is and there is no row: a
                     recent enough row is newer than the silence
        unavailable  it is lost, released for maintenance, or a critical Xid stands
        unknown      there is no row, it did not answer, or its utilisation was not measured; or it is
                     at 0 %, no allocation is open, and its processes were not measured
        active       its utilisation is over 0 now, whoever holds it
        idle         held by an allocation or a compute process, and 0 % now (an instant: whether it
                     wastes something is for the idle detector to say, over its span)
        free         nobody holds it
    """
    state, reason = _in_service(row, held, faults)
    if out and state in {GpuState.FREE, GpuState.UNKNOWN}:
        return GpuState.UNAVAILABLE, out
    return state, reason


def _in_service(
    row: Mapping[str, Any] | None, held: bool, faults: Mapping[str, Severity]
) -> tuple[GpuState, str]:
    """Return the state and reason of a GPU whose node takes jobs."""
    for fault in _SHOWN if faults else ():
        severity = faults.get(fault.key)
        if severity is not None and _is_shown(fault.shows, severity, row):
            return _STATES[fault.shows], fault.title
    if row is None:
        return GpuState.UNKNOWN, "no data"
    return _measured(row, held)


def _is_shown(shows: Shows, severity: Severity, row: Mapping[str, Any] | None) -> bool:
    if shows is Shows.UNHEARD:
        return row is None
    return shows is not Shows.LOST_IF_CRITICAL or severity is Severity.CRITICAL


def is_failing(state: GpuState, own: Mapping[str, Severity], out: bool = False) -> bool:
    """Return whether a GPU needs repair: nobody can use it, or a critical fault of its own stands.

    A GPU of a node that is `out` of service may be well: only its own faults count then.
    `own`: the severities of its active faults, by key. An active fault is known even while
    the GPU's state is not; a GPU that does not answer only has an unknown state.
    """
    grave = (fault for fault, severity in own.items() if severity is Severity.CRITICAL)
    useless = state is GpuState.UNAVAILABLE and not out
    return useless or any(fault not in HUNG for fault in grave)


def _measured(row: Mapping[str, Any], held: bool) -> tuple[GpuState, str]:
    """Return the state according to the newest row, for a GPU without an active fault that decides."""
    if row.get("up") != 1:
        reason = _reason(row.get("unmeasured_reason"))
        if reason is Unmeasured.RELEASED_FOR_MAINTENANCE:
            return GpuState.UNAVAILABLE, reason.text
        if row.get("up") == 0 or reason in _GONE:
            return GpuState.UNAVAILABLE, "missing: " + (reason.text if reason else "lost")
        return GpuState.UNKNOWN, reason.text if reason else "not measured"
    utilization = row.get("utilization_percent")
    if utilization is None:
        return GpuState.UNKNOWN, NO_UTILIZATION
    if utilization > 0:
        return GpuState.ACTIVE, f"{utilization:.0f} %"
    return _still(row.get("compute_processes"), held)


def _still(processes: int | None, held: bool) -> tuple[GpuState, str]:
    """Return the state of a GPU at 0 % utilisation."""
    if held or (processes or 0) > 0:
        return GpuState.IDLE, "allocated, 0 % now"
    if processes is None:
        return GpuState.UNKNOWN, NO_PROCESSES
    return GpuState.FREE, "not allocated"


def _reason(number: int | None) -> Unmeasured | None:
    """Return the reason with this number; None without one, or when this version does not know it."""
    return Unmeasured(number) if number in set(Unmeasured) else None
