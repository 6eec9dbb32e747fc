"""Lines that programs send instead of a file: one datagram each, to a socket open to all users.

The kernel says who sent a line, not the sender: with SO_PASSCRED each datagram comes with the
process and the user that sent it (unix(7), SCM_CREDENTIALS), as this process sees them, even out of
a container with process ids of its own. So a line is about the process that sent it, and nobody can
report for another. SO_PEERCRED would give that only for a connection, and a connection could keep a
program waiting. The kernel also says when a line came (SO_TIMESTAMPNS, socket(7)). A sender that
does not wait (MSG_DONTWAIT) is never kept waiting: the kernel refuses what its queue has no room
for. Here a thread empties that queue, a limited number of lines a second, and keeps the last line
of each process.
"""

import os
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gpuvigil.log import Log

log = Log("collector")

NAME = "steps.sock"
MOST_BYTES = 512
# 64 ranks with ten steps a second; whoever sends more takes it from the others, not from the node's time.
MOST_IN_A_SECOND = 1024
MOST_PROCESSES = 1024
_TOLD_EVERY_SECONDS = 3600.0
_TIMESTAMPNS = 35  # asm-generic/socket.h, in this form on every 64-bit Linux
_CREDENTIALS, _TIME = struct.Struct("3i"), struct.Struct("2l")
_ROOM = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIME.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentLine:
    """The last line of a process."""

    text: str
    owner: int  # uid
    started: int  # in clock ticks since boot
    written: int  # nanoseconds since 1970 at which the step's first line came


class StepsSocket:
    """The socket in a directory that belongs to the collector; none without that directory."""

    def __init__(
        self,
        directory: Path,
        start_ticks: Callable[[int], int | None],
        most: int = MOST_PROCESSES,
    ) -> None:
        """Set up; `start_ticks` as for `Steps`; lines are kept for at most `most` processes."""
        self._start_ticks, self._most = start_ticks, most
        self._lines: dict[int, SentLine] = {}
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._logged_at = -_TOLD_EVERY_SECONDS
        self.dropped = 0  # lines that came and were not kept
        self._socket = _listening(directory)
        if self._socket is not None:
            threading.Thread(target=self._run, name="steps", daemon=True).start()

    def of(self, pid: int) -> SentLine | None:
        """Return the last line that this process sent; None without one."""
        with self._lock:
            return self._lines.get(pid)

    def keep(self, pids: Collection[int]) -> None:
        """Forget the lines of all but these processes."""
        with self._lock:
            self._lines = {pid: one for pid, one in self._lines.items() if pid in pids}

    def close(self) -> None:
        """Take no more lines; what is sent from now on is refused."""
        self._closed.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _run(self) -> None:
        began, taken = time.monotonic(), 0
        while self._socket is not None and not self._closed.is_set():
            try:
                self._receive(self._socket)
            except OSError:  # closed, or no memory
                self._closed.wait(1.0)
            left = began + 1.0 - time.monotonic()
            taken += 1
            if left <= 0.0 or taken >= MOST_IN_A_SECOND:
                self._closed.wait(max(left, 0.0))
                began, taken = time.monotonic(), 0

    def _receive(self, stream: socket.socket) -> None:
        data, beside, flags, _ = stream.recvmsg(MOST_BYTES, _ROOM, socket.MSG_CMSG_CLOEXEC)
        who, at = None, time.time_ns()
        for level, kind, value in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                _close_all(value)
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                who = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])
            elif (level, kind) == (socket.SOL_SOCKET, _TIMESTAMPNS):
                seconds, nanoseconds = _TIME.unpack(value[: _TIME.size])
                at = seconds * 10**9 + nanoseconds
        whole = data and who is not None and not flags & socket.MSG_TRUNC
        if self._closed.is_set():
            return
        if not whole or who is None or not self._put(who[0], who[1], data, at):
            self._drop()

    def _put(self, pid: int, owner: int, data: bytes, at: int) -> bool:
        started = self._start_ticks(pid)
        # 0 is a process that this process cannot see.
        if pid <= 0 or started is None:
            return False
        one = SentLine(text=data.decode(errors="replace"), owner=owner, started=started, written=at)
        with self._lock:
            before = self._lines.get(pid)
            if before is None and len(self._lines) >= self._most:
                return False
            if before is not None and _is_of_one_step(before, one):
                one = replace(one, written=before.written)
            self._lines[pid] = one
        return True

    def _drop(self) -> None:
        self.dropped += 1
        now = time.monotonic()
        if now - self._logged_at >= _TOLD_EVERY_SECONDS:
            self._logged_at = now
            log.info("lines about steps were dropped", lines=self.dropped)


def _is_of_one_step(before: SentLine, one: SentLine) -> bool:
    """Return whether both lines are about the same step: extra fields make its end no later."""
    words = [it.text.split(maxsplit=1)[:1] for it in (before, one)]
    return before.started == one.started and words[0] == words[1]


def _close_all(value: bytes) -> None:
    """Close files that somebody sent along."""
    files = array("i")
    files.frombytes(value[: len(value) - len(value) % files.itemsize])
    for file in files:
        with suppress(OSError):
            os.close(file)


def _listening(directory: Path) -> socket.socket | None:
    """Return the socket, replacing one of an earlier collector.

    None where the directory does not exist or is not ours.
    """
    path = directory / NAME
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        with suppress(FileNotFoundError):
            path.unlink()
        # Set before it has an address: all later datagrams then come with both.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        found.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)
        found.bind(str(path))
        path.chmod(0o666)
    except (OSError, ValueError) as error:
        found.close()
        if directory.is_dir():
            log.info("programs cannot send their steps", path=str(path), why=str(error))
        return None
    return found
