"""What a kernel left behind that crashed: a dump of its memory or the end of its log.

kdump writes a folder named by the time into /var/crash: `127.0.0.1-2026-01-31-07:00:01` of Red Hat's
kdump-utils, `2026-01-31-07:00` of SUSE's, `202601310700` of Debian's kdump-tools. Beside them lie
crashes of programs, which are files. systemd-pstore(8) moves what the firmware kept of the log, in
folders named by a number or files named `dmesg-...`, at the next boot; `console-...` comes with every
boot. Only names and times are read, which takes no privilege.
"""

import os
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import EPOCH
from gpuvigil.config import CollectorSettings

from . import files
from .host import booted_at

_KDUMP = re.compile(r"(?:.*-)?\d{4}-\d{2}-\d{2}-\d{2}:\d{2}(?::\d{2})?|\d{12}")
_PSTORE = re.compile(r"\d+|dmesg-.+")
# From the last sign of life to the boot: a dump of two terabytes takes an hour.
_LONGEST = timedelta(hours=2)


def left_behind(settings: CollectorSettings, saved: Path) -> str | None:
    """Return the path of a dump that the kernel of the boot before left; None without one.

    It is newer than the file of what this node knew, which that boot wrote, and no older than it
    takes to write one.
    """
    try:
        alive = EPOCH + timedelta(seconds=saved.stat().st_mtime)
    except OSError:
        return None
    started = booted_at(settings.proc_root)
    since = alive if started is None else max(alive, started - _LONGEST)
    return newest_dump(settings.crash_directories, since)


def newest_dump(directories: Iterable[str], since: datetime) -> str | None:
    """Return the path of the newest dump written after `since`; None without one."""
    written = [it for directory in directories for it in _dumps(directory) if it[0] > since]
    return max(written, default=(since, None))[1]


def _dumps(directory: str) -> Iterator[tuple[datetime, str]]:
    for name in files.names(directory):
        if _KDUMP.fullmatch(name) or _PSTORE.fullmatch(name):
            path = f"{directory}/{name}"
            try:
                found = os.stat(path)
            except OSError:
                continue
            yield EPOCH + timedelta(seconds=found.st_mtime), path
