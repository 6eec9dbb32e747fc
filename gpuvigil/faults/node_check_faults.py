"""Faults that only a single look at a node finds: beside `FAULTS`, and `CONDITIONS` (see `symptoms.py`).

Meaning of event reasons, fabric states and recovery actions: the header nvml.h (API version 13).
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
            "Nothing; gpuvigil collect --reattach ends it early.",
            "`gpuvigil collect --release`",
        ),
        _fault(
            "gpu_unsupported",
            Severity.INFO,
            "GPU is from an unsupported vendor and is not read",
            "Nothing; gpuvigil reads NVIDIA's GPUs. Watch this one with its maker's own tools.",
            "the PCI bus: vendors AMD and Intel, without graphics in the processor",
        ),
        _fault(
            "driver_mismatch",
            Severity.CRITICAL,
            "NVIDIA driver and library versions do not match",
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
            "the number given by the caller, `gpuvigil check --gpus N`",
        ),
        _fault(
            "gpu_unreadable",
            Severity.CRITICAL,
            "GPU cannot be read",
            "Drain the node; read the kernel log for this GPU, then reset the GPU.",
            "every NVML call on the GPU fails",
        ),
        _fault(
            "recovery_action",
            Severity.CRITICAL,
            "Driver asks for a recovery of this GPU",
            "Do what it advises.",
            "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (field 230)",
        ),
        _fault(
            "fabric_unhealthy",
            Severity.WARNING,
            "GPU's NVLink fabric is not healthy",
            "Read nvidia-fabricmanager's log for this GPU's routes and links.",
            "nvmlDeviceGetGpuFabricInfoV, health summary",
        ),
        _fault(
            "hw_slowdown",
            Severity.WARNING,
            "GPU is slowed by its hardware",
            "Check power and cooling; if both are well, ask support: it is the fast trigger.",
            "clock event reason 0x8 with neither 0x40 nor 0x80",
        ),
    ]
)
