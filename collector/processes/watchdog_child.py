"""Work in a child process that may get stuck: in the driver, in sysfs, anywhere.

The child sends each part as soon as it has it; the parent waits until the deadline, keeps what has
come, kills the child and never waits for its end. A child in an uninterruptible call outlives that.
For calls that have not returned by then, the parent reports how long they had themselves: a machine
without a free core is no driver that hangs.
"""

import os
import pickle
import select
import signal
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

from gpuvigil import lifeline

from . import cpu_time
from .cpu_time import Spent

Message = tuple[str, Any]
Send = Callable[[str, Any], None]
Tasks = Mapping[str, Callable[[], None]]

_LENGTH = struct.Struct("!I")
_REAP_SECONDS = 0.05
# A thread that has just woken up is runnable for a moment, so threads are looked at this often.
_TRIES, _RETRY_SECONDS = 5, 0.02
# A call that had less time tells nothing: a driver that is kept loaded answers in a fraction of it.
CALL_SECONDS = 1.0
_LEFT_BEHIND_NICE = 19


class End(str, Enum):
    """How the child's tasks ended."""

    OVER = "everything was done"
    LATE = "time was up"
    DIED = "the process that looked ended by itself; the driver's library may have crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call under way: its thread, its start, and how long the thread had run before."""

    name: str
    thread: int
    at: float  # time.monotonic
    ran_seconds: float


def run_in_child(
    tasks: Callable[[Send], Tasks],
    take: Callable[[str, Any], None],
    seconds: float,
    others: Mapping[int, Callable[[], None]] | None = None,
) -> End:
    """Run all tasks at once in a child, each in a thread; `take` gets their parts as they come.

    `tasks` is called in the child. A task that raises reports ("unread", {its name: why}). When
    time is up, ("called", {name: seconds}) tells how long each call marked by `calling` that has
    not returned has had itself. Returns shortly after `seconds` at the latest. `others` are called
    once, when their descriptor can be read. To be called from a process with one thread, since it
    forks.
    """
    deadline = time.monotonic() + seconds
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _be_the_child(parent, writing, tasks)
    os.close(writing)
    over, open_calls = False, dict[str, _Call]()

    def receive(part: str, value: Any) -> None:
        nonlocal over
        if part == _OVER:
            over = True
        elif part == _CALLING:
            open_calls[value.name] = value
        elif part == _CALLED:
            open_calls.pop(value, None)
        else:
            take(part, value)

    try:
        ended = _receive_until(receive, reading, deadline, dict(others or {}))
        if not ended and open_calls:
            take("called", _active_seconds(child, open_calls.values()))
    finally:
        os.close(reading)
        _end(child)
    if over:
        return End.OVER
    return End.DIED if ended else End.LATE


_OVER, _CALLING, _CALLED = "over", "a call begins", "a call is over"


@contextmanager
def calling(send: Send, name: str) -> Iterator[None]:
    """Mark a call that may get stuck, in the child."""
    call = _Call(
        name=name,
        thread=threading.get_native_id(),
        at=time.monotonic(),
        ran_seconds=time.thread_time(),
    )
    send(_CALLING, call)
    try:
        yield
    finally:
        send(_CALLED, name)


def _active_seconds(child: int, calls: Collection[_Call]) -> dict[str, float]:
    """Return how long each call under way has had itself, at least; 0 where that is not known."""
    found = {call.name: 0.0 for call in calls}
    for _ in range(_TRIES):
        now, threads = time.monotonic(), cpu_time.threads(child) or {}
        for call in calls:
            # All that the other threads ever spent is subtracted: what they spent before is little.
            before = {call.thread: Spent(ran_seconds=call.ran_seconds)}
            active = (
                cpu_time.active_seconds(now - call.at, call.thread, before, threads)
                if threads
                else 0.0
            )
            found[call.name] = max(found[call.name], active)
        if not any(spent.runnable for spent in threads.values()):
            break
        time.sleep(_RETRY_SECONDS)
    return found


def _receive_until(
    receive: Callable[[str, Any], None],
    reading: int,
    deadline: float,
    others: dict[int, Callable[[], None]],
) -> bool:
    """Take the child's messages until it ends (true) or the deadline has come (false).

    Messages that came in time are taken even if this process had to wait for a core until later.
    """
    messages = _Messages(receive)
    poll = select.poll()
    for descriptor in (reading, *others):
        poll.register(descriptor, select.POLLIN)
    while ready := poll.poll(1000 * max(deadline - time.monotonic(), 0.0)):
        for descriptor, _ in ready:
            if descriptor in others:
                poll.unregister(descriptor)
                others.pop(descriptor)()
            elif not messages.feed(os.read(reading, 1 << 16)):
                return True
    return False


class _Messages:
    """Puts together messages that come in pieces."""

    def __init__(self, receive: Callable[[str, Any], None]) -> None:
        self._receive = receive
        self._waiting = b""

    def feed(self, received: bytes) -> bool:
        """Take complete messages; return false at the end of the stream."""
        self._waiting += received
        while len(self._waiting) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._waiting)[0]
            if len(self._waiting) < end:
                break
            self._receive(*pickle.loads(self._waiting[_LENGTH.size : end]))
            self._waiting = self._waiting[end:]
        return bool(received)


def _end(child: int) -> None:
    """Kill the child; one that cannot be killed is left to the kernel, at the lowest priority."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.002)
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{child}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), _LEFT_BEHIND_NICE)


def _be_the_child(parent: int, writing: int, tasks: Callable[[Send], Tasks]) -> NoReturn:
    """Work, report the results and end; holds no descriptor of the caller's, so nobody waits."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.environ[lifeline.PARENT_VARIABLE] = str(parent)
        lifeline.hold()
        _let_go_of_everything_but(writing)
        lock = threading.Lock()

        def send(part: str, value: Any) -> None:
            content = pickle.dumps((part, value))
            with lock:
                line = _LENGTH.pack(len(content)) + content
                while line:
                    line = line[os.write(writing, line) :]

        all_at_once(tasks(send), send)
        send(_OVER, None)
    finally:
        os._exit(0)


def all_at_once(tasks: Tasks, send: Send) -> None:
    """Run each task in a thread of its own, to the end, and report why a task failed."""
    # No thread ends before all are done: the time of an ended thread is no longer counted.
    done = threading.Barrier(len(tasks) + 1)
    threads = [
        threading.Thread(target=_do, args=(name, task, send, done), name=name)
        for name, task in tasks.items()
    ]
    for thread in threads:
        thread.start()
    done.wait()
    for thread in threads:
        thread.join()


def _do(name: str, task: Callable[[], None], send: Send, done: threading.Barrier) -> None:
    try:
        task()
    except Exception as error:  # noqa: BLE001 - whatever fails, the other tasks go on
        send("unread", {name: getattr(error, "strerror", None) or repr(error)})
    finally:
        done.wait()


def _let_go_of_everything_but(writing: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != writing:
            with suppress(OSError):  # the descriptor of the listing itself is gone
                os.close(number)
