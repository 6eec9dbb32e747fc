"""What the numbers of one GPU show, by the names of the catalogue; a number that is absent shows nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpuvigil.model import Severity

from ..samples.field_values import Values
from .evidence import Item

HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A fault of `gpuvigil.faults.node_faults`, its evidence, and where they differ its severity and action."""

    fault: str
    evidence: Mapping[Item, str]
    severity: Severity | None = None
    action: str | None = None


Judged = Iterator[Claim]


def judge(values: Values) -> Judged:
    """Faults that one GPU's numbers show, each with its evidence."""
    for rule in GPU_RULES:
        yield from rule(values)


def _ecc(values: Values) -> Judged:
    count = values.get("ecc_uncorrected_errors")
    if count:
        yield Claim(fault="ecc_uncorrected", evidence={Item.UNCORRECTABLE_ERRORS: f"{count}"})
    if values.get("sram_threshold_exceeded") == 1:
        names = {
            "sram_parity_errors": Item.SRAM_PARITY_ERRORS,
            "sram_secded_errors": Item.SRAM_SECDED_ERRORS,
        }
        found = {item: f"{values[name]}" for name, item in names.items() if values.get(name)}
        yield Claim(fault="sram_threshold", evidence={Item.SRAM_THRESHOLD: "yes", **found})


def _repairs(values: Values) -> Judged:
    """Rows, banks, pages and channels that were or will be replaced."""
    rows = values.get("remapped_rows_uncorrected")
    seen = {} if rows is None else {Item.ROWS_REMAPPED: f"{rows}"}
    if values.get("remap_failure") == 1:
        yield Claim(fault="remap_failed", evidence={Item.REMAP_FAILURE: "yes", **seen})
    names = {
        "remap_pending": "row",
        "bank_remap_pending": "bank",
        "channel_repair_pending": "memory channel",
        "tpc_repair_pending": "TPC",
    }
    waiting = [word for name, word in names.items() if values.get(name) == 1]
    if waiting:
        yield Claim(
            fault="repair_pending", evidence={Item.WAITS_FOR_RESET: ", ".join(waiting), **seen}
        )
    if values.get("retired_pages_pending") == 1:
        yield Claim(fault="retirement_pending", evidence={Item.PAGES_WAIT_FOR_REBOOT: "yes"})
    exhausted = values.get("remap_banks_none")
    if exhausted:
        yield Claim(fault="spare_rows_used_up", evidence={Item.BANKS_WITHOUT_SPARE: f"{exhausted}"})


# NVML_GPU_RECOVERY_ACTION_* of nvml.h: what it is called, and what to do. To drain peer-to-peer
# traffic or to mend an IMEX domain leaves the GPU itself usable.
_RESET = "Drain the node, then reset the GPU."
_REBOOT = "Drain the node and reboot it."
_ADVICE: Mapping[int, tuple[str, str, Severity]] = {
    1: ("reset the GPU", _RESET, Severity.CRITICAL),
    2: ("reboot the node", _REBOOT, Severity.CRITICAL),
    3: (
        "drain peer-to-peer traffic",
        "Let the programs that use this GPU's peer-to-peer traffic end, then reset the GPU.",
        Severity.WARNING,
    ),
    4: ("drain and reset", _RESET, Severity.CRITICAL),
    5: (
        "recover the IMEX domain",
        "Restart nvidia-imex on the nodes of this NVLink domain when no job runs there.",
        Severity.WARNING,
    ),
    6: (
        "reset the bus",
        "Drain the node, then reset the GPU's PCIe bus or reboot.",
        Severity.CRITICAL,
    ),
    7: ("reboot the system", _REBOOT, Severity.CRITICAL),
}


def _recovery(values: Values) -> Judged:
    """The driver's own advice."""
    number = int(values.get("recovery_action") or 0)
    if number:
        unknown = (f"action {number}", _RESET, Severity.WARNING)
        advice, action, severity = _ADVICE.get(number, unknown)
        evidence = {Item.DRIVER_ADVICE: advice}
        yield Claim(fault="recovery_action", evidence=evidence, severity=severity, action=action)


def _slowdown(values: Values) -> Judged:
    """The umbrella bit 0x8 is told by itself only when neither of its two causes is."""
    reasons = int(values.get("clock_event_reasons") or 0)
    evidence = {Item.CLOCK_EVENT_REASONS: f"0x{reasons:x}"}
    celsius = values.get("temperature_celsius")
    heat = evidence | ({} if celsius is None else {Item.TEMPERATURE: f"{celsius} °C"})
    if reasons & POWER_BRAKE:
        yield Claim(fault="power_brake", evidence=evidence)
    if reasons & HW_THERMAL:
        yield Claim(fault="hw_thermal_slowdown", evidence=heat)
    if reasons & HW_SLOWDOWN and not reasons & (HW_THERMAL | POWER_BRAKE):
        yield Claim(fault="hw_slowdown", evidence=evidence)
    if reasons & SW_THERMAL and not reasons & HW_THERMAL:
        yield Claim(fault="sw_thermal_slowdown", evidence=heat)


def _pcie(values: Values) -> Judged:
    width, widest = values.get("pcie_width"), values.get("pcie_width_max")
    if width and widest and width < widest:
        yield Claim(fault="pcie_narrow", evidence={Item.PCIE_LANES: f"{width} of {widest}"})
    generation, highest = values.get("pcie_generation"), values.get("pcie_generation_max")
    busy = values.get("utilization_percent") or 0
    if busy and generation and highest and generation < highest:
        at = {Item.PCIE_GENERATION: f"{generation} of {highest}", Item.UTILIZATION: f"{busy} %"}
        yield Claim(fault="pcie_slow", evidence=at)


# NVML_GPU_FABRIC_STATE_*, and NVML_GPU_FABRIC_HEALTH_SUMMARY_*.
_FABRIC_STATES = {1: "not started", 2: "in progress"}
_FABRIC_COMPLETED = 3
_FABRIC_UNHEALTHY = {2: "unhealthy", 3: "limited capacity"}


def _fabric(values: Values) -> Judged:
    """Whether the GPU has joined its NVLink fabric; a GPU without one says 0, or nothing."""
    state = int(values.get("fabric_state") or 0)
    status = int(values.get("fabric_status") or 0)
    if state in _FABRIC_STATES:
        yield Claim(
            fault="fabric_not_ready", evidence={Item.FABRIC_REGISTRATION: _FABRIC_STATES[state]}
        )
    elif state == _FABRIC_COMPLETED and status:
        yield Claim(
            fault="fabric_not_ready",
            evidence={Item.FABRIC_REGISTRATION_ENDED: f"NVML code {status}"},
        )
    elif (health := int(values.get("fabric_health") or 0)) in _FABRIC_UNHEALTHY:
        mask = int(values.get("fabric_health_mask") or 0)
        evidence = {
            Item.FABRIC_HEALTH: _FABRIC_UNHEALTHY[health],
            Item.FABRIC_HEALTH_MASK: f"0x{mask:x}",
        }
        yield Claim(fault="fabric_unhealthy", evidence=evidence)


GPU_RULES: tuple[Callable[[Values], Judged], ...] = (
    _recovery,
    _ecc,
    _repairs,
    _fabric,
    _slowdown,
    _pcie,
)
