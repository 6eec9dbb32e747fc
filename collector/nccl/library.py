"""Finds the version of NCCL that a process has loaded, from the file that it has mapped.

proc(5), `maps`; reading another user's process takes CAP_SYS_PTRACE. The file name has the version,
as distributions do it, or the file's text has it (NVIDIA/nccl, src/init.cc: VERSION_STRING).
"""

import os
import re
import stat
import time

from ..sensors import files
from .unreadable import UnreadableError

_MAPPED = re.compile(r"(/[^\n]*/libnccl\.so[^\n/]*)$", re.MULTILINE)
_NAMED = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)$")
_SAID = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
_BLOCK, _OVERLAP = 1 << 20, 64
_MOST_BYTES, _SECONDS = 1 << 30, 10.0
_DELETED = " (deleted)"


def loaded(proc_root: str, pid: int) -> str:
    """Return the version, such as `2.30.7`; UnreadableError says why it is not known."""
    try:
        maps = files.text(f"{proc_root}/{pid}/maps")
    except OSError as error:
        raise UnreadableError(
            f"which NCCL process {pid} has loaded cannot be seen: {error.strerror}"
        ) from None
    found = sorted(set(_MAPPED.findall(maps)))
    if len(found) != 1 or found[0].endswith(_DELETED):
        raise UnreadableError(f"process {pid} has no one libnccl.so loaded that is still there")
    named = _NAMED.search(found[0])
    return named[1] if named else _version_in(f"{proc_root}/{pid}/root{found[0]}", pid)


def _version_in(path: str, pid: int) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableError(
            f"the NCCL of process {pid} cannot be read: {error.strerror}"
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise UnreadableError(f"the NCCL of process {pid} is no regular file")
        return _searched(file, pid)
    except OSError as error:
        raise UnreadableError(
            f"the NCCL of process {pid} cannot be read: {error.strerror}"
        ) from None
    finally:
        os.close(file)


def _searched(file: int, pid: int) -> str:
    """Return the version in the file's text, read in blocks: it may have hundreds of megabytes."""
    tail, deadline = b"", time.monotonic() + _SECONDS
    for _ in range(_MOST_BYTES // _BLOCK):
        block = os.read(file, _BLOCK)
        if not block or time.monotonic() > deadline:
            break
        if found := _SAID.search(tail + block):
            return found[1].decode()
        tail = block[-_OVERLAP:]
    raise UnreadableError(f"the NCCL of process {pid} does not say which version it is")
