"""Whether a node is in service, and why not: the one place that interprets schedulers' states and reasons.

A node is out of service when its scheduler gives it no more jobs, or when a fault stands with which
none of its GPUs can be used. The purpose is told by the states, by who wrote the reason and in which
words, by returns to the manufacturer, and where nobody wrote anything by the incidents that stand.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from ..config import AnalyzerSettings
from ..faults import About, Shows, where
from ..model import OutOfService, ScheduledNode, Subject

# A scheduler's last report is valid for this long; Slurm reports every ten minutes, Kubernetes every
# minute.
SPEAKS_FOR = timedelta(hours=1)
# States in which a node takes jobs, or would: scontrol(1) and sinfo(1), "NODE STATE CODES".
_IN_SERVICE = frozenset(
    {
        *("IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "RESERVED"),
        *("CLOUD", "POWERED_DOWN", "POWERING_UP", "POWERING_DOWN", "POWER_DOWN", "POWER_UP"),
        "DYNAMIC_NORM",
    }
)
NOT_RESPONDING = "NOT_RESPONDING"
DELETED = OutOfService("DELETED", "deleted from the cluster")
# Deliberate, whatever the reason says: sinfo(1), NODE STATE CODES; no fault powers a node down or
# reboots it.
_LEAVING: Mapping[str, str] = {
    DELETED.state: DELETED.reason,
    "POWERED_DOWN": "powered down by the scheduler",
    "POWERING_DOWN": "powering down by the scheduler",
    "POWER_DOWN": "to be powered down by the scheduler",
    "POWERING_UP": "powering up by the scheduler",
    "MAINT": "in a maintenance reservation",
    "MAINTENANCE": "in a maintenance reservation",
    "REBOOT": "to be rebooted by the scheduler",
    "REBOOT_REQUESTED": "to be rebooted by the scheduler",
    "REBOOT_ISSUED": "being rebooted by the scheduler",
    "LEAVING": "leaving the cluster",
    # NVSentinel and its like cordon faulty nodes; last here, since the others are clearer.
    "CORDONED": "cordoned",
}
# For these states, who set them counts.
_TAKEN: Mapping[str, str] = {
    "DRAIN": "drained",
    "DRAINING": "drained",
    "DRAINED": "drained",
    "DOWN": "set down",
    "FAIL": "set to fail",
    "FAILING": "set to fail",
}
# In these states running jobs continue to their end, which may be days away.
RUN_ON = frozenset(
    {
        *("DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING", "CORDONED"),
        *("REBOOT", "REBOOT_REQUESTED", "POWER_DOWN"),
    }
)
_SAID = {**_TAKEN, **_LEAVING, "NOT_READY": "not ready"}
_BY = re.compile(r"\s*\[([^\[\]@]+)@[^\[\]]*\]$")
# What slurmctld and slurmd write as reasons, for clusters whose SlurmUser is root; the prefixes of
# health checks; and our own.
_MACHINES = re.compile(
    r"(?i)(not responding|node unexpectedly rebooted|low (realmemory|tmpdisk|cpus|socket)|gres/"
    r"|kill task failed|prolog error|epilog error|batch job complete failure|duplicate jobid"
    r"|resumetimeout|reboot timed out|node_?health|nhc|check[_ ]|\[?gpuvigil)"
)
# Words of health checks that run as root or as a user of their own, and of people.
_OF_FAULTS = re.compile(r"(?i)\b(gpu|xid|sxid|dcgm|ecc|nvlink|nvswitch|hc\b|fell off)|health|diag")
_NUMBERS = re.compile(r"[\d.:]+")
# Out of service for work on the node, whatever the reason says.
_MAINTENANCE = frozenset(
    {
        *("MAINT", "MAINTENANCE", "LEAVING", "DELETED"),
        *("REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED"),
    }
)
# A machine's verdict on the node: sinfo(1), and the kubelet's own word.
_FAILED = frozenset({"FAIL", "FAILING", "ERROR", "INVAL", "INVALID_REG", "NOT_READY"})
# Words of people about hardware that is being repaired.
_OF_REPAIRS = re.compile(r"(?i)\b(rma|repair|replac|swap|reseat|vendor|spare|exchange)")
# With these faults no GPU of a node can be used.
STOPS_NODE = where(
    lambda row: row.about is About.NODE and row.shows in {Shows.HANGS, Shows.NO_DRIVER}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """A site's own health checks, beside the well-known ones.

    `users` and the beginnings of `reasons`, in lower case, with which they take nodes out.
    `unnotified_for`: nobody is notified of a critical for so long where a health check cannot be told from a person.
    """

    users: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()
    unnotified_for: timedelta = timedelta(hours=24)

    @classmethod
    def of(cls, settings: AnalyzerSettings) -> "Checks":
        return cls(
            users=frozenset(settings.health_check_users),
            reasons=tuple(reason.lower() for reason in settings.health_check_reasons),
            unnotified_for=timedelta(hours=settings.doubted_hold_hours),
        )

    def did(self, reason: str) -> bool:
        """Return whether one of them took a node out, going by the reason that its scheduler gives."""
        by = _BY.search(reason)
        named = by is not None and by[1] in self.users
        return named or (bool(self.reasons) and reason.lower().startswith(self.reasons))


USUAL = Checks()


class LostTo(str, Enum):
    """What a node is out of service for, and so what its GPU-hours are lost to."""

    FAULT = "fault"  # found by a machine or a person, and not known to be under repair
    REPAIR = "repair"  # under repair, or a part is on its way to the manufacturer and back
    MAINTENANCE = "maintenance"  # deliberate
    UNKNOWN = "unknown"


def lost_to(
    node: ScheduledNode | None,
    faults: Collection[str] = (),
    *,
    in_repair: bool = False,
    checks: Checks = USUAL,
) -> LostTo | None:
    """Return what a node is out of service for; None while it is in service.

    `node`: what its scheduler says about it, None where it says nothing. `faults`: the keys of the
    active critical incidents of the node and its GPUs. `in_repair`: whether a part of it is on
    its way to the manufacturer and back.
    """
    if node is None or not kept_from_jobs(frozenset(node.states)):
        return LostTo.FAULT if STOPS_NODE.intersection(faults) else None
    reason = node.reason or ""
    if _MAINTENANCE.intersection(node.states):
        return LostTo.MAINTENANCE
    if in_repair:
        return LostTo.REPAIR
    if checks.did(reason) or _is_a_machines(reason):
        return LostTo.FAULT
    if reason and "CORDONED" not in node.states:
        return _written(node, reason, faults)
    return LostTo.FAULT if faults or _FAILED.intersection(node.states) else LostTo.UNKNOWN


def _written(node: ScheduledNode, reason: str, faults: Collection[str]) -> LostTo:
    """Decide by a reason that no machine is known to write."""
    if _OF_REPAIRS.search(reason):
        return LostTo.REPAIR
    if _OF_FAULTS.search(reason) or _FAILED.intersection(node.states):
        return LostTo.FAULT
    # A health check that runs as root may have written it.
    return LostTo.FAULT if faults and may_be_ill(node) else LostTo.MAINTENANCE


def why_out(node: ScheduledNode) -> str:
    """Return why a scheduler gives a node no jobs, in its words; "" while the node is in service."""
    if lost_to(node) is None:
        return ""
    words = next((said for state, said in _SAID.items() if state in node.states), "out of service")
    return f"{words}: {node.reason}" if node.reason else words


def kept_from_jobs(states: frozenset[str]) -> frozenset[str]:
    """Return the states that keep a node from jobs; a node that does not answer at the moment may take them."""
    return states - _IN_SERVICE - {NOT_RESPONDING}


def takes_jobs(states: frozenset[str]) -> bool:
    """Return whether a node in these states is in service."""
    return states <= _IN_SERVICE


def taken_out(node: ScheduledNode, checks: Checks = USUAL) -> OutOfService | None:
    """Return why a node is out of service on purpose; None when it is not."""
    leaving = _leaving(node)
    if (not leaving or leaving == "CORDONED") and checks.did(node.reason or ""):
        return None
    if leaving:
        words = _LEAVING[leaving]
        return OutOfService(leaving, f"{words}: {node.reason}" if node.reason else words)
    taken = next((state for state in _TAKEN if state in node.states), "")
    if not taken or not node.reason or _is_a_machines(node.reason):
        return None
    return OutOfService(taken, f"{_TAKEN[taken]}: {node.reason}")


def may_be_ill(node: ScheduledNode) -> bool:
    """Return whether a node may be out of service because of a fault that nobody was notified of."""
    leaving = _leaving(node)
    if leaving:
        return leaving == "CORDONED"
    reason = node.reason or ""
    by = _BY.search(reason)
    return by is None or by[1] == "root" or _OF_FAULTS.search(reason) is not None


def _leaving(node: ScheduledNode) -> str:
    return next((state for state in _LEAVING if state in node.states), "")


def _is_a_machines(reason: str) -> bool:
    by = _BY.search(reason)
    return (by is not None and by[1] == "slurm") or _MACHINES.match(reason) is not None


def name_of(node: Subject) -> tuple[str, str]:
    """Return cluster and short name: a collector may know the full name, its scheduler the short one."""
    name = node.node if _NUMBERS.fullmatch(node.node) else node.node.partition(".")[0]
    return node.cluster, name.lower()
