"""Reads NCCL Inspector's lines, from which `awaited_rank.py` finds the rank that others wait for.

The format: NVIDIA/nccl v2.30.7, plugins/profiler/inspector/inspector_json.cc:26-258, a line for
each operation of a rank; older versions have the same names. `coll_sn` counts for a communicator
and a type of collective, so the same number at several ranks is the same collective; the last rank
to enter is in it for the shortest time. Files are not rotated by NCCL and may be of any size: the
end of each is read anew every time, so that it does not matter whether somebody cut or replaced it.
"""

import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import time_ns
from typing import Any

from .dump_files import stat_of
from .unreadable import UnreadableError, number, text

# An operation takes some 450 bytes: this is the last 500 of a file.
TAIL_BYTES, LONGEST_LINE = 256 * 1024, 8 * 1024
_MOST_FILES, _MOST_NAMES = 64, 65_536
# In these the root, or all ranks but the root, finish early and wait for nobody.
_ROOTED = frozenset({"Broadcast", "Reduce", "Gather", "Scatter"})
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One rank's part in one collective."""

    communicator: str
    size: int
    rank: int
    host: str
    pid: int
    operation: str
    number: int
    microseconds: int
    clock: str  # which clock measured it: only times of the same clock compare
    owner: int  # the user who owns the file
    written: int = 0  # when it was written, in microseconds of its node's clock


def parse(line: bytes, owner: int) -> Op | None:
    """Parse a line; None for one about something else, such as a send or a broadcast.

    Raises UnreadableError for what is no line of Inspector's.
    """
    if len(line) > LONGEST_LINE:
        raise UnreadableError("a line is too long")
    try:
        value: Mapping[str, Any] = json.loads(line)
        is_one = "coll_perf" in value.keys()  # noqa: SIM118 - a list has none
        is_one = is_one and value["coll_perf"]["coll"] not in _ROOTED
        return _op(value, owner) if is_one else None
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UnreadableError(f"it is no line of NCCL Inspector's: {error!r}"[:200]) from None


def _op(value: Mapping[str, Any], owner: int) -> Op:
    header, about, found = value["header"], value["metadata"], value["coll_perf"]
    return Op(
        communicator=text(header["id"]),
        size=number(header["n_ranks"]),
        rank=number(header["rank"]),
        host=text(about["hostname"]),
        pid=number(about["pid"]),
        operation=text(found["coll"]),
        number=number(found["coll_sn"]),
        microseconds=number(found["coll_exec_time_us"]),
        clock=text(found.get("coll_timing_source", "")),
        owner=owner,
        written=number(about.get("dump_timestamp_us", 0)),
    )


def read(
    directories: Iterable[str],
    users: Collection[int],
    youth_seconds: float,
    is_earlier: bool = False,
) -> Iterator[Op]:
    """Yield what these users' processes wrote last, in files that changed recently.

    With `is_earlier`, an earlier part of each file is read. Unreadable lines and files are left
    out.
    """
    oldest, left = time_ns() - int(youth_seconds * 1e9), _MOST_FILES
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            for _, entry in zip(range(_MOST_NAMES), entries, strict=False):
                if left and entry.name.endswith(".log"):
                    about = stat_of(entry)
                    if about is not None and _is_ours(about, users) and about.st_mtime_ns >= oldest:
                        left -= 1
                        yield from _ops(entry.path, users, is_earlier)


def _is_ours(about: os.stat_result, users: Collection[int]) -> bool:
    return stat.S_ISREG(about.st_mode) and about.st_uid in users


def _ops(path: str, users: Collection[int], is_earlier: bool) -> Iterator[Op]:
    with suppress(OSError):
        owner, lines = _lines(path, users, is_earlier)
        for line in lines:
            with suppress(UnreadableError):
                if (op := parse(line, owner)) is not None:
                    yield op


def _lines(path: str, users: Collection[int], is_earlier: bool) -> tuple[int, Sequence[bytes]]:
    """Return the file's owner, and the complete lines at its end or in its earlier part."""
    file = os.open(path, _FLAGS)
    try:
        about = os.fstat(file)
        begin = max(about.st_size - TAIL_BYTES, 0) if not is_earlier else earlier(about.st_size)
        if begin is None or not _is_ours(about, users):
            return about.st_uid, ()
        content = os.pread(file, TAIL_BYTES, begin)
    finally:
        os.close(file)
    # The first line is cut at its start, and the last one may not be complete yet.
    return about.st_uid, content.split(b"\n")[bool(begin) : -1]


def earlier(size: int, tail: int = TAIL_BYTES) -> int | None:
    """Return where a file's earlier part begins, by its size; None if it would overlap the end."""
    begin = min(size // 4, tail)
    return begin if begin + tail <= size - tail else None
