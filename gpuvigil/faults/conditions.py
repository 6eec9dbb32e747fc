"""The conditions that a detector may name for a fault: a row per condition, each with its source.

A fault of `gpuvigil.faults.FAULTS` is one incident on its subject, whatever conditions support it;
the most severe one gives title, severity, first action and source.
"""

from ..model import Severity
from . import Described

_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO
_REPLACE = "Drain the node, run the field diagnostic, and have the GPU replaced when it confirms."
_MEMORY = "NVIDIA, A100 GPU memory error management"

# Columns: key, severity, title, first action, source.
_TABLE: tuple[tuple[str, Severity, str, str, str], ...] = (
    # gpu_memory
    (
        "sram_threshold",
        _CRITICAL,
        "GPU's on-chip memory is past NVIDIA's error limit",
        _REPLACE,
        "nvmlDeviceGetSramEccErrorStatus, threshold flag (only root may read it)",
    ),
    (
        "remap_failure",
        _CRITICAL,
        "GPU failed to remap a memory row",
        _REPLACE,
        f"{_MEMORY}: row remapping failure (field 145)",
    ),
    (
        "retired_pages",
        _CRITICAL,
        "GPU's list of retired memory pages is full",
        _REPLACE,
        "DCGM health",
    ),
    (
        "no_spare_rows",
        _WARNING,
        "GPU has a memory bank without spare rows",
        "Plan its replacement: the next bad row there cannot be replaced.",
        f"{_MEMORY}: row remapper histogram",
    ),
    (
        "rows_replaced",
        _WARNING,
        "GPU replaces memory rows one after another",
        _REPLACE,
        "nvmlDeviceGetRemappedRows; three in two hours is ours",
    ),
    (
        "corrected_storm",
        _WARNING,
        "GPU memory corrects errors continuously",
        _REPLACE,
        "NVIDIA Xid catalogue, Xid 92; one a second for a minute is ours",
    ),
    (
        "uncorrected_growth",
        _WARNING,
        "GPU counted uncorrectable memory errors",
        "Drain the node, then reset the GPU; if the count grows again, run the field diagnostic.",
        f"{_MEMORY}; nvmlDeviceGetTotalEccErrors, volatile; azurehpc-health-checks fails at any",
    ),
    (
        "repair_pending",
        _INFO,
        "GPU's memory repair waits for a reset",
        "Reset the GPU when no job runs; until then work may go on.",
        f"{_MEMORY}: remapping pending (field 144), retired pages pending (field 31), repair status",
    ),
    (
        "corrected_growth",
        _INFO,
        "GPU memory corrects more errors than it used to",
        "Watch it; run the field diagnostic at the next maintenance.",
        "ours: three in half an hour, where a healthy GPU has a few in a week",
    ),
    # gpu_pcie
    (
        "pcie_narrow",
        _WARNING,
        "GPU's PCIe link has lost lanes",
        "Drain the node; reseat the GPU or its riser.",
        "nvmlDeviceGetCurrPcieLinkWidth below nvmlDeviceGetMaxPcieLinkWidth",
    ),
    (
        "pcie_slow",
        _WARNING,
        "GPU's PCIe link runs at a lower generation while it works",
        "Drain the node; reseat the GPU or its riser.",
        "current below maximum generation under load; an idle link may save power",
    ),
    (
        "pcie_replays",
        _WARNING,
        "GPU's PCIe link repeats packets",
        "Drain the node; check seating, riser and power.",
        "DCGM: a bit error rate of 1e-12, per lane and generation",
    ),
    # node_crashes
    (
        "kernel_crashed",
        _WARNING,
        "Node's kernel crashed",
        "Read why at the end of the log in its dump, and its service processor's event log (ipmitool sel list), before"
        " it gets another job.",
        "a dump of kdump or of the firmware, newer than the boot before, and no word that the node goes down",
    ),
    # driver_silent
    (
        "driver_unread",
        _WARNING,
        "GPUs of a node are no longer read, though the node is",
        "See whether nvidia-smi answers on the node; if it does, start the GPUs' exporter again.",
        "ours",
    ),
    # gpu_lost
    (
        "gpu_unread",
        _WARNING,
        "GPU is no longer read, though the others of its node are",
        "Look for it on the node (nvidia-smi -L, lspci); if it is gone, drain the node and reboot it.",
        "ours; missing samples as the sign: GWDG, When GPUs fail quietly",
    ),
    # gpu_nvlink
    (
        "nvlink_down",
        _WARNING,
        "GPU has fewer NVLinks up than its peers",
        "Drain the node and reset the GPU; if it comes back, ask support.",
        "NVLink state (field 165) against the node's GPUs of the same model",
    ),
    (
        "nvlink_fell",
        _WARNING,
        "GPU has fewer NVLinks up than before",
        "Drain the node and reset the GPU; if it comes back, ask support.",
        "NVLink state (field 165) against its own past; reported by several nodes of one domain",
    ),
    (
        "nvlink_recovery",
        _WARNING,
        "GPU's NVLinks repeat and recover",
        "Drain the node and reset the GPU; if it comes back, ask support.",
        "DCGM health: any replay or recovery; three in half an hour is ours",
    ),
    (
        "nvlink_crc",
        _WARNING,
        "GPU's NVLinks receive broken flits",
        "Drain the node and reset the GPU; if it comes back, ask support.",
        "DCGM health warns at 1 CRC error per second; ten in half an hour is ours",
    ),
    (
        "nvlink_uneven",
        _INFO,
        "GPU sends far less over NVLink than its job's other GPUs",
        "Compare its link errors with those of its neighbours; ask the job's owner whether its rank does something else.",
        "ours: half of what its peers send for the same received, since its job goes slower",
    ),
    # gpu_hot
    (
        "hardware_thermal",
        _CRITICAL,
        "GPU is too hot: its hardware slows it down",
        "Drain the node; check fans, heatsink and the inlet temperature.",
        "nvml.h, clock event reason 0x40, HW thermal slowdown",
    ),
    (
        "cooling",
        _WARNING,
        "GPU is too hot: it has lost its cooling",
        "Drain the node; check fans, heatsink and the inlet temperature.",
        "ours: degrees per watt against the cluster's other GPUs of the model",
    ),
    (
        "software_thermal",
        _WARNING,
        "GPU is too hot: over its operating temperature",
        "Check the GPU's heatsink, its seating and the airflow.",
        "nvml.h, clock event reason 0x20, SW thermal slowdown",
    ),
    (
        "heatsink",
        _WARNING,
        "GPU is too hot: hotter than its power and its neighbours explain",
        "Check the GPU's heatsink, its seating and the airflow.",
        "ours: degrees per watt against the cluster's other GPUs of the model",
    ),
    (
        "memory_hot",
        _WARNING,
        "GPU's memory is too hot: hotter than its core and its neighbours explain",
        "Check the GPU's heatsink, its seating and its thermal pads.",
        "ours: nvml.h's MEMORY_TEMP beside the core's, against the cluster's other GPUs of the model",
    ),
    (
        "node_hot",
        _WARNING,
        "Several GPUs of one node run hot",
        "Look at what cools the node: its fans or pump, filters and airflow, and the heatsinks' paste.",
        "ours: degrees per watt against the cluster's other GPUs of the model",
    ),
    (
        "rack_hot",
        _WARNING,
        "Nodes of one rack run hot: its inlet air is too warm",
        "Check the rack's cooling.",
        "ours: degrees per watt against the cluster's other GPUs of the model",
    ),
    # gpu_sensor
    (
        "temperature_stuck",
        _INFO,
        "GPU's temperature sensor is stuck",
        "Do not trust its temperature: nobody sees it get too hot. When no job runs on the node, reset the GPU.",
        "ours: a core follows its power within minutes, and at work is warmer than its air",
    ),
    # gpu_power
    (
        "power_brake",
        _CRITICAL,
        "GPUs are slowed by the power brake",
        "Check the node's power supplies and cables.",
        "nvml.h, clock event reason 0x80, HW power brake",
    ),
    (
        "power_feed",
        _CRITICAL,
        "Nodes of one rack are slowed by the power brake",
        "Check the rack's power feed.",
        "nvml.h, clock event reason 0x80; many nodes at once are the facility",
    ),
    (
        "power_limit",
        _INFO,
        "GPU's power limit was lowered",
        "Set the power limit back to its default.",
        "nvmlDeviceGetEnforcedPowerLimit below nvmlDeviceGetPowerManagementDefaultLimit; peers not",
    ),
    (
        "node_power_limit",
        _INFO,
        "Power limits of a node's GPUs were lowered",
        "If nobody capped the node's power, set its GPUs' limits back to their default.",
        "nvmlDeviceGetEnforcedPowerLimit below nvmlDeviceGetPowerManagementDefaultLimit; other nodes' not",
    ),
    (
        "rack_power_limit",
        _INFO,
        "Power limits of a rack's nodes were lowered",
        "If nobody gave the rack a power budget, set its GPUs' limits back to their default.",
        "nvmlDeviceGetEnforcedPowerLimit below nvmlDeviceGetPowerManagementDefaultLimit; other racks' not",
    ),
    # port_down
    (
        "no_subnet_manager",
        _WARNING,
        "InfiniBand port has a link but no subnet manager",
        "Check that the subnet manager (opensm, UFM) runs and reaches this port; the cable is sound.",
        "Linux, sysfs-class-infiniband: physical state 5 is link up; only a subnet manager makes a port active",
    ),
    (
        "uplink_down",
        _WARNING,
        "Link between two switches is down",
        "Check the cable between these two switch ports.",
        "iblinkinfo(8): it had a link, both switches answer, and two looks saw none",
    ),
    (
        "uplinks_down",
        _WARNING,
        "Several links between switches are down",
        "Check what these links share: a switch, its line card or power, a bundle of cables.",
        "iblinkinfo(8): they had links, their switches answer, and two looks saw none",
    ),
    (
        "leaf_cut_off",
        _CRITICAL,
        "Leaf switch has lost all links to other switches",
        "Check the leaf's uplink ports and cables, then the spines at their other ends.",
        "iblinkinfo(8): they had links, their switches answer, and two looks saw none",
    ),
    # port_congested
    (
        "shaped",
        _WARNING,
        "Traffic shaper on the node slows a network port",
        "Find who set the limit (tc qdisc show on the node lists it; CNI bandwidth annotations set one).",
        "qdisc overlimits (Linux, include/uapi/linux/gen_stats.h)",
    ),
    (
        "slow_link",
        _WARNING,
        "Network link to the switch is too slow for its traffic",
        "Check the switch port: its speed, limits (policer, shaper), errors, and what else it carries.",
        "tcp_info (Linux, include/uapi/linux/tcp.h): round trips to and from this port alone take longer",
    ),
    # switch_congested
    (
        "nodes_wait",
        _WARNING,
        "Network congestion slows several nodes",
        "Check what these ports share: the spines, the links to them, and the jobs that send there.",
        "ours: as of a leaf switch, and the same jobs wait at others or on other rails, too",
    ),
    # port_packet_loss
    (
        "leaf_loses",
        _WARNING,
        "Several nodes of one leaf switch lose packets",
        "Check error counters at both ends of the leaf's uplinks; replace the cable that has errors.",
        "ours: as of one port, at several nodes with one leaf at once",
    ),
    (
        "nodes_lose",
        _WARNING,
        "Packets get lost between several nodes",
        "Check error counters of the links between these nodes' leaf switches and the spines; replace the cable that has errors.",
        "ours: as of one port, at several nodes with a leaf or a job in common at once",
    ),
    # port_degraded
    (
        "pcie_starved",
        _WARNING,
        "PCIe link of a network card is slower than its port",
        "Drain the node; reseat the card or its riser, then look at the slot's link speed in the BIOS.",
        "Linux, PCI link speed and width of card and slot from sysfs; ours: most peers have more",
    ),
    # port_errors
    (
        "corrects_more",
        _INFO,
        "Network link corrects many more bit errors than before",
        "No packet is lost yet: clean or reseat the cable or transceiver at the next maintenance, and replace it if"
        " that does not help.",
        "Linux, mlx5 counters.rst: rx_corrected_bits_phy; ours: a hundredth of what IEEE 802.3 allows before FEC, ten"
        " times as many as before, a hundred times as many as its peers",
    ),
    # port_ecn
    (
        "pfc_one_sided",
        _INFO,
        "PFC is set up on one side of a link only",
        "Set up PFC for the same priorities at both ends of the link; the evidence says which end lacks it.",
        "IEEE 802.1Qbb, both ends count pauses; ours: 1 % of the time or 1,000 frames, and the other end counts none",
    ),
    (
        "cnp_ignored",
        _INFO,
        "RoCE port ignores congestion notifications",
        "Enable ECN on the host (DCQCN: reaction point), as it is on the hosts that it sends to.",
        "Linux, mlx5 counters.rst: rp_cnp_ignored; ours: 1,000 in half an hour, ten times as many as were obeyed",
    ),
    # host_power
    (
        "feed_failed",
        _WARNING,
        "Power feed failed or is overloaded",
        "Check the PDU or feed that the message names, before a second one fails.",
        "as the site's exporter and mapping file say",
    ),
    # host_fan
    (
        "coolant",
        _WARNING,
        "Liquid cooling is outside its limits",
        "Check what the message names: pump, flow, leaks, and the temperature of the supply.",
        "as the site's exporter and mapping file say",
    ),
    # port_miswired
    (
        "no_uplink",
        _INFO,
        "Leaf switch has no uplink",
        "Connect the leaf to the spines as the others are; until then jobs cross it only between its own hosts.",
        "ours: no cable to another switch was ever seen, at least half of the leaves have one, and everybody at it is known",
    ),
    # switch_down
    (
        "switch_lost",
        _CRITICAL,
        "Switch does not answer",
        "Check the switch and its power.",
        "ibnetdiscover(8): it answered before, most others do, and two looks did not find it",
    ),
    # gpu_settings
    (
        "ecc_off",
        _WARNING,
        "ECC is off on this GPU alone",
        "Drain the node; switch ECC on, then reset the GPU.",
        "nvmlDeviceGetEccMode against the node's other GPUs",
    ),
    (
        "ecc_off_node",
        _WARNING,
        "ECC is off on GPUs of this node",
        "Drain the node; switch ECC on, then reset all its GPUs.",
        "nvmlDeviceGetEccMode against the cluster's GPUs of the model",
    ),
    (
        "mig_on",
        _INFO,
        "MIG is enabled on this GPU alone",
        "If nobody wants it, drain the node; switch MIG off, then reset the GPU.",
        "nvmlDeviceGetMigMode against the node's other GPUs",
    ),
    (
        "vbios_odd",
        _INFO,
        "GPU's VBIOS version differs from its peers'",
        "Bring the GPU to the VBIOS version of its peers.",
        "nvmlDeviceGetVbiosVersion against the cluster's GPUs of the model",
    ),
)

# Conditions whose limit is gpuvigil's own and no vendor's.
_OWN_LIMITS = frozenset(
    {
        *("corrected_storm", "corrected_growth", "rows_replaced"),
        *("nvlink_recovery", "nvlink_crc", "nvlink_uneven"),
        *("cooling", "heatsink", "memory_hot", "node_hot", "rack_hot"),
        *(
            "pcie_starved",
            "pfc_one_sided",
            "cnp_ignored",
            "corrects_more",
            "no_uplink",
            "nodes_wait",
            "leaf_loses",
            "nodes_lose",
        ),
        *("gpu_unread", "driver_unread", "temperature_stuck"),
    }
)

CONDITIONS: dict[str, Described] = {
    key: Described(
        key=key,
        severity=severity,
        title=title,
        action=action,
        source=source,
        own_limit=key in _OWN_LIMITS,
    )
    for key, severity, title, action, source in _TABLE
}
