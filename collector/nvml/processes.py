"""The processes on a device, read into a reused buffer that grows when needed."""

import ctypes
import struct

import pynvml

from .calls import Calls
from .codes import INSUFFICIENT_SIZE, SUCCESS

COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses_v3"
_PROCESS = struct.Struct("=I4xQII")  # pid, memory, GPU instance, compute instance


class Processes:
    """Reads process ids with one NVML call."""

    def __init__(self, call: str, size: int = 64) -> None:
        self._call = call
        self._count = ctypes.c_uint(0)
        self._buffer = (pynvml.c_nvmlProcessInfo_v2_t * size)()

    def read(self, calls: Calls) -> tuple[int, ...] | None:
        """Return the ids of the processes, sorted; None when the driver does not give them."""
        for _ in range(3):
            self._count.value = len(self._buffer)
            code = calls.code(
                self._call, self._call, calls.handle, ctypes.byref(self._count), self._buffer
            )
            if code == SUCCESS:
                return self._pids()
            if code != INSUFFICIENT_SIZE:
                return None
            self._buffer = (pynvml.c_nvmlProcessInfo_v2_t * (2 * self._count.value + 16))()
        return None

    def _pids(self) -> tuple[int, ...]:
        if not self._count.value:
            return ()
        content = memoryview(self._buffer).cast("B")[: self._count.value * _PROCESS.size]
        return tuple(sorted({pid for pid, *_ in _PROCESS.iter_unpack(content)}))
