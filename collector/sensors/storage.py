"""What a node reads from and writes to storage: its own disks, and network file systems.

Disks: Linux, Documentation/admin-guide/iostats.rst, sectors of 512 bytes. NFS: nfs(5) and the
kernel's `nfs_show_stats`, of which the fifth and the sixth number of `bytes:` are what went over
the network. Lustre: its Operations Manual, "Client Statistics". Others, GPFS and BeeGFS among them,
show their clients' counters to root alone.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from . import files

_SECTOR = 512
_SECONDS = 10.0  # no more often: a thousand mounts are a long file
_LUSTRE = ("proc/fs/lustre/llite", "sys/kernel/debug/lustre/llite")
_FIELDS = ("read_bytes", "write_bytes")
_MOUNTED = re.compile(r"^device .+ mounted on (\S+) with fstype nfs4? ")
_SUM = re.compile(r"^(read|write)_bytes\s+\d+ samples \[bytes\] \d+ \d+ (\d+)", re.MULTILINE)
_Moved = tuple[int, int]  # bytes read, bytes written


class Storage:
    """Bytes since the first look, summed by kind; a device that goes away takes nothing with it."""

    def __init__(
        self,
        proc_root: Path,
        sysfs_root: Path,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc, self._sysfs, self._monotonic = proc_root, sysfs_root, monotonic
        self._last: dict[tuple[str, str], _Moved] = {}
        self._summed: dict[str, int] = {}
        self._read_at: float | None = None

    def read(self) -> Mapping[str, int]:
        """Return `disk_read_bytes`, `disk_write_bytes`, and `shared_...` of network file systems.

        Only those that exist.
        """
        now = self._monotonic()
        if self._read_at is None or now - self._read_at >= _SECONDS:
            self._read_at = now
            for kind, found in (("disk", dict(self._disks())), ("shared", dict(self._shared()))):
                self._add(kind, found)
        return dict(self._summed)

    def _add(self, kind: str, found: Mapping[str, _Moved]) -> None:
        for place, moved in found.items():
            # Bytes from before the first look are not counted.
            before = self._last.get((kind, place), moved)
            self._last[kind, place] = moved
            for field, count, was in zip(_FIELDS, moved, before, strict=True):
                name = f"{kind}_{field}"
                # A counter that restarted has grown by its value.
                more = count - was if count >= was else count
                self._summed[name] = self._summed.get(name, 0) + more

    def _disks(self) -> Iterator[tuple[str, _Moved]]:
        """Yield hardware disks only: partitions, RAIDs and mapped devices repeat their counts."""
        for line in (files.read(f"{self._proc}/diskstats") or "").splitlines():
            words = line.split()
            whole = len(words) > 9 and words[5].isdigit() and words[9].isdigit()
            if whole and (self._sysfs / "block" / words[2] / "device").exists():
                yield words[2], (int(words[5]) * _SECTOR, int(words[9]) * _SECTOR)

    def _shared(self) -> Iterator[tuple[str, _Moved]]:
        yield from self._nfs()
        for folder in _LUSTRE:
            # Under the configured roots, as in a container.
            root, _, below = folder.partition("/")
            there = (self._proc if root == "proc" else self._sysfs) / below
            for name in files.names(str(there)):
                found = {
                    way: int(count)
                    for way, count in _SUM.findall(files.read(f"{there}/{name}/stats") or "")
                }
                if found:
                    yield f"lustre {name}", (found.get("read", 0), found.get("write", 0))

    def _nfs(self) -> Iterator[tuple[str, _Moved]]:
        """Yield each NFS file system; one that is mounted in several places counts once."""
        devices = dict(self._devices())
        place = None
        for line in (files.read(f"{self._proc}/self/mountstats") or "").splitlines():
            if line.startswith("device "):
                mounted = _MOUNTED.match(line)
                place = None if mounted is None else mounted[1]
            elif place is not None and line.startswith("\tbytes:"):
                words = line.split()[1:]
                if len(words) >= 6 and all(word.isdigit() for word in words[4:6]):
                    yield f"nfs {devices.get(place, place)}", (int(words[4]), int(words[5]))

    def _devices(self) -> Iterator[tuple[str, str]]:
        """Yield mount point and number of each file system (proc(5), `mountinfo`)."""
        for line in (files.read(f"{self._proc}/self/mountinfo") or "").splitlines():
            words = line.split()
            if len(words) > 4:
                yield words[4], words[2]
