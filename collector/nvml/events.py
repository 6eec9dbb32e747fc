"""The driver's Xid events."""

import ctypes

import pynvml

from .codes import DriverError
from .gpu import Gpu


class Events:
    """The driver's Xid events; `wait` is for one thread of its own."""

    def __init__(self) -> None:
        """Create the event set; DriverError when the driver has no events."""
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            raise DriverError("nvmlEventSetCreate", error.value) from None
        self._names: dict[int | None, str] = {}

    def register(self, gpu: Gpu) -> None:
        """Receive this GPU's Xids from now on; DriverError when it has no events."""
        wanted = pynvml.nvmlEventTypeXidCriticalError
        try:
            offered = pynvml.nvmlDeviceGetSupportedEventTypes(gpu.handle)
            if not offered & wanted:
                raise DriverError("nvmlDeviceRegisterEvents", pynvml.NVML_ERROR_NOT_SUPPORTED)
            self._names[_address(gpu.handle)] = gpu.identity.uuid
            pynvml.nvmlDeviceRegisterEvents(gpu.handle, wanted, self._set)
        except pynvml.NVMLError as error:
            raise DriverError("nvmlDeviceRegisterEvents", error.value) from None

    def wait(self, timeout_milliseconds: int) -> tuple[str | None, int] | None:
        """Return the next Xid: the GPU's UUID (None if unknown) and the code; None for no Xid.

        Raises DriverError when waiting fails for another reason than the timeout.
        """
        try:
            data = pynvml.nvmlEventSetWait_v2(self._set, timeout_milliseconds)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise DriverError("nvmlEventSetWait", error.value) from None
        if data.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        return self._names.get(_address(data.device)), int(data.eventData)


def _address(handle: "ctypes._Pointer[ctypes.Structure]") -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
