"""What waits in the kernel's queues: of interfaces of the real kernel, and of answers that are none."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.sensors.queues import Queue, Queues, root_queue
from tests import sources
from tests.packets import is_possible
from tests.sysfs import PortTree

# In a network of its own: a shaper that lets 1 Mbit/s through, and a burst of packets at it.
_SCRIPT = """
set -eu
ip link add v0 type veth peer name v1
ip addr add 10.1.1.1/24 dev v0
ip link set v0 up; ip link set v1 up
ip neigh add 10.1.1.2 lladdr 02:00:00:00:00:02 dev v0
"$1" -c "$2"
tc qdisc add dev v0 root tbf rate 1mbit burst 9k latency 5000ms
"$1" -c "$2"
"""
_SEND_AND_READ = """
import socket
from collector.sensors.queues import Queues
door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(60):
    door.sendto(bytes(1000), ("10.1.1.2", 9))
queues = Queues()
queues.read()
print(queues.of(["/sys/class/net/v0"]), queues.of(["/sys/class/net/v0", "/sys/class/net/v1"]))
"""


@pytest.mark.slow
def test_a_shaper_of_the_real_kernel_holds_packets_back(needs_namespaces: None) -> None:
    words = ["unshare", "--net", "--mount", "sh", "-c", f"mount -t sysfs none /sys; {_SCRIPT}"]
    told = subprocess.run(
        [*words, "sh", sys.executable, _SEND_AND_READ],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = told.stdout.splitlines()
    nothing = "{'transmit_queue_bytes': 0, 'transmit_held_back': 0}"
    assert before == f"{nothing} {nothing}"
    assert "'transmit_queue_bytes': 0" not in after
    assert "'transmit_held_back': 0" not in after


@pytest.fixture
def needs_namespaces() -> None:
    if not is_possible():
        pytest.skip("only root may make interfaces")


def attribute(kind: int, body: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(body), kind) + body + bytes(-len(body) % 4)


def message(interface: int, parent: int, waiting: int, held_back: int) -> bytes:
    counts = struct.pack("=5I", 3, waiting, 1, 2, held_back)
    inner = attribute(1, bytes(16)) + attribute(3, counts)
    head = struct.pack("=BxHiIII", 0, 0, interface, 1 << 16, parent, 2)
    return head + attribute(1, b"tbf\0") + attribute(7, inner)


ROOT = 0xFFFFFFFF


@given(st.integers(1, 1 << 30), st.integers(0, ROOT), st.integers(0, ROOT))
def test_the_outermost_queue_is_read(interface: int, waiting: int, held_back: int) -> None:
    told = list(root_queue(message(interface, ROOT, waiting, held_back)))
    assert told == [(interface, Queue(waiting, held_back))]
    assert list(root_queue(message(interface, 1 << 16, waiting, held_back))) == []


@given(st.binary(min_size=20, max_size=200), st.integers(0, 60))
def test_what_makes_no_sense_is_left_out_or_an_error_that_is_caught(raw: bytes, cut: int) -> None:
    head = struct.pack("=BxHiIII", 0, 0, 4, 1, ROOT, 2)
    for body in (head + raw, message(4, ROOT, 7, 8)[:-cut] if cut else raw):
        try:
            told = list(root_queue(body))
        except struct.error:
            continue
        assert len(told) <= len(body)


def test_an_interface_of_another_network_is_not_read(tmp_path: Path) -> None:
    queues = Queues()
    queues.read()
    assert queues.of(["/sys/class/net/lo"]) == {"transmit_queue_bytes": 0, "transmit_held_back": 0}
    other = tmp_path / "lo"
    other.mkdir()
    (other / "ifindex").write_text("77\n")
    (other / "address").write_text("00:00:00:00:00:00\n")
    assert queues.of([str(other)]) == {}
    (other / "ifindex").write_text("1\n")
    assert queues.of([str(other)]) != {}
    (other / "address").write_text("02:00:00:00:00:07\n")
    assert queues.of([str(other)]) == {}
    assert queues.of([]) == {}
    assert queues.of(["/sys/class/net/lo", str(tmp_path / "gone")]) == {}


_COUNT_SOCKETS = """
import sys
from pathlib import Path
from collector.sensors.ports import PortSensor
opened = []
sys.addaudithook(lambda event, _: opened.append(event) if event == "socket.__new__" else None)
found = PortSensor(Path(sys.argv[1]), Path("/proc")).read()
print(len(found), len(opened))
"""


def test_the_kernel_is_asked_for_queues_and_connections_only_of_network_interfaces(
    tmp_path: Path,
) -> None:
    tree = PortTree(tmp_path)
    tree.infiniband("mlx5_0")
    command = [sys.executable, "-c", _COUNT_SOCKETS, str(tmp_path)]
    done = subprocess.run(command, cwd=sources.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
