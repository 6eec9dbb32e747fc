"""The reader as a process: the real pynvml on a fake driver."""

import io
import marshal
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from collector.samples.field_values import Values
from collector.samples.gpu_sample import CallCost, MigDevice
from collector.samples.messages import (
    LOADED,
    NO_DRIVER,
    STARTING,
    GpuTick,
    Tick,
    XidSeen,
    contents,
    dump,
    load,
)
from gpuvigil import lifeline
from gpuvigil.clock import EPOCH
from gpuvigil.metrics import GPU, Seen
from gpuvigil.model import GpuIdentity, Unmeasured
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server

ROOT = Path(__file__).parent.parent.parent
NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, UNKNOWN = 3, 4, 10, 999


class Reader:
    """A reader with a tick of 0.2 s; a driver call may take 0.3 s."""

    def __init__(
        self,
        environment: Mapping[str, str],
        start_timeout_seconds: float = 0.5,
        slow_seconds: float = 60.0,
    ) -> None:
        self._messages: queue.SimpleQueue[Tick | XidSeen] = queue.SimpleQueue()
        self._slow: dict[int, dict[str, float | int]] = {}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gpuvigil", "read"),
                *("0.2", "0.3", str(start_timeout_seconds), str(slow_seconds)),
            ],
            cwd=ROOT,
            env={**lifeline.environment(), **environment},
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def next(self) -> Tick | XidSeen:
        message = self._messages.get(timeout=10)
        if isinstance(message, Tick):
            self._slow |= {gpu.index: gpu.slow for gpu in message.gpus if gpu.slow is not None}
        return message

    def tick_with(self, wanted: Callable[[Tick], bool]) -> Tick:
        """The first tick that is as wanted."""
        deadline = time.monotonic() + 10
        while True:
            message = self.next()
            if isinstance(message, Tick) and wanted(message):
                return message
            assert time.monotonic() < deadline, message

    def gpu_with(self, index: int, wanted: Callable[[GpuTick], bool]) -> GpuTick:
        return self.tick_with(lambda t: bool(t.gpus) and wanted(t.gpus[index])).gpus[index]

    def values(self, index: int) -> dict[str, float | int]:
        """Of a sweep that began after this call, with what still stands."""
        for _ in range(3):
            self.tick_with(lambda tick: tick.state == LOADED)
        values = self.gpu_with(index, lambda gpu: gpu.values is not None).values
        assert values is not None
        return {**self._slow.get(index, {}), **values}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for content in contents(stream):
                self._messages.put(load(content))


@pytest.fixture
def start() -> Iterator[Callable[[Mapping[str, str]], Reader]]:
    started: list[Reader] = []

    def start(environment: Mapping[str, str]) -> Reader:
        started.append(Reader(environment))
        return started[-1]

    try:
        yield start
    finally:
        for reader in started:
            reader.end()


Start = Callable[[Mapping[str, str]], Reader]


# What a GPU says, in the driver's own units, and what that is as metrics of the catalogue.
SAID: dict[str, int | str] = {
    "utilization_gpu_percent": 97,
    "utilization_memory_percent": 41,
    "memory_used_bytes": 7,
    "memory_reserved_bytes": 5,
    "memory_total_bytes": 80,
    "power_instant_milliwatts": 412_500,
    "power_average_milliwatts": 401_250,
    "power_limit_milliwatts": 700_000,
    "energy_millijoules": 1_500,
    "energy_millijoules_per_second": 0,
    "temperature_celsius": 61,
    "memory_temperature_celsius": 72,
    "clock_sm_megahertz": 1980,
    "event_reasons": 0x4,
    "ecc_corrected_volatile": 3,
    "ecc_uncorrected_volatile": 1,
    "pcie_generation": 4,
    "pcie_replays": 9,
    "pcie_tx_bytes": 11,
    "pcie_rx_bytes": 12,
    "nvlink_tx_kibibytes": 2,
    "nvlink_rx_kibibytes": 3,
    "nvlink_replays": 1,
    "nvlink_crc_flit_errors": 2,
    "nvlink_recoveries": 3,
    "gpm_graphics_percent": 90,
    "gpm_sm_percent": 91,
    "gpm_occupancy_percent": 40,
    "gpm_tensor_percent": 55,
    "gpm_dram_percent": 33,
    "gpm_fp64_percent": 1,
    "gpm_fp32_percent": 2,
    "gpm_fp16_percent": 3,
    "gpm_pcie_tx_mebibytes_per_second": 4,
    "gpm_pcie_rx_mebibytes_per_second": 5,
    "gpm_nvlink_rx_mebibytes_per_second": 6,
    "gpm_nvlink_tx_mebibytes_per_second": 7,
}
READ: dict[str, float | int] = {
    "index": 1,
    "utilization_percent": 97,
    "memory_utilization_percent": 41,
    "memory_used_bytes": 7,
    "memory_reserved_bytes": 5,
    "memory_total_bytes": 80,
    "power_watts": 412.5,
    "power_average_watts": 401.25,
    "power_limit_watts": 700.0,
    "energy_joules": 1.5,
    "temperature_celsius": 61,
    "memory_temperature_celsius": 72,
    "sm_clock_hertz": 1_980_000_000,
    "clock_event_reasons": 4,
    "ecc_corrected_errors": 3,
    "ecc_uncorrected_errors": 1,
    "pcie_generation": 4,
    "pcie_replays": 9,
    "pcie_transmit_bytes": 11,
    "pcie_receive_bytes": 12,
    "nvlink_links_up": 17,
    "nvlink_links_expected": 18,
    "nvlink_transmit_bytes": 18 * 2 * 1024,
    "nvlink_receive_bytes": 18 * 3 * 1024,
    "nvlink_replay_errors": 18,
    "nvlink_crc_errors": 36,
    "nvlink_recovery_errors": 54,
    "nvlink_errors": 108,
    "nvlink_worst_link": 0,
    "nvlink_worst_link_errors": 6,
    "compute_processes": 2,
    "graphics_activity_percent": 90.0,
    "sm_activity_percent": 91.0,
    "sm_occupancy_percent": 40.0,
    "tensor_activity_percent": 55.0,
    "dram_activity_percent": 33.0,
    "fp64_activity_percent": 1.0,
    "fp32_activity_percent": 2.0,
    "fp16_activity_percent": 3.0,
    "pcie_transmit_bytes_per_second": 4.0 * 2**20,
    "pcie_receive_bytes_per_second": 5.0 * 2**20,
    "nvlink_receive_bytes_per_second": 6.0 * 2**20,
    "nvlink_transmit_bytes_per_second": 7.0 * 2**20,
}
# The same for what is open for more than a tick: said by the driver, metric, and value.
SLOW: list[tuple[str, int, str, float | int]] = [
    ("clock_memory_megahertz", 2618, "memory_clock_hertz", 2_618_000_000),
    ("performance_state", 2, "performance_state", 2),
    ("temperature_margin_celsius", 26, "temperature_margin_celsius", 26),
    ("pcie_width", 8, "pcie_width", 8),
    ("utilization_encoder_percent", 12, "encoder_utilization_percent", 12),
    ("utilization_decoder_percent", 13, "decoder_utilization_percent", 13),
    ("utilization_jpeg_percent", 14, "jpeg_utilization_percent", 14),
    ("utilization_optical_flow_percent", 15, "optical_flow_utilization_percent", 15),
    ("bar1_used_bytes", 21, "bar1_used_bytes", 21),
    ("bar1_total_bytes", 22, "bar1_total_bytes", 22),
    ("power_requested_limit_milliwatts", 650_000, "power_limit_requested_watts", 650.0),
    ("power_default_limit_milliwatts", 690_000, "power_limit_default_watts", 690.0),
    ("power_min_limit_milliwatts", 200_500, "power_limit_min_watts", 200.5),
    ("power_max_limit_milliwatts", 710_000, "power_limit_max_watts", 710.0),
    ("threshold_shutdown_celsius", 95, "shutdown_temperature_celsius", 95),
    ("threshold_slowdown_celsius", 92, "slowdown_temperature_celsius", 92),
    ("tlimit_shutdown_celsius", -8, "shutdown_tlimit_celsius", -8),
    ("tlimit_slowdown_celsius", -1, "slowdown_tlimit_celsius", -1),
    ("tlimit_memory_max_celsius", 2, "memory_max_tlimit_celsius", 2),
    ("tlimit_gpu_max_celsius", 0, "gpu_max_tlimit_celsius", 0),
    ("fans", 2, "fans", 2),
    ("fan_speed_percent", 44, "fan_speed_percent", 44),
    ("clock_graphics_megahertz", 345, "graphics_clock_hertz", 345_000_000),
    ("clock_video_megahertz", 765, "video_clock_hertz", 765_000_000),
    ("max_clock_graphics_megahertz", 1981, "graphics_clock_max_hertz", 1_981_000_000),
    ("max_clock_sm_megahertz", 1980, "sm_clock_max_hertz", 1_980_000_000),
    ("max_clock_memory_megahertz", 2619, "memory_clock_max_hertz", 2_619_000_000),
    ("max_clock_video_megahertz", 1545, "video_clock_max_hertz", 1_545_000_000),
    ("sw_power_cap_nanoseconds", 1_500_000_000, "power_cap_seconds", 1.5),
    ("thermal_violation_nanoseconds", 2_000_000_000, "thermal_violation_seconds", 2.0),
    ("sync_boost_nanoseconds", 250_000_000, "sync_boost_seconds", 0.25),
    ("board_limit_nanoseconds", 3_000_000_000, "board_limit_seconds", 3.0),
    ("reliability_nanoseconds", 4_000_000_000, "reliability_limit_seconds", 4.0),
    ("sw_thermal_nanoseconds", 5_000_000_000, "software_thermal_slowdown_seconds", 5.0),
    ("hw_thermal_nanoseconds", 6_000_000_000, "hardware_thermal_slowdown_seconds", 6.0),
    ("hw_power_brake_nanoseconds", 7_000_000_000, "power_brake_seconds", 7.0),
    ("ecc_corrected_dram", 31, "ecc_corrected_dram_errors", 31),
    ("ecc_uncorrected_dram", 32, "ecc_uncorrected_dram_errors", 32),
    ("ecc_corrected_sram", 33, "ecc_corrected_sram_errors", 33),
    ("ecc_uncorrected_sram", 34, "ecc_uncorrected_sram_errors", 34),
    ("ecc_mode", 1, "ecc_mode", 1),
    ("ecc_mode_pending", 0, "ecc_mode_pending", 0),
    ("sram_threshold_exceeded", 1, "sram_threshold_exceeded", 1),
    ("sram_parity", 41, "sram_parity_errors", 41),
    ("sram_secded", 42, "sram_secded_errors", 42),
    ("sram_l2", 43, "sram_l2_errors", 43),
    ("sram_sm", 44, "sram_sm_errors", 44),
    ("sram_pcie", 45, "sram_pcie_errors", 45),
    ("sram_mcu", 46, "sram_mcu_errors", 46),
    ("sram_other", 47, "sram_other_errors", 47),
    ("remapped_corrected", 51, "remapped_rows_corrected", 51),
    ("remapped_uncorrected", 52, "remapped_rows_uncorrected", 52),
    ("remapped_pending", 1, "remap_pending", 1),
    ("remapped_failure", 1, "remap_failure", 1),
    ("histogram_max", 2550, "remap_banks_max", 2550),
    ("histogram_high", 6, "remap_banks_high", 6),
    ("histogram_partial", 2, "remap_banks_partial", 2),
    ("histogram_low", 1, "remap_banks_low", 1),
    ("histogram_none", 1, "remap_banks_none", 1),
    ("retired_pending", 1, "retired_pages_pending", 1),
    ("repair_channel_pending", 1, "channel_repair_pending", 1),
    ("repair_tpc_pending", 1, "tpc_repair_pending", 1),
    ("recovery_action", 2, "recovery_action", 2),
    ("pcie_max_generation", 5, "pcie_generation_max", 5),
    ("pcie_max_width", 16, "pcie_width_max", 16),
    ("pcie_rollovers", 61, "pcie_replay_rollovers", 61),
    ("pcie_recoveries", 62, "pcie_recoveries", 62),
    ("pcie_correctable", 63, "pcie_correctable_errors", 63),
    ("pcie_naks_received", 64, "pcie_naks_received", 64),
    ("pcie_receiver", 65, "pcie_receiver_errors", 65),
    ("pcie_bad_tlps", 66, "pcie_bad_tlps", 66),
    ("pcie_naks_sent", 67, "pcie_naks_sent", 67),
    ("pcie_bad_dllps", 68, "pcie_bad_dllps", 68),
    ("pcie_non_fatal", 69, "pcie_non_fatal_errors", 69),
    ("pcie_fatal", 70, "pcie_fatal_errors", 70),
    ("pcie_unsupported", 71, "pcie_unsupported_requests", 71),
    ("pcie_lcrc", 72, "pcie_lcrc_errors", 72),
    ("pcie_lanes", 73, "pcie_lane_errors", 73),
    ("fabric_state", 2, "fabric_state", 2),
    ("fabric_status", 27, "fabric_status", 27),
    ("fabric_health_mask", 5, "fabric_health_mask", 5),
    ("fabric_health_summary", 2, "fabric_health", 2),
    ("mig_current", 0, "mig_mode", 0),
    ("mig_pending", 1, "mig_mode_pending", 1),
    ("mig_devices", 0, "mig_devices", 0),
    ("persistence_mode", 0, "persistence_mode", 0),
    ("compute_mode", 3, "compute_mode", 3),
]
BY_THE_SUPERVISOR = {
    "up",
    "unmeasured_reason",
    "unmeasured_seconds",
    "pcie_present",
    "read_seconds",
    "step",
    "step_age_seconds",
    "step_p99_seconds",
    "rank",
    "step_seconds",
    "step_own_seconds",
    "step_own_first_seconds",
    "step_input_seconds",
    "checkpoint_age_seconds",
    "step_phase",
    "step_phase_seconds",
    "rank_gone_seconds",
    "job_disk_read_bytes",
    "job_disk_write_bytes",
    "spin_seconds",
    "longest_spin_seconds",
}


def test_every_metric_of_the_catalogue_is_read(driver: FakeDriver, start: Start) -> None:
    driver.set(1, **SAID)
    driver.set(1, **{said: value for said, value, *_ in SLOW}, graphics_processes="7:1 8:1")
    driver.set_link(1, 5, nvlink_state=0)
    driver.set_processes(1, {4711: 1, 4712: None})
    reader = start(driver.environment())
    first = reader.gpu_with(1, lambda gpu: gpu.values is not None)
    # GPM says what lies between two sweeps.
    gpu = reader.gpu_with(1, lambda gpu: "sm_activity_percent" in (gpu.values or {}))
    assert gpu.values == READ
    assert first.slow == {metric: value for *_, metric, value in SLOW} | {"graphics_processes": 2}
    assert gpu.slow is None
    assert gpu.processes == (4711, 4712)
    assert gpu.identity is not None
    assert gpu.identity.pci_address == "00000000:43:00.0"
    assert gpu.identity.inforom == "G520.0200.00.05"
    assert gpu.identity.gsp_firmware == "570.124.06"
    fixtures = {m.name for m in GPU.metrics if m.seen is not Seen.NEVER}
    assert fixtures == gpu.values.keys() | first.slow.keys() | BY_THE_SUPERVISOR


def test_a_fan_of_which_the_driver_knows_nothing_has_no_speed(
    driver: FakeDriver, start: Start
) -> None:
    driver.set(1, fans=2, fan_speed_percent=2**32 - 1)
    gpu = start(driver.environment()).gpu_with(1, lambda gpu: gpu.slow is not None)
    assert gpu.slow is not None
    assert gpu.slow["fans"] == 2
    assert "fan_speed_percent" not in gpu.slow


# What fails, how, and which metrics are then absent.
FAILURES: list[tuple[str | int, int, set[str]]] = [
    ("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED, {"utilization_percent", "memory_utilization_percent"}),
    ("nvmlDeviceGetCurrPcieLinkWidth", NO_PERMISSION, {"pcie_width"}),
    ("nvmlGpmQueryDeviceSupport", NOT_SUPPORTED, {name for name in READ if "activity" in name or "per_second" in name or "occupancy" in name}),
    ("nvmlDeviceGetCurrentClocksEventReasons", TIMEOUT, {"clock_event_reasons"}),
    ("nvmlDeviceGetComputeRunningProcesses_v3", UNKNOWN, {"compute_processes"}),
    (82, NOT_SUPPORTED, {"memory_temperature_celsius"}),
    # For these another call gives the number.
    (165, NOT_SUPPORTED, set()),
    (186, NOT_SUPPORTED, set()),
    (83, NOT_SUPPORTED, set()),
    (4, NO_PERMISSION, set()),
    (190, NOT_SUPPORTED, set()),
    ("nvmlDeviceGetTemperatureV", NOT_SUPPORTED, set()),
    ("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED, {"memory_reserved_bytes"}),
]  # fmt: skip


def test_what_a_gpu_lacks_is_absent_and_costs_nothing_else(
    driver: FakeDriver, start: Start
) -> None:
    reader = start(driver.environment())
    reader.gpu_with(0, lambda gpu: "sm_activity_percent" in (gpu.values or {}))
    every = reader.values(0).keys()
    reader.end()
    for number, (what, code, _) in enumerate(FAILURES):
        # The failures share the four GPUs; none masks another's metrics.
        driver.fail(number % 4, what, code)
    reader = start(driver.environment())
    for gpu in range(4):
        absent = set[str]().union(*(lacks for _, _, lacks in FAILURES[gpu::4]))
        assert every - reader.values(gpu).keys() == absent
    for number, (what, *_) in enumerate(FAILURES):
        driver.fail(number % 4, what, 0)
    # What may pass is tried again, what the driver does not know is not.
    assert "clock_event_reasons" in reader.values(3)
    assert "utilization_percent" not in reader.values(0)


def test_power_is_read_also_where_the_driver_has_no_field_values(
    driver: FakeDriver, start: Start
) -> None:
    driver.fail(0, "nvmlDeviceGetFieldValues", NOT_SUPPORTED)
    values = start(driver.environment()).values(0)
    assert {"power_watts", "power_limit_watts"} <= values.keys()


def test_numbers_that_stand_for_no_value_are_absent(driver: FakeDriver, start: Start) -> None:
    none = 2**32 - 1
    driver.set(
        0,
        performance_state=32,
        pcie_width=none,
        power_instant_milliwatts=none,
        pcie_replays=none,
        event_reasons=-1,
        utilization_gpu_percent=none,
        memory_temperature_celsius=none,
        memory_total_bytes=0,
        utilization_encoder_percent=none,
        threshold_slowdown_celsius=none,
        tlimit_shutdown_celsius=2**31 - 1,
        fabric_state=none,
        bar1_used_bytes=-1,
        gpm_sm_percent=-1,
        pcie_tx_bytes=2**63 - 1,
        nvlink_tx_kibibytes=2**53,
    )
    # A signed number of which all bits are ones is -1.
    driver.set(1, temperature_celsius=-1, temperature_margin_celsius=-1)
    reader = start(driver.environment())
    first = reader.gpu_with(0, lambda gpu: gpu.slow is not None)
    gpu = reader.gpu_with(0, lambda gpu: "tensor_activity_percent" in (gpu.values or {}))
    assert first.slow is not None
    assert gpu.values is not None
    absent = {"performance_state", "pcie_width", "power_watts", "pcie_replays"}
    absent |= {"clock_event_reasons", "utilization_percent", "memory_temperature_celsius"}
    absent |= {"memory_total_bytes", "sm_activity_percent", "bar1_used_bytes", "fabric_state"}
    absent |= {"encoder_utilization_percent", "slowdown_temperature_celsius"}
    absent |= {"shutdown_tlimit_celsius", "pcie_transmit_bytes", "nvlink_transmit_bytes"}
    assert (gpu.values.keys() | first.slow.keys()) & absent == set()
    assert gpu.values["temperature_celsius"] == 34
    assert first.links is not None
    assert "transmit_bytes" not in first.links[0]
    assert first.links[0]["receive_bytes"] == 0
    second = reader.values(1)
    assert "temperature_celsius" not in second
    assert second["temperature_margin_celsius"] == -1


def test_links_are_summed_one_by_one_where_the_driver_does_not(
    driver: FakeDriver, start: Start
) -> None:
    driver.set(0, links=4, nvlink_replays=2)
    driver.set_link(0, 3, nvlink_replays=10)
    values = start(driver.environment()).values(0)
    assert values["nvlink_errors"] == 16
    assert values["nvlink_links_expected"] == 4


def test_a_gpu_with_more_processes_than_expected_is_read_whole(
    driver: FakeDriver, start: Start
) -> None:
    driver.set_processes(0, dict.fromkeys(range(1000, 1200)))
    gpu = start(driver.environment()).gpu_with(0, lambda gpu: gpu.values is not None)
    assert gpu.processes == tuple(range(1000, 1200))


def test_one_hung_gpu_leaves_the_others_their_ticks(driver: FakeDriver, start: Start) -> None:
    reader = start(driver.environment())
    reader.values(0)
    driver.hang(2)
    tick = reader.tick_with(lambda tick: (tick.gpus[2].silent_seconds or 0) > 0.3)
    assert [gpu.values is not None for gpu in tick.gpus] == [True, True, False, True]
    assert tick.silent_seconds is None
    assert tick.sweep_seconds is not None
    assert tick.sweep_seconds < 0.2
    driver.release()
    reader.gpu_with(2, lambda gpu: gpu.values is not None)


def test_a_gpu_that_hangs_from_the_start_leaves_the_others_their_ticks(
    driver: FakeDriver, start: Start
) -> None:
    driver.hang(0)
    reader = start(driver.environment())
    tick = reader.tick_with(lambda t: bool(t.gpus) and (t.gpus[0].silent_seconds or 0) > 0.3)
    assert [gpu.values is not None for gpu in tick.gpus] == [False, True, True, True]


def test_the_reader_speaks_also_when_every_call_hangs(driver: FakeDriver, start: Start) -> None:
    reader = start(driver.environment())
    reader.values(0)
    driver.hang_all()
    first = reader.tick_with(lambda tick: tick.silent_seconds is not None)
    later = reader.tick_with(lambda tick: (tick.silent_seconds or 0) > 0.6)
    assert first.state == later.state == LOADED
    driver.release()
    reader.tick_with(lambda tick: tick.silent_seconds is None and tick.gpus[0].values is not None)


def test_the_reader_speaks_also_when_the_driver_hangs_at_its_start(
    driver: FakeDriver, start: Start
) -> None:
    driver.hang_all()
    reader = start(driver.environment())
    tick = reader.tick_with(lambda tick: tick.silent_seconds is not None)
    assert (tick.state, tick.gpus) == (STARTING, ())
    driver.release()
    reader.gpu_with(0, lambda gpu: gpu.values is not None)


def test_numbers_from_before_a_hang_are_not_told_after_it(driver: FakeDriver, start: Start) -> None:
    reader = start(driver.environment())
    reader.values(0)
    driver.hang(2)
    reader.gpu_with(2, lambda gpu: (gpu.silent_seconds or 0) > 0.5)
    driver.release()
    gpu = reader.gpu_with(2, lambda gpu: gpu.values is not None)
    assert gpu.read_seconds is not None
    assert gpu.read_seconds < 0.3


def test_a_driver_that_is_slow_to_wake_is_not_silent(driver: FakeDriver) -> None:
    driver.delay("nvmlDeviceGetUUID", 1.0)
    reader = Reader(driver.environment(), start_timeout_seconds=15.0)
    try:
        ticks = [reader.next()]
        while not isinstance(ticks[-1], Tick) or not ticks[-1].gpus or not ticks[-1].gpus[0].values:
            ticks.append(reader.next())
    finally:
        reader.end()
    early = [tick for tick in ticks if isinstance(tick, Tick)]
    assert len(early) > 3
    assert all(tick.silent_seconds is None for tick in early)
    assert all(gpu.silent_seconds is None for tick in early for gpu in tick.gpus)


def test_a_gpu_that_answers_late_but_in_time_is_told_of(driver: FakeDriver, start: Start) -> None:
    # Longer than a tick, shorter than what counts as not answering.
    driver.delay("nvmlDeviceGetUtilizationRates", 0.22)
    gpu = start(driver.environment()).gpu_with(0, lambda gpu: gpu.values is not None)
    assert gpu.read_seconds is not None
    assert gpu.read_seconds >= 0.22


def test_a_lost_gpu_is_told_and_found_again(driver: FakeDriver, start: Start) -> None:
    reader = start(driver.environment())
    reader.values(0)
    driver.lose(1)
    lost = reader.gpu_with(1, lambda gpu: gpu.reason is not None)
    assert lost.reason is Unmeasured.LOST
    assert lost.identity is not None
    driver.restore(1)
    reader.gpu_with(1, lambda gpu: gpu.values is not None)


def test_an_xid_is_told_at_once(driver: FakeDriver, start: Start) -> None:
    reader = start(driver.environment())
    reader.values(3)
    driver.xid(3, 48)
    message = reader.next()
    while isinstance(message, Tick):
        message = reader.next()
    assert (message.uuid, message.xid) == ("GPU-00000000-0000-4000-8000-000000000003", 48)


def test_a_reader_without_a_driver_says_so_and_ends(start: Start) -> None:
    reader = start({"LD_LIBRARY_PATH": ""})
    reader.tick_with(lambda tick: tick.state == NO_DRIVER)
    assert reader.process.wait(5) == 0


def test_a_reader_that_is_alone_in_the_world_ends(driver: FakeDriver, start: Start) -> None:
    reader = start({**driver.environment(), lifeline.PARENT_VARIABLE: str(os.getpid() + 1)})
    wait_until("its end", lambda: reader.process.poll() is not None)
    assert reader.process.returncode == 1


def sent(*messages: Tick | XidSeen) -> list[Tick | XidSeen]:
    stream = io.BytesIO(b"".join(dump(message) for message in messages))
    return [load(content) for content in contents(stream)]


def test_messages_are_read_as_they_were_written() -> None:
    identity = GpuIdentity(uuid="GPU-1", index=1, pci_address=None, model="H100")
    links: dict[int, Values] = {0: {"up": 1}, 17: {"up": 0, "crc_errors": 2**63}}
    mig = MigDevice(uuid="MIG-1", profile="1g.10gb", values={"memory_used_bytes": 5})
    gpu = GpuTick(
        index=1,
        identity=identity,
        values={"power": 0.1},
        slow={"remap_pending": 1},
        links=links,
        migs=(mig,),
        costs={"nvmlA": CallCost(calls=1, seconds=0.5, slowest_seconds=0.5)},
        processes=(5,),
        reason=Unmeasured.LOST,
        silent_seconds=1.5,
        read_seconds=0.25,
    )
    tick, xid = Tick(at=EPOCH, state=LOADED, gpus=(gpu,)), XidSeen(at=EPOCH, uuid=None, xid=79)
    assert sent(tick, xid, tick) == [tick, xid, tick]


def test_what_is_no_message_is_refused_and_half_a_one_is_none() -> None:
    for content in (b"", b"{}", b"\x00" * 9, marshal.dumps({"kind": "tick"}), marshal.dumps([])):
        with pytest.raises(ValueError, match="not a message of the reader"):
            load(content)
    whole = dump(XidSeen(at=EPOCH, uuid=None, xid=79))
    for length in range(len(whole)):
        assert list(contents(io.BytesIO(whole[:length]))) == []
