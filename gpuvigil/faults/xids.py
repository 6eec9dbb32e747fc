"""The Xid table, with a source for every row."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from ..model import Severity
from ..tables import table
from .model import with_release

# What to do first where nouveau, the kernel's own graphics driver, has the GPUs.
NOUVEAU_ACTION = (
    "Keep nouveau from loading (blacklist nouveau in /etc/modprobe.d, rebuild the initramfs), install"
    " NVIDIA's driver and reboot the node."
)


class Scope(str, Enum):
    """The time for which an Xid stands: until a cure is seen, or only while it repeats."""

    STICKY = "sticky"
    PASSING = "passing"


class Remedy(str, Enum):
    """The first action of NVIDIA's catalogue, in the words of `gpuvigil/data/xid.csv`."""

    IGNORE = "ignore"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    RESTART_VM = "restart_vm"
    CHECK_MECHANICALS = "check_mechanicals"
    CHECK_THERMALS = "check_thermals"
    UPDATE_SOFTWARE = "update_software"
    CONTACT_SUPPORT = "contact_support"
    DECODE_MESSAGE = "decode_message"
    FOLLOW_MESSAGE = "follow_message"
    CHECK_APP = "check_app"
    ENABLE_ECC = "enable_ecc"
    INVESTIGATE_SOFTWARE = "investigate_software"
    RESET_GPU_IF_UVM_OR_VGPU = "reset_gpu_if_uvm_or_vgpu_else_ignore"


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
        """The error in a few words: the code, and the summary's first clause."""
        words = _CLAUSE_END.split(_ASIDE.sub("", self.summary), maxsplit=1)[0].rstrip(".")
        if not words[1:2].isupper():
            words = words[:1].lower() + words[1:]
        if len(words) > _LONGEST_TITLE:
            words = words[:_LONGEST_TITLE].rpartition(" ")[0] + "…"
        return f"Xid {self.code}: {words}"


_ASIDE = re.compile(r" \(.*\)")
_CLAUSE_END = re.compile(r"[;:,.] | such as ")
_LONGEST_TITLE = 70

# The catalogue's words for severity: fatal and critical rows need somebody now.
_SEVERITIES: Mapping[str, Severity] = {
    "fatal": Severity.CRITICAL,
    "critical": Severity.CRITICAL,
    "error": Severity.WARNING,
    "unused": Severity.WARNING,
    "warning": Severity.INFO,
    "info": Severity.INFO,
}

_ACTIONS: Mapping[Remedy, str] = {
    Remedy.IGNORE: "Nothing to do for it alone; look at the Xids around it.",
    Remedy.RESTART_APP: "Restart the program; if it comes back with other programs, suspect the GPU.",
    Remedy.RESET_GPU: "Drain the node, then reset the GPU.",
    Remedy.REBOOT: "Drain the node and reboot it.",
    Remedy.RESTART_VM: "Restart the virtual machine.",
    Remedy.CHECK_MECHANICALS: "Drain the node; check power, seating and cables.",
    Remedy.CHECK_THERMALS: "Check fans, heatsinks and the inlet temperature.",
    Remedy.UPDATE_SOFTWARE: "Update the driver or the firmware.",
    Remedy.CONTACT_SUPPORT: "Collect a bug report (nvidia-bug-report.sh) before any reset and ask support.",
    Remedy.DECODE_MESSAGE: "Decode the NVLink message, then act on the link that it names.",
    Remedy.FOLLOW_MESSAGE: "Do what the message says: it is the driver's own advice.",
    Remedy.CHECK_APP: "Check the program that ran on the GPU.",
    Remedy.ENABLE_ECC: "Drain the node; switch ECC on, then reset the GPU.",
    Remedy.INVESTIGATE_SOFTWARE: "Look at the versions of driver, firmware and program.",
    Remedy.RESET_GPU_IF_UVM_OR_VGPU: "With UVM or vGPU: drain the node, then reset the GPU.",
}

# Text that the follow-up appends to a curing action.
_CURES = frozenset({Remedy.RESET_GPU, Remedy.REBOOT})
_FOLLOW_UPS: Mapping[str, str] = {
    Remedy.CONTACT_SUPPORT.value: "; if it comes back, ask support.",
    Remedy.INVESTIGATE_SOFTWARE.value: "; if it comes back, look at the versions of driver and firmware.",
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
_CONFINED = frozenset({Remedy.RESTART_APP, Remedy.CHECK_APP})

# A cure is a reset, a reboot or a replacement: an Xid that needs none passes by itself.
_PASSING = frozenset({Remedy.IGNORE, Remedy.RESTART_APP, Remedy.CHECK_APP, Remedy.FOLLOW_MESSAGE})
# These end a program or nothing, but leave a repair that waits for a reset.
_STICKY = frozenset({63, 94})


@cache
def xids() -> Mapping[int, Xid]:
    """The Xid table of `gpuvigil/data/xid.csv`, by code."""
    return {xid.code: xid for xid in map(_row, table("xid.csv"))}


def _row(row: Mapping[str, str]) -> Xid:
    remedy = Remedy(row["action"])
    return Xid(
        code=int(row["xid"]),
        mnemonic=row["mnemonic"],
        layer=row["layer"],
        severity=_SEVERITIES[row["severity"]],
        scope=_scope(int(row["xid"]), remedy),
        summary=row["summary"],
        action=_action(int(row["xid"]), remedy, row["followup"]),
        confined=remedy in _CONFINED or row["layer"].startswith("application"),
        source=f"Xid table, {row['source']}",
    )


def _scope(code: int, remedy: Remedy) -> Scope:
    return Scope.PASSING if remedy in _PASSING and code not in _STICKY else Scope.STICKY


def _action(code: int, remedy: Remedy, followup: str) -> str:
    own = _OWN_ACTIONS.get(code)
    if own is not None:
        return with_release(own)
    action, more = _ACTIONS[remedy], _FOLLOW_UPS.get(followup)
    adds = more is not None and remedy in _CURES
    return with_release(action.rstrip(".") + (more or "") if adds else action)


def xid(code: int) -> Xid:
    """Return the row of `code`; an unknown code is worth a look, not a page."""
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
        action=_ACTIONS[Remedy.CONTACT_SUPPORT],
        source="not in the Xid table",
    )
