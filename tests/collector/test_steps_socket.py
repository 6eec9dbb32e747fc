"""Lines about steps through the real socket: of whom they are believed, and that no sender waits."""

import array
import errno
import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collector.owners.processes import ProcessTable
from collector.sensors.steps import Progress, Steps
from collector.sensors.steps_socket import (
    MOST_BYTES,
    MOST_IN_A_SECOND,
    NAME,
    StepsSocket,
)
from tests.polling import wait_until

ROOT = Path(__file__).parents[2]
PROC = Path("/proc")
STARTED = ProcessTable(PROC).start_ticks


@contextmanager
def listening(directory: Path, most: int = 1024) -> Iterator[StepsSocket]:
    found = StepsSocket(directory, STARTED, most)
    yield found
    found.close()


def steps_of(directory: Path, sent: StepsSocket) -> Steps:
    return Steps(directory, PROC, STARTED, sent=sent)


def me() -> int:
    """Asked for each time: a test may run in a fork of the process that read this file."""
    return os.getpid()


def now() -> datetime:
    return datetime.now(timezone.utc)


def send(directory: Path, *lines: bytes) -> int:
    """As a program does it; how many lines the kernel took."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.setblocking(False)
        taken = 0
        for line in lines:
            with suppress(OSError):
                door.sendto(line, str(directory / NAME))
                taken += 1
    return taken


_SENDER = """
import socket, sys, time
door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
door.sendto(sys.argv[2].encode(), sys.argv[1])
time.sleep(60)
"""


@contextmanager
def rank(directory: Path, line: str) -> Iterator[int]:
    """A process that sends a line."""
    command = [sys.executable, "-I", "-S", "-c", _SENDER, str(directory / NAME), line]
    with subprocess.Popen(command) as process:
        yield process.pid
        process.kill()


def told(steps: Steps, *pids: int) -> dict[str, Progress]:
    return steps.read({f"GPU-{pid}": [pid] for pid in pids}, now())


def test_a_line_is_of_the_process_that_sent_it(tmp_path: Path) -> None:
    line = "1234 0.82 rank=3 world=8 own_seconds=0.5 phase=collective since=1\n"
    with listening(tmp_path) as sent, rank(tmp_path, line) as pid:
        steps = steps_of(tmp_path, sent)
        wait_until("its line", lambda: sent.of(pid))
        (one,) = told(steps, pid, me()).values()
    assert (one.step, one.rank, one.world, one.own_seconds) == (1234, 3, 8, 0.5)
    assert one.p99_seconds == 0.82
    assert one.age_seconds == pytest.approx(0.0, abs=20.0)


def test_whoever_writes_a_file_is_told_by_it(tmp_path: Path) -> None:
    with listening(tmp_path) as sent:
        send(tmp_path, b"7 1.0\n")
        wait_until("the line", lambda: sent.of(me()))
        steps = steps_of(tmp_path, sent)
        assert told(steps, me())[f"GPU-{me()}"].step == 7
        (tmp_path / str(me())).write_text("9 1.0\n")
        assert told(steps, me())[f"GPU-{me()}"].step == 9


def test_nobody_speaks_for_anothers_process(tmp_path: Path) -> None:
    """The kernel refuses to pass on credentials that are not the sender's, and root alone may name others."""
    forged = array.array("i", [os.getppid(), 0, 0]).tobytes()
    with listening(tmp_path) as sent:
        child = os.fork()
        if not child:
            refused = 0
            with suppress(BaseException), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
                door.connect(str(tmp_path / NAME))
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresuid(12345, 12345, 12345)
                try:
                    beside = [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, forged)]
                    door.sendmsg([b"9 1.0 rank=1\n"], beside)
                except OSError as error:
                    refused = error.errno or 0
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == errno.EPERM
        send(tmp_path, b"5 1.0\n")
        wait_until("mine", lambda: sent.of(me()))
        assert sent.of(os.getppid()) is None
        # Its number may be another process's by now.
        theirs = Steps(tmp_path, PROC, lambda pid: (STARTED(pid) or 0) + 1, time.monotonic, sent)
        assert told(theirs, me()) == {}


def test_a_step_is_as_old_as_its_first_line(tmp_path: Path) -> None:
    clock, began = [100.0], lambda _: -(10**6)
    sent = StepsSocket(tmp_path, began)
    steps = Steps(tmp_path, PROC, began, lambda: clock[0], sent)

    def age(line: bytes) -> float:
        send(tmp_path, line)
        _wait_for(sent, line)
        return told(steps, me())[f"GPU-{me()}"].age_seconds or 0.0

    first = age(b"7 1.0 phase=work\n")
    clock[0] += 10.0
    assert age(b"7 1.0 phase=collective\n") == pytest.approx(first + 10.0)
    clock[0] += 10.0
    assert age(b"8 1.0 phase=work\n") < 10.0
    sent.close()


def _wait_for(sent: StepsSocket, line: bytes) -> None:
    def came() -> bool:
        one = sent.of(me())
        return one is not None and one.text.encode() == line

    wait_until("the line", came)


@pytest.mark.parametrize(
    ("line", "dropped"),
    [(b"5 1.0".ljust(MOST_BYTES), 0), (b"5 1.0".ljust(MOST_BYTES + 1), 1), (b"", 1)],
)
def test_a_line_that_is_too_long_or_empty_is_dropped_and_counted(
    tmp_path: Path, line: bytes, dropped: int
) -> None:
    with listening(tmp_path) as sent:
        assert send(tmp_path, line) == 1
        if dropped:
            wait_until("dropped", lambda: sent.dropped == 1)
            assert sent.of(me()) is None
        else:
            wait_until("the line", lambda: sent.of(me()))
            assert sent.dropped == 0


def test_files_that_are_sent_along_are_closed(tmp_path: Path) -> None:
    with listening(tmp_path) as sent, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        files = len(os.listdir("/proc/self/fd"))
        with (tmp_path / "x").open("w") as file:
            door.connect(str(tmp_path / NAME))
            for number in range(20):
                socket.send_fds(door, [b"%d 1.0\n" % number], [file.fileno()])
        _wait_for(sent, b"19 1.0\n")
        assert len(os.listdir("/proc/self/fd")) == files


@pytest.mark.medium
def test_a_flood_keeps_no_sender_waiting_and_the_node_little(tmp_path: Path) -> None:
    """More than a second takes: the kernel refuses the rest at once, and what came first is kept."""
    with listening(tmp_path) as sent:
        began, most = time.monotonic(), 20 * MOST_IN_A_SECOND
        taken = send(tmp_path, *[b"%d 1.0\n" % it for it in range(most)])
        lasted = time.monotonic() - began
        assert lasted < 15.0  # a fifth of a millisecond each where nobody waits
        assert taken < most
        wait_until("a line", lambda: sent.of(me()))
        assert sent.dropped == 0


def test_while_the_collector_stands_still_nobody_waits(tmp_path: Path) -> None:
    """As one that is stopped by a signal: nobody empties the queue."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
        silent.bind(str(tmp_path / NAME))
        began = time.monotonic()
        assert send(tmp_path, *[b"1 1.0\n"] * 10_000) < 10_000
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize(("most", "kept"), [(2, 2), (1, 1)])
def test_of_so_many_processes_lines_are_kept(tmp_path: Path, most: int, kept: int) -> None:
    with listening(tmp_path, most) as sent, rank(tmp_path, "5 1.0\n") as other:
        wait_until("the first", lambda: sent.of(other))
        send(tmp_path, b"6 1.0\n")
        wait_until("the second", lambda: sent.of(me()) or sent.dropped)
        assert sum(sent.of(pid) is not None for pid in (me(), other)) == kept
        # Those on no GPU make room.
        sent.keep({me()})
        send(tmp_path, b"7 1.0\n")
        _wait_for(sent, b"7 1.0\n")
        assert sent.of(other) is None


def test_everybody_may_send_and_a_socket_that_was_left_is_replaced(tmp_path: Path) -> None:
    for line in (b"5 1.0\n", b"6 1.0\n"):
        with listening(tmp_path) as sent:
            mode = (tmp_path / NAME).stat().st_mode
            assert stat.S_ISSOCK(mode)
            assert stat.S_IMODE(mode) == 0o666
            send(tmp_path, line)
            _wait_for(sent, line)
        assert send(tmp_path, line) == 0


def test_without_a_directory_of_its_own_there_is_none(tmp_path: Path) -> None:
    with listening(tmp_path / "none") as sent:
        assert told(steps_of(tmp_path, sent), me()) == {}
    (tmp_path / NAME).mkdir()
    with listening(tmp_path) as sent:
        assert sent.of(me()) is None


def test_the_lines_that_the_documentation_shows_are_understood(tmp_path: Path) -> None:
    text = (ROOT / "docs/steps.md").read_text()
    shown = re.search(r"## The socket.*?```python\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    program = shown[1].replace("/run/gpuvigil", str(tmp_path))
    with listening(tmp_path) as sent:
        environment = {"RANK": "3", "WORLD_SIZE": "8"}
        program += "\ntell(41)\ntell(42)\nimport time\ntime.sleep(60)\n"
        command = [sys.executable, "-I", "-S", "-c", program]
        with subprocess.Popen(command, env=environment) as process:
            wait_until("its step", lambda: "42" in getattr(sent.of(process.pid), "text", ""))
            (one,) = told(steps_of(tmp_path, sent), process.pid).values()
            process.kill()
    assert (one.step, one.rank, one.world) == (42, 3, 8)
