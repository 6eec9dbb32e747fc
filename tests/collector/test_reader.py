"""The reader as a process: the real pynvml on a fake driver."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from collector.report import LOADED, NO_DRIVER, STARTING, GpuTick, Tick, XidSeen, dump, load
from gpuvigil import lifeline
from gpuvigil.clock import EPOCH
from gpuvigil.metrics import GPU
from gpuvigil.model import Unmeasured
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server

ROOT = Path(__file__).parent.parent.parent
NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, UNKNOWN = 3, 4, 10, 999


class Reader:
    """A reader with a tick of 0.2 s; a driver call may take 0.3 s."""

    def __init__(self, environment: Mapping[str, str], start_timeout_seconds: float = 0.5) -> None:
        self._messages: queue.SimpleQueue[Tick | XidSeen] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gpuvigil", "read"),
                *("--tick-seconds", "0.2", "--driver-timeout-seconds", "0.3"),
                *("--start-timeout-seconds", str(start_timeout_seconds)),
            ],
            cwd=ROOT,
            env={**lifeline.environment(), **environment},
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def next(self) -> Tick | XidSeen:
        return self._messages.get(timeout=10)

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
        """Of a sweep that began after this call."""
        self.tick_with(lambda tick: tick.state == LOADED)
        self.tick_with(lambda tick: tick.state == LOADED)
        values = self.gpu_with(index, lambda gpu: gpu.values is not None).values
        assert values is not None
        return values

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._messages.put(load(line))


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


# What a GPU says, in the driver's own units.
SAID: dict[str, int | str] = {
    "utilization_gpu_percent": 97,
    "utilization_memory_percent": 41,
    "memory_used_bytes": 7,
    "memory_total_bytes": 80,
    "power_instant_milliwatts": 412_500,
    "power_limit_milliwatts": 700_000,
    "energy_millijoules": 1_500,
    "energy_millijoules_per_second": 0,
    "temperature_celsius": 61,
    "memory_temperature_celsius": 72,
    "clock_sm_megahertz": 1980,
    "clock_memory_megahertz": 2619,
    "event_reasons": 0x4,
    "performance_state": 2,
    "ecc_corrected_volatile": 3,
    "ecc_uncorrected_volatile": 1,
    "pcie_generation": 4,
    "pcie_max_generation": 5,
    "pcie_width": 8,
    "pcie_max_width": 16,
    "pcie_replays": 9,
    "nvlink_tx_kibibytes": 2,
    "nvlink_rx_kibibytes": 3,
    "nvlink_replays": 1,
    "nvlink_crc_flit_errors": 2,
    "nvlink_recoveries": 3,
}
# The same in the catalogue's units.
READ: dict[str, float | int] = {
    "index": 1,
    "utilization_percent": 97,
    "memory_utilization_percent": 41,
    "memory_used_bytes": 7,
    "memory_total_bytes": 80,
    "power_watts": 412.5,
    "power_limit_watts": 700.0,
    "energy_joules": 1.5,
    "temperature_celsius": 61,
    "memory_temperature_celsius": 72,
    "sm_clock_hertz": 1_980_000_000,
    "memory_clock_hertz": 2_619_000_000,
    "clock_event_reasons": 4,
    "performance_state": 2,
    "ecc_corrected_errors": 3,
    "ecc_uncorrected_errors": 1,
    "pcie_generation": 4,
    "pcie_generation_max": 5,
    "pcie_width": 8,
    "pcie_width_max": 16,
    "pcie_replays": 9,
    "nvlink_links_up": 17,
    "nvlink_links_expected": 18,
    "nvlink_transmit_bytes": 18 * 2 * 1024,
    "nvlink_receive_bytes": 18 * 3 * 1024,
    "nvlink_errors": 18 * 6,
    "compute_processes": 2,
}


def test_every_metric_of_the_catalogue_is_read(driver: FakeDriver, start: Start) -> None:
    driver.set(1, **SAID)
    driver.set_link(1, 5, nvlink_state=0)
    driver.set_processes(1, {4711: 1, 4712: None})
    reader = start(driver.environment())
    gpu = reader.gpu_with(1, lambda gpu: gpu.values is not None)
    assert gpu.values == READ
    assert gpu.processes == (4711, 4712)
    assert gpu.identity is not None
    assert gpu.identity.pci_address == "00000000:43:00.0"
    made_by_the_supervisor = {
        "up",
        "unmeasured_reason",
        "unmeasured_seconds",
        "pcie_present",
        "read_seconds",
    }
    assert {m.name for m in GPU.metrics} == gpu.values.keys() | made_by_the_supervisor


# What fails, how, and which metrics are then absent.
FAILURES: list[tuple[str | int, int, set[str]]] = [
    ("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED, {"utilization_percent", "memory_utilization_percent"}),
    ("nvmlDeviceGetTotalEnergyConsumption", NO_PERMISSION, {"energy_joules"}),
    ("nvmlDeviceGetTotalEccErrors", NOT_SUPPORTED, {"ecc_corrected_errors", "ecc_uncorrected_errors"}),
    ("nvmlDeviceGetPerformanceState", TIMEOUT, {"performance_state"}),
    ("nvmlDeviceGetComputeRunningProcesses_v3", UNKNOWN, {"compute_processes"}),
    (82, NOT_SUPPORTED, {"memory_temperature_celsius"}),
    # For these another call gives the number.
    (165, NOT_SUPPORTED, set()),
    (186, NOT_SUPPORTED, set()),
    (190, NOT_SUPPORTED, set()),
    ("nvmlDeviceGetTemperatureV", NOT_SUPPORTED, set()),
    ("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED, set()),
]  # fmt: skip


def test_what_a_gpu_lacks_is_absent_and_costs_nothing_else(
    driver: FakeDriver, start: Start
) -> None:
    reader = start(driver.environment())
    every = reader.values(0).keys()
    reader.end()
    for number, (what, code, _) in enumerate(FAILURES):
        # Eleven failures share the four GPUs; none masks another's metrics.
        driver.fail(number % 4, what, code)
    reader = start(driver.environment())
    for gpu in range(4):
        absent = set[str]().union(*(lacks for _, _, lacks in FAILURES[gpu::4]))
        assert every - reader.values(gpu).keys() == absent
    for number, (what, *_) in enumerate(FAILURES):
        driver.fail(number % 4, what, 0)
    # What may pass is tried again, what the driver does not know is not.
    assert "performance_state" in reader.values(3)
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
    )
    values = start(driver.environment()).values(0)
    absent = {"performance_state", "pcie_width", "power_watts", "pcie_replays"}
    absent |= {"clock_event_reasons", "utilization_percent"}
    assert values.keys() & absent == set()
    assert values["temperature_celsius"] == 34


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


def test_messages_are_read_as_they_were_written() -> None:
    tick = Tick(at=EPOCH, state=LOADED, gpus=(GpuTick(index=1, processes=(5,)),))
    assert load(dump(tick)) == tick
    xid = XidSeen(at=EPOCH, uuid=None, xid=79)
    assert load(dump(xid)) == xid
    for line in (b"{}", b'{"kind": "tick"}', b"[]"):
        with pytest.raises(ValueError, match="not a line of the reader"):
            load(line)
