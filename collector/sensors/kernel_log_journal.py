"""The journal, read by `journalctl` in a child process that ends with its parent."""

import os
import select
import subprocess
import threading
from collections.abc import Callable, Sequence

from gpuvigil import lifeline

_STOP_SECONDS = 1.0  # how soon a stop is noticed
_MOST_WORDS = 2000
ENDED = "journalctl ended"
# journalctl's messages that it may not read the system's journal.
_NOT_ALLOWED = (b"insufficient permissions", b"not seeing messages from other users")


def follow(
    program: str,
    options: Sequence[str],
    handle: Callable[[bytes], None],
    stop: threading.Event,
) -> str:
    """Give every line to `handle` until `stop`, or until journalctl ends; return why it ended.

    To be called by a thread that lasts, since the kernel ends the child with the thread.
    """
    with subprocess.Popen(
        lifeline.tied([program, *options]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            return _Journal(child, handle).listen(stop)
        finally:
            child.kill()


class _Journal:
    """A child's output: lines for `take`, and its error messages."""

    def __init__(self, child: subprocess.Popen[bytes], handle: Callable[[bytes], None]) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self._lines, self._errors = child.stdout.fileno(), child.stderr.fileno()
        self._handle = handle
        self._rest = b""
        self._words = b""

    def listen(self, stop: threading.Event) -> str:
        """Listen until both ends are closed, the child lacks permission, or `stop`; return why."""
        poller, is_open = select.poll(), {self._lines, self._errors}
        for descriptor in is_open:
            poller.register(descriptor, select.POLLIN)
        while is_open and not stop.is_set():
            for descriptor, _ in poller.poll(_STOP_SECONDS * 1000):
                if not self._read(descriptor):
                    poller.unregister(descriptor)
                    is_open.discard(descriptor)
            if any(words in self._words for words in _NOT_ALLOWED):
                return "no permission"
        said = self._words.decode(errors="replace").strip().splitlines()
        return said[-1] if said else ENDED

    def _read(self, descriptor: int) -> bool:
        """Read once; return whether there may be more."""
        data = os.read(descriptor, 65536)
        if descriptor == self._errors:
            self._words = (self._words + data)[-_MOST_WORDS:]
            return bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._handle(line)
        return bool(data)
