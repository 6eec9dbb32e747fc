"""What the real pynvml sees when the fake driver fails, hangs, loses a GPU or reports an Xid."""

import time
from pathlib import Path
from typing import Any

import pynvml
import pytest

from benchmarks.footprint import cpu_seconds
from tests.nvml_fake import FakeDriver
from tests.nvml_fake.pynvml_client import PATIENCE_SECONDS, Client, is_stuck

pytestmark = pytest.mark.server


def test_one_call_on_one_gpu_fails_as_told_and_heals(driver: FakeDriver, client: Client) -> None:
    third, fourth = client.gpu(3), client.gpu(4)
    driver.fail(3, "nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_NO_PERMISSION)
    assert client.error("nvmlDeviceGetPowerUsage", third) == 4
    assert client.call("nvmlDeviceGetPowerUsage", fourth) == 72_000
    assert client.call("nvmlDeviceGetPerformanceState", third) == 0
    driver.fail(3, "nvmlDeviceGetPowerUsage", 0)
    assert client.call("nvmlDeviceGetPowerUsage", third) == 72_000


def test_a_call_of_no_gpu_fails_as_told(driver: FakeDriver, client: Client) -> None:
    driver.fail(None, "nvmlSystemGetDriverVersion", pynvml.NVML_ERROR_UNKNOWN)
    assert client.error("nvmlSystemGetDriverVersion") == 999
    assert client.call("nvmlDeviceGetCount") == 8


def test_a_call_that_the_driver_lacks_is_not_found(client: Client) -> None:
    gpu = client.gpu(0)
    assert client.error("nvmlDeviceGetFanSpeed", gpu) == 13


def test_nothing_answers_before_init_or_without_a_driver(
    driver: FakeDriver, client: Client, library: Path, tmp_path: Path
) -> None:
    client.call("nvmlShutdown")
    assert client.error("nvmlDeviceGetCount") == 1
    absent = FakeDriver(tmp_path / "absent", library)
    (tmp_path / "absent" / "nvml.state").unlink()
    without = Client(absent)
    try:
        assert without.error("nvmlInit") == 9
    finally:
        without.close()


def listening(client: Client, *gpus: int) -> Any:
    events = client.call("nvmlEventSetCreate")
    for gpu in gpus:
        client.call(
            "nvmlDeviceRegisterEvents",
            client.gpu(gpu),
            pynvml.nvmlEventTypeXidCriticalError,
            events,
        )
    return events


def test_xid_events_arrive_once_and_in_order(driver: FakeDriver, client: Client) -> None:
    driver.xid(3, 13)  # before anybody listens
    events, others = listening(client, 3, 4), listening(client, 4)
    waiting = client.start("nvmlEventSetWait_v2", events, 10_000)
    assert is_stuck(waiting)
    for gpu, code in ((3, 79), (5, 48), (4, 94), (3, 119)):
        driver.xid(gpu, code)
    received = [waiting.result(PATIENCE_SECONDS)]
    received += [client.call("nvmlEventSetWait_v2", events, 10_000) for _ in range(2)]
    assert [event["eventData"] for event in received] == [79, 94, 119]
    assert {event["eventType"] for event in received} == {pynvml.nvmlEventTypeXidCriticalError}
    indices = [client.call("nvmlDeviceGetIndex", event["device"]) for event in received]
    assert indices == [3, 4, 3]
    assert client.error("nvmlEventSetWait_v2", events, 0) == 10
    assert client.call("nvmlEventSetWait_v2", others, 0)["eventData"] == 94
    client.call("nvmlEventSetFree", events)
    assert client.error("nvmlEventSetWait_v2", events, 0) == 2


def test_every_client_process_receives_every_event(driver: FakeDriver, client: Client) -> None:
    second = Client(driver)
    try:
        second.call("nvmlInit")
        waiting = [
            one.start("nvmlEventSetWait_v2", listening(one, 0), 10_000) for one in (client, second)
        ]
        # Both must have begun to listen, which `listening` has waited for.
        driver.xid(0, 79)
        assert [one.result(PATIENCE_SECONDS)["eventData"] for one in waiting] == [79, 79]
    finally:
        second.close()


def test_event_types_that_the_gpu_lacks_are_refused(driver: FakeDriver, client: Client) -> None:
    driver.set(0, supported_event_types=pynvml.nvmlEventTypeXidCriticalError)
    events = client.call("nvmlEventSetCreate")
    gpu = client.gpu(0)
    assert (
        client.error("nvmlDeviceRegisterEvents", gpu, 0xFF, events)
        == pynvml.NVML_ERROR_NOT_SUPPORTED
    )


def test_a_wait_for_events_ends_at_its_time_limit(client: Client) -> None:
    events = listening(client, 0)
    start = time.monotonic()
    assert client.error("nvmlEventSetWait_v2", events, 200) == 10
    assert 0.2 <= time.monotonic() - start < 5.0


def test_a_hung_gpu_leaves_the_others_answering(driver: FakeDriver, client: Client) -> None:
    third, fourth = client.gpu(3), client.gpu(4)
    events = listening(client, 4)
    driver.hang(3)
    stuck = client.start("nvmlDeviceGetPowerUsage", third)
    lookup = client.start("nvmlDeviceGetHandleByIndex", 3)
    assert client.call("nvmlDeviceGetPowerUsage", fourth) == 72_000
    assert client.call("nvmlDeviceGetCount") == 8
    assert client.error("nvmlEventSetWait_v2", events, 1) == 10
    assert is_stuck(stuck)
    assert is_stuck(lookup)
    driver.release()
    assert stuck.result(PATIENCE_SECONDS) == 72_000
    assert lookup.result(PATIENCE_SECONDS)
    assert client.call("nvmlDeviceGetPowerUsage", third) == 72_000


def test_when_everything_hangs_every_call_waits_for_release(
    driver: FakeDriver, client: Client
) -> None:
    gpu, events = client.gpu(0), listening(client, 0)
    waiting = client.start("nvmlEventSetWait_v2", events, 60_000)
    driver.hang_all()
    driver.xid(0, 79)
    newcomer = Client(driver)
    try:
        init = newcomer.start("nvmlInit")
        stuck = [
            client.start("nvmlDeviceGetPowerUsage", gpu),
            client.start("nvmlDeviceGetHandleByIndex", 1),
            client.start("nvmlDeviceGetCount"),
        ]
        assert is_stuck(init)
        assert not any(future.done() for future in [waiting, *stuck])
        assert client.call("nvmlErrorString", 10) == "Timeout"
        driver.release()
        assert stuck[0].result(PATIENCE_SECONDS) == 72_000
        assert stuck[2].result(PATIENCE_SECONDS) == 8
        assert init.result(PATIENCE_SECONDS) is None
        assert waiting.result(PATIENCE_SECONDS)["eventData"] == 79
    finally:
        newcomer.close()


def test_a_slow_call_takes_its_time_and_no_other_does(driver: FakeDriver, client: Client) -> None:
    gpu = client.gpu(0)
    driver.delay("nvmlDeviceGetPowerUsage", 600.0)
    slow = client.start("nvmlDeviceGetPowerUsage", gpu)
    assert client.call("nvmlDeviceGetPerformanceState", gpu) == 0
    assert is_stuck(slow)
    driver.delay("nvmlDeviceGetPowerUsage", 0)
    assert slow.result(PATIENCE_SECONDS) == 72_000


def test_a_lost_gpu_says_so_to_every_call_until_restored(
    driver: FakeDriver, client: Client
) -> None:
    third, fourth, events = client.gpu(3), client.gpu(4), listening(client, 3)
    driver.lose(3)
    driver.xid(3, 79)
    for call in ("Name", "PowerUsage", "UtilizationRates", "MemoryInfo", "EccMode", "PciInfo"):
        assert client.error(f"nvmlDeviceGet{call}", third) == 15
    assert client.error("nvmlDeviceGetComputeRunningProcesses", third) == 15
    assert client.error("nvmlDeviceGetNvLinkState", third, 0) == 15
    assert client.error("nvmlDeviceGetFieldValues", third, [82]) == 15
    assert client.error("nvmlDeviceGetHandleByIndex", 3) == 15
    assert client.call("nvmlEventSetWait_v2", events, 1000)["eventData"] == 79
    assert client.call("nvmlDeviceGetPowerUsage", fourth) == 72_000
    client.call("nvmlShutdown")
    client.call("nvmlInit")
    assert client.call("nvmlDeviceGetCount") == 8
    driver.restore(3)
    assert client.call("nvmlDeviceGetPowerUsage", third) == 72_000


def test_thousands_of_calls_and_changes_leave_no_file_open(
    driver: FakeDriver, client: Client
) -> None:
    gpu = client.gpu(0)
    open_files = Path(f"/proc/{client.pid}/fd")
    client.call("nvmlDeviceGetPowerUsage", gpu)
    before = len(list(open_files.iterdir()))
    for milliwatts in range(1, 201):
        driver.set(0, power_limit_milliwatts=milliwatts)
        calls = [client.start("nvmlDeviceGetEnforcedPowerLimit", gpu) for _ in range(10)]
        assert {call.result(PATIENCE_SECONDS) for call in calls} == {milliwatts}
    assert len(list(open_files.iterdir())) == before


def test_calls_cost_processor_time_when_told_and_nvlink_calls_and_batches_more(
    driver: FakeDriver, client: Client
) -> None:
    def cost(*call: object) -> float:
        before = cpu_seconds([client.pid])
        for _ in range(10):
            client.call(*call)  # type: ignore[arg-type]
        return (cpu_seconds([client.pid]) - before) / 10

    gpu = client.gpu(0)
    assert cost("nvmlDeviceGetPowerUsage", gpu) < 0.01
    driver.charge(0.02, 0.06)
    assert 0.02 <= cost("nvmlDeviceGetPowerUsage", gpu) < 0.04
    assert cost("nvmlDeviceGetNvLinkState", gpu, 0) >= 0.06
    assert cost("nvmlDeviceGetFieldValues", gpu, [82]) >= 0.06
