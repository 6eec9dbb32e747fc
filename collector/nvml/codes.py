"""What the driver's return codes mean for us."""

import pynvml

from gpuvigil.errors import SensorError
from gpuvigil.model import Unmeasured

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
# The same answer is to be expected in the next tick, so the call waits for the next slow one: a
# change of the MIG mode, say, may turn "not supported" into a number.
REFUSALS = {
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}
# These are said of the whole GPU, or of the whole driver: the rest of the sweep is in vain.
OF_ALL = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_UNINITIALIZED,
}


class DriverError(SensorError):
    """A driver call failed; `reason` says why numbers are absent."""

    def __init__(self, call: str, code: int) -> None:
        self.reason = _REASONS.get(code, Unmeasured.READ_ERROR)
        self.code = code
        super().__init__(f"{call}: {self.reason.text} (NVML code {code})")
