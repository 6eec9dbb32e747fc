"""The driver library itself, and the identity of each GPU."""

import ctypes
from collections.abc import Callable
from contextlib import suppress

import pynvml

from gpuvigil.gpu_identity import GpuIdentity

from .codes import OF_ALL, DriverError
from .gpu import Gpu

_LIBRARY = "libnvidia-ml.so.1"


def load_library() -> None:
    """Load the library from disk, if present, so that timed calls do not include it."""
    with suppress(OSError):
        ctypes.CDLL(_LIBRARY)


class Driver:
    """The driver library, initialised; its calls may block for as long as the driver likes."""

    def __init__(self) -> None:
        """Initialise the library; DriverError when there is no driver, or it cannot be used."""
        try:
            pynvml.nvmlInit()
            self.version = str(pynvml.nvmlSystemGetDriverVersion())
            self.count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            raise DriverError("nvmlInit", error.value) from None
        self._library = ctypes.CDLL(_LIBRARY)

    def close(self) -> None:
        """Shut the driver down, with everything that is open on it; may block."""
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def has_changed(self) -> bool:
        """Return whether the driver lists another number of GPUs than at the start; may block."""
        try:
            return int(pynvml.nvmlDeviceGetCount()) != self.count
        except pynvml.NVMLError:
            return False

    def gpu(self, index: int) -> Gpu:
        """Return the GPU that NVML lists at `index`; DriverError when it does not answer as one."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            identity = _identity(handle, index)
        except pynvml.NVMLError as error:
            raise DriverError("nvmlDeviceGetHandleByIndex", error.value) from None
        return Gpu(self._library, handle, identity)


def _identity(handle: "ctypes._Pointer[ctypes.Structure]", index: int) -> GpuIdentity:
    """Return the GPU's identity; NVMLError when it does not even give its UUID."""
    return GpuIdentity(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        pci_address=_optional(lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId),
        model=_optional(lambda: pynvml.nvmlDeviceGetName(handle)) or "unknown",
        serial=_optional(lambda: pynvml.nvmlDeviceGetSerial(handle)),
        vbios=_optional(lambda: pynvml.nvmlDeviceGetVbiosVersion(handle)),
        memory_total_bytes=_number(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        part_number=_optional(lambda: pynvml.nvmlDeviceGetBoardPartNumber(handle)),
        inforom=_optional(lambda: pynvml.nvmlDeviceGetInforomImageVersion(handle)),
        gsp_firmware=_optional(lambda: pynvml.nvmlDeviceGetGspFirmwareVersion(handle)),
        minor=_number(lambda: pynvml.nvmlDeviceGetMinorNumber(handle)),
    )


def _number(read: Callable[[], int]) -> int | None:
    try:
        return int(read())
    except pynvml.NVMLError:
        return None


def _optional(read: Callable[[], str | bytes]) -> str | None:
    try:
        return _text(read())
    except pynvml.NVMLError as error:
        if error.value in OF_ALL:
            raise
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
