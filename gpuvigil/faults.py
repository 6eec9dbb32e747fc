"""What can be wrong, in plain words, and the Xid table with a source for every row."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache

from .model import Severity
from .tables import table


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that can be wrong: what it is called, who is told, and what to do first."""

    key: str
    title: str
    severity: Severity
    action: str
    source: str
    # Concluded from what others do or from what is absent, not reported by the device or the kernel:
    # a person looks before a node is taken out of service for it.
    inferred: bool = False


# What to do first where the kernel's own driver for graphics has the GPUs.
NOUVEAU_ACTION = (
    "Keep nouveau from loading (blacklist nouveau in /etc/modprobe.d, rebuild the initramfs), install"
    " NVIDIA's driver and reboot the node."
)
RELEASE = "gpuvigil collect --release 10m"
_RESET = re.compile(r"\breset (the GPU('s PCIe bus)?|all its GPUs( and switches)?)", re.IGNORECASE)


def with_release(action: str) -> str:
    """A first action; one that resets a GPU says how the collector lets go of it before.

    A GPU is not reset while any process has it open. The time runs from the command on, so it
    stands beside the reset, behind what is to be done before both, as draining the node.
    """
    if RELEASE in action:
        return action
    return _RESET.sub(rf"\g<0> (right after `{RELEASE}` on the node)", action, count=1)


def _fault(
    key: str, severity: Severity, title: str, action: str, source: str, *, inferred: bool = False
) -> tuple[str, Fault]:
    return key, Fault(
        key=key,
        severity=severity,
        title=title,
        action=with_release(action),
        source=source,
        inferred=inferred,
    )


_CATALOGUE = "NVIDIA Xid catalogue"

FAULTS: dict[str, Fault] = dict(
    [
        _fault(
            "gpu_lost",
            Severity.CRITICAL,
            "GPU fell off the bus",
            "Drain the node and reboot it; if the GPU is lost again, check power, seating and heat.",
            f"{_CATALOGUE}, Xid 79; NVML_ERROR_GPU_IS_LOST",
        ),
        _fault(
            "gpu_xid",
            Severity.WARNING,
            "GPU reported an Xid error",
            "Read the Xid's row in the table and follow its action.",
            _CATALOGUE,
        ),
        _fault(
            "gpu_program",
            Severity.INFO,
            "Program failed on a GPU",
            "Tell its user; nothing to do about the GPU unless it comes back with other programs.",
            f"{_CATALOGUE}: codes of programs",
        ),
        _fault(
            "nvswitch_error",
            Severity.WARNING,
            "NVSwitch reported an SXid error",
            "Read the SXid's class and follow its action; look for Xid 74 on the node's GPUs.",
            "NVIDIA Fabric Manager guide, a class per SXid",
        ),
        _fault(
            "gpu_idle_held",
            Severity.INFO,
            "GPU is held but idle",
            "Ask its holder whether the process still needs the GPU.",
            "job_defense_shield warns after 60 minutes at 0 %",
            inferred=True,
        ),
        _fault(
            "port_down",
            Severity.WARNING,
            "Network port is down",
            "Check the cable and the switch port at the other end.",
            "gpud: a port that was up and is down for 4 minutes is a drop",
        ),
        _fault(
            "port_flapping",
            Severity.WARNING,
            "Network port flaps",
            "Reseat or replace the cable or transceiver; check the switch port's error counters.",
            "gpud: down and up again 3 times is a flap",
        ),
        _fault(
            "driver_silent",
            Severity.CRITICAL,
            "NVIDIA driver does not answer",
            "Drain the node; read the kernel log for Xid and hung tasks, then reboot the node.",
            "a driver call that does not return can hold a lock that every other call needs",
        ),
        _fault(
            "driver_not_loaded",
            Severity.CRITICAL,
            "NVIDIA driver is not loaded",
            "Load it (modprobe nvidia); if that fails, install the driver for the running kernel.",
            "NVML_ERROR_DRIVER_NOT_LOADED while the PCI bus has NVIDIA GPUs",
        ),
        _fault(
            "gpu_silent",
            Severity.CRITICAL,
            "GPU does not answer",
            "Drain the node; read the kernel log for Xid 119 or 120, then reset the GPU.",
            f"{_CATALOGUE}, Xid 119: the classic sign of a hung GPU",
        ),
        _fault(
            "node_silent",
            Severity.WARNING,
            "Node stopped reporting",
            "Check that the node is up and that `gpuvigil collect` runs on it.",
            "three ticks without data from a node that reported before",
            inferred=True,
        ),
        _fault(
            "gpu_memory",
            Severity.WARNING,
            "GPU memory is failing",
            "Do what the condition asks for: a reset for a repair, a field diagnostic for a failure.",
            "NVIDIA, A100 GPU memory error management",
        ),
        _fault(
            "gpu_pcie",
            Severity.WARNING,
            "GPU's PCIe link is degraded",
            "Drain the node; reseat the GPU or its riser.",
            "NVML's current and maximum link; DCGM's limit for replays",
        ),
        _fault(
            "gpu_nvlink",
            Severity.WARNING,
            "GPU's NVLinks have errors",
            "Drain the node and reset the GPU; if it comes back, ask support.",
            "DCGM health, NVLink: replays and recoveries fail, CRC errors warn",
        ),
        _fault(
            "fabric_down",
            Severity.CRITICAL,
            "NVLink fabric is not up",
            "Restart the fabric manager when no job runs on the node; read its log first.",
            "nvmlDeviceGetGpuFabricInfoV; CUDA_ERROR_SYSTEM_NOT_READY",
        ),
        _fault(
            "gpu_hot",
            Severity.WARNING,
            "GPU is too hot",
            "Check fans, heatsink and the inlet temperature.",
            "nvml.h, clock event reasons 0x20 and 0x40",
            inferred=True,
        ),
        _fault(
            "gpu_power",
            Severity.WARNING,
            "GPU is held back by its power supply",
            "Check the node's power supplies and cables.",
            "nvml.h, clock event reason 0x80, HW power brake",
        ),
        _fault(
            "gpu_clocks",
            Severity.WARNING,
            "GPU's clocks do not rise under load",
            "Drain the node and reset the GPU.",
            "no clock event explains it, and its neighbours run faster",
            inferred=True,
        ),
        _fault(
            "gpu_slow",
            Severity.WARNING,
            "GPU slows its job down",
            "Keep the GPU out of large jobs and run a benchmark on it, beside one of its peers.",
            "ours: the job's other GPUs wait for it, which they did not before",
            inferred=True,
        ),
        _fault(
            "gpu_settings",
            Severity.WARNING,
            "GPU is set up unlike its neighbours",
            "Bring it to the settings of its neighbours.",
            "nvmlDeviceGetEccMode and nvmlDeviceGetMigMode against the node's other GPUs",
            inferred=True,
        ),
        _fault(
            "gpu_hung",
            Severity.WARNING,
            "GPU is fully used at the power of an idle one",
            "Ask the job's owner; end the job if it makes no progress.",
            "kernels that spin: full utilisation, low power, silent links",
            inferred=True,
        ),
        _fault(
            "gpu_memory_held",
            Severity.WARNING,
            "GPU's memory is held although its job is over",
            "End the process that still holds the memory.",
            "memory in use and no allocation, for longer than a job takes to clean up",
            inferred=True,
        ),
        _fault(
            "gpus_missing",
            Severity.WARNING,
            "Node has fewer GPUs than its kin",
            "Compare with the order; check seating and power.",
            "the majority of the cluster's nodes with the same GPU model",
            inferred=True,
        ),
        _fault(
            "driver_drift",
            Severity.INFO,
            "Node has another driver version than its rack",
            "Bring the node to the driver version of its rack.",
            "the majority of the rack's inventories",
            inferred=True,
        ),
        _fault(
            "host_memory",
            Severity.WARNING,
            "Host memory corrects errors",
            "Replace the DIMM that the kernel names at the next maintenance.",
            "machine checks in the kernel log",
        ),
        _fault(
            "host_disk",
            Severity.WARNING,
            "Collector cannot write its spool: the disk is full or fails",
            "Free space on the node; `gpuvigil doctor` there names the directory and why.",
            "writes that the spool's disk refused, and bodies given up",
        ),
        _fault(
            "host_power",
            Severity.WARNING,
            "Power supply failed",
            "Look at the node's service processor; replace the supply, or give its feed back.",
            "the kernel's hwmon and power_supply classes",
        ),
        _fault(
            "host_fan",
            Severity.WARNING,
            "Fan failed",
            "Replace the fan that the message names before the node gets hot.",
            "the kernel's hwmon class: fault, alarm, or slower than its least",
        ),
        _fault(
            "host_mount",
            Severity.WARNING,
            "Mounted file system does not answer",
            "Look at its server; on the node remount it. Processes that wait for it cannot be killed.",
            "statvfs in a child with a time limit",
        ),
        _fault(
            "host_space",
            Severity.INFO,
            "File system is nearly full",
            "Free space on the file system that the message names.",
            "statvfs, blocks and inodes",
        ),
        _fault(
            "clock_wrong",
            Severity.WARNING,
            "Node's clock is wrong",
            "Let NTP set the node's clock (chronyc tracking, timedatectl); the hub's, if many are off.",
            "when the node's bodies were sent and when they reached the hub",
        ),
        _fault(
            "port_errors",
            Severity.WARNING,
            "Network link has physical errors",
            "Reseat or replace the cable or transceiver; check the switch port's counters.",
            "NVSentinel: more than 120 symbol errors in an hour; peers clean",
        ),
        _fault(
            "port_congested",
            Severity.WARNING,
            "Network port drops packets: congestion",
            "Look at what else runs on this leaf, and at its uplinks.",
            "NVSentinel: more than 100 discards per second",
            inferred=True,
        ),
        _fault(
            "switch_down",
            Severity.CRITICAL,
            "Ports of one switch are down on several nodes",
            "Check the leaf switch and its power.",
            "the same port of several nodes went down within a minute",
            inferred=True,
        ),
    ]
)


# Xids that name a fault of their own, so that the code and the lost GPU are one incident.
XID_FAULTS: Mapping[int, str] = {79: "gpu_lost"}


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
