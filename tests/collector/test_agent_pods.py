"""The whole agent beside a kubelet: a real gRPC server, real pynvml on a fake driver."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from gpuvigil.model import Allocation, Record
from tests.collector.agent import Agent
from tests.collector.owners.kubelet import FakeKubelet
from tests.collector.receiver import Receiver
from tests.collector.rows import UUIDS
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

pytestmark = pytest.mark.server


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(tmp_path / "kubelet.sock")
    fake.start()
    yield fake
    fake.stop()


def told(receiver: Receiver) -> dict[tuple[str, str], Allocation]:
    """The newest of what was shipped, by holder and GPU."""
    records = sorted(
        map(Record.from_json, receiver.records("allocation")), key=lambda record: record.version
    )
    found = map(Allocation.from_record, records)
    return {(str(one.holder), one.subject.gpu or ""): one for one in found}


def test_pods_hold_their_gpus_over_failed_calls_and_restarts(
    agent: Agent, driver: FakeDriver, receiver: Receiver, kubelet: FakeKubelet
) -> None:
    first, second = UUIDS[0], UUIDS[1]
    kubelet.pods = {
        "ml/a-0": {"main": {"nvidia.com/gpu": [first]}},
        "ml/b-0": {"main": {"nvidia.com/gpu.shared": [f"{second}::1"]}},
    }
    agent.settings["kubelet_socket"] = str(kubelet.socket)
    agent.environment = driver.environment()
    agent.start()
    keys = {("pod ml/a-0", first), ("pod ml/b-0", second)}
    wait_until("both pods", lambda: told(receiver).keys() == keys)
    shared = told(receiver)["pod ml/b-0", second]
    assert (shared.part, shared.account, shared.place) == ("shared", "ml", "main")

    kubelet.refusal = grpc.StatusCode.INTERNAL
    asked = kubelet.asked
    wait_until("failed calls", lambda: kubelet.asked > asked + 2)
    agent.stop()
    agent.start()
    asked = kubelet.asked
    wait_until("failed calls of the next", lambda: kubelet.asked > asked + 2)
    assert [one.ended_at for one in told(receiver).values()] == [None, None]
    kubelet.refusal = None
    del kubelet.pods["ml/a-0"]
    kubelet.pods["ml/c-0"] = {"main": {"nvidia.com/gpu": [first]}}
    wait_until("the end", lambda: told(receiver)["pod ml/a-0", first].ended_at)
    wait_until("the next pod", lambda: ("pod ml/c-0", first) in told(receiver))
    assert told(receiver).keys() == {*keys, ("pod ml/c-0", first)}  # nothing began anew
    assert told(receiver)["pod ml/b-0", second].ended_at is None
    assert "INTERNAL: not today" in agent.log.read_text()
