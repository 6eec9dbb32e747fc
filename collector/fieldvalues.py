"""NVML's field values: which are read, how their 40 bytes are decoded, how links are summed.

Layout and numbers: NVIDIA, nvml.h (API version 13): `nvmlFieldValue_t`, `nvmlValueType_t` and the
`NVML_FI_DEV_*` list.
"""

import struct
from dataclasses import dataclass, field

Values = dict[str, float | int]

# Field numbers with the metric and its unit.
FIELDS: dict[int, tuple[str, float | int]] = {
    186: ("power_watts", 0.001),
    190: ("power_limit_watts", 0.001),
    82: ("memory_temperature_celsius", 1),
}
LINK_COUNT = 91
LINK_STATE = 165
# Fields that NVML keeps per link: the metric they are summed to, and its unit. Throughput is KiB.
LINK_FIELDS: dict[int, tuple[str, int]] = {
    138: ("nvlink_transmit_bytes", 1024),
    139: ("nvlink_receive_bytes", 1024),
    161: ("nvlink_errors", 1),
    162: ("nvlink_errors", 1),
    163: ("nvlink_errors", 1),
}
EVERY_LINK = 0xFFFFFFFF
MOST_LINKS = 64
# How NVML says "no value" where it has no return code for it.
NOT_AVAILABLE = {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}

# Codes by which a driver says that it does not know a field: invalid argument, not supported,
# function not found.
_UNKNOWN = {2, 3, 13}

# fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value
_ENTRY = struct.Struct("=IIqqIIQ")

Entry = tuple[int, int]  # field and scope


@dataclass(slots=True)
class FieldValues:
    """What one call gave: values, what the driver does not know, and the last failure's code."""

    values: dict[Entry, float | int] = field(default_factory=dict)
    unsupported: set[Entry] = field(default_factory=set)
    failure: int = 0


def decode(buffer: memoryview) -> FieldValues:
    """The content of a buffer of `nvmlFieldValue_t`, whose length is a multiple of 40 bytes."""
    found = FieldValues()
    for number, scope, _, _, kind, code, raw in _ENTRY.iter_unpack(buffer):
        if code != 0:
            found.failure = code
            if code in _UNKNOWN:
                found.unsupported.add((number, scope))
            continue
        value = decode_value(kind, raw)
        if value not in NOT_AVAILABLE:
            found.values[number, scope] = value
    return found


def decode_value(kind: int, raw: int) -> float | int:
    """A value by its type (0 double, 4 and 5 signed); `raw` is its 8 bytes, little-endian."""
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


@dataclass(slots=True)
class Links:
    """The NVLinks of a GPU, summed; a link that says nothing keeps its last count."""

    count: int = 0
    last: dict[Entry, float | int] = field(default_factory=dict)

    def sum_up(self, found: dict[Entry, float | int], values: Values) -> None:
        """Add the sums over all links to a sweep's values."""
        if not self.count:
            return
        values["nvlink_links_expected"] = self.count
        states = [found[LINK_STATE, n] for n in range(self.count) if (LINK_STATE, n) in found]
        if states:
            values["nvlink_links_up"] = sum(1 for state in states if state)
        self.last.update({e: value for e, value in found.items() if e[0] in LINK_FIELDS})
        for (number, _), value in self.last.items():
            metric, scale = LINK_FIELDS[number]
            values[metric] = values.get(metric, 0) + int(value) * scale
