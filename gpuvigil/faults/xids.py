"""The Xid table, with a source for every row."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from ..model import Severity
from ..tables import table
from .model import with_release

# What to do first where the kernel's own driver for graphics has the GPUs.
NOUVEAU_ACTION = (
    "Keep nouveau from loading (blacklist nouveau in /etc/modprobe.d, rebuild the initramfs), install"
    " NVIDIA's driver and reboot the node."
)


class Scope(str, Enum):
    """How long an Xid stands: until a cure is seen, or only as long as it repeats."""

    STICKY = "sticky"
    PASSING = "passing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One row of the Xid table."""

    code: int
    mnemonic: str
    layer: str
    severity: Severity
    scope: Scope
    summary: str
    action: str
    source: str
    confined: bool = False  # to the program that ran on the GPU

    @property
    def title(self) -> str:
        """What it is in a few words: the code, and the summary's first clause."""
        words = _CLAUSE_END.split(_ASIDE.sub("", self.summary), maxsplit=1)[0].rstrip(".")
        if not words[1:2].isupper():
            words = words[:1].lower() + words[1:]
        if len(words) > _LONGEST_TITLE:
            words = words[:_LONGEST_TITLE].rpartition(" ")[0] + "…"
        return f"Xid {self.code}: {words}"


_ASIDE = re.compile(r" \(.*\)")
_CLAUSE_END = re.compile(r"[;:,.] | such as ")
_LONGEST_TITLE = 70

# The table's words for severity, as people: fatal and critical rows need hands now.
_SEVERITIES: Mapping[str, Severity] = {
    "fatal": Severity.CRITICAL,
    "critical": Severity.CRITICAL,
    "error": Severity.WARNING,
    "unused": Severity.WARNING,
    "warning": Severity.INFO,
    "info": Severity.INFO,
}

_ACTIONS: Mapping[str, str] = {
    "ignore": "Nothing to do by itself; look at the Xids around it.",
    "restart_app": "Restart the program; if it comes back with other programs, suspect the GPU.",
    "reset_gpu": "Drain the node, then reset the GPU.",
    "reboot": "Drain the node and reboot it.",
    "restart_vm": "Restart the virtual machine.",
    "check_mechanicals": "Drain the node; check power, seating and cables.",
    "check_thermals": "Check fans, heat sinks and the inlet temperature.",
    "update_software": "Update the driver or the firmware.",
    "contact_support": "Collect a bug report (nvidia-bug-report.sh) before any reset and ask support.",
    "decode_message": "Decode the NVLink message, then act on the link that it names.",
    "follow_message": "Do what the message says: it is the driver's own advice.",
    "check_app": "Check the program that ran on the GPU.",
    "enable_ecc": "Drain the node; switch ECC on, then reset the GPU.",
    "investigate_software": "Look at the versions of driver, firmware and program.",
    "reset_gpu_if_uvm_or_vgpu_else_ignore": "With UVM or vGPU: drain the node, then reset the GPU.",
}

# What the follow-up adds to an action that is meant to cure, and the summary to any.
_CURING_ACTIONS = frozenset({"reset_gpu", "reboot"})
_FOLLOW_UPS: Mapping[str, str] = {
    "contact_support": "; if it comes back, ask support.",
    "investigate_software": "; if it comes back, look at the versions of driver and firmware.",
}
_OWN_ACTIONS: Mapping[int, str] = {
    48: "Drain the node, then reset the GPU; if it comes back, run the field diagnostic.",
    63: "When no job runs on the node, reset the GPU: the repair takes effect then.",
    64: "Drain the node, run the field diagnostic, and have the GPU replaced when it confirms.",
    74: "Drain the node, check the link's seating, then reset the GPU; if it comes back, ask support.",
    92: "Drain the node, run the field diagnostic, and have the GPU replaced when it confirms.",
    94: "Restart the program; when no job runs on the node, reset the GPU.",
    95: "Drain the node, then reset the GPU before any program starts again.",
    121: "When no job runs on the node, reset the GPU: the link trains again then.",
}

# These end one program and leave the others alone.
_CONFINED_ACTIONS = frozenset({"restart_app", "check_app"})

# A cure is a reset, a reboot or a replacement: what asks for none passes by itself.
_PASSING_ACTIONS = frozenset({"ignore", "restart_app", "check_app", "follow_message"})
# These end a program or nothing, and leave a repair behind that waits for a reset.
_STICKY = frozenset({63, 94})


@cache
def xids() -> Mapping[int, Xid]:
    """The Xid table of `gpuvigil/data/xid.csv`, by code."""
    return {xid.code: xid for xid in map(_row, table("xid.csv"))}


def _row(row: Mapping[str, str]) -> Xid:
    return Xid(
        code=int(row["xid"]),
        mnemonic=row["mnemonic"],
        layer=row["layer"],
        severity=_SEVERITIES[row["severity"]],
        scope=_scope(int(row["xid"]), row["action"]),
        summary=row["summary"],
        action=_action(row),
        confined=row["action"] in _CONFINED_ACTIONS or row["layer"].startswith("application"),
        source=f"Xid table, {row['source']}",
    )


def _scope(code: int, action: str) -> Scope:
    return Scope.PASSING if action in _PASSING_ACTIONS and code not in _STICKY else Scope.STICKY


def _action(row: Mapping[str, str]) -> str:
    own = _OWN_ACTIONS.get(int(row["xid"]))
    if own is not None:
        return with_release(own)
    action, more = _ACTIONS[row["action"]], _FOLLOW_UPS.get(row["followup"])
    cures = more is not None and row["action"] in _CURING_ACTIONS
    return with_release(action.rstrip(".") + (more or "") if cures else action)


def xid(code: int) -> Xid:
    """The row of `code`; a code that the table does not know is worth a look, not a page."""
    known = xids().get(code)
    if known is not None:
        return known
    return Xid(
        code=code,
        mnemonic="UNKNOWN",
        layer="unknown",
        severity=Severity.WARNING,
        scope=Scope.STICKY,
        summary="This Xid is not in the table.",
        action=_ACTIONS["contact_support"],
        source="not in the Xid table",
    )
