"""One process at a time in the driver: whoever may get stuck there holds an abstract socket.

The next process of the same user and runtime directory finds the socket, does not get stuck beside
its holder, and knows since when the driver hangs.
"""

import os
import signal
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .watchdog_child import Send

_CREDENTIALS = struct.Struct("3i")  # struct ucred, unix(7): pid, uid, gid
_TRY_AGAIN_SECONDS = 0.1
_SIGKILL_BIT = 1 << (signal.SIGKILL - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A process that has been in the driver for `seconds`."""

    pid: int
    seconds: float
    killed: bool = False  # killed and not ended: it is stuck in the kernel, and not just slow


def socket_name(runtime: Path) -> bytes:
    """Return the socket's name for this user; two installations on one machine do not collide."""
    # sun_path has room for 108 bytes, unix(7).
    return b"\0gpuvigil-check-%d" % os.getuid() + os.fsencode(runtime)[-64:]


def hold_the_driver(runtime: Path, send: Send) -> socket.socket:
    """Wait until no other child of this user is in the driver, and return the lock's socket.

    `runtime` is collector.runtime_directory. Reports the current holder as ("stuck", Stuck), and at
    the end the wait as ("others_seconds", seconds). The lock is held until the socket is closed, or
    the process ends.
    """
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = socket_name(runtime)
    asked, began = False, time.monotonic()
    while True:
        with suppress(OSError):
            holder.bind(name)
            # Nobody accepts: a client reads the credentials that the kernel keeps here.
            holder.listen(socket.SOMAXCONN)
            send("stuck", None)
            send("others_seconds", time.monotonic() - began)
            return holder
        if not asked:
            asked, by = True, _holder(name)
            if by is not None and by[1] != os.getuid():
                return holder  # another user must not be able to keep us from looking
            if by is not None:
                pid, seconds = by[0], process_seconds(by[0])
                send("stuck", Stuck(pid=pid, seconds=seconds, killed=_was_killed(pid)))
        time.sleep(_TRY_AGAIN_SECONDS)


def _holder(name: bytes) -> tuple[int, int] | None:
    """Return pid and user id of the socket's holder; None when it is gone or cannot be asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(name)
        except OSError:
            return None
        given = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(given)
    return pid, uid


def _was_killed(pid: int) -> bool:
    """Return whether a process was killed but goes on: the kernel keeps it (proc(5), SigPnd)."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            name, _, mask = line.partition(":")
            if name in {"SigPnd", "ShdPnd"} and int(mask, 16) & _SIGKILL_BIT:
                return True
    return False


def process_seconds(pid: int | str = "self") -> float:
    """Return how long ago a process started, in seconds; 0 when unreadable (proc(5), `starttime`)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 0.0)
    except (OSError, ValueError, IndexError):
        return 0.0
