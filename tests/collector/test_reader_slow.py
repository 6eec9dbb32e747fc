"""What the reader reads rarely: the slow tick, single links, MIG devices, what calls cost."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise

import pytest

from collector.samples.gpu_sample import CallCost
from collector.samples.messages import LOADED, GpuTick
from gpuvigil.metrics import NVLINK, Seen
from tests.nvml_fake import FakeDriver

from .test_reader import NOT_SUPPORTED, UNKNOWN, Reader

pytestmark = pytest.mark.server

Start = Callable[..., Reader]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Reader] = []

    def start(environment: Mapping[str, str], **settings: float) -> Reader:
        started.append(Reader(environment, **settings))
        return started[-1]

    try:
        yield start
    finally:
        for reader in started:
            reader.end()


def test_the_slow_numbers_come_at_their_own_pace(driver: FakeDriver, start: Start) -> None:
    reader = start(driver.environment(), slow_seconds=1.0)
    came = []
    for _ in range(30):
        tick = reader.tick_with(lambda tick: bool(tick.gpus) and tick.gpus[0].values is not None)
        came.append([gpu.slow is not None for gpu in tick.gpus])
    # 6 s of ticks at 0.2 s: all at first, then each once a second and not all at once.
    for gpu in range(4):
        assert 4 <= sum(row[gpu] for row in came) <= 9
    assert sum(all(row) for row in came) <= 3


def test_what_was_refused_is_not_asked_every_tick_and_tried_again_at_the_slow_one(
    driver: FakeDriver, start: Start
) -> None:
    name = "nvmlDeviceGetUtilizationRates"
    driver.fail(0, name, NOT_SUPPORTED)
    driver.fail(0, 82, NOT_SUPPORTED)
    reader = start(driver.environment(), slow_seconds=2.0)
    # The slow tick comes at once, an eighth of the way, and then every two seconds.
    seen = [costs_of(reader, 0) for _ in range(3)][-1]
    assert seen[name].calls <= 2
    assert seen["nvmlDeviceGetCurrentClocksEventReasons"].calls > 4
    driver.fail(0, name, 0)
    driver.fail(0, 82, 0)
    wanted = {"utilization_percent", "memory_temperature_celsius"}
    reader.gpu_with(0, lambda gpu: wanted <= (gpu.values or {}).keys())


LASTING = {"memory_clock_hertz": 2_619_000_000, "performance_state": 0, "pcie_width": 16}


def test_what_mostly_stays_is_asked_every_ten_seconds_and_told_when_it_changes(
    driver: FakeDriver, start: Start
) -> None:
    reader = start(driver.environment(), slow_seconds=300.0)
    first = reader.gpu_with(0, lambda gpu: gpu.slow is not None)
    assert (first.slow or {}).items() >= LASTING.items()
    driver.set(0, performance_state=8, pcie_width=4, clock_memory_megahertz=405)
    began = time.monotonic()
    told = [reader.gpu_with(0, lambda gpu: gpu.values is not None) for _ in range(60)]
    assert time.monotonic() - began > 11.0
    (changed,) = [gpu.slow for gpu in told if gpu.slow is not None]
    assert changed["performance_state"] == 8
    assert changed["pcie_width"] == 4
    assert changed["memory_clock_hertz"] == 405_000_000
    # All else that is slow stands beside it.
    assert changed.keys() == (first.slow or {}).keys()
    assert not LASTING.keys() & {name for gpu in told for name in gpu.values or {}}


def test_of_a_gpu_that_fell_off_the_bus_nothing_is_kept(driver: FakeDriver, start: Start) -> None:
    reader = start(driver.environment(), slow_seconds=300.0)
    reader.gpu_with(0, lambda gpu: gpu.slow is not None)
    driver.set(0, lost=1, performance_state=8)
    lost = reader.gpu_with(0, lambda gpu: gpu.reason is not None)
    assert (lost.values, lost.slow) == (None, None)
    driver.set(0, lost=0)
    driver.fail(0, "nvmlDeviceGetCurrPcieLinkWidth", UNKNOWN)
    back = reader.gpu_with(0, lambda gpu: gpu.values is not None)
    assert back.slow is not None
    assert back.slow["performance_state"] == 8
    assert "pcie_width" not in back.slow


def costs_of(reader: Reader, gpu: int) -> dict[str, CallCost]:
    """What the GPU's calls have cost since the slow tick before."""
    costs = reader.gpu_with(gpu, lambda gpu: gpu.costs is not None).costs
    assert costs is not None
    return costs


def test_every_field_of_a_link_is_read(driver: FakeDriver, start: Start) -> None:
    said = {
        "nvlink_speed_megabytes_per_second": 50_000,
        "nvlink_version": 7,
        "nvlink_tx_kibibytes": 2,
        "nvlink_rx_kibibytes": 3,
        "nvlink_raw_tx_kibibytes": 4,
        "nvlink_raw_rx_kibibytes": 5,
        "nvlink_ecc_errors": 6,
        "nvlink_replays": 7,
        "nvlink_recoveries": 8,
        "nvlink_crc_flit_errors": 9,
        "nvlink_receive_errors": 10,
        "nvlink_recoveries_succeeded": 11,
        "nvlink_recoveries_failed": 12,
        "nvlink_effective_errors": 13,
        "nvlink_symbol_errors": 14,
    }
    driver.set_link(0, 17, **said)
    gpu = start(driver.environment()).gpu_with(0, lambda gpu: gpu.links is not None)
    assert gpu.links is not None
    assert gpu.links[17] == {
        "up": 1,
        "speed_bits_per_second": 400_000_000_000,
        "version": 7,
        "transmit_bytes": 2048,
        "receive_bytes": 3072,
        "raw_transmit_bytes": 4096,
        "raw_receive_bytes": 5120,
        "ecc_errors": 6,
        "replay_errors": 7,
        "recovery_errors": 8,
        "crc_errors": 9,
        "receive_errors": 10,
        "recoveries_succeeded": 11,
        "recoveries_failed": 12,
        "effective_errors": 13,
        "symbol_errors": 14,
    }
    assert gpu.links[17].keys() == {m.name for m in NVLINK.metrics if m.seen is not Seen.NEVER}
    # An older link does not count what NVLink 5 counts.
    assert "symbol_errors" not in gpu.links[16]
    assert gpu.values is not None
    assert gpu.values["nvlink_worst_link"] == 17
    assert gpu.values["nvlink_worst_link_errors"] == 6 + 7 + 8 + 9 + 10 + 12 + 13


def test_links_are_read_one_by_one_as_soon_as_one_has_news(
    driver: FakeDriver, start: Start
) -> None:
    reader = start(driver.environment())
    reader.gpu_with(0, lambda gpu: gpu.links is not None)
    driver.set_link(0, 4, nvlink_state=0)
    down = reader.gpu_with(0, lambda gpu: gpu.links is not None)
    assert down.links is not None
    assert down.links[4]["up"] == 0
    assert down.values is not None
    assert down.values["nvlink_links_up"] == 17
    driver.set_link(0, 9, nvlink_crc_flit_errors=3)
    wrong = reader.gpu_with(0, lambda gpu: gpu.links is not None)
    assert wrong.links is not None
    assert wrong.links[9]["crc_errors"] == 3


def test_newer_links_are_summed_by_the_counters_they_have(driver: FakeDriver, start: Start) -> None:
    driver.set(0, links=2, nvlink_version=7, nvlink_tx_bytes=1000, nvlink_rx_bytes=5)
    for field in (138, 139):
        driver.fail(0, field, NOT_SUPPORTED)
    values = start(driver.environment()).values(0)
    assert values["nvlink_transmit_bytes"] == 2000
    assert values["nvlink_receive_bytes"] == 10


def test_a_gpu_without_links_has_no_link_numbers(driver: FakeDriver, start: Start) -> None:
    driver.set(0, links=0)
    gpu = start(driver.environment()).gpu_with(0, lambda gpu: gpu.values is not None)
    assert gpu.values is not None
    assert not [name for name in gpu.values if name.startswith("nvlink_links")]
    assert gpu.links is None


def test_mig_devices_are_found_with_their_activity_and_followed(
    driver: FakeDriver, start: Start
) -> None:
    driver.set(1, mig_current=1, mig_devices=2)
    driver.set_mig(1, 1, mig_profile="3g.40gb", mig_memory_used_bytes=77, gpm_sm_percent=63)
    driver.set_mig(1, 1, mig_compute_processes="4711:5")
    reader = start(driver.environment(), slow_seconds=0.5)
    active = reader.gpu_with(1, lambda gpu: "sm_activity_percent" in last_mig(gpu))
    first, second = active.migs
    assert (first.profile, second.profile) == ("1g.10gb", "3g.40gb")
    assert first.uuid != second.uuid
    assert second.values["memory_used_bytes"] == 77
    assert second.values["compute_processes"] == 1
    assert second.values["sm_activity_percent"] == 63.0
    assert first.values["sm_activity_percent"] == 0.0
    driver.set(1, mig_devices=1)
    reader.gpu_with(1, lambda gpu: [mig.uuid for mig in gpu.migs] == [first.uuid])
    driver.set(1, mig_current=0)
    reader.gpu_with(1, lambda gpu: gpu.values is not None and not gpu.migs)


def last_mig(gpu: GpuTick) -> dict[str, float | int]:
    return gpu.migs[-1].values if gpu.migs else {}


def test_an_older_driver_gives_the_fabrics_state_without_its_health(
    driver: FakeDriver, start: Start
) -> None:
    driver.set(0, fabric_health_summary="", fabric_state=2)
    gpu = start(driver.environment()).gpu_with(0, lambda gpu: gpu.slow is not None)
    assert gpu.slow is not None
    assert gpu.slow["fabric_state"] == 2
    assert "fabric_health" not in gpu.slow


CLUSTER = "5e3b0c1d2f4a5b6c7d8e9fa0b1c2d3e4"
DOMAIN = ("5e3b0c1d-2f4a-5b6c-7d8e-9fa0b1c2d3e4", 32766)


def domain(gpu: GpuTick) -> tuple[str | None, int | None] | None:
    told = gpu.identity
    return None if told is None else (told.fabric_cluster, told.fabric_clique)


def test_a_gpu_tells_its_nvlink_domain_also_by_an_older_call(
    driver: FakeDriver, start: Start
) -> None:
    driver.set(0, fabric_cluster=CLUSTER, fabric_clique=32766)
    driver.set(1, fabric_cluster=CLUSTER, fabric_clique=7, fabric_health_summary="")
    reader = start(driver.environment())
    tick = reader.tick_with(lambda tick: bool(tick.gpus) and tick.gpus[2].values is not None)
    assert [domain(gpu) for gpu in tick.gpus[:2]] == [DOMAIN, (DOMAIN[0], 7)]
    assert domain(tick.gpus[2]) == (None, None)  # a cluster of zeros is none


def test_a_gpu_joins_a_domain_late_and_stays_in_it_while_its_fabric_is_down(
    driver: FakeDriver, start: Start
) -> None:
    driver.set(0, fabric_state=2)
    reader = start(driver.environment(), slow_seconds=0.5)
    reader.gpu_with(0, lambda gpu: gpu.slow is not None and domain(gpu) == (None, None))
    driver.set(0, fabric_state=3, fabric_cluster=CLUSTER, fabric_clique=32766)
    reader.gpu_with(0, lambda gpu: domain(gpu) == DOMAIN)
    driver.set(0, fabric_state=1, fabric_cluster="")
    gpu = reader.gpu_with(0, lambda gpu: gpu.slow is not None and gpu.slow["fabric_state"] == 1)
    assert domain(gpu) == DOMAIN
    driver.set(0, fabric_state=3)  # in a fabric, and in no cluster
    reader.gpu_with(0, lambda gpu: domain(gpu) == (None, None))


DELAY_SECONDS = 0.02


def test_a_slow_call_of_one_gpu_delays_no_other_and_is_named(
    driver: FakeDriver, start: Start
) -> None:
    """Every call that a GPU makes is slow in turn, and one of its fields."""
    # Everything is read in every tick: MIG devices, a fan, and what is asked instead of fields too.
    driver.set(2, mig_current=1, mig_devices=1, fans=1, links=4)
    for field in (83, 94, 165, 186, 190, 3, 4):
        driver.fail(2, field, NOT_SUPPORTED)
    reader = start(driver.environment(), slow_seconds=0.1)
    warm = [costs_of(reader, 2) for _ in range(3)][-1]
    calls = [call for call in warm if call.startswith("nvml")]
    assert len(calls) > 40
    slow_ticks = 0
    spans: list[float] = []
    before: datetime | None = None
    delayed: list[str | int] = [*calls, 82]
    for what in delayed:
        driver.delay(what, DELAY_SECONDS, gpu=2)
        name = what if isinstance(what, str) else f"field {what}"
        costs: dict[str, CallCost] = {}
        deadline = time.monotonic() + 10
        while name not in costs or costs[name].slowest_seconds < DELAY_SECONDS:
            tick = reader.tick_with(lambda tick: tick.state == LOADED)
            costs = tick.gpus[2].costs or costs
            assert time.monotonic() < deadline, name
            # A loaded machine may delay anybody once; a slow call would delay all of them.
            others = [gpu.read_seconds for i, gpu in enumerate(tick.gpus) if i != 2]
            slow_ticks += all((seconds or 0.0) >= DELAY_SECONDS for seconds in others)
            if before is not None:
                spans.append((tick.at - before).total_seconds())
            before = tick.at
        driver.delay(what, 0, gpu=2)
    assert slow_ticks <= 2
    # A tick every 0.2 s.
    assert sorted(spans)[len(spans) * 9 // 10] < 0.25


def test_a_call_that_is_slow_on_every_gpu_leaves_the_ticks_on_time(
    driver: FakeDriver, start: Start
) -> None:
    driver.delay("nvmlDeviceGetUtilizationRates", DELAY_SECONDS)
    reader = start(driver.environment())
    ticks = [reader.tick_with(lambda tick: tick.state == LOADED) for _ in range(8)]
    assert all(gpu.values is not None for gpu in ticks[-1].gpus)
    spans = [(b.at - a.at).total_seconds() for a, b in pairwise(ticks)]
    assert sorted(spans)[len(spans) // 2] < 0.25
