"""Work in a child process that may get stuck: in the driver, in sysfs, anywhere.

The child sends each part as soon as it has it; the parent waits until the deadline, keeps what has
come, kills the child and never waits for its end. A child in an uninterruptible call outlives that.
It holds an abstract socket while it is in the driver, so that the next one of the same user finds
it, does not get stuck beside it, and knows since when the driver hangs.
"""

import os
import pickle
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from gpuvigil import lifeline

Message = tuple[str, Any]
Say = Callable[[str, Any], None]
Works = Mapping[str, Callable[[], None]]

_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")  # struct ucred, unix(7): pid, uid, gid
_TRY_AGAIN_SECONDS = 0.1
_REAP_SECONDS = 0.05


class End(str, Enum):
    """How it went."""

    OVER = "everything was done"
    LATE = "time was up"
    DIED = "the process that looked ended by itself; the driver's library may have crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A process that has been in the driver for so long already."""

    pid: int
    seconds: float


def aside(works: Callable[[Say], Works], take: Callable[[str, Any], None], seconds: float) -> End:
    """Do all works at once in a child, each in a thread; `take` gets what they say as it comes.

    `works` is called in the child. A work that raises says ("unread", {its name: why}). Returns
    after `seconds` at the latest. To be called from a process with one thread, since it forks.
    """
    deadline = time.monotonic() + seconds
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _be_the_child(parent, writing, works)
    os.close(writing)
    over = False

    def heard(part: str, value: Any) -> None:
        nonlocal over
        if part == _OVER:
            over = True
        else:
            take(part, value)

    try:
        ended = _hear(heard, reading, deadline)
    finally:
        os.close(reading)
        _end(child)
    if over:
        return End.OVER
    return End.DIED if ended else End.LATE


_OVER = "over"


def _hear(take: Callable[[str, Any], None], reading: int, deadline: float) -> bool:
    """Take the child's messages until it ends (true) or the deadline has come (false)."""
    waiting = b""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(1000 * left):
            return False
        received = os.read(reading, 1 << 16)
        if not received:
            return True
        waiting += received
        while len(waiting) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(waiting)[0]
            if len(waiting) < end:
                break
            take(*pickle.loads(waiting[_LENGTH.size : end]))
            waiting = waiting[end:]
    return False


def _end(child: int) -> None:
    """Kill the child; one that cannot be killed is left to the kernel."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.002)


def _be_the_child(parent: int, writing: int, works: Callable[[Say], Works]) -> NoReturn:
    """Work, say what is seen, and end; nothing of the caller's is held, so nobody waits for us."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.environ[lifeline.PARENT_VARIABLE] = str(parent)
        lifeline.hold()
        _let_go_of_everything_but(writing)
        lock = threading.Lock()

        def say(part: str, value: Any) -> None:
            content = pickle.dumps((part, value))
            with lock:
                line = _LENGTH.pack(len(content)) + content
                while line:
                    line = line[os.write(writing, line) :]

        all_at_once(works(say), say)
        say(_OVER, None)
    finally:
        os._exit(0)


def all_at_once(works: Works, say: Say) -> None:
    """Each in a thread of its own, to the end, with one word of why for each that cannot be done."""
    threads = [
        threading.Thread(target=_do, args=(name, work, say), name=name)
        for name, work in works.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _do(name: str, work: Callable[[], None], say: Say) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever fails, the other works go on
        say("unread", {name: getattr(error, "strerror", None) or repr(error)})


def _let_go_of_everything_but(writing: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != writing:
            with suppress(OSError):  # the listing itself had one
                os.close(number)


def hold_the_driver(say: Say) -> socket.socket:
    """Wait until no other child of this user is in the driver; says who is, as ("stuck", Stuck).

    It is held until the socket is closed, or the process is gone.
    """
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = f"\0gpuvigil-check-{os.getuid()}"
    asked = False
    while True:
        with suppress(OSError):
            holder.bind(name)
            # Nobody accepts: who asks reads the credentials that the kernel keeps here.
            holder.listen(socket.SOMAXCONN)
            say("stuck", None)
            return holder
        if not asked:
            asked, by = True, _holder(name)
            if by is not None and by[1] != os.getuid():
                return holder  # another user must not be able to keep us from looking
            if by is not None:
                say("stuck", Stuck(pid=by[0], seconds=process_seconds(by[0])))
        time.sleep(_TRY_AGAIN_SECONDS)


def _holder(name: str) -> tuple[int, int] | None:
    """Process and user id of who holds the socket; None when it has gone or cannot be asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(name)
        except OSError:
            return None
        given = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(given)
    return pid, uid


def process_seconds(pid: int | str = "self") -> float:
    """How long ago the process was started; 0 when that cannot be read (proc(5), `starttime`)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 0.0)
    except (OSError, ValueError, IndexError):
        return 0.0
