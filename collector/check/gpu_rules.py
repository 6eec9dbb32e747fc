"""The faults that one GPU's values show, by catalogue names; an absent value shows nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpuvigil.faults.recovery import advice
from gpuvigil.faults.symptoms import (
    FABRIC_STATES,
    HARDWARE_THERMAL,
    NO_FABRIC,
    NO_SPARE_ROWS,
    PCIE_NARROW,
    PCIE_SLOW,
    REMAP_FAILURE,
    REPAIR_PENDING,
    RETIRED_PAGES,
    SLOWDOWNS,
    SOFTWARE_THERMAL,
    SRAM_THRESHOLD,
    UNCORRECTED,
    Symptom,
)
from gpuvigil.model import Severity

from ..samples.field_values import Values
from .evidence import Item

# The bit of clock_event_reasons that any slowdown by hardware sets.
_HW_SLOWDOWN = 0x8
# NVML_GPU_FABRIC_HEALTH_SUMMARY_*.
_FABRIC_UNHEALTHY = {2: "unhealthy", 3: "limited capacity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A fault that one look shows, its evidence, and its severity and action where they differ."""

    fault: str  # of `CONDITIONS`, `FAULTS` or `NODE_FAULTS`
    evidence: Mapping[Item, str]
    severity: Severity | None = None
    action: str | None = None


Judged = Iterator[Claim]


def judge(values: Values) -> Judged:
    """Yield the faults that one GPU's values show, each with its evidence."""
    for rule in GPU_RULES:
        yield from rule(values)


def _recovery(values: Values) -> Judged:
    """Yield the driver's own advice."""
    asked = advice(int(values.get("recovery_action") or 0))
    if asked is not None:
        evidence = {Item.DRIVER_ADVICE: asked.words}
        yield Claim(
            fault="recovery_action",
            evidence=evidence,
            severity=asked.severity,
            action=asked.action,
        )


def _symptoms(values: Values) -> Judged:
    """Yield what the detectors judge by the same limits."""
    for symptom, evidence in _SHOWN:
        if symptom.shows(values):
            yield Claim(fault=symptom.key, evidence=evidence(values))


def _sram(values: Values) -> Mapping[Item, str]:
    names = {
        "sram_parity_errors": Item.SRAM_PARITY_ERRORS,
        "sram_secded_errors": Item.SRAM_SECDED_ERRORS,
    }
    found = {item: f"{values[name]}" for name, item in names.items() if values.get(name)}
    return {Item.SRAM_THRESHOLD: "yes", **found}


def _remapped(values: Values) -> Mapping[Item, str]:
    rows = values.get("remapped_rows_uncorrected")
    return {} if rows is None else {Item.ROWS_REMAPPED: f"{rows}"}


def _retired(values: Values) -> Mapping[Item, str]:
    names = {
        "retired_pages_corrected": Item.PAGES_RETIRED,
        "retired_pages_uncorrected": Item.PAGES_RETIRED_BY_DOUBLE_BIT,
    }
    return {item: f"{values[name]}" for name, item in names.items() if name in values}


def _waiting(values: Values) -> Mapping[Item, str]:
    """Return the rows, banks, pages and channels that wait to be replaced."""
    names = {
        "remap_pending": "row",
        "bank_remap_pending": "bank",
        "channel_repair_pending": "memory channel",
        "tpc_repair_pending": "TPC",
        "retired_pages_pending": "retired pages",
    }
    waiting = ", ".join(word for name, word in names.items() if values.get(name))
    return {Item.WAITS_FOR_RESET: waiting, **_remapped(values)}


def _fabric(values: Values) -> Mapping[Item, str]:
    state = int(values["fabric_state"])
    if state in FABRIC_STATES:
        return {Item.FABRIC_REGISTRATION: FABRIC_STATES[state]}
    return {Item.FABRIC_REGISTRATION_ENDED: f"NVML code {values['fabric_status']}"}


# Symptoms that one GPU's values show by themselves, each with its evidence.
_SHOWN: tuple[tuple[Symptom, Callable[[Values], Mapping[Item, str]]], ...] = (
    (UNCORRECTED, lambda it: {Item.UNCORRECTABLE_ERRORS: f"{it['ecc_uncorrected_errors']}"}),
    (SRAM_THRESHOLD, _sram),
    (REMAP_FAILURE, lambda it: {Item.REMAP_FAILURE: "yes", **_remapped(it)}),
    (RETIRED_PAGES, _retired),
    (REPAIR_PENDING, _waiting),
    (NO_SPARE_ROWS, lambda it: {Item.BANKS_WITHOUT_SPARE: f"{it['remap_banks_none']}"}),
    (NO_FABRIC, _fabric),
    (PCIE_NARROW, lambda it: {Item.PCIE_LANES: f"{it['pcie_width']} of {it['pcie_width_max']}"}),
    (
        PCIE_SLOW,
        lambda it: {
            Item.PCIE_GENERATION: f"{it['pcie_generation']} of {it['pcie_generation_max']}",
            Item.UTILIZATION: f"{it['utilization_percent']} %",
        },
    ),
)


def _fabric_health(values: Values) -> Judged:
    """Yield a fault of a GPU's joined NVLink fabric; a GPU without a fabric reports 0, or nothing."""
    health = int(values.get("fabric_health") or 0)
    if health in _FABRIC_UNHEALTHY and not NO_FABRIC.shows(values):
        mask = int(values.get("fabric_health_mask") or 0)
        evidence = {
            Item.FABRIC_HEALTH: _FABRIC_UNHEALTHY[health],
            Item.FABRIC_HEALTH_MASK: f"0x{mask:x}",
        }
        yield Claim(fault="fabric_unhealthy", evidence=evidence)


def _slowed(values: Values) -> Judged:
    """Yield slowdowns; the umbrella bit alone only when neither of its two causes is set."""
    reasons = int(values.get("clock_event_reasons") or 0)
    evidence = {Item.CLOCK_EVENT_REASONS: f"0x{reasons:x}"}
    celsius = values.get("temperature_celsius")
    heat = evidence | ({} if celsius is None else {Item.TEMPERATURE: f"{celsius} °C"})
    told = [row for row in SLOWDOWNS.values() if row.shows(values)]
    if reasons & _HW_SLOWDOWN and not any(row.is_hardware for row in told):
        yield Claim(fault="hw_slowdown", evidence=evidence)
    if HARDWARE_THERMAL in told and SOFTWARE_THERMAL in told:
        # Where the hardware slows down for heat, software does as well.
        told.remove(SOFTWARE_THERMAL)
    for row in told:
        yield Claim(
            fault=row.key,
            evidence=heat if row.is_heat else evidence,
            severity=row.at_a_look,
        )


GPU_RULES: tuple[Callable[[Values], Judged], ...] = (
    _recovery,
    _symptoms,
    _fabric_health,
    _slowed,
)
