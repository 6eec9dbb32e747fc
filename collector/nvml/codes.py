"""The meaning of the driver's return codes for the collector."""

import pynvml

from gpuvigil.errors import SensorError
from gpuvigil.gpu_identity import Unmeasured

SUCCESS: int = pynvml.NVML_SUCCESS
NOT_SUPPORTED: int = pynvml.NVML_ERROR_NOT_SUPPORTED
FUNCTION_NOT_FOUND: int = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
INSUFFICIENT_SIZE: int = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Unmeasured.NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Unmeasured.NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: Unmeasured.NO_PERMISSION,
    pynvml.NVML_ERROR_GPU_IS_LOST: Unmeasured.LOST,
    pynvml.NVML_ERROR_TIMEOUT: Unmeasured.DRIVER_NOT_ANSWERING,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Unmeasured.DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Unmeasured.DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_UNINITIALIZED: Unmeasured.DRIVER_NOT_LOADED,
}
# Codes that the next tick would return again, so the call waits for the next slow tick: a change
# of the MIG mode, say, may turn "not supported" into a number.
REFUSALS = {
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}
# Codes that concern the whole GPU or the whole driver: the rest of the sweep is useless.
OF_ALL = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_UNINITIALIZED,
}


class DriverError(SensorError):
    """A driver call failed; `reason` says why values are absent."""

    def __init__(self, call: str, code: int) -> None:
        self.reason = _REASONS.get(code, Unmeasured.READ_ERROR)
        self.code = code
        super().__init__(f"{call}: {self.reason.text} (NVML code {code})")
