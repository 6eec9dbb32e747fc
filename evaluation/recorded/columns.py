"""Which column of a recording is which field of the catalogue, and in which unit.

A map is written `column = field` or `column = field * factor`, one a line; `time`, `node`, `gpu`
and `model` are the words for what is no number. The presets are the names of three exporters:
nvidia-smi's as `--help-query-gpu` lists them, DCGM's as the catalogue carries them, and those of
our own `/metrics`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuvigil.metrics import GPU

_TIME, _NODE, _GPU, _MODEL = "time", "node", "gpu", "model"
WORDS = frozenset({_TIME, _NODE, _GPU, _MODEL})
_FIELDS = {metric.name: metric for metric in GPU.metrics}
_LINE = re.compile(r"^(?P<column>.+?)\s*=\s*(?P<field>\w+)(?:\s*\*\s*(?P<factor>[0-9.eE+-]+))?$")

_MIB, _MEGA, _MILLI, _NANO = 1024.0**2, 1e6, 1e-3, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns that are read; others of the recording are left."""

    words: Mapping[str, tuple[str, ...]]  # word: columns that may hold it, the first that is there
    fields: Mapping[str, tuple[str, float]]  # column: field, factor
    # A row for each value instead of one for each moment: the columns of the name and the value.
    long: tuple[str, str] | None = None


_NVIDIA_SMI = """
timestamp = time
uuid = gpu
gpu_uuid = gpu
gpu_bus_id = gpu
pci.bus_id = gpu
index = gpu
hostname = node
name = model
utilization.gpu = utilization_percent
utilization.memory = memory_utilization_percent
memory.used = memory_used_bytes * 1048576
memory.total = memory_total_bytes * 1048576
power.draw = power_watts
power.draw.instant = power_watts
enforced.power.limit = power_limit_watts
power.limit = power_limit_requested_watts
power.default_limit = power_limit_default_watts
temperature.gpu = temperature_celsius
temperature.memory = memory_temperature_celsius
clocks.sm = sm_clock_hertz * 1e6
clocks.current.sm = sm_clock_hertz * 1e6
clocks.mem = memory_clock_hertz * 1e6
clocks.current.memory = memory_clock_hertz * 1e6
clocks.max.sm = sm_clock_max_hertz * 1e6
pcie.link.gen.current = pcie_generation
pcie.link.gen.gpucurrent = pcie_generation
pcie.link.gen.max = pcie_generation_max
pcie.link.width.current = pcie_width
pcie.link.width.max = pcie_width_max
ecc.errors.corrected.volatile.total = ecc_corrected_errors
ecc.errors.uncorrected.volatile.total = ecc_uncorrected_errors
fan.speed = fan_speed_percent
"""
# DCGM's units, where they differ from ours (dcgm_fields.h): MiB, MHz, mJ, ns.
_DCGM_UNITS: Mapping[str, float] = {
    "DCGM_FI_DEV_FB_USED": _MIB,
    "DCGM_FI_DEV_FB_RESERVED": _MIB,
    "DCGM_FI_DEV_BAR1_USED": _MIB,
    "DCGM_FI_DEV_BAR1_TOTAL": _MIB,
    "DCGM_FI_DEV_SM_CLOCK": _MEGA,
    "DCGM_FI_DEV_MEM_CLOCK": _MEGA,
    "DCGM_FI_DEV_VIDEO_CLOCK": _MEGA,
    "DCGM_FI_DEV_MAX_SM_CLOCK": _MEGA,
    "DCGM_FI_DEV_MAX_MEM_CLOCK": _MEGA,
    "DCGM_FI_DEV_MAX_VIDEO_CLOCK": _MEGA,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _MILLI,
    "DCGM_FI_DEV_POWER_VIOLATION": _NANO,
    "DCGM_FI_DEV_THERMAL_VIOLATION": _NANO,
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": _NANO,
    "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION": _NANO,
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": _NANO,
}
# Profiling fields are shares of 1; ours are percent.
_PROFILING = "DCGM_FI_PROF_"
_EXPORTER_WORDS: Mapping[str, tuple[str, ...]] = {
    _TIME: ("timestamp", "time", "Time", "at"),
    _NODE: ("Hostname", "hostname", "node", "instance"),
    _GPU: ("UUID", "uuid", "gpu", "GPU"),
    _MODEL: ("modelName", "model"),
}


def _dcgm() -> dict[str, tuple[str, float]]:
    fields = {}
    for metric in GPU.metrics:
        if metric.dcgm is None:
            continue
        share = 100.0 if metric.dcgm.startswith(_PROFILING) and "_percent" in metric.name else 1.0
        fields[metric.dcgm] = (metric.name, _DCGM_UNITS.get(metric.dcgm, share))
    return fields


def parse(text: str) -> Columns:
    """The map that a text describes; ValueError names the line that cannot be read."""
    words: dict[str, list[str]] = {}
    fields: dict[str, tuple[str, float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].strip()
        if not plain:
            continue
        match = _LINE.match(plain)
        if match is None:
            raise ValueError(
                f"line {number}: {plain!r} is not `column = field` or `column = field * factor`"
            )
        name = match["field"]
        if name in WORDS:
            words.setdefault(name, []).append(match["column"])
        elif name in _FIELDS:
            fields[match["column"]] = (name, _factor(match["factor"], number))
        else:
            raise ValueError(
                f"line {number}: {name!r} is no field of a GPU (docs/metrics.md has them)"
            )
    return Columns(words={word: tuple(them) for word, them in words.items()}, fields=fields)


def _factor(text: str | None, number: int) -> float:
    try:
        return 1.0 if text is None else float(text)
    except ValueError:
        raise ValueError(f"line {number}: {text!r} is no number") from None


PRESETS: Mapping[str, Columns] = {
    "nvidia-smi": parse(_NVIDIA_SMI),
    "dcgm": Columns(words=_EXPORTER_WORDS, fields=_dcgm()),
    "prometheus": Columns(
        words=_EXPORTER_WORDS,
        fields={**_dcgm(), **{metric.prometheus: (metric.name, 1.0) for metric in GPU.metrics}},
        long=("__name__", "value"),
    ),
}
