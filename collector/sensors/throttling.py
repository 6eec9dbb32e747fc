"""How often and how long heat slowed the processors down, as Linux counts it on Intel's.

Linux, "Intel thermal throttle events reporting" and drivers/thermal/intel/therm_throt.c: counted in
memory, so that a read wakes no processor, and of a package by each of its CPUs, of which one is
read. Time is counted from Linux 5.5 on, and when a throttling ends. Others' processors have no such
files.
"""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from . import files

_SECONDS = 10.0  # no more often: nothing is lost by waiting
_AGAIN_SECONDS = 600.0  # between searches for CPUs to read
_CPU = re.compile(r"cpu(\d+)")
_FIELDS = {
    "cpu_throttled_milliseconds": "package_throttle_total_time_ms",
    "cpu_throttles": "package_throttle_count",
}


class Throttling:
    """What was counted since the first look, each time of the package that gained the most."""

    def __init__(self, sysfs_root: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root, self._monotonic = f"{sysfs_root}/devices/system/cpu", monotonic
        self._folders: tuple[str, ...] = ()
        self._last: dict[str, int] = {}
        self._summed = dict.fromkeys(_FIELDS, 0)
        self._told: Mapping[str, int] = {}
        self._read_at = self._sought = -_AGAIN_SECONDS

    def read(self) -> Mapping[str, int]:
        """Return `cpu_throttled_milliseconds` and `cpu_throttles`, those that the kernel counts."""
        now = self._monotonic()
        if now - self._read_at >= _SECONDS:
            self._read_at = now
            if not self._folders and now - self._sought >= _AGAIN_SECONDS:
                self._sought, self._folders = now, self._search()
            gained = {field: self._gained(file) for field, file in _FIELDS.items()}
            if gained["cpu_throttles"] is None:
                self._folders = ()  # one of the CPUs was switched off
            for field, more in gained.items():
                self._summed[field] += more or 0
            self._told = {it: self._summed[it] for it, more in gained.items() if more is not None}
        return self._told

    def _search(self) -> tuple[str, ...]:
        """Return the folder of the first CPU of each package; none where the kernel counts nothing."""
        numbers = sorted(int(it[1]) for it in map(_CPU.fullmatch, files.names(self._root)) if it)
        first: dict[str, str] = {}
        for number in numbers:
            cpu = f"{self._root}/cpu{number}"
            folder = f"{cpu}/thermal_throttle"
            if number == numbers[0] and not files.names(folder):
                return ()
            package = files.stripped(f"{cpu}/topology/physical_package_id")
            if (
                package
                and package not in first
                and _number(f"{folder}/package_throttle_count") is not None
            ):
                first[package] = folder
        return tuple(first.values())

    def _gained(self, file: str) -> int | None:
        """Return the most that a package's count gained since the last look; None where one is not told."""
        gained = []
        for path in (f"{folder}/{file}" for folder in self._folders):
            count = _number(path)
            if count is None:
                return None
            # What was counted before the first look is not of this run.
            gained.append(count - self._last.get(path, count))
            self._last[path] = count
        return max(gained, default=None)


def _number(path: str) -> int | None:
    text = files.stripped(path)
    return int(text) if text.isdecimal() else None
