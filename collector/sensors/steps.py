"""How far the programs on this node's GPUs say that they are: a small file per process.

A rank that wants its hangs to be seen leaves a file named by its process id, with one line: the number of its last step and
the 99th percentile of its steps' seconds, as `1234 0.82`. The file's time of change is when that
step ended. It counts only while the process runs on a GPU, and only when both belong to the same
user, so that nobody can speak for somebody else's job.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpuvigil.clock import EPOCH

from . import files

_MOST_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the ranks on one GPU say; of several the one whose last step is longest ago."""

    step: int
    age_seconds: float  # since its last step ended
    p99_seconds: float | None  # of its steps


class Steps:
    """The step files of one directory."""

    def __init__(self, directory: Path, proc_root: Path) -> None:
        self._directory, self._proc = directory, proc_root

    def read(self, processes: Mapping[str, Iterable[int]], now: datetime) -> dict[str, Progress]:
        """By GPU (UUID), for the processes that are on it; GPUs of which nobody tells are not there."""
        told = {int(name) for name in files.names(str(self._directory)) if name.isdecimal()}
        found: dict[str, Progress] = {}
        for uuid, pids in processes.items() if told else ():
            said = [one for pid in told.intersection(pids) if (one := self._of(pid, now))]
            if said:
                found[uuid] = max(said, key=lambda one: (one.age_seconds, one.step))
        return found

    def _of(self, pid: int, now: datetime) -> Progress | None:
        try:
            owner = os.stat(f"{self._proc}/{pid}").st_uid
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(f"{self._directory}/{pid}", flags)
        except OSError:
            return None
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
                return None
            text = os.read(file, _MOST_BYTES).decode(errors="replace")
        except OSError:
            return None
        finally:
            os.close(file)
        return _parse(text, (now - EPOCH).total_seconds() - about.st_mtime)


def _parse(text: str, age_seconds: float) -> Progress | None:
    words = text.split()
    try:
        step = int(words[0])
        seconds = float(words[1]) if len(words) > 1 else None
    except (IndexError, ValueError):
        return None
    if not 0 <= step < 2**63 or (seconds is not None and not 0.0 <= seconds < 1e9):
        return None
    return Progress(step=step, age_seconds=max(age_seconds, 0.0), p99_seconds=seconds)
