"""Every number of the simulated cluster at any moment.

Pure functions of the node and of the seconds since the simulation began, counters included, so
that a simulator that restarts continues where it was.

Limits: NVIDIA, "H100 Tensor Core GPU datasheet" (700 W, 18 NVLinks, PCIe 5.0 x16); NDR InfiniBand
(400 Gb/s).
"""

import math
from dataclasses import dataclass

from gpuvigil.model import PortIdentity

from .cluster import GPU_MEMORY_BYTES, NOTEBOOK, Node, Slot, node_number
from .fabric.cabling import FABRIC_BITS_PER_SECOND

_MANAGEMENT_BITS_PER_SECOND = 10_000_000_000
_HOST_MEMORY_BYTES = 2 * 1024**4

_POWER_LIMIT_WATTS = 700.0
_FREE_WATTS = 71.0
_HELD_WATTS = 118.0  # a compute context keeps the clocks up
_SM_CLOCK_HERTZ = 1_980_000_000
_FREE_SM_CLOCK_HERTZ = 345_000_000
_MEMORY_CLOCK_HERTZ = 2_619_000_000
_REASON_GPU_IDLE = 0x1  # nvmlClocksEventReasonGpuIdle
_NVLINKS = 18
# Shares of a training's step: a rank's own work, and waiting for input; and the time between checkpoints.
OWN_SHARE, _INPUT_SHARE, CHECKPOINT_SECONDS = 0.55, 0.01, 1800.0


# Fields that stay constant on a healthy H100 SXM, in the units of the catalogue.
_STEADY: dict[str, float | int] = {
    "encoder_utilization_percent": 0,
    "decoder_utilization_percent": 0,
    "memory_reserved_bytes": 578_813_952,
    "bar1_used_bytes": 2 * 1024**2,
    "bar1_total_bytes": 128 * 1024**3,
    "power_limit_requested_watts": _POWER_LIMIT_WATTS,
    "power_limit_default_watts": _POWER_LIMIT_WATTS,
    "power_limit_min_watts": 200.0,
    "power_limit_max_watts": _POWER_LIMIT_WATTS,
    "shutdown_tlimit_celsius": -8,
    "slowdown_tlimit_celsius": -2,
    "sm_clock_max_hertz": _SM_CLOCK_HERTZ,
    "memory_clock_max_hertz": _MEMORY_CLOCK_HERTZ,
    "thermal_violation_seconds": 0.0,
    "software_thermal_slowdown_seconds": 0.0,
    "hardware_thermal_slowdown_seconds": 0.0,
    "power_brake_seconds": 0.0,
    "ecc_uncorrected_dram_errors": 0,
    "ecc_uncorrected_sram_errors": 0,
    "ecc_mode": 1,
    "remapped_rows_corrected": 0,
    "remapped_rows_uncorrected": 0,
    "remap_pending": 0,
    "remap_failure": 0,
    "remap_banks_max": 2560,
    "remap_banks_none": 0,
    "recovery_action": 0,
    "pcie_correctable_errors": 0,
    "pcie_non_fatal_errors": 0,
    "pcie_fatal_errors": 0,
    "nvlink_worst_link_errors": 0,
    "nvlink_crc_errors": 0,
    "nvlink_replay_errors": 0,
    "nvlink_recovery_errors": 0,
    "fabric_state": 3,
    "fabric_status": 0,
    "fabric_health": 1,
    "mig_mode": 0,
    "mig_devices": 0,
    "persistence_mode": 1,
    "compute_mode": 0,
    "graphics_processes": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a slot at one moment: its load, and its load summed over time."""

    load: float
    loaded_seconds: float


NO_WORK = Work(load=0.0, loaded_seconds=0.0)


def work(slot: Slot, elapsed_seconds: float) -> Work:
    """Return the slot's load, and its exact integral since the simulation began."""
    workload = slot.workload
    speed = math.tau / workload.swing_seconds
    angle = speed * elapsed_seconds + slot.phase
    wave = math.cos(slot.phase) - math.cos(angle)
    return Work(
        load=workload.load + workload.swing * math.sin(angle),
        loaded_seconds=workload.load * elapsed_seconds + workload.swing / speed * wave,
    )


Fields = dict[str, float | int | bool | str | None]


def gpu_fields(node: Node, index: int, work: Work, elapsed_seconds: float, tick: int) -> Fields:
    """Return every number of a GPU that answers; the catalogue says what each means."""
    slot = node.slots[index]
    held = slot is not None
    workload = NOTEBOOK if slot is None else slot.workload
    wobble, wobble_of_power, wobble_of_clock = _noise(node.seed + index, tick)
    character = (node.seed >> (3 * index) & 7) / 7.0  # no two boards are quite alike
    load = work.load * (0.985 + 0.03 * character)
    computing = load > 0.0
    idle_watts = _HELD_WATTS if held else _FREE_WATTS
    span = _POWER_LIMIT_WATTS - _HELD_WATTS
    mean_watts = idle_watts + 6.0 * character + load * span
    watts = min(mean_watts + wobble_of_power * (8.0 if computing else 1.0), _POWER_LIMIT_WATTS)
    celsius = 27.0 + index % 4 * 1.5 + 3.0 * character + mean_watts * 0.05
    loaded = work.loaded_seconds * (0.985 + 0.03 * character)
    clock = _SM_CLOCK_HERTZ if held else _FREE_SM_CLOCK_HERTZ
    if computing:
        clock -= int(load * 12 + wobble_of_clock * 2) * 15_000_000
    nvlink = int(loaded * workload.nvlink_bytes_per_second)
    return {
        **_STEADY,
        **_step_fields(node, index, character, elapsed_seconds),
        "up": 1,
        "index": index,
        "utilization_percent": _percent(load + 0.06 + 0.02 * wobble) if computing else 0,
        "memory_utilization_percent": _percent(load * 0.62 + 0.03 * wobble) if computing else 0,
        "memory_used_bytes": int(GPU_MEMORY_BYTES * workload.memory_share) if held else 0,
        "memory_total_bytes": GPU_MEMORY_BYTES,
        "power_watts": round(watts, 3),
        "power_limit_watts": _POWER_LIMIT_WATTS,
        "energy_joules": round((idle_watts + 6.0 * character) * elapsed_seconds + loaded * span, 3),
        "temperature_celsius": round(celsius),
        "memory_temperature_celsius": round(celsius + 6.0 + load * 5.0),
        "sm_clock_hertz": clock,
        "memory_clock_hertz": _MEMORY_CLOCK_HERTZ,
        "clock_event_reasons": 0 if computing else _REASON_GPU_IDLE,
        "performance_state": 0,
        "ecc_corrected_errors": int(elapsed_seconds * character / 90_000.0),
        "ecc_uncorrected_errors": 0,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_replays": 0,
        "nvlink_links_up": _NVLINKS,
        "nvlink_links_expected": _NVLINKS,
        "nvlink_receive_bytes": nvlink,
        "nvlink_transmit_bytes": nvlink,
        "nvlink_errors": 0,
        "compute_processes": 1 if held else 0,
        "sm_activity_percent": round(load * 88.0, 1) if computing else 0.0,
        "sm_occupancy_percent": round(load * 46.0, 1) if computing else 0.0,
        "tensor_activity_percent": round(load * 52.0, 1) if computing else 0.0,
        "dram_activity_percent": round(load * 58.0, 1) if computing else 0.0,
        "temperature_margin_celsius": round(87.0 - celsius),
        "read_seconds": round(0.0021 + 0.0004 * abs(wobble), 6),
    }


def _step_fields(node: Node, index: int, character: float, elapsed_seconds: float) -> Fields:
    """Return the steps of a training's rank, but not when the last one ended, which would contradict every fault."""
    slot = node.slots[index]
    if slot is None or not slot.workload.step_seconds:
        return {}
    step = slot.workload.step_seconds
    ran = elapsed_seconds - slot.started_seconds(slot.run(elapsed_seconds))
    return {
        "rank": slot.places.index((node_number(node.subject.node), index)),
        "step": steps_made(ran, step),
        "step_seconds": step,
        "step_own_seconds": round(step * (OWN_SHARE + 0.01 * character), 3),
        "step_input_seconds": round(step * _INPUT_SHARE, 3),
        "checkpoint_age_seconds": round(ran % CHECKPOINT_SECONDS, 3),
    }


def steps_made(seconds: float, length: float) -> int:
    """Return how many steps of that length end in that time; one that ends just then is not lost to rounding."""
    return math.floor(seconds / length + 1e-6)


def fabric_bytes(node: Node, elapsed_seconds: float) -> float:
    """Return the bytes that the node's GPUs have sent over the fabric, both InfiniBand ports together."""
    return sum(fabric_bytes_of(slot, elapsed_seconds) for slot in node.slots if slot is not None)


def fabric_bytes_of(slot: Slot, elapsed_seconds: float) -> float:
    """Return the bytes that one GPU of the slot has sent."""
    per_second = slot.workload.fabric_bytes_per_second
    return work(slot, elapsed_seconds).loaded_seconds * per_second if per_second else 0.0


def port_fields(port: PortIdentity, fabric_bytes: float, elapsed_seconds: float) -> Fields:
    """Return every number of a port that is up."""
    if port.role == "fabric":
        # A storage mount and subnet management keep some traffic on a fabric without jobs.
        moved = int(fabric_bytes / 2.0 + elapsed_seconds * 90_000.0)
        return {
            "up": 1,
            "physical_state": 5,
            "speed_bits_per_second": FABRIC_BITS_PER_SECOND,
            "receive_bytes": moved,
            "transmit_bytes": moved,
            "receive_errors": 0,
            "transmit_discards": 0,
            "link_downed": 0,
            "symbol_errors": 0,
            "width_lanes": 4,
            "link_recoveries": 0,
            "local_integrity_errors": 0,
            # Collectives wait for credits now and then; no maker publishes the length of a tick.
            "transmit_wait_ticks": int(fabric_bytes / 20_000.0),
            "receive_pause_microseconds": 0,
            "transmit_pause_microseconds": 0,
            "out_of_buffer": 0,
            "retransmits": int(elapsed_seconds / 900.0),
            "module_celsius": 52,
        }
    return {
        "up": 1,
        "speed_bits_per_second": _MANAGEMENT_BITS_PER_SECOND,
        "receive_bytes": int(elapsed_seconds * 310_000.0),
        "transmit_bytes": int(elapsed_seconds * 240_000.0),
        "receive_errors": 0,
        "transmit_discards": 0,
        "link_downed": 0,
    }


def node_fields(node: Node, busy: float, tick: int) -> Fields:
    """Return the node's own numbers; `busy` is the mean load of its GPUs, 0 to 1."""
    wobble, wobble_of_memory, _ = _noise(node.seed, tick)
    used = 0.06 + 0.35 * busy + 0.004 * wobble_of_memory
    return {
        "gpus_expected": len(node.gpus),
        "gpus_answering": len(node.gpus),
        "driver_answering": 1,
        "driver_silent_seconds": 0.0,
        "reader_restarts": 0,
        "sweep_seconds": round(0.018 + 0.002 * abs(wobble), 6),
        "spool_bytes": 0,
        "spool_oldest_seconds": 0.0,
        "spool_writable": 1,
        "dropped_bodies": 0,
        "load_average": round(0.8 + 26.0 * busy + 0.6 * abs(wobble), 2),
        "memory_available_bytes": int(_HOST_MEMORY_BYTES * (1.0 - used)),
        "memory_total_bytes": _HOST_MEMORY_BYTES,
        "cpu_throttled_milliseconds": 0,
        "cpu_throttles": 0,
    }


def _percent(share: float) -> int:
    return min(max(round(100.0 * share), 0), 100)


_MASK = 2**64 - 1


def _noise(seed: int, tick: int) -> tuple[float, float, float]:
    """Return three numbers from -1 to 1 that depend on seed and tick alone (the mixer of SplitMix64)."""
    mixed = (seed + tick * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    mixed ^= mixed >> 31
    return (
        (mixed & 0xFFFF) / 32767.5 - 1.0,
        (mixed >> 16 & 0xFFFF) / 32767.5 - 1.0,
        (mixed >> 32 & 0xFFFF) / 32767.5 - 1.0,
    )
