"""Who answers late: of connections of the real kernel, and of looks that are made up."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.sensors.connections import (
    MOST_SOCKETS,
    WAITS_SECONDS,
    Connection,
    Connections,
    connection,
)
from tests.packets import is_possible

OURS, THEIRS = "10.1.1.1", "10.1.1.2"
# Two networks and a cable; the far end's answers go through a narrow place from the second burst on.
_SCRIPT = """
set -eu
ip link add v0 type veth peer name v1
unshare --net sleep 60 & far=$!
while [ "$(readlink /proc/$far/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link set v1 netns $far
ip addr add 10.1.1.1/24 dev v0; ip link set v0 up
nsenter -t $far -n ip addr add 10.1.1.2/24 dev v1; nsenter -t $far -n ip link set v1 up
nsenter -t $far -n "$1" -c "$2" & taker=$!
"$1" -c "$3" "$far"
kill $far
"""
_TAKE = """
import socket
door = socket.create_server(("10.1.1.2", 9000))
came, _ = door.accept()
while came.recv(1 << 20): pass
"""
_SEND = """
import socket, subprocess, sys, time
from collector.sensors.connections import Connections
it = Connections()
for _ in range(100):
    try:
        to = socket.create_connection(("10.1.1.2", 9000)); break
    except OSError: time.sleep(0.1)
to.sendall(bytes(1000)); time.sleep(0.3); it.read()
for _ in range(20): to.sendall(bytes(100_000)); time.sleep(0.01)
it.read(); print(it.of("/sys/class/net/v0"))
limit = "tbf rate 4kbit burst 200 latency 5000ms"
words = f"nsenter -t {sys.argv[1]} -n tc qdisc add dev v1 root {limit}"
subprocess.run(words.split(), check=True)
for _ in range(20): to.sendall(bytes(400_000)); time.sleep(0.1)
it.read(); print(it.of("/sys/class/net/v0"))
"""


@pytest.mark.slow
def test_answers_of_the_real_kernel_that_come_late_are_told_with_whose_they_are(
    needs_namespaces: None,
) -> None:
    inner = f"mount -t sysfs none /sys; {_SCRIPT}"
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", inner]
    told = subprocess.run(
        [*words, "sh", sys.executable, _TAKE, _SEND],
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    before, after = told.stdout.splitlines()
    assert before.startswith("(('10.1.1.1',), PortDelay(")
    assert before.endswith("waits_for=()))")
    assert after.endswith("waits_for=('10.1.1.2',)))")
    early, late = (float(it.split("delay_seconds=")[1].split(",")[0]) for it in (before, after))
    assert early < 0.03 < late


@pytest.fixture
def needs_namespaces() -> None:
    if not is_possible():
        pytest.skip("only root may make interfaces")


ONE = Connection(
    cookie=1,
    local=OURS,
    peer=THEIRS,
    acked_bytes=1_000,
    round_trip_seconds=0.0001,
    shortest_seconds=0.0001,
)


def looked(*looks: Sequence[Connection]) -> tuple[float | None, tuple[str, ...]]:
    """What is known of our address after these looks."""
    it = Connections()
    for look in looks:
        it.update(look)
    sent = it.sent(OURS)
    return (None, ()) if sent is None else (sent.delay_seconds, sent.waits_for)


def later(one: Connection, seconds: float, more: int = 10_000_000) -> Connection:
    return replace(one, acked_bytes=one.acked_bytes + more, round_trip_seconds=seconds)


def test_the_first_look_at_a_connection_and_one_that_sends_nothing_say_nothing() -> None:
    assert looked([later(ONE, 0.5)]) == (None, ())
    assert looked([ONE], [later(ONE, 0.5, more=0)]) == (None, ())


def test_a_far_peer_is_not_late_and_a_near_one_is() -> None:
    far = replace(ONE, round_trip_seconds=0.080, shortest_seconds=0.080)
    delay, peers = looked([far], [later(far, 0.081)])
    assert delay == pytest.approx(0.001)
    assert peers == ()
    delay, peers = looked([ONE], [later(ONE, 0.0511)])
    assert delay == pytest.approx(0.051)
    assert peers == (THEIRS,)


@pytest.mark.parametrize(("seconds", "late"), [(0.00209, False), (0.00211, True)])
def test_two_milliseconds_are_late(seconds: float, late: bool) -> None:
    assert pytest.approx(0.002) == WAITS_SECONDS
    assert bool(looked([ONE], [later(ONE, seconds)])[1]) is late


@pytest.mark.parametrize(("times", "late"), [(10.9, False), (11.1, True)])
def test_and_ten_of_the_shortest_round_trips(times: float, late: bool) -> None:
    slow = replace(ONE, round_trip_seconds=0.01, shortest_seconds=0.01)
    assert bool(looked([slow], [later(slow, times * 0.01)])[1]) is late


def test_the_shortest_round_trip_is_that_of_all_looks() -> None:
    # The kernel forgets its own after five minutes.
    forgot = replace(later(ONE, 0.0511), shortest_seconds=0.05)
    assert looked([ONE], [forgot])[1] == (THEIRS,)


@pytest.mark.parametrize(("share", "told"), [(0.24, False), (0.26, True)])
def test_who_gets_a_quarter_of_the_bytes_is_waited_for(share: float, told: bool) -> None:
    other = replace(ONE, cookie=2, peer="10.1.1.3")
    now = [later(ONE, 0.06, round(share * 1e7)), later(other, 0.0001, round((1 - share) * 1e7))]
    assert bool(looked([ONE, other], now)[1]) is told


@pytest.mark.parametrize(("more", "told"), [((1 << 20) - 1, False), (1 << 20, True)])
def test_words_now_and_then_are_late_by_themselves(more: int, told: bool) -> None:
    assert bool(looked([ONE], [later(ONE, 0.06, more)])[1]) is told


def test_a_peer_that_was_late_is_told_for_a_minute() -> None:
    it = Connections()
    at = ONE
    it.update([at])
    said = []
    for look in range(8):
        at = later(at, 0.06 if not look else 0.0001)
        it.update([at])
        sent = it.sent(OURS)
        said.append(sent is not None and bool(sent.waits_for))
    assert said == [True] * 6 + [False] * 2


def test_more_sockets_than_a_look_may_cost_say_nothing() -> None:
    many = [replace(ONE, cookie=it) for it in range(MOST_SOCKETS)]
    after = [later(one, 0.06) for one in many]
    assert looked(many, after)[1] == (THEIRS,)
    more = [*after, replace(ONE, cookie=MOST_SOCKETS)]
    assert looked(many, more) == (None, ())


def message(rtt: int, acked: int, shortest: int, family: int = socket.AF_INET) -> bytes:
    ours, theirs = (socket.inet_pton(family, it).ljust(16, b"\0") for it in (OURS, THEIRS))
    head = struct.pack("=4xHH16s16sIQ20x", 0, 0, ours, theirs, 0, 7)
    info = bytearray(232)
    struct.pack_into("=I", info, 68, rtt)
    struct.pack_into("=Q", info, 120, acked)
    struct.pack_into("=I", info, 148, shortest)
    return head + struct.pack("=HH", 4 + len(info), 2) + bytes(info)


def test_a_socket_is_read_in_seconds() -> None:
    told = list(connection(socket.AF_INET, message(1500, 9, 20), {OURS}))
    expected = replace(
        ONE, cookie=7, acked_bytes=9, round_trip_seconds=0.0015, shortest_seconds=2e-5
    )
    assert told == [expected]
    assert list(connection(socket.AF_INET, message(1500, 9, 0xFFFFFFFF), {OURS})) == []
    assert list(connection(socket.AF_INET, message(1500, 0, 20), {OURS})) == []
    assert list(connection(socket.AF_INET, message(1500, 9, 20), set())) == []


@given(st.binary(max_size=200), st.integers(1, 300))
def test_what_makes_no_sense_is_left_out_or_an_error_that_is_caught(raw: bytes, cut: int) -> None:
    for body in (raw, message(1, 2, 3)[:-cut], message(1, 2, 3)[:72] + raw):
        try:
            told = list(connection(socket.AF_INET, body, {OURS}))
        except struct.error:
            continue
        assert len(told) <= 1
