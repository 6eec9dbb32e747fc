"""The child that asks a kubelet, against a real gRPC server at a real socket."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import grpc
import pytest

from collector.owners.kubelet.device_map import Answer
from collector.owners.kubelet.query_supervisor import Kubelet
from gpuvigil.clock import ManualClock, SystemClock
from tests.collector.owners.kubelet import FakeKubelet
from tests.polling import wait_until
from tests.shortage import shortage

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
SECONDS = 0.1
NOT_KNOWN = "whose a GPU is, is not known from Kubernetes"


@pytest.fixture
def fake() -> Iterator[FakeKubelet]:
    # A socket's path may have 107 bytes, which pytest's own folders may use up.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kubelet/pod-resources").mkdir(parents=True)
        kubelet = FakeKubelet(Path(folder) / "kubelet/pod-resources/kubelet.sock")
        yield kubelet
        kubelet.stop()


@pytest.fixture
def asks(fake: FakeKubelet) -> Iterator[Kubelet]:
    kubelet = Kubelet(fake.socket, SECONDS, SystemClock(), env={})
    yield kubelet
    kubelet.stop()


def until(kubelet: Kubelet, wanted: Callable[[Answer | None], bool]) -> Answer | None:
    found: list[Answer | None] = []

    def look() -> bool:
        kubelet.keep()
        found.append(kubelet.answer())
        return wanted(found[-1])

    wait_until("the kubelet", look, timeout_seconds=60)
    return found[-1]


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )


def held(answer: Answer | None) -> set[tuple[str, str]]:
    return {
        (hold.name, device) for hold in (answer.holds if answer else ()) for device in hold.devices
    }


def test_what_the_kubelet_says_is_heard_and_a_failed_call_is_unknown(
    fake: FakeKubelet, asks: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fake.pods = {
        "ml/a-0": {"main": {"nvidia.com/gpu": ["GPU-0", "GPU-1"], "rdma/hca": ["mlx5_0"]}},
        "ml/b-0": {"one": {"nvidia.com/gpu.shared": ["GPU-2::1"]}, "two": {}},
    }
    fake.claimed = ["ml/dra"]
    fake.start()
    answer = until(asks, lambda it: it is not None)
    assert answer is not None
    assert held(answer) == {("ml/a-0", "GPU-0"), ("ml/a-0", "GPU-1"), ("ml/b-0", "GPU-2::1")}
    assert (answer.allocatable, answer.claimed) == (None, ("ml/dra",))
    fake.offered = {"nvidia.com/gpu": ["GPU-0", "GPU-1"], "cpu-manager": ["x"]}
    answer = until(asks, lambda it: it is not None and it.allocatable is not None)
    assert answer is not None
    assert answer.allocatable == ("GPU-0", "GPU-1")

    fake.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
    until(asks, lambda it: it is None)
    assert 'why="RESOURCE_EXHAUSTED: not today"' in caplog.text
    fake.refusal, fake.pods = None, {}
    assert held(until(asks, lambda it: it is not None)) == set()
    assert caplog.text.count(NOT_KNOWN) == 1
    assert caplog.text.count("the kubelet answers again") == 1

    # A kubelet that is started anew makes its socket anew.
    fake.stop()
    until(asks, lambda it: it is None)
    fake.pods = {"ml/a-0": {"main": {"nvidia.com/gpu": ["GPU-3"]}}}
    fake.start()
    assert held(until(asks, lambda it: bool(held(it)))) == {("ml/a-0", "GPU-3")}


def test_without_a_socket_no_child_is_started_until_there_is_one(
    fake: FakeKubelet, asks: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        asks.keep()
        assert asks.answer() is None
    assert caplog.text.count(f'"{NOT_KNOWN}"') == 1
    assert "it is not there: mount or start it" in caplog.text
    fake.start()
    assert until(asks, lambda it: it is not None) == Answer(holds=())


def test_a_child_that_is_still_being_started_is_no_kubelet_that_does_not_answer(
    fake: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    fake.start()
    clock = ManualClock(datetime(2026, 1, 31, tzinfo=timezone.utc))
    kubelet = Kubelet(fake.socket, SECONDS, clock, env={})
    try:
        kubelet.keep()
        clock.advance(3600.0)
        assert kubelet.answer() is None
        assert NOT_KNOWN not in caplog.text
        assert until(kubelet, lambda it: it is not None) == Answer(holds=())
    finally:
        kubelet.stop()


def test_a_node_without_a_kubelet_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Kubelet(tmp_path / "var/lib/kubelet/pod-resources/kubelet.sock", 1.0, SystemClock(), {}).keep()
    Kubelet(None, 1.0, SystemClock(), {}).keep()
    assert caplog.text == ""
    # In a pod somebody wanted to know.
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    Kubelet(tmp_path / "a/b/c.sock", 1.0, SystemClock(), env).keep()
    assert "it is not there" in caplog.text


def test_what_is_no_socket_is_said(
    fake: FakeKubelet, asks: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    fake.socket.write_text("")
    asks.keep()
    assert "it is no socket" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become nobody")
@pytest.mark.parametrize("what", ["socket", "folder"])
def test_a_socket_that_may_not_be_opened_is_one_clear_line(what: str, fake: FakeKubelet) -> None:
    fake.start()
    for folder in fake.socket.parents[:4]:
        folder.chmod(0o755)
    (fake.socket if what == "socket" else fake.socket.parent).chmod(stat.S_IRWXU)
    done = python(
        "-c",
        "import os; from pathlib import Path; from gpuvigil import log\n"
        "from collector.owners.kubelet.query_supervisor import Kubelet; from gpuvigil.clock import SystemClock\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); log.configure('info')\n"
        f"kubelet = Kubelet(Path({str(fake.socket)!r}), 1.0, SystemClock(), {{}})\n"
        "kubelet.keep(); kubelet.keep()",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NOT_KNOWN) == 1
    assert "run the collector as root, or as its group" in done.stderr


def test_without_room_for_the_child_nothing_is_known_until_there_is(
    fake: FakeKubelet, asks: Kubelet
) -> None:
    fake.start()
    with shortage("descriptors"):
        asks.keep()
    assert asks.answer() is None
    until(asks, lambda answer: answer is not None)
