"""Says how far a training program is, so that gpuvigil can tell a hang from a long step.

Copy this file beside the program; it needs nothing but Python 3.8. In every rank:

    steps = Steps()
    for batch in batches:
        train(batch)
        steps.done()

It writes one small file per process, at most once a second, and never raises: a program does not
end because nobody watches it. The file goes away with the program. What takes more than a minute
now and then (an evaluation, a checkpoint) should call `done` while it goes on.
"""

import atexit
import contextlib
import os
import time
from collections import deque

DIRECTORY = "/run/gpuvigil-steps"
_KEPT = 1000  # steps of which the 99th percentile is taken
_EVERY_SECONDS = 1.0


class Steps:
    """The progress of this process."""

    def __init__(self, directory=None):
        folder = directory or os.environ.get("GPUVIGIL_STEPS", DIRECTORY)
        self._path = os.path.join(folder, str(os.getpid()))
        self._seconds = deque(maxlen=_KEPT)
        self._step = 0
        self._last = None
        self._written = float("-inf")
        atexit.register(self._remove)

    def done(self):
        """A step has ended."""
        now = time.monotonic()
        if self._last is not None:
            self._seconds.append(now - self._last)
        self._last = now
        self._step += 1
        # A file that is up to a second old is no reason to suspect anything.
        if now - self._written >= _EVERY_SECONDS:
            self._written = now
            self._write()

    def p99(self):
        """The 99th percentile of the last steps' seconds; None before the second step."""
        known = sorted(self._seconds)
        return known[(len(known) * 99 - 1) // 100] if known else None

    def _write(self):
        p99 = self.p99()
        words = str(self._step) if p99 is None else f"{self._step} {p99:.3f}"
        beside = self._path + ".new"
        with contextlib.suppress(OSError):
            with open(beside, "w") as file:
                os.fchmod(file.fileno(), 0o644)  # whatever the umask: the collector is nobody's kin
                file.write(words + "\n")
            os.replace(beside, self._path)

    def _remove(self):
        with contextlib.suppress(OSError):
            os.unlink(self._path)
