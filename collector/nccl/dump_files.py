"""Reads the dumps of a job's Flight Recorder from directories that an administrator named.

Anybody may be able to write there: nothing is written, only regular files of the job's own user are
opened, no link is followed, and no pipe is touched, since PyTorch's own trigger is one.
"""

import os
import re
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .containers import LARGEST_BYTES
from .flight_recorder import Dump, parse
from .unreadable import UnreadableError

# The prefix from TORCH_FR_DUMP_TEMP_FILE, and the global rank.
_NAME = re.compile(r".*\D(\d{1,6})")
_MOST_NAMES = 65_536
_MOST_BYTES, _SECONDS = 256 * 1024 * 1024, 60.0
# A dump is written piece by piece: one that has not changed for this long is complete.
STABLE_SECONDS = 2.0
_SLACK_SECONDS = 5.0
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True, order=True)
class _File:
    written: int
    size: int
    directory: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRank:
    """The rank to start at: this one, or the one at this share of those that are there."""

    rank: int | None = None
    share: float = 0.0

    def order(self, ranks: Iterable[int]) -> Sequence[int]:
        """Return all ranks in order, from the first one on and around."""
        them = sorted(ranks)
        at = int(self.share * len(them)) if self.rank is None else bisect_left(them, self.rank)
        return [*them[at:], *them[:at]]


def read(
    directories: Iterable[str],
    user: int,
    youth_seconds: float,
    sleep: Callable[[float], None],
    start: StartRank,
) -> dict[int, Dump]:
    """Return each rank's newest recent, complete dump of this user; unreadable ones are left out."""
    directories = list(directories)
    before = _found(directories, user, youth_seconds)
    if not before:
        return {}
    sleep(STABLE_SECONDS)
    after = _found(directories, user, youth_seconds)
    dumps: dict[int, Dump] = {}
    left, deadline = _MOST_BYTES, time.monotonic() + _SECONDS
    for rank in start.order(after):
        file = after[rank]
        if before.get(rank) != file or file.size > left or time.monotonic() > deadline:
            continue
        left -= file.size
        with suppress(OSError, UnreadableError):
            dumps[rank] = parse(_content(file, user))
    return dumps


def _found(directories: Iterable[str], user: int, youth_seconds: float) -> dict[int, _File]:
    found: dict[int, _File] = {}
    oldest = time.time_ns() - int((youth_seconds + _SLACK_SECONDS) * 1e9)
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            for _, entry in zip(range(_MOST_NAMES), entries, strict=False):
                name = _NAME.fullmatch(entry.name)
                if name is None:
                    continue
                about = stat_of(entry)
                if about is None or not _is_dump(about, user) or about.st_mtime_ns < oldest:
                    continue
                file = _File(about.st_mtime_ns, about.st_size, directory, entry.name)
                rank = int(name[1])
                found[rank] = max(file, found.get(rank, file))
    return found


def stat_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the entry's status; None if it has just vanished, which says nothing of the others."""
    with suppress(OSError):
        return entry.stat(follow_symlinks=False)
    return None


def _is_dump(about: os.stat_result, user: int) -> bool:
    is_file = stat.S_ISREG(about.st_mode) and about.st_uid == user
    return is_file and 0 < about.st_size <= LARGEST_BYTES


def _content(file: _File, user: int) -> bytes:
    """Return the content of the file that was found; UnreadableError if another took its place."""
    directory = os.open(file.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        number = os.open(file.name, _FLAGS, dir_fd=directory)
    finally:
        os.close(directory)
    with os.fdopen(number, "rb") as stream:
        about = os.fstat(number)
        if not _is_dump(about, user) or about.st_mtime_ns != file.written:
            raise UnreadableError("it is another file by now")
        return stream.read(LARGEST_BYTES + 1)
