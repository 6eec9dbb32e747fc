"""A GPU's place in the NVLink fabric: how far it has joined, and which domain it belongs to.

The identity is a cluster's UUID and a clique within it: GPUs that share both reach each other over
NVLink, as those of an NVL72 do. It comes with the call for the fabric's state, and costs no call of
its own. NVIDIA, nvml.h, `nvmlGpuFabricInfoV_t`: clusterUuid, cliqueId.
"""

import ctypes

import pynvml

from ..samples.field_values import NOT_AVAILABLE, Values
from .calls import Calls

_CALL = "nvmlDeviceGetGpuFabricInfoV"
_NUMBERS = {"status": "fabric_status", "state": "fabric_state", "healthMask": "fabric_health_mask"}
# The newest first; an older driver refuses what it does not know.
_VERSIONS = (
    (pynvml.c_nvmlGpuFabricInfo_v3_t, {**_NUMBERS, "healthSummary": "fabric_health"}),
    (pynvml.c_nvmlGpuFabricInfo_v2_t, _NUMBERS),
)

Domain = tuple[str, int]  # a cluster's UUID, and the clique within it


class Fabric:
    """One GPU's place in the fabric; for one thread."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._records = [(structure(), metrics) for structure, metrics in _VERSIONS]
        self.domain: Domain | None = None

    def read(self, values: Values) -> None:
        """Add the driver's fabric values; `domain` stays as it was while the GPU has not joined."""
        for record, metrics in self._records:
            key = f"{_CALL} {type(record).__name__}"
            if not self._calls.call(key, _CALL, ctypes.byref(record)):
                continue
            for member, metric in metrics.items():
                value = getattr(record, member)
                if value not in NOT_AVAILABLE:
                    values[metric] = value
            if record.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED and record.status == 0:
                self.domain = _domain(bytes(record.clusterUuid), record.cliqueId)
            return


def _domain(cluster: bytes, clique: int) -> Domain | None:
    """Return the domain; None for a UUID of zeros, as on a host whose NVLinks lead nowhere else."""
    if not any(cluster):
        return None
    digits = cluster.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts), clique
