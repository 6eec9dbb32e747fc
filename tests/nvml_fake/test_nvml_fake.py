"""What the real pynvml reads of a fake driver that works."""

import time
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nvml_fake import FakeDriver, build
from tests.nvml_fake.pynvml_client import PATIENCE_SECONDS, Client


def test_the_library_is_built_once_and_then_found(library: Path) -> None:
    built = library.stat().st_mtime_ns
    assert build(library.parent.parent) == library
    assert library.stat().st_mtime_ns == built


# Every call without further arguments: the value to set, and what pynvml then returns.
PLAIN_CALLS: dict[str, tuple[dict[str, int | str], Any]] = {
    "nvmlDeviceGetName": ({"name": "NVIDIA B200"}, "NVIDIA B200"),
    "nvmlDeviceGetUUID": ({"uuid": "GPU-1"}, "GPU-1"),
    "nvmlDeviceGetSerial": ({"serial": "123"}, "123"),
    "nvmlDeviceGetBoardPartNumber": ({"board_part_number": "9-X"}, "9-X"),
    "nvmlDeviceGetVbiosVersion": ({"vbios_version": "1.2"}, "1.2"),
    "nvmlDeviceGetArchitecture": ({"architecture": 10}, 10),
    "nvmlDeviceGetPersistenceMode": ({"persistence_mode": 0}, 0),
    "nvmlDeviceGetComputeMode": ({"compute_mode": 3}, 3),
    "nvmlDeviceGetPowerUsage": ({"power_milliwatts": 412_000}, 412_000),
    "nvmlDeviceGetEnforcedPowerLimit": ({"power_limit_milliwatts": 500_000}, 500_000),
    "nvmlDeviceGetPerformanceState": ({"performance_state": 8}, 8),
    "nvmlDeviceGetRetiredPagesPendingStatus": ({"retired_pending": 1}, 1),
    "nvmlDeviceGetCurrPcieLinkGeneration": ({"pcie_generation": 1}, 1),
    "nvmlDeviceGetCurrPcieLinkWidth": ({"pcie_width": 8}, 8),
    "nvmlDeviceGetMaxPcieLinkGeneration": ({"pcie_max_generation": 6}, 6),
    "nvmlDeviceGetMaxPcieLinkWidth": ({"pcie_max_width": 4}, 4),
    "nvmlDeviceGetPcieReplayCounter": ({"pcie_replays": 9}, 9),
    "nvmlDeviceGetCurrentClocksEventReasons": ({"event_reasons": 0x48}, 0x48),
    "nvmlDeviceGetCurrentClocksThrottleReasons": ({"event_reasons": 0x48}, 0x48),
    "nvmlDeviceGetSupportedClocksEventReasons": ({"supported_event_reasons": 0xFF}, 0xFF),
    "nvmlDeviceGetSupportedEventTypes": ({"supported_event_types": 0x8}, 0x8),
    "nvmlDeviceGetEccMode": ({"ecc_mode": 0, "ecc_mode_pending": 1}, [0, 1]),
    "nvmlDeviceGetMigMode": ({"mig_current": 1, "mig_pending": 0}, [1, 0]),
    "nvmlDeviceGetUtilizationRates": (
        {"utilization_gpu_percent": 97, "utilization_memory_percent": 41},
        {"gpu": 97, "memory": 41},
    ),
    "nvmlDeviceGetRemappedRows": (
        {
            "remapped_corrected": 1,
            "remapped_uncorrected": 2,
            "remapped_pending": 1,
            "remapped_failure": 0,
        },
        [1, 2, 1, 0],
    ),
    "nvmlDeviceGetInforomImageVersion": ({"inforom_version": "G1"}, "G1"),
    "nvmlDeviceGetGspFirmwareVersion": ({"gsp_firmware_version": "570.1"}, "570.1"),
    "nvmlDeviceGetNumFans": ({"fans": 3}, 3),
    "nvmlDeviceGetMarginTemperature": ({"temperature_margin_celsius": -4}, -4),
    "nvmlDeviceGetJpgUtilization": ({"utilization_jpeg_percent": 14}, [14, 167_000]),
    "nvmlDeviceGetOfaUtilization": ({"utilization_optical_flow_percent": 15}, [15, 167_000]),
    "nvmlDeviceGetEncoderUtilization": ({"utilization_encoder_percent": 12}, [12, 167_000]),
    "nvmlDeviceGetDecoderUtilization": ({"utilization_decoder_percent": 13}, [13, 167_000]),
    "nvmlDeviceGetRepairStatus": ({"repair_channel_pending": 1, "repair_tpc_pending": 0}, [1, 0]),
    "nvmlDeviceGetBAR1MemoryInfo": (
        {"bar1_total_bytes": 100, "bar1_used_bytes": 30},
        {"bar1Total": 100, "bar1Free": 70, "bar1Used": 30},
    ),
    "nvmlDeviceGetRowRemapperHistogram": (
        {"histogram_max": 9, "histogram_none": 2},
        {"max": 9, "high": 0, "partial": 0, "low": 0, "none": 2},
    ),
    "nvmlDeviceGetMemoryInfo": (
        {"memory_total_bytes": 1000, "memory_reserved_bytes": 100, "memory_used_bytes": 250},
        {"total": 1000, "free": 650, "used": 350},
    ),
}


def test_what_is_set_is_what_pynvml_returns(driver: FakeDriver, client: Client) -> None:
    third, fourth = client.gpu(3), client.gpu(4)
    before = {call: client.call(call, fourth) for call in PLAIN_CALLS}
    for values, _ in PLAIN_CALLS.values():
        driver.set(3, **values)
    expected = {call: result for call, (_, result) in PLAIN_CALLS.items()}
    assert {call: client.call(call, third) for call in PLAIN_CALLS} == expected
    assert {call: client.call(call, fourth) for call in PLAIN_CALLS} == before


def test_calls_with_a_selector_choose_their_value(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(0)
    driver.set(0, clock_memory_megahertz=1, max_clock_video_megahertz=2, temperature_celsius=83)
    driver.set(0, threshold_slowdown_celsius=91, ecc_uncorrected_aggregate=7)
    driver.set(0, memory_total_bytes=1000, memory_reserved_bytes=100, memory_used_bytes=250)
    driver.set(0, thermal_violation_nanoseconds=5_000)
    assert client.call("nvmlDeviceGetClockInfo", gpu, pynvml.NVML_CLOCK_MEM) == 1
    assert client.call("nvmlDeviceGetMaxClockInfo", gpu, pynvml.NVML_CLOCK_VIDEO) == 2
    assert client.call("nvmlDeviceGetTemperature", gpu, pynvml.NVML_TEMPERATURE_GPU) == 83
    assert client.call("nvmlDeviceGetTemperatureV", gpu, pynvml.NVML_TEMPERATURE_GPU) == 83
    assert client.call("nvmlDeviceGetTemperatureThreshold", gpu, 1) == 91
    assert client.call("nvmlDeviceGetTotalEccErrors", gpu, 1, 1) == 7
    memory = client.call("nvmlDeviceGetMemoryInfo", gpu, pynvml.nvmlMemory_v2)
    assert (memory["reserved"], memory["used"], memory["free"]) == (100, 250, 650)
    violation = client.call("nvmlDeviceGetViolationStatus", gpu, pynvml.NVML_PERF_POLICY_THERMAL)
    assert violation["violationTime"] == 5_000
    assert client.error("nvmlDeviceGetClockInfo", gpu, 9) == 2


def test_a_gpu_is_found_by_index_uuid_and_address(driver: FakeDriver, client: Client) -> None:
    driver.set(2, missing=1)
    assert client.call("nvmlDeviceGetCount") == 7
    gpu = client.gpu(2)
    assert client.call("nvmlDeviceGetMinorNumber", gpu) == 3
    assert client.call("nvmlDeviceGetIndex", gpu) == 2
    uuid = client.call("nvmlDeviceGetUUID", gpu)
    pci = client.call("nvmlDeviceGetPciInfo", gpu)
    assert (pci["busId"], pci["busIdLegacy"], pci["bus"]) == (
        "00000000:61:00.0",
        "0000:61:00.0",
        0x61,
    )
    for lookup, name in (("ByUUID", uuid), ("ByPciBusId", pci["busId"])):
        found = client.call(f"nvmlDeviceGetHandle{lookup}", name)
        assert client.call("nvmlDeviceGetUUID", found) == uuid
    assert client.error("nvmlDeviceGetHandleByUUID", "GPU-none") == 6
    assert client.error("nvmlDeviceGetHandleByIndex", 7) == 2


def test_gpus_of_different_nodes_differ(tmp_path: Path, library: Path) -> None:
    seen: set[str] = set()
    for node in range(2):
        client = Client(FakeDriver(tmp_path / str(node), library, gpus=2, node=node))
        try:
            client.call("nvmlInit")
            handles = [client.gpu(index) for index in range(2)]
            for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial"):
                seen |= {client.call(call, handle) for handle in handles}
        finally:
            client.close()
    assert len(seen) == 8


def test_the_system_has_versions(driver: FakeDriver, client: Client) -> None:
    driver.set_system(driver_version="580.1", cuda_version=13000)
    assert client.call("nvmlSystemGetDriverVersion") == "580.1"
    assert client.call("nvmlSystemGetNVMLVersion").startswith("12.")
    assert client.call("nvmlSystemGetCudaDriverVersion") == 13000
    assert client.call("nvmlSystemGetCudaDriverVersion_v2") == 13000
    assert client.call("nvmlErrorString", 15) == "GPU is lost"


def test_each_field_has_its_own_type_and_return(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(0)
    driver.set(0, tlimit_shutdown_celsius=-8, memory_temperature_celsius=70, recovery_action=2)
    driver.set(0, ecc_uncorrected_volatile=2**40, power_milliwatts=300_000)
    driver.set(0, power_average_milliwatts=250_000, pcie_rx_bytes=2**35)
    driver.fail(0, 190, pynvml.NVML_ERROR_NOT_SUPPORTED)
    fields = client.fields(gpu, 193, 82, 230, 4, 185, 186, 190, 198, 7, 5000)
    unsigned, wide, signed = (
        pynvml.NVML_VALUE_TYPE_UNSIGNED_INT,
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        pynvml.NVML_VALUE_TYPE_SIGNED_INT,
    )
    assert {
        field: (value["type"], value["value"])
        for field, value in fields.items()
        if value["error"] == 0
    } == {
        193: (signed, -8),
        82: (unsigned, 70),
        230: (unsigned, 2),
        4: (wide, 2**40),
        185: (unsigned, 250_000),
        186: (unsigned, 300_000),
        198: (wide, 2**35),
    }
    assert {field: value["error"] for field, value in fields.items() if value["error"]} == {
        190: pynvml.NVML_ERROR_NOT_SUPPORTED,
        7: pynvml.NVML_ERROR_NOT_SUPPORTED,
        5000: pynvml.NVML_ERROR_INVALID_ARGUMENT,
    }


def test_a_link_may_differ_from_the_others(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(1)
    driver.set(1, nvlink_replays=2, nvlink_tx_kibibytes=10)
    driver.set_link(1, 5, nvlink_state=0, nvlink_replays=40, nvlink_speed_megabytes_per_second=0)
    assert [client.call("nvmlDeviceGetNvLinkState", gpu, link) for link in (4, 5)] == [1, 0]
    assert client.call("nvmlDeviceGetNvLinkVersion", gpu, 0) == pynvml.NVML_NVLINK_VERSION_4_0
    assert client.call("nvmlDeviceGetNvLinkErrorCounter", gpu, 5, 0) == 40
    assert client.call("nvmlDeviceGetNvLinkRemotePciInfo", gpu, 5)["busId"] == "00000000:08:00.0"
    fifth = client.fields(gpu, 91, (165, 5), (164, 5), (161, 5), (138, 5))
    assert {field: value["value"] for field, value in fifth.items()} == {
        91: 18,
        165: 0,
        164: 0,
        161: 40,
        138: 10,
    }
    every_link = client.fields(gpu, (161, 0xFFFFFFFF), (138, 0xFFFFFFFF), (165, 18))
    assert every_link[161]["value"] == 17 * 2 + 40
    assert every_link[138]["value"] == 18 * 10
    assert every_link[165]["error"] == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert client.error("nvmlDeviceGetNvLinkState", gpu, 18) == 2


def test_the_process_list_says_its_size_first(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(0)
    compute = "nvmlDeviceGetComputeRunningProcesses"
    assert client.call(compute, gpu) == []
    # pynvml takes a successful size query for an empty list; a full one must fail it first.
    driver.set_processes(0, {pid: pid * 1000 for pid in range(100, 140)})
    assert len(client.call(compute, gpu)) == 40
    driver.set_processes(0, {4321: 1 << 30, 4322: None})
    held = client.call(compute, gpu)
    assert [(p["pid"], p["usedGpuMemory"]) for p in held] == [(4321, 1 << 30), (4322, None)]
    driver.set(0, graphics_processes="7:1")
    assert [p["pid"] for p in client.call("nvmlDeviceGetGraphicsRunningProcesses", gpu)] == [7]


def test_mig_devices_are_found_while_the_mode_is_on(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(1)
    driver.set(1, mig_current=1, mig_devices=2)
    driver.set_mig(1, 1, mig_profile="3g.40gb", mig_memory_used_bytes=77)
    second = client.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, 1)
    assert client.call("nvmlDeviceGetName", second) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert client.call("nvmlDeviceGetMemoryInfo", second, pynvml.nvmlMemory_v2)["used"] == 77
    assert client.call("nvmlDeviceGetGpuInstanceId", second) == 2
    assert client.call("nvmlDeviceGetUUID", second).startswith("MIG-")
    assert client.error("nvmlDeviceGetMigDeviceHandleByIndex", gpu, 2) == 6
    driver.set(1, mig_current=0)
    assert client.error("nvmlDeviceGetMigDeviceHandleByIndex", gpu, 1) == 6


def test_energy_follows_power_and_restarts_at_a_reset(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(0)
    energy = "nvmlDeviceGetTotalEnergyConsumption"
    driver.set(0, power_milliwatts=700_000)
    seen = [client.call(energy, gpu)]
    # Power falls in between, which may slow the counter down but never turns it back.
    for milliwatts in (700_000, 100_000, 100_000, 400_000):
        driver.set(0, power_milliwatts=milliwatts)
        seen.append(client.call(energy, gpu))
    assert seen == sorted(seen)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.call(energy, gpu) < seen[-1] + 40_000 and time.monotonic() < deadline:
        time.sleep(0.02)
    # 40 J at 400 W take a tenth of a second.
    assert client.call(energy, gpu) >= seen[-1] + 40_000
    driver.set(0, energy_millijoules_per_second=0)
    active = client.call(energy, gpu)
    assert client.fields(gpu, 83)[83]["value"] == active
    driver.reset(0)
    assert client.call(energy, gpu) < active


def test_link_traffic_moves_at_its_rate(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(0)
    driver.set(0, nvlink_tx_kibibytes_per_second=1_000_000)
    driver.set_link(0, 1, nvlink_tx_kibibytes_per_second=0)
    busy, idle = (138, 0), (138, 1)
    active = client.fields(gpu, idle)[138]["value"]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while client.fields(gpu, busy)[138]["value"] < 200_000 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert client.fields(gpu, busy)[138]["value"] >= 200_000
    assert client.fields(gpu, idle)[138]["value"] == active
    assert client.fields(gpu, (139, 0))[139]["value"] == 0


def test_a_value_that_does_not_exist_is_refused_with_its_neighbours(driver: FakeDriver) -> None:
    with pytest.raises(ValueError, match="power_milliwatts"):
        driver.set(0, power_miliwatts=1)
