"""Symptoms that the node check and the detectors both judge: each has one limit for both.

The node check has single values, a detector has columns of a fleet: a rule here only compares and
joins, so that it works for both. A value that was not measured is NaN, for which no comparison holds.
A symptom's meaning, severity and action are in its row of `CONDITIONS` or `FAULTS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ..model import Severity
from .conditions import CONDITIONS
from .model import Described, NodeCheckSign
from .table import FAULTS
from .xids import NOUVEAU_ACTION

# One row's value, or a column of values.
Measured: TypeAlias = Any
_NOT_MEASURED = float("nan")

# A driver that is not kept loaded may take this long to answer first; beyond that, it hangs.
HANGS_AFTER_SECONDS = 30.0
# What starts with the node, or again after a reset, may take this long.
STARTS_WITHIN_SECONDS = 600.0

_RETIRED, _RETIRED_BY_DOUBLE_BIT = 63, 15
WORKING_PERCENT = 20
# nvmlGpuFabricState_t: 0 is "not supported".
FABRIC_COMPLETED = 3
FABRIC_STATES: Mapping[int, str] = {1: "not started", 2: "in progress"}


class Row(Protocol):
    """Metrics by name; None means not measured."""

    def get(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """A sign of a fault that a row shows by itself, to the node check and to a detector."""

    key: str  # of `CONDITIONS`, or of `FAULTS`
    reads: tuple[str, ...]  # metrics, in the order in which `holds` takes them
    limit: str  # in words
    source: str  # of the limit
    holds: Callable[..., Measured]
    normal: str = ""  # the normal value shown in evidence, if it is a number

    @property
    def described(self) -> Described:
        """Its meaning, severity and action."""
        return CONDITIONS.get(self.key) or FAULTS[self.key]

    def shows(self, row: Row) -> bool:
        """Return whether one row shows the symptom; None in the row means not measured."""
        found = (row.get(name) for name in self.reads)
        return bool(self.holds(*(_NOT_MEASURED if one is None else one for one in found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """A reason for slowed GPU clocks: a single look sees whether it acts, a span for how long it did."""

    key: str  # of `CONDITIONS`, which has the severity while it lasts
    bit: int  # of clock_event_reasons, nvml.h
    counter: str  # the metric of its seconds
    least_seconds: float | None  # within a span; None: reported only when it lasts
    share: float  # of a span, from which on it counts as lasting
    source: str
    # The severity of a brief one, and at a single look, which cannot tell.
    at_a_look: Severity
    is_hardware: bool
    is_heat: bool

    @property
    def described(self) -> Described:
        """Its meaning, its severity while it lasts, and the action."""
        return CONDITIONS[self.key]

    @property
    def limit(self) -> str:
        """The limit in words."""
        share = f"{self.share:.0%} of `window_seconds`"
        if self.least_seconds is None:
            return share
        return f"{self.least_seconds:g} s of `window_seconds`, {self.at_a_look.value}; from {share} on {self.described.severity.value}"

    def shows(self, row: Row) -> bool:
        """Return whether the GPU is slowed for this reason at this moment."""
        return bool(int(row.get("clock_event_reasons") or 0) & self.bit)

    def least(self, span: float) -> float:
        """Return from how many seconds within a span on it is reported."""
        lasting = self.share * span
        return lasting if self.least_seconds is None else min(self.least_seconds, lasting)

    def lasts(self, seconds: float, span: float) -> bool:
        """Return whether it slowed the GPU for most of a span."""
        return seconds >= self.share * span


# The Linux kernel's own graphics driver.
NOUVEAU = "nouveau"


def without_driver(*, expected: bool, nouveau: bool) -> tuple[Severity, str]:
    """Return severity and action for GPUs without a driver; an unexpected card may be left like that."""
    row = FAULTS["driver_not_loaded"]
    severity = row.severity if expected else Severity.WARNING
    return severity, NOUVEAU_ACTION if nouveau else row.action


def _set(flag: Measured) -> Measured:
    return flag >= 1


def _any_set(*flags: Measured) -> Measured:
    found = flags[0] >= 1
    for flag in flags[1:]:
        found = found | (flag >= 1)
    return found


def _retired(corrected: Measured, uncorrected: Measured) -> Measured:
    # Where only one of the two is measured, it decides alone.
    many = (corrected >= _RETIRED) | (corrected + uncorrected >= _RETIRED)
    return many | (uncorrected > _RETIRED_BY_DOUBLE_BIT)


def _less(now: Measured, best: Measured) -> Measured:
    # A link of no lanes carries nothing, not even this answer: 0 is a failed reading.
    return (now > 0) & (now < best)


def _slow(now: Measured, best: Measured, utilization: Measured) -> Measured:
    return _less(now, best) & (utilization >= WORKING_PERCENT)


def _outside(state: Measured, status: Measured) -> Measured:
    joins = (state >= 1) & (state < FABRIC_COMPLETED)
    return joins | ((state >= FABRIC_COMPLETED) & (status >= 1))


def _down(up: Measured, enabled: Measured) -> Measured:
    # A port that somebody switched off is no fault; if that is not measured, it counts as enabled.
    switched_off = enabled < 1
    return (up < 1) & (switched_off ^ True)


_FLAG = "the flag is set"
_NVIDIA_MEMORY = "NVIDIA, A100 GPU memory error management"

# The fault that each single-look symptom shows.
_SEEN = {row.look: row.key for row in FAULTS.values() if row.look is not None}
SRAM_THRESHOLD = Symptom(
    key="sram_threshold",
    reads=("sram_threshold_exceeded",),
    limit=_FLAG,
    source="nvmlDeviceGetSramEccErrorStatus",
    holds=_set,
)
REMAP_FAILURE = Symptom(
    key="remap_failure",
    reads=("remap_failure",),
    limit=_FLAG,
    source=_NVIDIA_MEMORY,
    holds=_set,
)
RETIRED_PAGES = Symptom(
    key="retired_pages",
    reads=("retired_pages_corrected", "retired_pages_uncorrected"),
    limit=f"{_RETIRED} pages, or more than {_RETIRED_BY_DOUBLE_BIT} by double-bit errors",
    source="DCGM health",
    holds=_retired,
    normal=f"under {_RETIRED}, {_RETIRED_BY_DOUBLE_BIT} by double-bit errors at most",
)
NO_SPARE_ROWS = Symptom(
    key="no_spare_rows",
    reads=("remap_banks_none",),
    limit="1 bank",
    source=_NVIDIA_MEMORY,
    holds=_set,
)
UNCORRECTED = Symptom(
    key="uncorrected_growth",
    reads=("ecc_uncorrected_errors",),
    limit="1 error since the last reset; for the detector within `trend_seconds`, too",
    source="azurehpc-health-checks fails at any",
    holds=_set,
)
REPAIR_PENDING = Symptom(
    key="repair_pending",
    reads=(
        *("remap_pending", "bank_remap_pending", "channel_repair_pending"),
        *("tpc_repair_pending", "retired_pages_pending"),
    ),
    limit="any flag is set",
    source=f"{_NVIDIA_MEMORY}: programs run on, and new ones may start",
    holds=_any_set,
)
NO_FABRIC = Symptom(
    key=_SEEN[NodeCheckSign.NO_FABRIC],
    reads=("fabric_state", "fabric_status"),
    limit="a fabric that the GPU supports and is not in, or that it joined with an error",
    source="nvml.h, nvmlGpuFabricState_t",
    holds=_outside,
)
PCIE_NARROW = Symptom(
    key="pcie_narrow",
    reads=("pcie_width", "pcie_width_max"),
    limit="fewer lanes than GPU and slot can do",
    source="nvmlDeviceGetMaxPcieLinkWidth",
    holds=_less,
)
PCIE_SLOW = Symptom(
    key="pcie_slow",
    reads=("pcie_generation", "pcie_generation_max", "utilization_percent"),
    limit=f"a lower generation at {WORKING_PERCENT} % utilisation or more",
    source="ours: an idle link saves power, one that works does not",
    holds=_slow,
)
NVLINKS_DOWN = Symptom(
    key="nvlink_down",
    # Compared with the most links of a GPU of the same model in the node.
    reads=("nvlink_links_up",),
    limit="fewer links than the best GPU of the same model in the node",
    source="ours: where all have few alike, the machine is built so",
    holds=lambda up, best: up < best,
)
PORT_DOWN = Symptom(
    key=_SEEN[NodeCheckSign.PORT_DOWN],
    reads=("up", "enabled"),
    limit="a port that was up once, is down, and that nobody switched off",
    source="ours",
    holds=_down,
)
SYMPTOMS: Mapping[str, Symptom] = {
    row.key: row
    for row in (
        SRAM_THRESHOLD,
        REMAP_FAILURE,
        RETIRED_PAGES,
        NO_SPARE_ROWS,
        UNCORRECTED,
        REPAIR_PENDING,
        NO_FABRIC,
        PCIE_NARROW,
        PCIE_SLOW,
        NVLINKS_DOWN,
        PORT_DOWN,
    )
}
POWER_BRAKE = Slowdown(
    key="power_brake",
    bit=0x80,
    counter="power_brake_seconds",
    least_seconds=10.0,
    share=0.5,
    source="ours: a second of it is the board's own affair, half of the time halves the clocks",
    at_a_look=Severity.WARNING,
    is_hardware=True,
    is_heat=False,
)
HARDWARE_THERMAL = Slowdown(
    key="hardware_thermal",
    bit=0x40,
    counter="hardware_thermal_slowdown_seconds",
    least_seconds=10.0,
    share=0.5,
    source="gpud alarms at 0.6 slowdowns a minute over ten; the seconds are ours",
    at_a_look=Severity.WARNING,
    is_hardware=True,
    is_heat=True,
)
SOFTWARE_THERMAL = Slowdown(
    key="software_thermal",
    bit=0x20,
    counter="software_thermal_slowdown_seconds",
    least_seconds=None,
    share=0.5,
    source="ours: a fault only when it lasts",
    at_a_look=Severity.INFO,
    is_hardware=False,
    is_heat=True,
)
SLOWDOWNS: Mapping[str, Slowdown] = {
    row.key: row
    for row in (
        POWER_BRAKE,
        HARDWARE_THERMAL,
        SOFTWARE_THERMAL,
    )
}
