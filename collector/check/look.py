"""Looking at the node in a child process, which may get stuck: in the driver, in sysfs, anywhere.

The child sends each part as soon as it has it; the parent waits until the deadline, keeps what has
come, kills the child and never waits for its end. A child in an uninterruptible call outlives that.
It holds an abstract socket, so that the next check of the same user finds it, does not start a
second one that gets stuck, and knows since when the driver hangs.
"""

import os
import pickle
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from gpuvigil import lifeline
from gpuvigil.config import CollectorSettings

from .facts import DriverFacts, Facts, GpuFacts, Known, Stuck

Message = tuple[str, Any]
Say = Callable[[str, Any], None]

_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")  # struct ucred, unix(7): pid, uid, gid
_TRY_AGAIN_SECONDS = 0.1
_REAP_SECONDS = 0.05
_PAST_SECONDS = 1.0
_DIED = "the process that looked ended by itself; the driver's library may have crashed"


def look(facts: Facts, settings: CollectorSettings, seconds: float) -> Facts:
    """`facts` with everything that could be seen of this node within `seconds`.

    To be called from a process with one thread, since it forks.
    """
    began = time.monotonic()
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _be_the_child(parent, writing, facts.at, settings)
    os.close(writing)
    try:
        facts = _gather(facts, reading, began + seconds)
    finally:
        os.close(reading)
        _end(child)
    return replace(facts, waited_seconds=time.monotonic() - began)


def _gather(facts: Facts, reading: int, deadline: float) -> Facts:
    """Fold the child's messages into the facts until it ends or the deadline has come."""
    waiting = b""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(1000 * left):
            break
        received = os.read(reading, 1 << 16)
        if not received:
            return facts if facts.over else fold(facts, ("unread", {"driver": _DIED}))
        waiting += received
        while len(waiting) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(waiting)[0]
            if len(waiting) < end:
                break
            facts = fold(facts, pickle.loads(waiting[_LENGTH.size : end]))
            waiting = waiting[end:]
    return facts


def fold(facts: Facts, message: Message) -> Facts:
    """The facts with one more message in them."""
    part, value = message
    if part == "gpu":
        return replace(facts, gpus={**facts.gpus, value.index: value})
    if part == "unread":
        return replace(facts, unread={**facts.unread, **value})
    return replace(facts, **{part: value})


def _end(child: int) -> None:
    """Kill the child; one that cannot be killed is left to the kernel."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.002)


def _be_the_child(parent: int, writing: int, at: datetime, settings: CollectorSettings) -> NoReturn:
    """Look, say what is seen, and end; nothing of the caller's is held, so nobody waits for us."""
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

        past = _Past(settings, say)
        parts = {
            "known": past.look,
            "pci": lambda: _look_at_the_bus(settings, say),
            "ports": lambda: _look_at_ports(settings, say),
        }
        if settings.gpus:
            parts["driver"] = lambda: _look_at_gpus(past, at, say)
        _all_at_once({part: _told(part, work, say) for part, work in parts.items()})
        say("over", True)
    finally:
        os._exit(0)


def _told(part: str, work: Callable[[], None], say: Say) -> Callable[[], None]:
    """`work`, and one word of why when it cannot be done."""

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever fails, the other parts go on
            say("unread", {part: getattr(error, "strerror", None) or repr(error)})

    return run


def _all_at_once(works: dict[str, Callable[[], None]]) -> None:
    """Each in a thread of its own, to the end."""
    threads = [threading.Thread(target=work, name=name) for name, work in works.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _let_go_of_everything_but(writing: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != writing:
            with suppress(OSError):  # the listing itself had one
                os.close(number)


class _Past:
    """What the collector remembers, which says also whether the driver may be touched."""

    def __init__(self, settings: CollectorSettings, say: Say) -> None:
        self._file = settings.spool_directory / "node.json"
        self._say = say
        self._looked = threading.Event()
        self._known = Known()

    def look(self) -> None:
        from .. import remembered  # noqa: PLC0415 - only the child needs it

        try:
            with suppress(FileNotFoundError), self._file.open("rb"):
                found = remembered.load(self._file)
                self._known = Known(
                    gpus=tuple(found.gpus.values()),
                    ports=tuple(found.ports.values()),
                    missing_since=found.missing,
                    released_until=found.released_until,
                )
                self._say("known", self._known)
        finally:
            self._looked.set()

    def released(self, at: datetime) -> bool:
        """Whether the driver is to be left alone; a disk that does not answer says nothing."""
        self._looked.wait(_PAST_SECONDS)
        until = self._known.released_until
        return until is not None and at < until


def _look_at_the_bus(settings: CollectorSettings, say: Say) -> None:
    from ..sensors.pci import nvidia_gpus  # noqa: PLC0415 - only the child needs it

    with suppress(FileNotFoundError):  # a machine without PCI
        say("pci", nvidia_gpus(settings.sysfs_root))


def _look_at_ports(settings: CollectorSettings, say: Say) -> None:
    from ..sensors.ports import PortSensor  # noqa: PLC0415 - only the child needs it

    say("ports", PortSensor(settings.sysfs_root, settings.proc_root).read())


def _look_at_gpus(past: _Past, at: datetime, say: Say) -> None:
    """The driver, then every GPU in a thread of its own."""
    if past.released(at):
        return
    from ..nvml import Driver, DriverError  # noqa: PLC0415 - only the child may load the library

    held = _hold_the_driver(say)
    try:
        driver = Driver()
    except DriverError as error:
        say("driver", DriverFacts(code=error.code, failure=str(error), reason=error.reason))
        return
    say("driver", DriverFacts(version=driver.version, gpus=driver.count))

    def gpu(index: int) -> None:
        identity = None
        try:
            found = driver.gpu(index)
            identity = found.identity
            say("gpu", GpuFacts(index=index, identity=identity))
            say("gpu", GpuFacts(index=index, identity=identity, values=found.read(slow=True).every))
        except DriverError as error:
            failed = GpuFacts(
                index=index, identity=identity, failure=str(error), reason=error.reason
            )
            say("gpu", failed)

    names = {f"GPU {index}": partial(gpu, index) for index in range(driver.count)}
    _all_at_once({name: _told(name, work, say) for name, work in names.items()})
    held.close()


def _hold_the_driver(say: Say) -> socket.socket:
    """Wait until no other check of this user is in the driver; says who is, and how long."""
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
