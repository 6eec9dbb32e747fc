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
# A server that forgot the handle, and a program behind a mount that has gone.
_GONE = frozenset({errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.EIO})


class Mount(NamedTuple):
    """A file system that is watched; `counted`: also how full it is; `chosen`: it is to be mounted."""

    path: str
    counted: bool
    chosen: bool = False


def watched(proc: Path, chosen: Sequence[str]) -> list[Mount]:
    """Those that were chosen, else network ones and local disks that can be written to.

    What is mounted in several places is watched in the first. How full a server's is, is no node's.
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
    """Whether something is mounted at a path, and not below it or above; also where nobody knows."""
    places = {place for place, *_ in _mounted(proc) if place}
    return not places or os.path.realpath(path) in places


def _mounted(proc: Path) -> Iterator[tuple[str, str, str, str]]:
    """Where, which kind, of which device, and with which options of its own."""
    for line in (files.read(str(proc / "self/mountinfo")) or "").splitlines():
        # proc_pid_mountinfo(5): how it is mounted here, optional fields, and after a dash what it
        # is. Here a unit's ProtectSystem= shows every disk as one that cannot be written to.
        here, _, itself = line.partition(" - ")
        kind, device, options, *_ = [*map(_plain, itself.split()), "", "", ""]
        yield [*map(_plain, here.split()), *[""] * 5][4], kind, device, options


def _plain(word: str) -> str:
    """Without the kernel's escapes."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word)


def used_share(path: str) -> float | None:
    """Of blocks or of inodes, whichever is fuller, as df(1) counts; None where it has no size.

    OSError when it cannot be asked; it may never return.
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
    """Whether an error says that the file system itself is ill; one that we may not see is not."""
    return error.errno in _GONE
