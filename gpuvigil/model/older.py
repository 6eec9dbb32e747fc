"""Reads records of the previous version, which say some values in words only. Delete with the next version.

The words here are those written at that time: renaming things today does not change them.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from .cause import Cause, CoveredBy, Uncovered


def cause_in_words(reason: str) -> Cause | None:
    """Return the cause that an older transition or notice gives only in its reason; None if there is none."""
    what = reason.removeprefix("covered by ")
    if what != reason:
        _warn()
        return CoveredBy(fingerprint="", what=what)
    if reason == "no longer covered":
        _warn()
        return Uncovered()
    return None


@cache
def _warn() -> None:
    """Warn once per process: there may be thousands of such records."""
    import logging  # noqa: PLC0415 - the collector's reader carries no logging

    logging.getLogger(__name__).warning(
        "incidents of an older version are read by their words; the next version cannot do that"
    )


def values_in_words(body: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Return the fields that an older incident gives only in its title, label and source."""
    _warn()
    title, fault = str(body["title"]), str(body["fault"])
    code = _CODE.match(title)
    kind = code[1].lower() if code is not None else ""
    condition = _CONDITIONS.get(title, "")
    if fault == "node_silent" and body.get("source") == _IN_ORDER:
        condition = condition or "taken_away"
    if fault == "gpu_slow" and title == "GPU's clocks do not rise under load":
        condition = "gpu_clocks"
    if fault == "gpu_idle_held" and " GPUs held by " in title:
        condition = "several_gpus"
    return {
        "condition": condition or ("half_of_cluster" if title.startswith(_HALF) else ""),
        "xid": int(code[2]) if code is not None and kind == "xid" else None,
        "sxid": int(code[2]) if code is not None and kind == "sxid" else None,
        "group": _group(body, subject),
        "own_limit": _OURS.search(str(body.get("source", ""))) is not None,
        "held_state": next((s for w, s in _HELD if str(body.get("held", "")).startswith(w)), ""),
    }


def _group(body: Mapping[str, Any], subject: str) -> dict[str, str] | None:
    kind, _, name = str(body.get("label", "")).partition(" ")
    of_others = any(not f"{key}/".startswith(f"{subject}/") for key in body.get("members", ()))
    if kind == "cluster" and name:
        return {"kind": kind, "name": name}
    if kind == "rack" and of_others and body["fault"] == "node_silent":
        return {"kind": kind, "name": name}
    return None


_OURS = re.compile(r"\bours\b")
_CODE = re.compile(r"(S?Xid) (\d+)\b")
_HALF = "Half of the cluster or more has the same fault at once"
_HELD = (
    ("deleted from the cluster", "DELETED"),
    ("drained", "DRAIN"),
    ("set to fail", "FAIL"),
    ("cordoned", "CORDONED"),
    ("to be rebooted", "REBOOT"),
    ("to be powered down", "POWER_DOWN"),
)
_IN_ORDER = "the node's own last word, or its scheduler's"
_CONDITIONS: Mapping[str, str] = {
    "GPU's on-chip memory has more errors than the maker bears": "sram_threshold",
    "GPU could not replace a memory row": "remap_failure",
    "GPU's list of retired memory pages is full": "retired_pages",
    "GPU has a memory bank without spare rows": "no_spare_rows",
    "GPU memory corrects errors all the time": "corrected_storm",
    "GPU counted uncorrectable memory errors": "uncorrected_growth",
    "GPU's memory repair waits for a reset": "repair_pending",
    "GPU memory corrects more errors than it used to": "corrected_growth",
    "GPU's PCIe link has lost lanes": "pcie_narrow",
    "GPU's PCIe link runs at a lower generation while it works": "pcie_slow",
    "GPU's PCIe link repeats packets": "pcie_replays",
    "GPU has fewer NVLinks up than its peers": "nvlink_down",
    "GPU's NVLinks repeat and recover": "nvlink_recovery",
    "GPU's NVLinks receive broken flits": "nvlink_crc",
    "GPU is so hot that its hardware slows it down": "hardware_thermal",
    "GPU is several times hotter than its power explains: its cooling is lost": "cooling",
    "GPU is over its operating temperature": "software_thermal",
    "GPU is hotter than its power and its neighbours explain": "heatsink",
    "Several GPUs of the node are hotter than elsewhere: a fan": "node_hot",
    "Nodes of one rack are hotter than elsewhere: its inlet air": "rack_hot",
    "GPUs are slowed by the power brake": "power_brake",
    "Nodes of one rack are slowed by the power brake": "power_feed",
    "GPU's power limit was lowered": "power_limit",
    "ECC is off on this GPU alone": "ecc_off",
    "MIG is on on this GPU alone": "mig_on",
    "GPU has another VBIOS version than its kin": "vbios_odd",
    "Node is dead: its jobs end with it": "dead",
    "Collector does not report: the node's jobs go on": "collector",
    "Node is dead or cut off: its scheduler does not hear it either": "unheard",
    "Idle nodes left one by one: scaled down?": "scaled_down",
    "Rack's nodes are dead: power, or what stopped them all": "rack_power",
    "Rack's nodes cannot reach the hub: their jobs go on": "rack_network",
    "Rack stopped reporting: power or network": "rack_either",
    "gpuvigil receives no data from half of the cluster or more": "not_received",
    "Collector was stopped: nobody watches this node": "stopped",
    "Node was shut down in order": "shut_down",
    "Node was to reboot, and is not back": "not_back",
    "Node was down: it has booted since": "was_down",
    "Node was rebooted while nobody held it": "was_rebooted",
    "Collector did not report: its node was up": "did_not_report",
    "Node could not reach the hub: its numbers came later": "cut_off",
    "Rack's nodes were down: they have booted since": "rack_was_down",
    "Rack's nodes did not report: they were up": "rack_did_not_report",
    "Rack's nodes could not reach the hub: their numbers came later": "rack_cut_off",
    "Node lost all its fabric ports": "no_fabric",
    "Nodes lost their fabric ports at once": "ports_at_once",
    "Job says that it makes no steps any more": "no_steps",
    "Node slows its job down": "whole_node",
}
