"""NVML's field values: which are read and how often, and how their 40 bytes are decoded.

Layout and numbers: NVIDIA, nvml.h (API version 13): `nvmlFieldValue_t`, `nvmlValueType_t` and the
`NVML_FI_DEV_*` list.
"""

import struct
from dataclasses import dataclass, field

Values = dict[str, float | int]


@dataclass(frozen=True, slots=True)
class Field:
    """The metric of a field, and the conversion from the field's unit."""

    metric: str
    times: int = 1
    per: int = 1

    def value(self, raw: float | int) -> float | int:
        """Return the value in the metric's unit; divided only where needed: integers stay integers."""
        return raw * self.times if self.per == 1 else raw * self.times / self.per


_MILLI, _NANO = 1_000, 1_000_000_000
# By field number; read in every tick.
FAST_FIELDS: dict[int, Field] = {
    186: Field("power_watts", per=_MILLI),
    185: Field("power_average_watts", per=_MILLI),
    190: Field("power_limit_watts", per=_MILLI),
    82: Field("memory_temperature_celsius"),
    83: Field("energy_joules", per=_MILLI),
    3: Field("ecc_corrected_errors"),
    4: Field("ecc_uncorrected_errors"),
    94: Field("pcie_replays"),
    197: Field("pcie_transmit_bytes"),
    198: Field("pcie_receive_bytes"),
}
# Read in every slow tick: values that rarely change, and counters that lose nothing by waiting.
SLOW_FIELDS: dict[int, Field] = {
    74: Field("power_cap_seconds", per=_NANO),
    75: Field("thermal_violation_seconds", per=_NANO),
    76: Field("sync_boost_seconds", per=_NANO),
    77: Field("board_limit_seconds", per=_NANO),
    79: Field("reliability_limit_seconds", per=_NANO),
    269: Field("software_thermal_slowdown_seconds", per=_NANO),
    270: Field("hardware_thermal_slowdown_seconds", per=_NANO),
    271: Field("power_brake_seconds", per=_NANO),
    187: Field("power_limit_min_watts", per=_MILLI),
    188: Field("power_limit_max_watts", per=_MILLI),
    189: Field("power_limit_default_watts", per=_MILLI),
    192: Field("power_limit_requested_watts", per=_MILLI),
    193: Field("shutdown_tlimit_celsius"),
    194: Field("slowdown_tlimit_celsius"),
    195: Field("memory_max_tlimit_celsius"),
    196: Field("gpu_max_tlimit_celsius"),
    18: Field("ecc_corrected_l1_errors"),
    19: Field("ecc_uncorrected_l1_errors"),
    20: Field("ecc_corrected_l2_errors"),
    21: Field("ecc_uncorrected_l2_errors"),
    24: Field("ecc_corrected_register_errors"),
    25: Field("ecc_uncorrected_register_errors"),
    28: Field("ecc_uncorrected_cbu_errors"),
    29: Field("retired_pages_corrected"),
    30: Field("retired_pages_uncorrected"),
    31: Field("retired_pages_pending"),
    142: Field("remapped_rows_corrected"),
    143: Field("remapped_rows_uncorrected"),
    144: Field("remap_pending"),
    145: Field("remap_failure"),
    303: Field("remapped_banks"),
    307: Field("bank_remap_pending"),
    95: Field("pcie_replay_rollovers"),
    169: Field("pcie_recoveries"),
    173: Field("pcie_correctable_errors"),
    174: Field("pcie_naks_received"),
    175: Field("pcie_receiver_errors"),
    176: Field("pcie_bad_tlps"),
    177: Field("pcie_naks_sent"),
    178: Field("pcie_bad_dllps"),
    179: Field("pcie_non_fatal_errors"),
    180: Field("pcie_fatal_errors"),
    181: Field("pcie_unsupported_requests"),
    182: Field("pcie_lcrc_errors"),
    183: Field("pcie_lane_errors"),
    230: Field("recovery_action"),
}
# NVML's "no value" where it has no return code for it.
NOT_AVAILABLE = {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}

# Codes for a field that a driver does not know: invalid argument, not supported, no
# permission, function not found.
_UNKNOWN = {2, 3, 4, 13}

# fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value
_ENTRY = struct.Struct("=IIqqIIQ")

Entry = tuple[int, int]  # field and scope


@dataclass(slots=True)
class FieldValues:
    """One call's result: values, fields that the driver does not know, and the last failure's code."""

    values: dict[Entry, float | int] = field(default_factory=dict)
    unsupported: set[Entry] = field(default_factory=set)
    failure: int = 0


def question(number: int, scope: int) -> bytes:
    """Return the `nvmlFieldValue_t` that asks for a field."""
    return _ENTRY.pack(number, scope, 0, 0, 0, 0, 0)


def decode(buffer: memoryview) -> FieldValues:
    """Decode a buffer of `nvmlFieldValue_t`, whose length is a multiple of 40 bytes."""
    found = FieldValues()
    values = found.values
    for number, scope, _, _, kind, code, raw in _ENTRY.iter_unpack(buffer):
        if code != 0:
            found.failure = code
            if code in _UNKNOWN:
                found.unsupported.add((number, scope))
            continue
        # Nearly all are unsigned, of 64 or 32 bits.
        value = raw if kind == 3 else raw & 0xFFFFFFFF if kind == 1 else decode_value(kind, raw)
        if value not in NOT_AVAILABLE:
            values[number, scope] = value
    return found


def latencies(buffer: memoryview) -> dict[int, tuple[int, float, float]]:
    """Return the reads of each field in a buffer: their number, total and longest seconds.

    As the driver reports them, in microseconds; a negative number is no time.
    """
    found: dict[int, tuple[int, float, float]] = {}
    for number, _, _, microseconds, _, code, _ in _ENTRY.iter_unpack(buffer):
        if code == 0 and microseconds >= 0:
            count, seconds, slowest = found.get(number, (0, 0.0, 0.0))
            took = microseconds / 1e6
            found[number] = count + 1, seconds + took, max(slowest, took)
    return found


def decode_value(kind: int, raw: int) -> float | int:
    """Return a value by its type (0 double, 4 and 5 signed); `raw` is its 8 bytes, little-endian."""
    if kind == 1:
        return raw & 0xFFFFFFFF
    if kind == 5:
        low = raw & 0xFFFFFFFF
        return low - (1 << 32) if low >> 31 else low
    if kind == 4:
        return raw - (1 << 64) if raw >> 63 else raw
    if kind == 0:
        (number,) = struct.unpack("=d", struct.pack("=Q", raw))
        return float(number)
    return raw
