"""Readings of GPUs and nodes by a healthy collector: fields as [ticks x things], or one value.

A number that is the same everywhere is a plain scalar until something changes it. Counters are
whole numbers that continue from block to block.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .chance import Bits, Floats, bell, lane, mix
from .holding import CHECKPOINT, RequestedLoad
from .links import Links
from .physics import Physics, PhysicsEffects, PhysicsResult
from .topology import Index, Topology

Numbers = dict[str, Any]

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h).
IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80
_NANO = 1_000_000_000
_HOST_MEMORY_BYTES = 2 * 1024**4
# Written to a network file system while a job writes a checkpoint [chosen].
_WRITTEN_PER_SECOND = 1.2e9
_CORES = 224  # two sockets of 112 threads, as in an HGX host [chosen]
# Corrected errors per day of about the worst GPU in a thousand; most have none [chosen].
_MOST_CORRECTED_PER_DAY = 6.0
# Packets per day that the worst PCIe link in a thousand retransmits [chosen].
_MOST_REPLAYS_PER_DAY = 40.0
# Share of healthy GPUs with memory rows replaced in the past [chosen].
_REPAIRED = 0.03
_BANKS = 2560

# Fields that are the same on every healthy NVIDIA GPU.
_STEADY: dict[str, int] = {
    "up": 1, "pcie_present": 1, "memory_reserved_bytes": 578_813_952, "performance_state": 0,
    "ecc_uncorrected_errors": 0,
    "ecc_uncorrected_sram_errors": 0, "ecc_mode": 1, "sram_threshold_exceeded": 0,
    "sram_parity_errors": 0, "remapped_rows_corrected": 0,
    "remap_pending": 0, "remap_failure": 0, "remap_banks_none": 0,
    "retired_pages_corrected": 0, "retired_pages_uncorrected": 0, "retired_pages_pending": 0,
    "recovery_action": 0, "pcie_width": 16, "pcie_width_max": 16,
    "pcie_non_fatal_errors": 0, "pcie_fatal_errors": 0,
    "nvlink_replay_errors": 0, "nvlink_recovery_errors": 0,
    "fabric_state": 3, "fabric_status": 0, "fabric_health": 1, "mig_mode": 0, "mig_devices": 0,
    "persistence_mode": 1, "compute_mode": 0, "graphics_processes": 0, "fans": 0,
    "ecc_mode_pending": 1, "mig_mode_pending": 0, "ecc_corrected_sram_errors": 0,
    "sram_secded_errors": 0, "sram_l2_errors": 0, "sram_sm_errors": 0, "sram_pcie_errors": 0,
    "sram_mcu_errors": 0, "sram_other_errors": 0, "remap_banks_partial": 0, "remap_banks_low": 0,
    "channel_repair_pending": 0, "tpc_repair_pending": 0, "pcie_replay_rollovers": 0,
    "pcie_recoveries": 0, "pcie_receiver_errors": 0, "pcie_bad_tlps": 0, "pcie_naks_sent": 0,
    "pcie_bad_dllps": 0, "pcie_unsupported_requests": 0, "pcie_lcrc_errors": 0,
    "pcie_lane_errors": 0, "sync_boost_seconds": 0, "board_limit_seconds": 0,
    "reliability_limit_seconds": 0,
    # No degraded bandwidth, no route in recovery or unhealthy, no access timeout: two bits each.
    "fabric_health_mask": 0b10101010,
}  # fmt: skip
# The fields that a GPU without NVIDIA's driver has.
ANYBODY = frozenset(
    {
        "up", "index", "utilization_percent", "memory_utilization_percent", "memory_used_bytes",
        "memory_total_bytes", "power_watts", "power_limit_watts", "power_limit_default_watts",
        "energy_joules", "temperature_celsius", "memory_temperature_celsius", "sm_clock_hertz",
        "sm_clock_max_hertz", "memory_clock_hertz", "memory_clock_max_hertz", "pcie_present",
        "ecc_corrected_errors", "ecc_uncorrected_errors", "pcie_width", "pcie_width_max",
        "pcie_generation", "pcie_generation_max", "pcie_replays", "compute_processes",
        "read_seconds", "unmeasured_reason", "unmeasured_seconds", "slowdown_temperature_celsius",
        "shutdown_temperature_celsius",
    }
)  # fmt: skip
# Fields that other exporters often leave out, by group.
SORTS: dict[str, frozenset[str]] = {
    "memory utilization": frozenset({"memory_utilization_percent"}),
    "clocks": frozenset(
        {
            "sm_clock_hertz", "sm_clock_max_hertz", "memory_clock_hertz", "memory_clock_max_hertz",
            "clock_event_reasons", "power_cap_seconds", "thermal_violation_seconds",
            "software_thermal_slowdown_seconds", "hardware_thermal_slowdown_seconds",
            "power_brake_seconds", "sync_boost_seconds", "board_limit_seconds",
            "reliability_limit_seconds",
        }
    ),
    "profiling": frozenset(
        {
            "graphics_activity_percent", "sm_activity_percent", "sm_occupancy_percent",
            "tensor_activity_percent", "dram_activity_percent",
        }
    ),
    "error counters": frozenset(
        {
            "ecc_corrected_errors", "ecc_uncorrected_errors", "ecc_corrected_dram_errors",
            "ecc_uncorrected_dram_errors", "ecc_corrected_sram_errors",
            "ecc_uncorrected_sram_errors", "sram_threshold_exceeded", "sram_parity_errors",
            "sram_secded_errors", "sram_l2_errors", "sram_sm_errors", "sram_pcie_errors",
            "sram_mcu_errors", "sram_other_errors", "remapped_rows_corrected",
            "remapped_rows_uncorrected", "remap_pending", "remap_failure", "remap_banks_max",
            "remap_banks_high", "remap_banks_partial", "remap_banks_low", "remap_banks_none",
            "retired_pages_corrected", "retired_pages_uncorrected", "retired_pages_pending",
            "pcie_replays", "pcie_replay_rollovers", "pcie_recoveries", "pcie_correctable_errors",
            "pcie_naks_received", "pcie_receiver_errors", "pcie_bad_tlps", "pcie_naks_sent",
            "pcie_bad_dllps", "pcie_non_fatal_errors", "pcie_fatal_errors",
            "pcie_unsupported_requests", "pcie_lcrc_errors", "pcie_lane_errors", "nvlink_errors",
            "nvlink_replay_errors", "nvlink_recovery_errors", "nvlink_crc_errors",
            "nvlink_worst_link", "nvlink_worst_link_errors",
        }
    ),
    "host": frozenset(
        {
            "memory_errors_corrected", "memory_errors_uncorrected", "power_supplies_failed",
            "fans_failed", "mounts_hung", "space_used_share",
        }
    ),
}  # fmt: skip
PROFILED = ("graphics_activity_percent", "sm_activity_percent", "sm_occupancy_percent", "tensor_activity_percent", "dram_activity_percent")  # fmt: skip


class Counters:
    """Whole numbers per thing that only grow."""

    def __init__(self, things: int, names: tuple[str, ...]) -> None:
        self._last = {name: np.zeros(things, dtype=np.int64) for name in names}

    def add(self, name: str, gained: Index) -> Index:
        """Return [ticks x things]: the counter after each tick."""
        reached = np.cumsum(gained, axis=0, dtype=np.int64) + self._last[name]
        self._last[name] = reached[-1].copy()
        return reached


_REASON_SECONDS = {
    "power_cap_seconds": POWER_CAP,
    "software_thermal_slowdown_seconds": SW_THERMAL,
    "hardware_thermal_slowdown_seconds": HW_THERMAL,
    "power_brake_seconds": POWER_BRAKE,
}


@dataclass(slots=True, kw_only=True)
class Moment:
    """The ticks of a block, and the random numbers for them."""

    seconds: Floats
    tick_seconds: float
    own: Bits  # [ticks x GPUs]
    nodes: Bits  # [ticks x nodes]
    noise: float


class GpuSensors:
    """The sensors of all GPUs; the state that outlives a block is their counters."""

    def __init__(self, topology: Topology, physics: Physics, links: Links) -> None:
        self._topology = topology
        self._nvlinks = links
        self._physics = physics
        values = topology.model_values
        self._clock = values("sm_clock_hertz")
        self._free_clock = values("free_clock_hertz")
        if topology.world is not None:
            locked = topology.nodes_with(topology.world.locked_clocks, "locked clocks")
            self._free_clock = np.where(locked[topology.gpu_node], self._clock, self._free_clock)
        self._step = values("clock_step_hertz")
        self._memory = values("memory_bytes")
        self._offset = values("memory_offset_celsius")
        self._slope = values("memory_slope")
        self._generation = values("pcie_generation")
        self._links = values("link_bytes_per_second")
        self._operating = values("operating_celsius")
        lots = lane(topology.gpu_keys, 3)
        self._corrected_rate = lots * lots * lots * lots * _MOST_CORRECTED_PER_DAY / 86400.0
        lots = lane(mix(topology.gpu_keys, 43), 0)
        self._replay_rate = sixth(lots) * _MOST_REPLAYS_PER_DAY / 86400.0
        self._counters = Counters(
            topology.gpus, ("energy", "receive", "transmit", "violation", *_REASON_SECONDS)
        )
        self._steady = self._by_model()

    def _repaired(self) -> Numbers:
        """Return rows replaced long ago: a GPU that had an error is not a bad one."""
        past = mix(self._topology.gpu_keys, 41)
        rows = np.where(lane(past, 0) < _REPAIRED, 1.0 + np.floor(lane(past, 1) * 3.0), 0.0)
        rows = rows.astype(np.int64)
        return {
            "remapped_rows_uncorrected": rows,
            "ecc_uncorrected_dram_errors": rows,
            "remap_banks_high": rows,
            "remap_banks_max": _BANKS - rows,
        }

    def _by_model(self) -> Numbers:
        values = self._topology.model_values
        whole = np.int64
        return {
            "index": np.tile(np.arange(self._topology.per_node), self._topology.nodes),
            "memory_total_bytes": self._memory.astype(whole),
            "power_limit_default_watts": self._physics.limit,
            "power_limit_requested_watts": self._physics.limit,
            "power_limit_max_watts": self._physics.limit,
            "power_limit_min_watts": values("limit_min_watts"),
            "sm_clock_max_hertz": self._clock.astype(whole),
            "memory_clock_max_hertz": values("memory_clock_hertz").astype(whole),
            "memory_clock_hertz": values("memory_clock_hertz").astype(whole),
            "pcie_generation_max": self._generation.astype(whole),
            "nvlink_links_up": values("links").astype(whole),
            "nvlink_links_expected": values("links").astype(whole),
            **self._repaired(),
        }

    def read(
        self, asked: RequestedLoad, bends: PhysicsEffects, played: PhysicsResult, moment: Moment
    ) -> Numbers:
        """Return every field of every GPU, as if it were healthy."""
        numbers: Numbers = {**_STEADY, **self._steady}
        numbers |= self._activity(asked, played, moment)
        numbers |= self._power(played, bends, asked, moment)
        numbers |= self._heat(asked, played, moment)
        numbers |= self._links_and_memory(asked, played, moment)
        corrected = np.floor(
            moment.seconds[:, None] * self._corrected_rate + lane(self._topology.gpu_keys, 2)
        )
        numbers["ecc_corrected_errors"] = corrected.astype(np.int64)
        numbers["ecc_corrected_dram_errors"] = numbers["ecc_corrected_errors"]
        replays = np.floor(
            moment.seconds[:, None] * self._replay_rate + lane(self._topology.gpu_keys, 1)
        ).astype(np.int64)
        for name in ("pcie_replays", "pcie_correctable_errors", "pcie_naks_received"):
            numbers[name] = replays
        crc = self._nvlinks.usual_errors(moment.seconds)
        for name in ("nvlink_crc_errors", "nvlink_errors", "nvlink_worst_link_errors"):
            numbers[name] = crc
        numbers["nvlink_worst_link"] = np.where(crc > 0, self._nvlinks.weakest, np.nan)
        numbers["read_seconds"] = np.round(0.0018 + 0.0006 * lane(moment.own, 1), 6)
        return numbers

    def _activity(self, asked: RequestedLoad, played: PhysicsResult, moment: Moment) -> Numbers:
        wobble = 1.0 + 0.01 * moment.noise * (lane(moment.own, 2) - 0.5)
        waits = np.minimum(played.rate / np.maximum(played.clock, 0.01), 1.0)
        sm = asked.sm * waits * wobble
        busy = asked.computing & (asked.sm > 0.0)
        # The share of time with a kernel; waiting for others is a kernel, too.
        utilization = np.where(busy, np.maximum(asked.utilization * wobble, 0.01), 0.0)
        return {
            "utilization_percent": whole(np.minimum(utilization * 100.0, 100.0)),
            "memory_utilization_percent": whole(np.minimum(asked.dram * waits * 130.0, 100.0)),
            "graphics_activity_percent": _round(np.minimum(utilization * 100.0, 100.0), 10.0),
            "sm_activity_percent": _round(sm * 100.0, 10.0),
            "sm_occupancy_percent": _round(sm * 46.0, 10.0),
            "tensor_activity_percent": _round(asked.tensor * waits * 100.0, 10.0),
            "dram_activity_percent": _round(asked.dram * waits * 100.0, 10.0),
        }

    def _power(
        self, played: PhysicsResult, bends: PhysicsEffects, asked: RequestedLoad, moment: Moment
    ) -> Numbers:
        reasons = np.where(played.capped & asked.held, POWER_CAP, 0)
        reasons |= np.where(played.soft_hot, SW_THERMAL, 0)
        reasons |= np.where(played.hot, HW_THERMAL | HW_SLOWDOWN, 0)
        reasons |= np.where(bends.brake > 0.0, POWER_BRAKE | HW_SLOWDOWN, 0)
        reasons |= np.where(asked.computing, 0, IDLE)
        nanos = round(moment.tick_seconds * _NANO)
        numbers: Numbers = {
            name: self._counters.add(name, np.where(reasons & bit, nanos, 0)) / _NANO
            for name, bit in _REASON_SECONDS.items()
        }
        hot = np.where(reasons & (SW_THERMAL | HW_THERMAL), nanos, 0)
        numbers["thermal_violation_seconds"] = self._counters.add("violation", hot) / _NANO
        millijoules = whole(played.watts * (moment.tick_seconds * 1000.0))
        numbers["energy_joules"] = self._counters.add("energy", millijoules) / 1000.0
        noise = 1.0 + 0.003 * moment.noise * bell(moment.own)
        numbers["power_watts"] = _round(played.watts * noise, 1000.0)
        numbers["power_limit_watts"] = bends.limit_watts
        clock = np.where(asked.held, self._clock * played.clock, self._free_clock)
        steps = np.floor(clock / self._step + 0.5)
        numbers["sm_clock_hertz"] = (steps * self._step).astype(np.int64)
        numbers["clock_event_reasons"] = reasons.astype(np.int64)
        return numbers

    def _heat(self, asked: RequestedLoad, played: PhysicsResult, moment: Moment) -> Numbers:
        core = played.celsius
        memory = self._offset + self._slope * core + 3.0 * asked.dram
        numbers: Numbers = {
            "temperature_celsius": whole(core),
            "memory_temperature_celsius": whole(np.maximum(memory, core)),
            "temperature_margin_celsius": whole(self._operating - core),
        }
        margins = self._topology.model_values("margins") > 0.0
        if margins.any():
            numbers["slowdown_tlimit_celsius"] = np.where(margins, -2, np.nan)
            numbers["shutdown_tlimit_celsius"] = np.where(margins, -8, np.nan)
        if not margins.all():
            for name in ("slowdown", "shutdown"):
                limit = self._topology.model_values(f"{name}_celsius")
                numbers[f"{name}_temperature_celsius"] = np.where(margins, np.nan, limit)
        return numbers

    def _links_and_memory(
        self, asked: RequestedLoad, played: PhysicsResult, moment: Moment
    ) -> Numbers:
        moved = whole(asked.nvlink * played.rate * self._links * moment.tick_seconds)
        jitter = 0.98 + 0.04 * lane(moment.own, 3)
        return {
            "nvlink_receive_bytes": self._counters.add("receive", moved),
            "nvlink_transmit_bytes": self._counters.add("transmit", moved),
            "pcie_receive_bytes_per_second": _round(
                (6e5 + asked.pcie_receive * played.rate) * jitter, 1.0
            ),
            "pcie_transmit_bytes_per_second": _round(
                (6e5 + asked.pcie_transmit * played.rate) * jitter, 1.0
            ),
            # The link slows down when it is not used.
            "pcie_generation": np.where(asked.held, self._generation, 1.0).astype(np.int64),
            "memory_used_bytes": whole(asked.memory * self._memory),
            "compute_processes": asked.held.astype(np.int64),
        }


class NodeSensors:
    """The sensors of all nodes: the host, and the collector's own health."""

    def __init__(self, topology: Topology, *, host: bool, at_work: bool = False) -> None:
        """Keep which sensors are read.

        `host`: the machine's own sensors beside the collector's; `at_work`: the activity of its processors and
        disks as well.
        """
        self._topology = topology
        self._has_host = host
        self._at_work = Counters(topology.nodes, ("busy", "read", "written")) if at_work else None

    def read(self, asked: RequestedLoad, moment: Moment) -> Numbers:
        shape = (len(moment.seconds), self._topology.nodes, self._topology.per_node)
        busy = asked.host.reshape(shape)[:, :, 0]
        for slot in range(1, shape[2]):
            busy = busy + asked.host.reshape(shape)[:, :, slot]
        busy = np.minimum(busy / shape[2], 1.0)
        wobble = lane(moment.nodes, 0)
        used = 0.05 + 0.55 * busy + 0.01 * wobble
        return {
            "gpus_expected": self._topology.per_node,
            "gpus_answering": self._topology.per_node,
            "driver_answering": 1,
            "driver_silent_seconds": 0.0,
            "reader_restarts": 0,
            "sweep_seconds": np.round(0.016 + 0.006 * lane(moment.nodes, 1), 6),
            "spool_bytes": 0,
            "spool_oldest_seconds": 0.0,
            "spool_writable": 1,
            "dropped_bodies": 0,
            "load_average": _round(0.6 + _CORES * busy * (0.95 + 0.1 * wobble), 100.0),
            "memory_available_bytes": whole((1.0 - used) * _HOST_MEMORY_BYTES),
            "memory_total_bytes": _HOST_MEMORY_BYTES,
            **(self._host() if self._has_host else {}),
            **({} if self._at_work is None else self._work(self._at_work, asked, busy, moment)),
        }

    def _work(
        self, counters: Counters, asked: RequestedLoad, busy: Floats, moment: Moment
    ) -> Numbers:
        """Return the time of the processors, and what the jobs read and write."""
        shape = (len(moment.seconds), self._topology.nodes, self._topology.per_node)
        writes = (asked.pause.reshape(shape) == CHECKPOINT).any(axis=2)
        milliseconds = moment.tick_seconds * 1000.0 * _CORES
        all_of_it = np.floor(moment.seconds * 1000.0 * _CORES).astype(np.int64)
        read = asked.reads.reshape(shape).sum(axis=2) * moment.tick_seconds
        written = np.where(writes, _WRITTEN_PER_SECOND, 2e5) * moment.tick_seconds
        return {
            "cpu_milliseconds": all_of_it[:, None],
            "cpu_busy_milliseconds": counters.add(
                "busy", whole(np.minimum(0.02 + busy, 1.0) * milliseconds)
            ),
            "shared_read_bytes": counters.add("read", whole(read)),
            "shared_write_bytes": counters.add("written", whole(written)),
        }

    def _host(self) -> Numbers:
        """Return the readings of a healthy host's own sensors."""
        lots = mix(self._topology.node_keys, 59)
        return {
            "memory_errors_corrected": np.floor(sixth(lane(lots, 0)) * 20.0).astype(np.int64),
            "memory_errors_uncorrected": 0,
            "power_supplies_failed": 0,
            "fans_failed": 0,
            "mounts_hung": 0,
            "space_used_share": _round(0.1 + 0.75 * lane(lots, 1), 1000.0),
        }


def whole(values: Floats) -> Index:
    return np.floor(values + 0.5).astype(np.int64)


def _round(values: Floats, steps: float) -> Floats:
    """Round to so many steps per unit."""
    rounded: Floats = np.floor(values * steps + 0.5) / steps
    return rounded


def sixth(values: Floats) -> Floats:
    """Raise to the power of six by multiplication alone: `pow` differs between machines."""
    square = values * values
    sixth: Floats = square * square * square
    return sixth
