"""The one state that a GPU is in, decided once for everybody who shows or counts it."""

from collections.abc import Mapping
from typing import Any

from ..model import GpuState, Severity, Unmeasured
from . import FAULTS, Shows, where

# With these no program on the GPU gets on; with the others it may suffer.
STOPPING = where(lambda row: row.shows in {Shows.HANGS, Shows.LOST})
# What of these hides the GPU's state is itself a defect.
HUNG = tuple(key for key, row in FAULTS.items() if row.shows is Shows.HANGS)
# Nobody hears from the node: whether it is the node or its collector is not known yet.
UNHEARD = where(lambda row: row.shows is Shows.UNHEARD)
_STATES = {
    Shows.UNHEARD: GpuState.UNKNOWN,
    Shows.HANGS: GpuState.UNKNOWN,
    Shows.LOST: GpuState.UNAVAILABLE,
    Shows.LOST_IF_CRITICAL: GpuState.UNAVAILABLE,
}
# The first that stands gives the reason.
_SHOWN = tuple(row for shows in _STATES for row in FAULTS.values() if row.shows is shows)
# Why nobody can say of a GPU that answers whether it is idle.
NO_UTILIZATION, NO_PROCESSES = "utilisation not measured", "processes not measured"
# Read errors and hung calls leave the GPU where it is; only "lost" says that it is gone.
_GONE = frozenset({Unmeasured.LOST})


def gpu_state(
    row: Mapping[str, Any] | None,
    *,
    held: bool,
    faults: Mapping[str, Severity],
    out: str = "",
) -> tuple[GpuState, str]:
    """The state of a GPU and its reason in words.

    `row` is its newest line of measurement `gpu`, None when there is none young enough. `held`: an
    allocation is open on it. `faults`: the standing faults of the GPU and of its node, by key. `out`:
    why its node is out of service; what would be unknown or free there is unavailable.

    Else the first rule that holds decides:
    unknown      its driver or the GPU itself is silent, or its node is and there is no row: a row
                 that is young enough is newer than the silence
    unavailable  it is lost, released for maintenance, or a critical Xid stands
    unknown      there is no row, it did not answer, or its utilisation was not measured; or it is
                 at 0 %, no allocation is open, and its processes were not measured
    active       its utilisation is over 0 now, whoever holds it
    idle         held by an allocation or a compute process, and 0 % now (an instant: that it
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
    """The same while its node takes jobs."""
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
    """Whether a GPU is one to repair: nobody can use it, or a critical fault of its own stands.

    One of a node that is `out` of service may be well: there only its own faults tell.
    `own`: the severities of its standing faults, by key. A fault that stands is known even while
    the GPU's state is not; that it does not answer says only that its state is unknown.
    """
    grave = (fault for fault, severity in own.items() if severity is Severity.CRITICAL)
    useless = state is GpuState.UNAVAILABLE and not out
    return useless or any(fault not in HUNG for fault in grave)


def _measured(row: Mapping[str, Any], held: bool) -> tuple[GpuState, str]:
    """What the newest row says of a GPU against which no fault stands."""
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
    """What a GPU at 0 % is."""
    if held or (processes or 0) > 0:
        return GpuState.IDLE, "held, 0 % now"
    if processes is None:
        return GpuState.UNKNOWN, NO_PROCESSES
    return GpuState.FREE, "held by nobody"


def _reason(number: int | None) -> Unmeasured | None:
    """The reason behind a row's number; None when there is none or this version knows it not."""
    return Unmeasured(number) if number in set(Unmeasured) else None
