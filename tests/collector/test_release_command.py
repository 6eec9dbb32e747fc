"""`gpuvigil collect --release`: nothing of the driver is open, everybody is told, and it comes back."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from collector.agent.release_command import seconds_of
from gpuvigil.lineprotocol import Line
from gpuvigil.model import Unmeasured
from tests.collector.agent import ROOT, Agent
from tests.collector.receiver import Receiver, field
from tests.collector.rows import UUIDS, is_silent, is_up, reason, rows_are
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until
from tests.unanswered import Unanswered, is_possible


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("10min", 600), ("1h", 3600), ("24h", 86400)]
)
def test_a_time_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-1m", "0s", "25h", "1.5h", "1d", "１m", "10 m"])
def test_what_is_no_time_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a time like 30s, 10m or 1h"):
        seconds_of(text)


@pytest.fixture
def watching(agent: Agent, driver: FakeDriver, receiver: Receiver) -> Agent:
    """The agent on a node with four GPUs, after its first rows; its reader holds their devices."""
    agent.environment = driver.environment()
    agent.start()
    wait_until("a row of every GPU", rows_are(receiver, UUIDS, is_up))
    assert driver.held_by(reader(agent)) == [
        "nvidia0",
        "nvidia1",
        "nvidia2",
        "nvidia3",
        "nvidiactl",
    ]
    return agent


def reader(agent: Agent) -> int:
    pid = agent.reader()
    assert pid is not None
    return pid


def tell(agent: Agent, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `gpuvigil collect` with options, as an administrator does."""
    config = str(agent.directory / "config.toml")
    command = [sys.executable, "-m", "gpuvigil", "collect", "--config", config, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def said_on_socket(agent: Agent, line: str) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(15)
        descriptor = os.open(agent.directory / "spool", os.O_DIRECTORY)
        door.connect(f"/proc/self/fd/{descriptor}/agent.sock")
        os.close(descriptor)
        door.sendall(line.encode() + b"\n")
        answer: dict[str, object] = json.loads(door.makefile().readline())
    return answer


def is_released(line: Line) -> bool:
    released = reason(line) == Unmeasured.RELEASED_FOR_MAINTENANCE
    return released and field(line, "up") is None


def held_anywhere(agent: Agent, driver: FakeDriver) -> list[str]:
    """Device files that the agent or any child of it has open."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    return [name for pid in (agent.pid, *map(int, children)) for name in driver.held_by(pid)]


@pytest.mark.server
def test_a_release_closes_every_device_and_ends_when_told(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    began = time.monotonic()
    answer = said_on_socket(watching, '{"do": "release", "seconds": 600}')
    assert time.monotonic() - began < 2.0
    assert held_anywhere(watching, driver) == []
    assert answer["ok"]
    assert answer["released_until"]
    wait_until("every GPU says so", rows_are(receiver, UUIDS, is_released))
    wait_until(
        "the inventory",
        lambda: (
            receiver.records("inventory")[-1]["body"]["driver_state"] == "released for maintenance"
        ),
    )
    assert not receiver.events("gpu_lost", "driver_silent")
    state = tell(watching, "--status")
    assert "released until" in state.stdout
    assert state.returncode == 0
    again = tell(watching, "--reattach")
    assert (again.returncode, again.stdout) == (0, "the driver is read again\n")
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    assert not receiver.events("gpu_lost", "gpu_back", "driver_silent", "driver_back")
    assert tell(watching, "--reattach").stdout == "nothing was released\n"


@pytest.mark.server
def test_a_release_ends_by_itself_and_lasts_over_a_restart(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    done = tell(watching, "--release", "8s")
    assert done.returncode == 0
    assert done.stdout.startswith("released after ")
    assert "gpuvigil collect --reattach" in done.stdout
    began = time.monotonic()
    watching.stop()
    watching.start()
    wait_until("every GPU says so", rows_are(receiver, UUIDS, is_released))
    assert watching.reader() is None
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))
    assert time.monotonic() - began > 5.0


@pytest.mark.server
def test_a_driver_that_hangs_is_released_all_the_same(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    driver.hang_all()
    wait_until("silence", rows_are(receiver, UUIDS, is_silent))
    began = time.monotonic()
    answer = said_on_socket(watching, '{"do": "release", "seconds": 600}')
    assert time.monotonic() - began < 2.5  # two seconds, and a slow machine
    assert answer["ok"], answer
    assert held_anywhere(watching, driver) == []
    wait_until("every GPU says so", rows_are(receiver, UUIDS, is_released))
    (over,) = wait_until("the end of the silence", lambda: receiver.events("driver_back"))
    assert over["body"]["message"] == "released for maintenance"


@pytest.mark.server
def test_a_reader_that_cannot_be_ended_is_not_called_released(
    watching: Agent, driver: FakeDriver, receiver: Receiver, tmp_path: Path
) -> None:
    if not is_possible():
        pytest.skip("the uninterruptible state needs root and /dev/fuse")
    with Unanswered(tmp_path / "unanswered") as unanswered:
        driver.block_in(unanswered.file)
        wait_until("silence", rows_are(receiver, UUIDS, is_silent))
        done = tell(watching, "--release", "10m")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "is stuck in the driver, cannot be killed" in done.stderr
        assert rows_are(receiver, UUIDS, is_silent)()
    wait_until("all GPUs up again", rows_are(receiver, UUIDS, is_up))


@pytest.mark.server
def test_what_cannot_be_done_is_one_line_and_an_exit_code(watching: Agent) -> None:
    unknown = tell(watching, "--forget", "GPU-x")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
    assert "this node knows no GPU GPU-x" in unknown.stderr
    assert tell(watching, "--release", "10").returncode == 2
    for line in ('{"do": "release"}', '{"do": "release", "seconds": 90000}', '{"do": "x"}', "[]"):
        answer = said_on_socket(watching, line)
        assert not answer["ok"]
        assert answer["error"]
    watching.stop()
    nobody = tell(watching, "--release", "10m")
    assert nobody.returncode == 3
    assert nobody.stderr.startswith("gpuvigil collect: no agent runs with the spool directory")
    # One that was killed leaves its socket behind.
    watching.start()
    wait_until("its socket", (watching.directory / "spool/agent.sock").exists)
    watching.kill()
    assert tell(watching, "--status").returncode == 3


@pytest.mark.server
def test_who_may_not_is_told_so(watching: Agent) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    script = (
        "import os, sys; from pathlib import Path; from collector.agent.control_socket import ask\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: ask(Path(sys.argv[1]), {'do': 'status'})\n"
        "except Exception as error: print(error); sys.exit(error.exit_code)\n"
    )
    spool = watching.directory / "spool"
    for folder in list(spool.parents)[: len(spool.parents) - 1]:
        folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", script, str(spool)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "belongs to another user" in done.stdout


@pytest.mark.server
def test_a_gpu_that_was_taken_out_is_forgotten_when_told(
    watching: Agent, driver: FakeDriver, receiver: Receiver
) -> None:
    watching.stop()
    driver.set(3, missing=1)
    watching.start()
    wait_until("the loss", lambda: receiver.events("gpu_lost"))
    done = tell(watching, "--forget", UUIDS[3])
    assert (done.returncode, done.stdout) == (0, f"{UUIDS[3]} is forgotten; this node has 3 GPUs\n")

    def last() -> list[str]:
        return [gpu["uuid"] for gpu in receiver.records("inventory")[-1]["body"]["gpus"]]

    wait_until("the inventory without it", lambda: last() == UUIDS[:3])
    os.kill(watching.pid, signal.SIGTERM)
