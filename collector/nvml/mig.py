"""The MIG devices of one GPU: listed anew in every slow tick, their activity read in every tick."""

import ctypes
import re
from dataclasses import dataclass

import pynvml

from ..samples.field_values import Values
from ..samples.gpu_sample import MigDevice
from .calls import Calls
from .getters import MEMORY, Read, drop_impossible
from .gpm import Gpm
from .processes import COMPUTE, Processes

_MIG_MOST_TEXT = 96
# The metrics of a MIG device's activity in measurement `mig`.
ACTIVITY = (
    "graphics_activity_percent",
    "sm_activity_percent",
    "sm_occupancy_percent",
    "tensor_activity_percent",
    "dram_activity_percent",
)


@dataclass(slots=True)
class _Device:
    uuid: str
    profile: str
    calls: Calls
    memory: Read
    processes: Processes
    gpm: Gpm | None


class Migs:
    """The MIG devices that exist now."""

    def __init__(self, calls: Calls) -> None:
        """Set up; `calls` are on the GPU itself."""
        self._calls = calls
        self._devices: list[_Device] = []

    def find(self, *, enabled: bool) -> int:
        """List the MIG devices and return their number; those that stay keep their samples."""
        kept = {device.uuid: device for device in self._devices}
        found = [device for handle in self._handles(enabled) if (device := self._device(handle))]
        self._devices = [kept.pop(device.uuid, device) for device in found]
        for gone in kept.values():
            if gone.gpm is not None:
                gone.gpm.close()
        return len(self._devices)

    def read(self) -> tuple[MigDevice, ...]:
        """Return the values of every MIG device; empty for one that does not answer."""
        return tuple(self._read(device) for device in self._devices)

    def _read(self, device: _Device) -> MigDevice:
        values: Values = {}
        device.memory(values)
        drop_impossible(values)
        values.pop("memory_reserved_bytes", None)
        pids = device.processes.read(device.calls)
        if pids is not None:
            values["compute_processes"] = len(pids)
        if device.gpm is not None:
            activity: Values = {}
            device.gpm.read(activity)
            values |= {metric: activity[metric] for metric in ACTIVITY if metric in activity}
        return MigDevice(uuid=device.uuid, profile=device.profile, values=values)

    def _handles(self, enabled: bool) -> list["ctypes._Pointer[ctypes.Structure]"]:
        most = ctypes.c_uint(0)
        name = "nvmlDeviceGetMaxMigDeviceCount"
        if not enabled or not self._calls.call(name, name, ctypes.byref(most)):
            return []
        handles = []
        for index in range(most.value):
            handle = pynvml.c_nvmlDevice_t()
            name = "nvmlDeviceGetMigDeviceHandleByIndex"
            # "Not found" is returned for an index without a device.
            if self._calls.call(f"{name} {index}", name, index, ctypes.byref(handle)):
                handles.append(handle)
        return handles

    def _device(self, handle: "ctypes._Pointer[ctypes.Structure]") -> _Device | None:
        """Return the device; None when it has no UUID, because it was removed just now."""
        calls = Calls(self._calls.library, handle, self._calls.costs)
        uuid = _text(calls, "nvmlDeviceGetUUID")
        if uuid is None:
            return None
        name = _text(calls, "nvmlDeviceGetName") or ""
        profile = re.search(r"MIG (\S+)", name)
        instance = ctypes.c_uint()
        in_one = "nvmlDeviceGetGpuInstanceId"
        known = calls.call(in_one, in_one, ctypes.byref(instance))
        return _Device(
            uuid=uuid,
            profile=profile[1] if profile else "",
            calls=calls,
            memory=MEMORY.bind(calls),
            processes=Processes(COMPUTE),
            gpm=Gpm(self._calls, instance.value) if known else None,
        )


def _text(calls: Calls, name: str) -> str | None:
    text = ctypes.create_string_buffer(_MIG_MOST_TEXT)
    return text.value.decode(errors="replace") if calls.call(name, name, text, len(text)) else None
