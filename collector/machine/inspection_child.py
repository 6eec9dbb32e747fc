"""The child process that inspects the machine once, and is abandoned when it gets stuck.

Each mount, and what sysfs reads over slow buses, has a thread of its own. After their time is over
it reports which answered and which did not, and ends. A child with a thread in the kernel ends when
that call returns: until then its parent starts no other.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuvigil import lifeline

from ..processes import cpu_time
from ..processes.cpu_time import Threads
from . import lldp, parts
from .inspection_result import InspectionResult, line
from .mounts import NOT_MOUNTED, Mount, is_gone, is_mounted, used_share, watched


def main(arguments: Sequence[str]) -> int:
    """Inspect with SYSFS, PROC, SECONDS, LLDPCLI and the chosen mounts; return the exit code."""
    lifeline.hold()
    sysfs, proc, seconds, lldpcli, *chosen = arguments
    seen = inspect(Path(sysfs), Path(proc), float(seconds), chosen, lldpcli)
    sys.stdout.write(line(seen) + "\n")
    sys.stdout.flush()
    # A normal exit would wait for stuck threads.
    os._exit(0)


def inspect(
    sysfs: Path, proc: Path, seconds: float, chosen: Sequence[str] = (), lldpcli: str = ""
) -> InspectionResult:
    """Return what can be read within `seconds`; threads that take longer are abandoned."""
    mounts = watched(proc, chosen)
    told: dict[str, object] = {}
    began, before = time.monotonic(), cpu_time.threads() or {}
    tasks: dict[str, Callable[[], object]] = {
        "fans": lambda: parts.fans(sysfs),
        "supplies": lambda: parts.supplies(sysfs),
        "memory": lambda: parts.memory_errors(sysfs),
        # The program is ended before this process ends, and never outlives it.
        "neighbours": lambda: lldp.ask(lldpcli, seconds / 2),
    }
    tasks |= {f"mount {one.path}": _asked(one, proc) for one in mounts}
    threads = [
        threading.Thread(target=_do, args=(name, work, told), name=name, daemon=True)
        for name, work in tasks.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0.0))
    found = dict(told)
    waits = {thread.name: thread.native_id for thread in threads if thread.name not in found}
    hung = _had_time(waits, before, time.monotonic() - began, seconds / 2)
    fans, supplies, memory = found.get("fans"), found.get("supplies"), found.get("memory")
    heard = found.get("neighbours")
    answers = {
        one.path: found[f"mount {one.path}"] for one in mounts if f"mount {one.path}" in found
    }
    shares = [(why, path) for path, why in answers.items() if isinstance(why, float)]
    share, path = max(shares, default=(0.0, ""))
    return InspectionResult(
        fans=tuple(fans) if isinstance(fans, list) and fans else None,
        supplies=tuple(supplies) if isinstance(supplies, list) and supplies else None,
        memory_errors=memory if isinstance(memory, tuple) else None,
        watched=len(mounts),
        hung=tuple(one.path for one in mounts if f"mount {one.path}" in hung),
        gone=tuple((path, why) for path, why in answers.items() if isinstance(why, str)),
        fullest=(path, round(share, 4)) if path else None,
        heard=heard if isinstance(heard, lldp.Heard) else lldp.Heard(),
    )


def _had_time(
    waits: Mapping[str, int | None], before: Threads, passed: float, least: float
) -> set[str]:
    """Return the unfinished tasks that had at least that much time, not counting waits for a core."""
    now = cpu_time.threads() if waits else None
    if now is None:
        return set(waits)
    return {
        name
        for name, thread in waits.items()
        if thread is not None
        and thread in now
        and cpu_time.active_seconds(passed, thread, before, now) >= least
    }


def _do(name: str, work: Callable[[], object], results: dict[str, object]) -> None:
    try:
        results[name] = work()
    except OSError as error:
        results[name] = error.strerror if is_gone(error) else None


def _asked(mount: Mount, proc: Path) -> Callable[[], object]:
    def ask() -> object:
        share = None
        # A file system that is mounted on demand is mounted by asking it.
        with suppress(FileNotFoundError):
            share = used_share(mount.path)
        if mount.chosen and not is_mounted(proc, mount.path):
            return NOT_MOUNTED
        return share if mount.counted else None

    return ask


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)
