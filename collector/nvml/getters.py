"""The calls that give values of a GPU, as tables: each row is a call, its arguments and metrics."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pynvml

from ..samples.field_values import NOT_AVAILABLE, Values
from .calls import Calls

Read = Callable[[Values], bool]  # true when the call succeeded


@dataclass(frozen=True, slots=True)
class Numbers:
    """A call that gives whole numbers; the first of `functions` that the driver has is used."""

    functions: tuple[str, ...]
    metrics: tuple[str, ...]  # one for each returned number; empty for a number that is not used
    arguments: tuple[int, ...] = ()
    wide: bool = False
    times: int = 1
    per: int = 1

    def bind(self, calls: Calls) -> Read:
        """Return a function that makes the call and adds its values."""
        kind = ctypes.c_ulonglong if self.wide else ctypes.c_uint
        outs = [kind() for _ in self.metrics]
        references = [ctypes.byref(out) for out in outs]
        known = [name for name in self.functions if calls.bound(name)]
        name = (known or self.functions)[0]
        key = f"{name}{self.arguments}"
        named = [(m, o) for m, o in zip(self.metrics, outs, strict=True) if m]

        def read(values: Values) -> bool:
            if not calls.call(key, name, *self.arguments, *references):
                return False
            for metric, out in named:
                value = out.value
                if value not in NOT_AVAILABLE:
                    scaled = value * self.times
                    values[metric] = scaled if self.per == 1 else scaled / self.per
            return True

        return read


@dataclass(frozen=True, slots=True)
class Record:
    """A call that fills a structure; `preset` holds the members that the caller must fill in."""

    function: str
    structure: type[ctypes.Structure]
    metrics: Mapping[str, str]  # member of the structure, and its metric
    preset: Mapping[str, int] = field(default_factory=dict)

    def bind(self, calls: Calls) -> Read:
        """Return a function that makes the call and adds its values."""
        record = self.structure(**self.preset)
        reference = ctypes.byref(record)
        key = f"{self.function} {self.structure.__name__}"

        def read(values: Values) -> bool:
            if not calls.call(key, self.function, reference):
                return False
            for member, metric in self.metrics.items():
                value = getattr(record, member)
                if value not in NOT_AVAILABLE:
                    values[metric] = value
            return True

        return read


@dataclass(frozen=True, slots=True)
class FirstOf:
    """Ways to the same values, the best first; when the driver refuses one, the next is tried."""

    ways: tuple[Numbers | Record, ...]

    def bind(self, calls: Calls) -> Read:
        """Return a function that tries the ways until one succeeds."""
        reads = [way.bind(calls) for way in self.ways]

        def read(values: Values) -> bool:
            return any(each(values) for each in reads)

        return read


Getter = Numbers | Record | FirstOf


def _clock(metric: str, domain: int, which: str = "nvmlDeviceGetClockInfo") -> Numbers:
    return Numbers((which,), (metric,), (domain,), times=1_000_000)


def _ecc(metric: str, kind: int, location: int) -> Numbers:
    arguments = (kind, pynvml.NVML_AGGREGATE_ECC, location)
    return Numbers(("nvmlDeviceGetMemoryErrorCounter",), (metric,), arguments, wide=True)


_MAX_CLOCK = "nvmlDeviceGetMaxClockInfo"
_CORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED

# Version 2 keeps what the driver reserves apart; version 1 counts it as used.
MEMORY = FirstOf(
    (
        Record(
            "nvmlDeviceGetMemoryInfo_v2",
            pynvml.c_nvmlMemory_v2_t,
            {
                "used": "memory_used_bytes",
                "total": "memory_total_bytes",
                "reserved": "memory_reserved_bytes",
            },
            {"version": pynvml.nvmlMemory_v2},
        ),
        Record(
            "nvmlDeviceGetMemoryInfo",
            pynvml.c_nvmlMemory_t,
            {"used": "memory_used_bytes", "total": "memory_total_bytes"},
        ),
    )
)

# Read in every tick.
FAST: tuple[Getter, ...] = (
    Record(
        "nvmlDeviceGetUtilizationRates",
        pynvml.c_nvmlUtilization_t,
        {"gpu": "utilization_percent", "memory": "memory_utilization_percent"},
    ),
    MEMORY,
    _clock("sm_clock_hertz", pynvml.NVML_CLOCK_SM),
    Numbers(
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        ("clock_event_reasons",),
        wide=True,
    ),
    FirstOf(
        (
            Record(
                "nvmlDeviceGetTemperatureV",
                pynvml.c_nvmlTemperature_v1_t,
                {"temperature": "temperature_celsius"},
                {
                    "version": pynvml.nvmlTemperature_v1,
                    "sensorType": pynvml.NVML_TEMPERATURE_GPU,
                },
            ),
            Numbers(
                ("nvmlDeviceGetTemperature",),
                ("temperature_celsius",),
                (pynvml.NVML_TEMPERATURE_GPU,),
            ),
        )
    ),
    # Judged together with the utilisation of the same moment: an idle link saves power.
    Numbers(("nvmlDeviceGetCurrPcieLinkGeneration",), ("pcie_generation",)),
)

# Values that rarely change within minutes, read every ten seconds where ticks are shorter.
LASTING: tuple[Getter, ...] = (
    _clock("memory_clock_hertz", pynvml.NVML_CLOCK_MEM),
    Numbers(("nvmlDeviceGetPerformanceState",), ("performance_state",)),
    Numbers(("nvmlDeviceGetCurrPcieLinkWidth",), ("pcie_width",)),
    Record(
        "nvmlDeviceGetMarginTemperature",
        pynvml.c_nvmlMarginTemperature_v1_t,
        {"marginTemperature": "temperature_margin_celsius"},
        {"version": pynvml.nvmlMarginTemperature_v1},
    ),
)

# Read in every slow tick.
SLOW: tuple[Getter, ...] = (
    Numbers(("nvmlDeviceGetEncoderUtilization",), ("encoder_utilization_percent", "")),
    Numbers(("nvmlDeviceGetDecoderUtilization",), ("decoder_utilization_percent", "")),
    Numbers(("nvmlDeviceGetJpgUtilization",), ("jpeg_utilization_percent", "")),
    Numbers(("nvmlDeviceGetOfaUtilization",), ("optical_flow_utilization_percent", "")),
    Record(
        "nvmlDeviceGetBAR1MemoryInfo",
        pynvml.c_nvmlBAR1Memory_t,
        {"bar1Used": "bar1_used_bytes", "bar1Total": "bar1_total_bytes"},
    ),
    _clock("graphics_clock_hertz", pynvml.NVML_CLOCK_GRAPHICS),
    _clock("video_clock_hertz", pynvml.NVML_CLOCK_VIDEO),
    _clock("graphics_clock_max_hertz", pynvml.NVML_CLOCK_GRAPHICS, _MAX_CLOCK),
    _clock("sm_clock_max_hertz", pynvml.NVML_CLOCK_SM, _MAX_CLOCK),
    _clock("memory_clock_max_hertz", pynvml.NVML_CLOCK_MEM, _MAX_CLOCK),
    _clock("video_clock_max_hertz", pynvml.NVML_CLOCK_VIDEO, _MAX_CLOCK),
    Numbers(
        ("nvmlDeviceGetTemperatureThreshold",),
        ("shutdown_temperature_celsius",),
        (pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,),
    ),
    Numbers(
        ("nvmlDeviceGetTemperatureThreshold",),
        ("slowdown_temperature_celsius",),
        (pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,),
    ),
    Numbers(("nvmlDeviceGetMaxPcieLinkGeneration",), ("pcie_generation_max",)),
    Numbers(("nvmlDeviceGetMaxPcieLinkWidth",), ("pcie_width_max",)),
    _ecc("ecc_corrected_dram_errors", _CORRECTED, pynvml.NVML_MEMORY_LOCATION_DRAM),
    _ecc("ecc_uncorrected_dram_errors", _UNCORRECTED, pynvml.NVML_MEMORY_LOCATION_DRAM),
    _ecc("ecc_corrected_sram_errors", _CORRECTED, pynvml.NVML_MEMORY_LOCATION_SRAM),
    _ecc("ecc_uncorrected_sram_errors", _UNCORRECTED, pynvml.NVML_MEMORY_LOCATION_SRAM),
    # Only root may ask; without it the flag is unknown, never "good".
    Record(
        "nvmlDeviceGetSramEccErrorStatus",
        pynvml.c_nvmlEccSramErrorStatus_v1_t,
        {
            "bThresholdExceeded": "sram_threshold_exceeded",
            "aggregateUncParity": "sram_parity_errors",
            "aggregateUncSecDed": "sram_secded_errors",
            "aggregateUncBucketL2": "sram_l2_errors",
            "aggregateUncBucketSm": "sram_sm_errors",
            "aggregateUncBucketPcie": "sram_pcie_errors",
            "aggregateUncBucketMcu": "sram_mcu_errors",
            "aggregateUncBucketOther": "sram_other_errors",
        },
    ),
    Record(
        "nvmlDeviceGetRowRemapperHistogram",
        pynvml.c_nvmlRowRemapperHistogramValues,
        {
            "max": "remap_banks_max",
            "high": "remap_banks_high",
            "partial": "remap_banks_partial",
            "low": "remap_banks_low",
            "none": "remap_banks_none",
        },
    ),
    Record(
        "nvmlDeviceGetRepairStatus",
        pynvml.c_nvmlRepairStatus_t,
        {
            "bChannelRepairPending": "channel_repair_pending",
            "bTpcRepairPending": "tpc_repair_pending",
        },
    ),
    Numbers(("nvmlDeviceGetPersistenceMode",), ("persistence_mode",)),
    Numbers(("nvmlDeviceGetComputeMode",), ("compute_mode",)),
    Numbers(("nvmlDeviceGetEccMode",), ("ecc_mode", "ecc_mode_pending")),
    Numbers(("nvmlDeviceGetMigMode",), ("mig_mode", "mig_mode_pending")),
    Numbers(("nvmlDeviceGetNumFans",), ("fans",)),
)

# The calls that replace a metric's field where the driver does not know the field.
INSTEAD_OF_FIELD: dict[str, Numbers] = {
    "power_watts": Numbers(("nvmlDeviceGetPowerUsage",), ("power_watts",), per=1000),
    "power_limit_watts": Numbers(
        ("nvmlDeviceGetEnforcedPowerLimit",), ("power_limit_watts",), per=1000
    ),
    "energy_joules": Numbers(
        ("nvmlDeviceGetTotalEnergyConsumption",), ("energy_joules",), wide=True, per=1000
    ),
    "pcie_replays": Numbers(("nvmlDeviceGetPcieReplayCounter",), ("pcie_replays",)),
    "ecc_corrected_errors": Numbers(
        ("nvmlDeviceGetTotalEccErrors",),
        ("ecc_corrected_errors",),
        (_CORRECTED, pynvml.NVML_VOLATILE_ECC),
        wide=True,
    ),
    "ecc_uncorrected_errors": Numbers(
        ("nvmlDeviceGetTotalEccErrors",),
        ("ecc_uncorrected_errors",),
        (_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
        wide=True,
    ),
}

# A number outside of these bounds is some driver's "no value", or nonsense.
_TEMPERATURE, _MARGIN, _SHARE = (0, 200), (-200, 200), (0, 100)
RANGES: dict[str, tuple[int, int]] = {
    "temperature_celsius": _TEMPERATURE,
    "memory_temperature_celsius": _TEMPERATURE,
    "shutdown_temperature_celsius": _TEMPERATURE,
    "slowdown_temperature_celsius": _TEMPERATURE,
    "temperature_margin_celsius": _MARGIN,
    "shutdown_tlimit_celsius": _MARGIN,
    "slowdown_tlimit_celsius": _MARGIN,
    "memory_max_tlimit_celsius": _MARGIN,
    "gpu_max_tlimit_celsius": _MARGIN,
    "utilization_percent": _SHARE,
    "memory_utilization_percent": _SHARE,
    "encoder_utilization_percent": _SHARE,
    "decoder_utilization_percent": _SHARE,
    "jpeg_utilization_percent": _SHARE,
    "optical_flow_utilization_percent": _SHARE,
    "performance_state": (0, 15),  # NVML_PSTATE_UNKNOWN is 32
    "memory_total_bytes": (1, 2**60),
    "memory_used_bytes": (0, 2**60),
    "pcie_generation": (1, 31),
    "pcie_width": (1, 63),
}


# No count, in whatever unit, comes near this; values are sent as signed numbers of 64 bits.
_MOST = 2**62


def drop_impossible(values: Values) -> None:
    """Remove numbers that stand for "no value"."""
    if values and max(values.values()) >= _MOST:
        for metric in [metric for metric, value in values.items() if value >= _MOST]:
            del values[metric]
    for metric in RANGES.keys() & values.keys():
        low, high = RANGES[metric]
        if not low <= values[metric] <= high:
            del values[metric]
