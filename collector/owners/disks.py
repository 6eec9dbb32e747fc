"""What the job on each GPU reads from and writes to the node's own disks, by its control group.

Linux kernel, Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files": `io.stat` has a line
per block device, of all processes below the group, and everybody may read it. It exists where the
controller `io` is enabled: runc enables it for pods (opencontainers/cgroups, fs2/create.go); Slurm
for jobs with `EnableExtraControllers=io` in cgroup.conf(5). A network file system has no block
device, and a file system without support for cgroup writeback counts writes at the root ("Writeback",
same document): both are missing here.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..sensors import files
from . import cgroups

# As often as the node's own disks are looked at: the two are compared (ours).
_SECONDS = 10.0
_LINE = re.compile(r"^(\d+:\d+) .*?\brbytes=(\d+) wbytes=(\d+)", re.MULTILINE)
_Moved = tuple[int, int]  # bytes read, bytes written


class JobDisks:
    """Bytes by GPU since the first look at it; a job's bytes are those of each of its GPUs."""

    def __init__(
        self,
        proc_root: Path,
        sysfs_root: Path,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc, self._sysfs, self._monotonic = proc_root, sysfs_root, monotonic
        self._last: dict[str, Mapping[str, _Moved]] = {}  # by group and device
        self._summed: dict[str, _Moved] = {}  # by GPU, also while it has no job
        self._told: dict[str, Mapping[str, int]] = {}
        self._read_at: float | None = None

    def read(self, processes: Mapping[str, Iterable[int]]) -> Mapping[str, Mapping[str, int]]:
        """Return the fields by GPU (UUID) for the processes on it.

        A GPU without a job, with several jobs, or whose job's bytes nobody counts is absent.
        """
        now = self._monotonic()
        if self._read_at is None or now - self._read_at >= _SECONDS:
            self._read_at = now
            self._look(processes)
        return self._told

    def _look(self, processes: Mapping[str, Iterable[int]]) -> None:
        groups = {uuid: self._group(pids) for uuid, pids in processes.items()}
        found = {group: self._moved(group) for group in groups.values() if group is not None}
        known = {group: moved for group, moved in found.items() if moved is not None}
        # A job's bytes from before the first look are not counted.
        grown = {group: _grown(moved, self._last.get(group)) for group, moved in known.items()}
        self._last, self._told = known, {}
        for uuid, group in groups.items():
            if group in grown:
                read, written = self._summed.get(uuid, (0, 0))
                self._summed[uuid] = read + grown[group][0], written + grown[group][1]
                names = ("job_disk_read_bytes", "job_disk_write_bytes")
                self._told[uuid] = dict(zip(names, self._summed[uuid], strict=True))

    def _group(self, pids: Iterable[int]) -> str | None:
        """Return the control group of the one job that these processes belong to; None: not one."""
        texts = (files.read(f"{self._proc}/{pid}/cgroup") or "" for pid in pids)
        found = {group for text in texts if (group := cgroups.job_group(text)) is not None}
        return found.pop() if len(found) == 1 else None

    def _moved(self, group: str) -> Mapping[str, _Moved] | None:
        text = files.read(f"{self._sysfs}/fs/cgroup{group}/io.stat")
        if text is None:
            return None
        return {
            device: (int(read), int(written))
            for device, read, written in _LINE.findall(text)
            # What is made of disks repeats their counts.
            if (self._sysfs / "dev/block" / device / "device").exists()
        }


def _grown(now: Mapping[str, _Moved], before: Mapping[str, _Moved] | None) -> _Moved:
    """Return what was moved since the look before; a device that is new began at 0."""
    if before is None:
        return 0, 0
    pairs = [(moved, before.get(device, (0, 0))) for device, moved in now.items()]
    read, written = (sum(max(moved[i] - was[i], 0) for moved, was in pairs) for i in (0, 1))
    return read, written
