"""Which GPUs serve behind an address: those of the process that listens there, and of its children.

vLLM's API server listens, and its engines compute in children; Triton does both in one process.
procfs(5): `net/tcp` lists the sockets of a process's network namespace (state 0A listens), links in
`fd` name their inodes, `net/fib_trie` the namespace's own addresses. Only processes on GPUs and
their ancestors are read, so that it costs little on a node that is full of other things.
"""

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..sensors import files
from .address import Address
from .scrape_result import Replica

_LISTENS = "0A"
_MOST_FORBEARS = 16
_ROOT = "0"


def serving(
    proc_root: Path, where: Address, processes: Mapping[str, Iterable[int]]
) -> tuple[str, ...]:
    """Return UUIDs of the GPUs whose processes serve there; none where that cannot be seen."""
    listens: dict[int, bool] = {}
    found = []
    for uuid, pids in processes.items():
        if any(_serves(proc_root, where, pid, listens) for pid in pids):
            found.append(uuid)
    return tuple(sorted(found))


def of_its_user(
    proc_root: Path, where: Address, processes: Mapping[str, Iterable[int]]
) -> tuple[str, ...]:
    """Return UUIDs of the GPUs on which the user who listens there runs something.

    For a collector that may not see which process listens: the table of sockets names their users
    to everybody. Root may be anybody, so its sockets yield no GPU.
    """
    own = f"{proc_root}/self"
    if not where.loopback and not _is_its_address(own, where, own):
        return ()
    users = {words[7] for words in listening(own, where.port)}
    if len(users) != 1 or users == {_ROOT}:
        return ()
    return tuple(
        sorted(
            uuid
            for uuid, pids in processes.items()
            if any(_user(f"{proc_root}/{pid}") in users for pid in pids)
        )
    )


def limited(replica: Replica, own: Container[str]) -> Replica:
    """Return the replica without the GPUs that its server names and that are not in `own` (UUIDs)."""
    return replace(replica, gpus=tuple(uuid for uuid in replica.gpus if uuid in own))


def _serves(proc_root: Path, where: Address, pid: int, listens: dict[int, bool]) -> bool:
    for _ in range(_MOST_FORBEARS):
        if pid <= 1:
            return False
        if pid not in listens:
            listens[pid] = _listens(f"{proc_root}/{pid}", where, f"{proc_root}/self")
        if listens[pid]:
            return True
        pid = _parent(f"{proc_root}/{pid}")
    return False


def _parent(folder: str) -> int:
    """Return the parent's pid, 0 when unknown.

    proc(5): the fourth field of stat, behind a name that may hold anything.
    """
    words = (files.read(f"{folder}/stat") or "").rpartition(")")[2].split(maxsplit=2)
    return int(words[1]) if len(words) > 2 and words[1].isdigit() else 0


def _listens(folder: str, where: Address, own: str) -> bool:
    inodes = {f"socket:[{words[9]}]" for words in listening(folder, where.port)}
    if not inodes or not _is_its_address(folder, where, own):
        return False
    try:
        names = os.listdir(f"{folder}/fd")
    except OSError:
        return False
    for name in names:
        with suppress(OSError):
            if os.readlink(f"{folder}/fd/{name}") in inodes:
                return True
    return False


def listening(folder: str, port: int) -> Iterator[list[str]]:
    """Yield the lines of listening sockets, split: word eight is the user, word ten the inode."""
    for table in ("tcp", "tcp6"):
        for line in (files.read(f"{folder}/net/{table}") or "").splitlines()[1:]:
            words = line.split(maxsplit=10)
            if len(words) > 9 and words[3] == _LISTENS and words[1].endswith(f":{port:04X}"):
                yield words


def _user(folder: str) -> str:
    """Return the effective user id of a process, as text; "" when it is gone."""
    for line in (files.read(f"{folder}/status") or "").splitlines():
        if line.startswith("Uid:"):
            return line.split()[2]
    return ""


def _is_its_address(folder: str, where: Address, own: str) -> bool:
    """Return whether a request from here reaches that namespace: each has a 127.0.0.1 of its own."""
    if where.loopback:
        with suppress(OSError):
            return os.stat(f"{folder}/ns/net").st_ino == os.stat(f"{own}/ns/net").st_ino
        return False
    return f"|-- {where.host}\n" in (files.read(f"{folder}/net/fib_trie") or "")
