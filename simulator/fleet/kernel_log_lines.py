"""Kernel log lines of a fault, in the form that collectors carry as an event's message.

The forms are the driver's (open kernel modules) as `collector.kernel_log.event_book` reports them: `Xid 79:
GPU has fallen off the bus. [0000:1b:00.0]`. Numbers that differ from case to case are drawn at random.
"""

from collections.abc import Mapping
from typing import Any

from .chance import Dice

# Words of NV2080_CTRL_GPU_RECOVERY_ACTION (driver R555 and later).
RESET_GPU, REBOOT, DRAIN_AND_RESET = "GPU Reset Required", "Node Reboot Required", "Drain and Reset"
_ACTIONS = {RESET_GPU: 1, REBOOT: 2, DRAIN_AND_RESET: 4}

_TEXTS: Mapping[int, str] = {
    13: "Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM {sm}): Out Of Range Address",
    31: "Ch {channel:08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC{gpc} GPCCLIENT_T1_{tpc}"
    " faulted @ 0x7f{page:02x}_{channel:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "Ch {channel:08x}",
    45: "Ch {channel:08x}",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at"
    " partition {gpc}, subpartition {sm}.",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Error writing a row remapping entry to the InfoROM.",
    74: "NVLink: fatal error detected on link {link}({registers})",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate.",
    93: "Non-fatal violation of provisioned InfoROM wear limit.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: FBHUB (0xe). RST: Yes, D-RST: No",
    119: "Timeout after 6s of waiting for RPC response from GPU{index} GSP! Expected function 76"
    " (GSP_RM_CONTROL) (0x20800a4c 0x4).",
    149: "NETIR_LINK_EVT Fatal XC0 i0 Link {link:02d} (0x004505c6 0x0 0x0 0x0 0x0 0x0)",
    154: "GPU recovery action changed from 0x0 (None) to {action}",
    172: "Uncorrectable SRAM error.",
}
# Bits of NVLink's error registers 1 and 4: a hardware fault of this link, and the echo of one
# elsewhere in the fabric.
OWN_FAULT = "0x0, 0x100, 0x0, 0x0, 0x0, 0x0, 0x0"
ECHO = "0x0, 0x0, 0x0, 0x0, 0x40000, 0x0, 0x0"


def xid(code: int, index: int, address: str, dice: Dice, **words: Any) -> str:
    """Return the message of an Xid of the GPU with that index and PCI address.

    `words` fill the code's text: the `link`, its `registers`, the `action`; and the `process` that had the Xid.
    """
    action = words.get("action", RESET_GPU)
    text = _TEXTS[code].format(
        gpc=dice.below(8),
        tpc=dice.below(9),
        sm=dice.below(2),
        channel=dice.below(1 << 12),
        page=dice.below(256),
        index=index,
        link=words.get("link", 0),
        registers=words.get("registers", OWN_FAULT),
        action=f"0x{_ACTIONS[action]:x} ({action})",
    )
    process = words.get("process")
    by = "" if process is None else f", {process} (pid {4000 + dice.below(60_000)})"
    return f"Xid {code}: {text} [{address}{by}]"


def sxid(code: int, link: int) -> str:
    """Return the message of a fatal SXid of a node's first NVSwitch."""
    return f"SXid {code}: fatal: Link {link} uc uncorrectable error [nvswitch0, 0000:05:00.0]"


def bus_error(address: str, severity: str) -> str:
    """Return the message of the kernel's PCI core for an error of the device at an address."""
    return f"PCIe error: AER: {severity} error, type=Data Link Layer, (Receiver ID) [{address}]"


def memory_error(slot: str) -> str:
    """Return the message of EDAC for a corrected error of host memory."""
    return f"machine check: EDAC MC0: 1 CE memory read error on {slot} (channel:1 slot:0)"
