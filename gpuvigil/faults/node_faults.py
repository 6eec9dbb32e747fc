"""What one look at a node can find wrong, beside `gpuvigil.faults.FAULTS`: no history is needed.

The meaning of ECC, remapping and retirement: NVIDIA, "A100 GPU memory error management". The
meaning of event reasons, fabric states and recovery actions: the header nvml.h (API version 13).
"""

from ..model import Severity
from . import Described


def _fault(
    key: str, severity: Severity, title: str, action: str, source: str
) -> tuple[str, Described]:
    return key, Described(
        key=key, severity=severity, title=title, action=action, source=source, own_limit=False
    )


NODE_FAULTS: dict[str, Described] = dict(
    [
        _fault(
            "driver_released",
            Severity.INFO,
            "GPUs are released for maintenance and not looked at",
            "Nothing; `gpuvigil collect --reattach` ends it early.",
            "`gpuvigil collect --release`",
        ),
        _fault(
            "gpu_unsupported",
            Severity.INFO,
            "GPU of a maker that is not supported: it is not read",
            "Nothing; gpuvigil reads NVIDIA's GPUs. Watch this one with its maker's own tools.",
            "the PCI bus: vendors AMD and Intel, without graphics in the processor",
        ),
        _fault(
            "driver_mismatch",
            Severity.CRITICAL,
            "NVIDIA driver and its library are of different versions",
            "Drain the node and reboot it, so that the module of the installed version is loaded.",
            "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        ),
        _fault(
            "driver_unusable",
            Severity.CRITICAL,
            "NVIDIA driver cannot be used",
            "Drain the node; read the kernel log for what the driver says, then load it again or reboot.",
            "nvmlInit failed although the PCI bus has NVIDIA GPUs",
        ),
        _fault(
            "too_few_gpus",
            Severity.CRITICAL,
            "Node has fewer GPUs than it must have",
            "Drain the node and reboot it; if a GPU is still missing, check power and seating.",
            "the number that whoever asks gives, `gpuvigil check --gpus N`",
        ),
        _fault(
            "gpu_unreadable",
            Severity.CRITICAL,
            "GPU cannot be read",
            "Drain the node; read the kernel log for this GPU, then reset the GPU.",
            "every NVML call on the GPU fails",
        ),
        _fault(
            "ecc_uncorrected",
            Severity.WARNING,
            "GPU had uncorrectable memory errors since its last reset",
            "Reset the GPU when no job runs; if the count grows again, run the field diagnostic.",
            "nvmlDeviceGetTotalEccErrors, volatile; azurehpc-health-checks fails at any",
        ),
        _fault(
            "sram_threshold",
            Severity.CRITICAL,
            "GPU's on-chip memory has more uncorrectable errors than the maker bears",
            "Drain the node, run the field diagnostic, and have the GPU replaced when it confirms.",
            "nvmlDeviceGetSramEccErrorStatus, threshold flag (only root may read it)",
        ),
        _fault(
            "remap_failed",
            Severity.CRITICAL,
            "GPU could not replace a memory row",
            "Drain the node, run the field diagnostic, and have the GPU replaced when it confirms.",
            "row remapping failure (field 145)",
        ),
        _fault(
            "repair_pending",
            Severity.WARNING,
            "GPU's memory repair waits for a reset",
            "Reset the GPU when no job runs; until then work may go on.",
            "row remapping pending (field 144), bank remapping (307), nvmlDeviceGetRepairStatus",
        ),
        _fault(
            "retirement_pending",
            Severity.WARNING,
            "GPU's page retirement waits for a reboot",
            "Reset the GPU or reboot the node when no job runs.",
            "retired pages pending (field 31)",
        ),
        _fault(
            "spare_rows_used_up",
            Severity.WARNING,
            "GPU has a memory bank without spare rows",
            "Plan its replacement: the next bad row there cannot be replaced.",
            "nvmlDeviceGetRowRemapperHistogram, banks with none left",
        ),
        _fault(
            "recovery_action",
            Severity.CRITICAL,
            "GPU's driver asks for a recovery",
            "Do what it advises.",
            "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (field 230)",
        ),
        _fault(
            "fabric_not_ready",
            Severity.CRITICAL,
            "GPU has not joined the NVLink fabric",
            "Look at nvidia-fabricmanager and its log; CUDA programs cannot start until it is done.",
            "nvmlDeviceGetGpuFabricInfoV; CUDA_ERROR_SYSTEM_NOT_READY",
        ),
        _fault(
            "fabric_unhealthy",
            Severity.WARNING,
            "GPU's NVLink fabric is not healthy",
            "Read nvidia-fabricmanager's log for this GPU's routes and links.",
            "nvmlDeviceGetGpuFabricInfoV, health summary",
        ),
        _fault(
            "pcie_narrow",
            Severity.WARNING,
            "GPU's PCIe link has lost lanes",
            "Reseat the GPU or its riser when the node is free; half the lanes are half the bandwidth.",
            "nvmlDeviceGetCurrPcieLinkWidth below nvmlDeviceGetMaxPcieLinkWidth",
        ),
        _fault(
            "pcie_slow",
            Severity.WARNING,
            "GPU's PCIe link runs at a lower generation while it works",
            "Check the slot's speed in the firmware, reseat the GPU or its riser when the node is free.",
            "current below maximum generation under load; an idle link may save power",
        ),
        _fault(
            "nvlink_down",
            Severity.WARNING,
            "GPU has fewer NVLinks up than its peers",
            "Drain the node, check the links' seating, then reset the GPU.",
            "NVLink state (field 165) against GPUs of the same model on this node",
        ),
        _fault(
            "power_brake",
            Severity.WARNING,
            "GPU is slowed by the power brake",
            "Check the power supplies and the rack's feed: the brake is asserted from outside the GPU.",
            "clock event reason 0x80, HW power brake",
        ),
        _fault(
            "hw_thermal_slowdown",
            Severity.WARNING,
            "GPU is slowed because it is too hot",
            "Check fans, heat sink and inlet temperature; its clocks are at half or less.",
            "clock event reason 0x40, HW thermal slowdown",
        ),
        _fault(
            "hw_slowdown",
            Severity.WARNING,
            "GPU is slowed by its hardware",
            "Check power and cooling; if both are well, ask support: it is the fast trigger.",
            "clock event reason 0x8 with neither 0x40 nor 0x80",
        ),
        _fault(
            "sw_thermal_slowdown",
            Severity.INFO,
            "GPU is over its operating temperature",
            "Compare it with its neighbours: one hot GPU is its heat sink, all of them are the inlet.",
            "clock event reason 0x20, SW thermal slowdown; a fault only when it lasts",
        ),
    ]
)
