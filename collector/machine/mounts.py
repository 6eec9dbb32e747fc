"""Which file systems are watched, and how full one is."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..sensors import files

_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "wekafs", "9p"),
        *("glusterfs", "pvfs2", "orangefs", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs"),
    }
)
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"})
NOT_MOUNTED = "is not mounted"
# A kubelet mounts the same volume for every pod.
_MOST = 32
_OCTAL = re.compile(r"\\([0-7]{3})")
# Errors of a server that forgot the handle, and of a mount whose program has gone.
_GONE = frozenset({errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EIO})


class Mount(NamedTuple):
    """A watched file system; `counted`: its usage, too; `chosen`: it is expected to be mounted."""

    path: str
    counted: bool
    chosen: bool = False


def watched(proc: Path, chosen: Sequence[str]) -> list[Mount]:
    """Return the chosen mounts, else network mounts and writable local disks.

    A file system with several mounts is watched at the first. A server's usage is not the node's.
    """
    if chosen:
        return [Mount(path=path, counted=True, chosen=True) for path in chosen]
    found: dict[str, Mount] = {}
    for path, kind, device, options in _mounted(proc):
        local = kind in _LOCAL and "ro" not in options.split(",")
        if local or kind in _NETWORK:
            found.setdefault(device, Mount(path=path, counted=local))
    return list(found.values())[:_MOST]


def is_mounted(proc: Path, path: str) -> bool:
    """Return whether something is mounted exactly at the path; true where the mounts are unknown."""
    places = {place for place, *_ in _mounted(proc) if place}
    return not places or os.path.realpath(path) in places


def _mounted(proc: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield path, type, device and the file system's own options of each mount."""
    for line in (files.read(str(proc / "self/mountinfo")) or "").splitlines():
        # proc_pid_mountinfo(5): mount options, optional fields, and after a dash the file system
        # itself. By the mount options, a unit's ProtectSystem= makes every disk read-only.
        here, _, itself = line.partition(" - ")
        kind, device, options, *_ = [*map(_plain, itself.split()), "", "", ""]
        yield [*map(_plain, here.split()), *[""] * 5][4], kind, device, options


def _plain(word: str) -> str:
    """Return the word without the kernel's octal escapes."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word)


def used_share(path: str) -> float | None:
    """Return the used share of blocks or of inodes, whichever is larger, as df(1) counts.

    None where the file system has no size. OSError when it cannot be asked; the call may never
    return.
    """
    about = os.statvfs(path)
    shares = []
    used, free = about.f_blocks - about.f_bfree, about.f_bavail
    if about.f_blocks and used + free > 0:
        shares.append(used / (used + free))
    if about.f_files:
        shares.append(1.0 - about.f_ffree / about.f_files)
    return max(shares, default=None)


def is_gone(error: OSError) -> bool:
    """Return whether an error means that the file system itself is ill, not that access is denied."""
    return error.errno in _GONE
