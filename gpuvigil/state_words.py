"""Words for numbers that stand for a state, as people read them on pages.

Sources: nvml.h, `nvmlGpuFabricState_t`, `NVML_GPU_FABRIC_HEALTH_*`, `nvmlComputeMode_t`,
`nvmlEnableState_t`, `nvmlClocksEventReason*`, `NVML_GPU_RECOVERY_ACTION_*`; the phases of a step are ours
(`gpuvigil.steps`).
"""

from collections.abc import Callable, Iterator, Mapping

from .recovery_actions import recovery_words

_ON, _YES = ("off", "on"), ("no", "yes")
_ENUMS: Mapping[str, tuple[str, ...]] = {
    "fabric_state": ("not supported", "not started", "in progress", "completed"),
    "fabric_health": ("not supported", "healthy", "unhealthy", "limited capacity"),
    "fabric_status": ("success",),
    "compute_mode": ("default", "exclusive thread", "prohibited", "exclusive process"),
    "step_phase": (
        "own work",
        "waits for input",
        "with the other ranks",
        "checkpoint",
        "evaluation",
        "stopped by a signal",
    ),
    **dict.fromkeys(("ecc_mode", "ecc_mode_pending", "mig_mode", "mig_mode_pending"), _ON),
    "persistence_mode": _ON,
    **dict.fromkeys(("sram_threshold_exceeded", "remap_pending", "remap_failure"), _YES),
    **dict.fromkeys(("bank_remap_pending", "retired_pages_pending"), _YES),
    **dict.fromkeys(("channel_repair_pending", "tpc_repair_pending"), _YES),
}
# By bit, from the lowest.
_CLOCK_REASONS = (
    "idle",
    "clocks set by a user",
    "software power cap",
    "hardware slowdown",
    "sync boost",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
    "display clocks",
)
# Two bits each, from the lowest: 1 is true, 2 false, 0 not supported.
_FABRIC_TROUBLES = (
    "degraded bandwidth",
    "route recovery",
    "route unhealthy",
    "access timeout recovery",
)
# Four bits after those: 0 is not supported, 1 none.
_FABRIC_SETUPS = (
    "",
    "",
    "wrong system GUID",
    "wrong chassis serial number",
    "no partition",
    "too few NVLinks",
    "incompatible GPU firmware",
    "invalid location",
    "GPU in an invalid state",
)


def state_words(name: str, value: int) -> str | None:
    """Return a state in words; None for a metric whose number says it, or a value without a name."""
    if name in _ENUMS:
        words = _ENUMS[name]
        return words[value] if 0 <= value < len(words) else None
    return _OTHERS[name](value) if name in _OTHERS else None


def _recovery(value: int) -> str:
    return "none" if value == 0 else recovery_words(value)


def _clock_reasons(value: int) -> str:
    known = [words for bit, words in enumerate(_CLOCK_REASONS) if value >> bit & 1]
    rest = value >> len(_CLOCK_REASONS) << len(_CLOCK_REASONS)
    return ", ".join([*known, *([f"0x{rest:x}"] if rest else [])]) or "none"


def _fabric_mask(value: int) -> str:
    return ", ".join(_fabric_troubles(value)) or "none"


def _fabric_troubles(value: int) -> Iterator[str]:
    for place, words in enumerate(_FABRIC_TROUBLES):
        if value >> 2 * place & 0b11 == 1:
            yield words
    setup = value >> 2 * len(_FABRIC_TROUBLES) & 0b1111
    if setup > 1:
        yield _FABRIC_SETUPS[setup] if setup < len(_FABRIC_SETUPS) else f"configuration {setup}"


_OTHERS: Mapping[str, Callable[[int], str]] = {
    "recovery_action": _recovery,
    "clock_event_reasons": _clock_reasons,
    "fabric_health_mask": _fabric_mask,
    "performance_state": "P{}".format,
}
