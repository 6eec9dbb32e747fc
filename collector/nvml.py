"""NVIDIA's management library, read with kept buffers; the only file that touches it.

Rare calls go through `pynvml`. What is read every tick is bound once and decoded with `struct`,
since pynvml's field-value helper costs a hundred times a kept buffer.
Semantics of calls, fields and codes: NVIDIA, "NVML API Reference Guide" and the header nvml.h (API
version 13). `nvmlDeviceGetPcieThroughput` is never called: it samples for 20 ms.
"""

import ctypes
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import pynvml

from gpuvigil.errors import SensorError
from gpuvigil.model import GpuIdentity, Unmeasured

from .fieldvalues import (
    EVERY_LINK,
    FIELDS,
    LINK_COUNT,
    LINK_FIELDS,
    LINK_STATE,
    MOST_LINKS,
    NOT_AVAILABLE,
    FieldValues,
    Links,
    Values,
    decode,
)

_LIBRARY = "libnvidia-ml.so.1"
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
# These will be the same in the next tick, so the call is not made again.
_FOR_GOOD = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
# These are said of the whole GPU, or of the whole driver: the rest of the sweep is in vain.
_OF_ALL = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one GPU said in one sweep: raw values by metric name, and who computes on it."""

    values: Values
    processes: tuple[int, ...] | None  # process ids


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A call that gives one number; of `functions` the first that the driver has is used."""

    metric: str
    functions: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    wide: bool = False
    scale: float | int = 1
    highest: int | None = None  # a larger number is not a measurement


_SCALARS = (
    _Scalar("index", ("nvmlDeviceGetIndex",)),
    _Scalar("energy_joules", ("nvmlDeviceGetTotalEnergyConsumption",), wide=True, scale=0.001),
    _Scalar(
        "sm_clock_hertz", ("nvmlDeviceGetClockInfo",), (pynvml.NVML_CLOCK_SM,), scale=1_000_000
    ),
    _Scalar(
        "memory_clock_hertz", ("nvmlDeviceGetClockInfo",), (pynvml.NVML_CLOCK_MEM,), scale=1_000_000
    ),
    _Scalar(
        "clock_event_reasons",
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        wide=True,
    ),
    # NVML_PSTATE_UNKNOWN is 32.
    _Scalar("performance_state", ("nvmlDeviceGetPerformanceState",), highest=15),
    _Scalar(
        "ecc_corrected_errors",
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),
        wide=True,
    ),
    _Scalar(
        "ecc_uncorrected_errors",
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
        wide=True,
    ),
    _Scalar("pcie_generation", ("nvmlDeviceGetCurrPcieLinkGeneration",)),
    _Scalar("pcie_generation_max", ("nvmlDeviceGetMaxPcieLinkGeneration",)),
    _Scalar("pcie_width", ("nvmlDeviceGetCurrPcieLinkWidth",)),
    _Scalar("pcie_width_max", ("nvmlDeviceGetMaxPcieLinkWidth",)),
    _Scalar("pcie_replays", ("nvmlDeviceGetPcieReplayCounter",)),
)
# Where a field is not known to the driver, this call gives the same number.
_INSTEAD_OF_FIELD = {
    "power_watts": _Scalar("power_watts", ("nvmlDeviceGetPowerUsage",), scale=0.001),
    "power_limit_watts": _Scalar(
        "power_limit_watts", ("nvmlDeviceGetEnforcedPowerLimit",), scale=0.001
    ),
}


_PROCESS = struct.Struct("=I4xQII")


class Driver:
    """The driver library, initialised; may block for as long as the driver likes."""

    def __init__(self) -> None:
        """DriverError when there is no driver, or it cannot be used."""
        try:
            pynvml.nvmlInit()
            self.version = str(pynvml.nvmlSystemGetDriverVersion())
            self.count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            raise DriverError("nvmlInit", error.value) from None
        self._library = ctypes.CDLL(_LIBRARY)

    def close(self) -> None:
        """Let the driver go, with everything that is open on it; it may block."""
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def has_changed(self) -> bool:
        """Whether the driver lists another number of GPUs than at the start; it may block."""
        try:
            return int(pynvml.nvmlDeviceGetCount()) != self.count
        except pynvml.NVMLError:
            return False

    def gpu(self, index: int) -> "Gpu":
        """The GPU that NVML lists at `index`; DriverError when it does not answer as one."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            identity = _identity(handle, index)
        except pynvml.NVMLError as error:
            raise DriverError("nvmlDeviceGetHandleByIndex", error.value) from None
        return Gpu(self._library, handle, identity)


class Gpu:
    """One GPU and the buffers to read it with; for one thread."""

    def __init__(
        self,
        library: ctypes.CDLL,
        handle: "ctypes._Pointer[ctypes.Structure]",
        identity: GpuIdentity,
    ) -> None:
        self.identity = identity
        self.handle = handle
        self._calls = _Calls(library, handle)
        self._scalars = [self._calls.scalar(each) for each in _SCALARS]
        self._links = Links()
        self._fields = _Fields([(number, 0) for number in (*FIELDS, LINK_COUNT)])
        self._processes = _Processes()
        self._planned = False

    def read(self) -> Reading:
        """One sweep. A value that the GPU does not give is left out.

        DriverError when the GPU is lost, the driver is gone, or no call at all succeeded.
        """
        calls = self._calls
        calls.begin_sweep()
        values: Values = {}
        for scalar in self._scalars:
            scalar(values)
        calls.utilization(values)
        calls.memory(values)
        calls.temperature(values)
        self._read_fields(values)
        pids = calls.processes(self._processes)
        if pids is not None:
            values["compute_processes"] = len(pids)
        if not calls.succeeded:
            raise DriverError("every call of the sweep", calls.failure)
        return Reading(values=values, processes=pids)

    def _read_fields(self, values: Values) -> None:
        found = self._calls.fields(self._fields)
        if found is None and self._calls.lacks("fields"):
            found = FieldValues(unsupported={(number, 0) for number in FIELDS})
        if found is None:
            return
        if not self._planned:
            found = self._plan(found)
        for number, (metric, scale) in FIELDS.items():
            if (value := found.values.get((number, 0))) is not None:
                values[metric] = value * scale
        self._links.sum_up(found.values, values)
        if self._links.count and "nvlink_links_up" not in values:
            self._calls.links_up(self._links.count, values)

    def _plan(self, first: FieldValues) -> FieldValues:
        """Keep the fields that this GPU has, and learn how it counts its links."""
        entries = [(number, 0) for number in FIELDS if (number, 0) not in first.unsupported]
        for number, (metric, _) in FIELDS.items():
            instead = _INSTEAD_OF_FIELD.get(metric)
            if instead is not None and (number, 0) in first.unsupported:
                self._scalars.append(self._calls.scalar(instead))
        self._links.count = min(int(first.values.get((LINK_COUNT, 0), 0)), MOST_LINKS)
        if self._links.count:
            probe = self._calls.fields(_Fields((number, EVERY_LINK) for number in LINK_FIELDS))
            for number in LINK_FIELDS:
                whole = probe is not None and (number, EVERY_LINK) in probe.values
                scopes = [EVERY_LINK] if whole else range(self._links.count)
                entries += [(number, scope) for scope in scopes]
            entries += [(LINK_STATE, link) for link in range(self._links.count)]
        self._fields = _Fields(entries)
        self._planned = True
        return self._calls.fields(self._fields) or FieldValues()


class _Fields:
    """A kept buffer for one nvmlDeviceGetFieldValues call: (field, scope) pairs."""

    def __init__(self, entries: Iterable[tuple[int, int]]) -> None:
        self.entries = list(entries)
        self.buffer = (pynvml.c_nvmlFieldValue_t * len(self.entries))()
        for slot, (number, scope) in zip(self.buffer, self.entries, strict=True):
            slot.fieldId, slot.scopeId = number, scope


class _Processes:
    """A kept buffer for the list of processes; it grows when it must."""

    def __init__(self, size: int = 64) -> None:
        self.count = ctypes.c_uint(0)
        self.buffer = (pynvml.c_nvmlProcessInfo_v2_t * size)()

    def pids(self) -> tuple[int, ...]:
        content = memoryview(self.buffer).cast("B")[: self.count.value * _PROCESS.size]
        return tuple(sorted({pid for pid, *_ in _PROCESS.iter_unpack(content)}))


class _Calls:
    """The prebound calls on one GPU, and what is known of each."""

    def __init__(self, library: ctypes.CDLL, handle: "ctypes._Pointer[ctypes.Structure]") -> None:
        self._library = library
        self._handle = handle
        self._useless: set[str] = set()
        self._functions: dict[str, Callable[..., int] | None] = {}
        self._utilization = pynvml.c_nvmlUtilization_t()
        self._memory = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2)
        self._old_memory = pynvml.c_nvmlMemory_t()
        self._temperature = pynvml.c_nvmlTemperature_v1_t(
            version=pynvml.nvmlTemperature_v1, sensorType=pynvml.NVML_TEMPERATURE_GPU
        )
        self._number = ctypes.c_uint()
        self.succeeded = False
        self.failure = pynvml.NVML_SUCCESS

    def begin_sweep(self) -> None:
        self.succeeded, self.failure = False, pynvml.NVML_SUCCESS

    def call(self, key: str, name: str, *arguments: object) -> bool:
        """Make a call unless it is known to be useless; true when it succeeded.

        DriverError when the GPU is lost or the driver is gone.
        """
        if key in self._useless:
            return False
        function = self._bound(name)
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        if function is not None:
            code = function(self._handle, *arguments)
        if code == pynvml.NVML_SUCCESS:
            self.succeeded = True
            return True
        self._note(key, name, code)
        return False

    def lacks(self, key: str) -> bool:
        """Whether the driver has said that it does not know this call."""
        return key in self._useless

    def scalar(self, scalar: _Scalar) -> Callable[[Values], None]:
        """A function that reads one number into a sweep's values."""
        out = ctypes.c_ulonglong() if scalar.wide else ctypes.c_uint()
        reference = ctypes.byref(out)
        names = [name for name in scalar.functions if self._bound(name)] or scalar.functions[:1]
        name = names[0]

        def read(values: Values) -> None:
            if self.call(scalar.metric, name, *scalar.arguments, reference):
                value = out.value
                impossible = scalar.highest is not None and value > scalar.highest
                if value not in NOT_AVAILABLE and not impossible:
                    values[scalar.metric] = value * scalar.scale

        return read

    def utilization(self, values: Values) -> None:
        rates = self._utilization
        if self.call("utilization", "nvmlDeviceGetUtilizationRates", ctypes.byref(rates)):
            for metric, value in (
                ("utilization_percent", rates.gpu),
                ("memory_utilization_percent", rates.memory),
            ):
                if value <= 100:
                    values[metric] = value

    def memory(self, values: Values) -> None:
        """Version 2 keeps what the driver reserves apart; version 1 counts it as used."""
        memory = self._memory
        if not self.call("memory", "nvmlDeviceGetMemoryInfo_v2", ctypes.byref(memory)):
            memory = self._old_memory
            if not self.call("old memory", "nvmlDeviceGetMemoryInfo", ctypes.byref(memory)):
                return
        if memory.total not in NOT_AVAILABLE and memory.total > 0:
            values["memory_used_bytes"] = memory.used
            values["memory_total_bytes"] = memory.total

    def temperature(self, values: Values) -> None:
        record = self._temperature
        if self.call("temperature", "nvmlDeviceGetTemperatureV", ctypes.byref(record)):
            values["temperature_celsius"] = record.temperature
        elif self.call(
            "old temperature",
            "nvmlDeviceGetTemperature",
            pynvml.NVML_TEMPERATURE_GPU,
            ctypes.byref(self._number),
        ):
            values["temperature_celsius"] = self._number.value

    def links_up(self, count: int, values: Values) -> None:
        """For drivers that have no field for it, link by link; all or none are counted."""
        states = []
        for link in range(count):
            reference = ctypes.byref(self._number)
            if not self.call("link state", "nvmlDeviceGetNvLinkState", link, reference):
                return
            states.append(self._number.value)
        values["nvlink_links_up"] = sum(1 for state in states if state)

    def fields(self, fields: _Fields) -> FieldValues | None:
        """The values of the fields, or None when the call as a whole failed."""
        count = len(fields.entries)
        name = "nvmlDeviceGetFieldValues"
        if not count or not self.call("fields", name, count, fields.buffer):
            return None
        found = decode(memoryview(fields.buffer).cast("B"))
        if found.failure in _OF_ALL:
            raise DriverError(name, found.failure)
        return found

    def processes(self, kept: _Processes) -> tuple[int, ...] | None:
        """Ids of the processes that hold a compute context; None when the driver does not say."""
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        function = self._bound(name)
        for _ in range(3):
            if function is None or name in self._useless:
                return None
            kept.count.value = len(kept.buffer)
            code = function(self._handle, ctypes.byref(kept.count), kept.buffer)
            if code == pynvml.NVML_SUCCESS:
                self.succeeded = True
                return kept.pids()
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                self._note(name, name, code)
                return None
            kept.buffer = (pynvml.c_nvmlProcessInfo_v2_t * (2 * kept.count.value + 16))()
        return None

    def _note(self, key: str, name: str, code: int) -> None:
        """Remember a failure; DriverError when it stands for the whole GPU or driver."""
        if code in _OF_ALL:
            raise DriverError(name, code)
        if code in _FOR_GOOD:
            self._useless.add(key)
        if self.failure in _FOR_GOOD or self.failure == pynvml.NVML_SUCCESS:
            self.failure = code

    def _bound(self, name: str) -> Callable[..., int] | None:
        """The library's function, or None when this driver has none of that name."""
        if name not in self._functions:
            self._functions[name] = getattr(self._library, name, None)
        return self._functions[name]


class Events:
    """The driver's Xid events; `wait` is for one thread of its own."""

    def __init__(self) -> None:
        """DriverError when the driver has no events."""
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            raise DriverError("nvmlEventSetCreate", error.value) from None
        self._names: dict[int | None, str] = {}

    def register(self, gpu: Gpu) -> None:
        """Hear of this GPU's Xids from now on; DriverError when it has no events."""
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
        """The next Xid: the GPU's UUID (None: of no GPU we know) and its code; None for none.

        DriverError when waiting fails otherwise than by its time-out.
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


def _identity(handle: "ctypes._Pointer[ctypes.Structure]", index: int) -> GpuIdentity:
    """NVMLError when the GPU does not even say its UUID."""
    return GpuIdentity(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        pci_address=_optional(lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId),
        model=_optional(lambda: pynvml.nvmlDeviceGetName(handle)) or "unknown",
        serial=_optional(lambda: pynvml.nvmlDeviceGetSerial(handle)),
        vbios=_optional(lambda: pynvml.nvmlDeviceGetVbiosVersion(handle)),
        memory_total_bytes=_memory_total(handle),
    )


def _memory_total(handle: "ctypes._Pointer[ctypes.Structure]") -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return None


def _optional(read: Callable[[], str | bytes]) -> str | None:
    try:
        return _text(read())
    except pynvml.NVMLError as error:
        if error.value in _OF_ALL:
            raise
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
