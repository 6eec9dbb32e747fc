"""The SXid table: the errors that an NVSwitch can report, with a source for every row."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ..model import Severity
from ..tables import table
from . import Scope, with_release


@dataclass(frozen=True, slots=True, kw_only=True)
class Sxid:
    """One row of the SXid table."""

    code: int
    mnemonic: str
    part: str  # of the switch
    severity: Severity
    scope: Scope
    summary: str
    action: str
    source: str

    @property
    def title(self) -> str:
        """The error in a few words: the code, and the part of the switch."""
        return f"SXid {self.code}: {self.part} error"


# The Fabric Manager guide's classes, by their effect on people: always fatal errors end every program
# on the node, potentially fatal ones those that use the link.
_SEVERITIES: Mapping[str, Severity] = {
    "always_fatal": Severity.CRITICAL,
    "potentially_fatal": Severity.WARNING,
    "group": Severity.WARNING,
    "non_fatal": Severity.INFO,
}

_RESET = with_release("Drain the node, then reset all its GPUs and switches, or reboot it.")
_LINK = (
    "Restart the programs that used the link; look for Xid 74 on the GPUs, and check its seating."
)
_ACTIONS: Mapping[str, str] = {
    "": "Look at the SXids around it: this code only names their group.",
    "ignore": "Nothing to do for it alone; look at the SXids around it.",
    "ignore_but_trend": "Nothing to do the first time; if it keeps coming back, ask support.",
    "trend_link_quality": "Watch the link's error rate; if it grows, check the link's seating.",
    "check_cooling": "Check fans, heatsinks and the inlet temperature of the switch.",
    "check_link_seating": "Check the seating of the link's connector.",
    "check_link_seating;expect_xid74": _LINK,
    "check_partition_config;reboot": "Check the fabric partitions, then reboot the node.",
    "reboot": "Drain the node and reboot it.",
    "reset_all_gpus_and_switches_or_reboot": _RESET,
    "trunk_port:restart_partition;access_port:restart_guest;expect_xid74": _LINK,
}


@cache
def sxids() -> Mapping[int, Sxid]:
    """The SXid table of `gpuvigil/data/sxid.csv`, by code."""
    return {row.code: row for row in map(_row, table("sxid.csv"))}


def _row(row: Mapping[str, str]) -> Sxid:
    severity = _SEVERITIES[row["severity"]]
    return Sxid(
        code=int(row["sxid"]),
        mnemonic=row["mnemonic"],
        part=row["layer"],
        severity=severity,
        scope=Scope.STICKY if severity is Severity.CRITICAL else Scope.PASSING,
        summary=row["summary"],
        action=_ACTIONS[row["action"]],
        source=f"SXid table, {row['source']}",
    )


def sxid(code: int) -> Sxid:
    """Return the row of `code`; an unknown code is worth a look, not a page."""
    known = sxids().get(code)
    if known is not None:
        return known
    return Sxid(
        code=code,
        mnemonic="UNKNOWN",
        part="unknown",
        severity=Severity.WARNING,
        scope=Scope.PASSING,
        summary="This SXid is not in the table.",
        action="Collect a bug report (nvidia-bug-report.sh) and ask support.",
        source="not in the SXid table",
    )
