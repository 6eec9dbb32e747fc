"""A machine without a free core."""

import subprocess
import sys
from types import TracebackType

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


class Load:
    """Processes that compute all the time, at normal priority, until the block is left.

    They also end by themselves when the test does.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        return [one.pid for one in self._running]

    def __enter__(self) -> "Load":
        for _ in range(self._processes):
            self._running.append(subprocess.Popen([sys.executable, "-S", "-E", "-c", _BUSY]))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in self._running:
            one.kill()
        for one in self._running:
            one.wait()
