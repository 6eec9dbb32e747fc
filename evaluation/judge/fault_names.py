"""The fault that a claim names, and the step with which its advice begins.

A claim has the right cause when it names the fault itself, not a consequence: a silent node follows from a dead node
as well as from a dead collector, and so "silent" names neither.
"""

import re
from collections.abc import Mapping

from gpuvigil.faults import FAULTS, Blame, where
from gpuvigil.silence_conditions import NodeSilence
from simulator.fleet import Truth

from .claims import IncidentText

# By condition (`gpuvigil.faults.conditions`), where a fault has several.
_BY_CONDITION: Mapping[str, frozenset[str]] = {
    "sram_threshold": frozenset({"SRAM threshold"}),
    "remap_failure": frozenset({"remap failure"}),
    "retired_pages": frozenset({"retired pages"}),
    "corrected_storm": frozenset({"SBE storm"}),
    "uncorrected_growth": frozenset({"ECC contained", "ECC uncontained"}),
    "repair_pending": frozenset({"remap pending"}),
    "corrected_growth": frozenset({"SBE growth"}),
    "pcie_narrow": frozenset({"PCIe width"}),
    "pcie_slow": frozenset({"PCIe generation"}),
    "pcie_replays": frozenset({"PCIe replays"}),
    "nvlink_down": frozenset({"NVLink down"}),
    "nvlink_recovery": frozenset({"NVLink replay"}),
    "nvlink_crc": frozenset({"NVLink CRC"}),
    "hardware_thermal": frozenset({"HW thermal"}),
    "cooling": frozenset({"HW thermal"}),
    # The same loss of cooling at a smaller load: software slows the core before the hardware has to.
    "software_thermal": frozenset({"heatsink", "HW thermal"}),
    "heatsink": frozenset({"heatsink"}),
    "node_hot": frozenset({"fan"}),
    "rack_hot": frozenset({"rack inlet"}),
    # Without a sensor of its own, a missing power supply shows only as a power brake.
    "power_brake": frozenset({"power brake", "PSU"}),
    "power_feed": frozenset({"power feed"}),
    "power_limit": frozenset({"lowered power limit"}),
    "ecc_off": frozenset({"ECC mode drift"}),
    "mig_on": frozenset({"MIG mode drift"}),
    "vbios_odd": frozenset({"VBIOS drift"}),
}
# What a silent node has is decided by its jobs' states in the scheduler, and by whether it has booted since.
_SILENT: Mapping[str, frozenset[str]] = {
    NodeSilence.DEAD: frozenset({"dead node"}),
    NodeSilence.UNHEARD: frozenset({"dead node"}),
    NodeSilence.WAS_DOWN: frozenset({"dead node"}),
    NodeSilence.COLLECTOR: frozenset({"dead collector", "cut off"}),
    NodeSilence.DID_NOT_REPORT: frozenset({"dead collector"}),
    NodeSilence.CUT_OFF: frozenset({"cut off"}),
}
# By Xid, as NVIDIA's catalogue describes the codes.
_BY_XID: Mapping[int, frozenset[str]] = {
    48: frozenset({"ECC uncontained"}),
    62: frozenset({"GSP hang"}),
    63: frozenset({"remap pending", "ECC contained"}),
    64: frozenset({"remap failure"}),
    74: frozenset({"NVLink down", "NVLink CRC", "NVLink replay"}),
    79: frozenset({"off the bus"}),
    92: frozenset({"SBE storm", "SBE growth"}),
    93: frozenset({"InfoROM"}),
    94: frozenset({"ECC contained"}),
    95: frozenset({"ECC uncontained"}),
    119: frozenset({"GSP hang"}),
    120: frozenset({"GSP hang"}),
    149: frozenset({"NVLink down"}),
    # The memory that fails; whether it failed too often is in a counter alone, which not every node reads.
    172: frozenset({"SRAM threshold"}),
}
# Claims about how a GPU is used, well or badly: they concern its holder, not broken hardware.
OF_USE = where(lambda row: row.blame in {Blame.HOLDER, Blame.USE, Blame.PROGRAM})
# A baseline's claim about one of these codes counts too, whatever else its rule covers: NVIDIA's catalogue
# attributes them to the program first.
_OF_PROGRAMS = frozenset({13, 31, 43, 45})
# In the fault of a baseline's claim, this separates the rule's name from the kinds it names.
NAMING = " -> "


def is_of_use(fault: str, said: IncidentText) -> bool:
    """Return whether a claim is about a program or a GPU's holder; such claims are not judged for any detector set."""
    return fault in OF_USE or (NAMING in fault and said.xid in _OF_PROGRAMS)


def names(fault: str, said: IncidentText) -> frozenset[str]:
    """Return the kinds of fault that a claim names; none when it only states that something is wrong."""
    if NAMING in fault:
        return frozenset(filter(None, fault.partition(NAMING)[2].split("|")))
    if said.condition in _BY_CONDITION:
        return _BY_CONDITION[said.condition]
    if said.condition in _SILENT:
        return _SILENT[said.condition]
    # Slowness whose cause can be named.
    row = FAULTS.get(said.condition) or FAULTS.get(fault)
    if row is None:
        return frozenset()
    if row.by_xid:
        return _BY_XID.get(said.xid or 0, frozenset())
    return frozenset(row.simulated_as)


def is_named(truth: Truth, fault: str, said: IncidentText) -> bool:
    """Return whether a claim names this fault itself."""
    if truth.named_by:
        return not {fault, said.condition}.isdisjoint(truth.named_by)
    return truth.fault in names(fault, said)


# Words by which each advised step is recognised; "drain" precedes all of them.
_STEPS: Mapping[str, str] = {
    "reboot": r"\breboot",
    "reset": r"\breset",
    "replace": r"field diagnostic|\breplace",
    "program": r"restart the program|end the job|end the process|check the program",
    "support": r"\bsupport\b",
    "cable": r"\bcable|transceiver|riser",
    "switch": r"leaf|switch port",
    "cooling": r"heatsink|heat sink|\bfan|inlet|airflow|cooling",
    "power": r"power suppl|power feed|check power",
    "limit": r"power limit",
    "ecc": r"\becc on\b",
    "mig": r"\bmig off\b",
    "driver": r"driver version",
    "fabric": r"restart the fabric manager",
    "benchmark": r"benchmark",
    "watch": r"\bwatch it",
    "order": r"compare with the order",
    "collector": r"collector's log|gpuvigil collect`? runs",
    "console": r"console|node is up",
    "space": r"free space",
    "mount": r"remount",
}
_PREFACE = re.compile(r"^Right before the reset run .*? on the node\. ")


def steps(action: str) -> tuple[bool, str | None]:
    """Return whether the advice drains the node, and the first step after that; None where no step is recognised."""
    text = _PREFACE.sub("", action).lower()
    found = [
        (match.start(), name) for name, how in _STEPS.items() if (match := re.search(how, text))
    ]
    return "drain" in text, min(found)[1] if found else None
