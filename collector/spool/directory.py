"""The spool's directory: one file for each waiting body, named by its place, and a lock."""

import fcntl
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from gpuvigil.clock import EPOCH
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

from .body import Body, bytes_on_disk, decode, write
from .disk_queue import SpoolEntry
from .subscriptions import Lane

log = Log("collector")

_SUFFIX = ".body"
_LARGEST = 2**63 - 1


class SpoolDirectory:
    """Bodies on disk, for one process; a body's lane is where it waits: records, or backlog."""

    def __init__(self, path: Path) -> None:
        """Create the directory and lock it; ConfigError when it cannot be used."""
        self.path = path
        self._lock = _lock(path)

    def close(self) -> None:
        """Let another process use the directory."""
        os.close(self._lock)

    def entries(self) -> Iterator[tuple[SpoolEntry, Lane]]:
        """Yield every body in the directory, oldest first; delete drafts."""
        for entry in sorted(os.scandir(self.path), key=lambda e: e.name):
            if entry.name.endswith(".draft"):
                os.unlink(entry.path)
            if not entry.name.endswith(_SUFFIX):
                continue
            found = _entry(entry.name.removesuffix(_SUFFIX), entry.stat().st_size)
            if found is None:
                log.warning("file in the spool is not ours", file=entry.path)
            else:
                yield found

    def write(self, entry: SpoolEntry, lane: Lane, content: bytes) -> None:
        """Write an encoded body, a record durably; OSError when the disk refuses."""
        write(self._file(entry, lane), content, durable=lane is Lane.RECORDS)

    def read(self, entry: SpoolEntry, lane: Lane) -> Body | None:
        """Return a body without its number; None, with a log line, when it is not what was written.

        Any other OSError may pass: too many open files, too little memory, a disk elsewhere.
        """
        file = self._file(entry, lane)
        try:
            return decode(file.read_bytes())
        except (FileNotFoundError, ValueError) as error:
            log.warning("body cannot be read from the spool", file=str(file), why=str(error))
            return None

    def forget(self, entry: SpoolEntry, lane: Lane) -> None:
        """Delete a body."""
        self._file(entry, lane).unlink(missing_ok=True)

    def _file(self, entry: SpoolEntry, lane: Lane) -> Path:
        name = f"{entry.number:012d}-{entry.microseconds}-{lane.value}{_SUFFIX}"
        return self.path / name


def _entry(name: str, size: int) -> tuple[SpoolEntry, Lane] | None:
    """Return what a file's name means; None when it is not as `_file` makes it."""
    try:
        number, microseconds, lane = name.split("-")
        entry = SpoolEntry(int(number), int(microseconds), bytes_on_disk(size))
        EPOCH + timedelta(microseconds=entry.microseconds)
        resting = Lane(lane)
    except (ValueError, OverflowError):
        return None
    return None if resting is Lane.LIVE or entry.number > _LARGEST else (entry, resting)


def _lock(directory: Path) -> int:
    """Create the directory and lock it for this process; return the lock's file descriptor."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"cannot use the spool directory {directory}: {error.strerror};"
            " set spool_directory in its section"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigError(
            f"the spool directory {directory} is used by another collector;"
            " stop it or set spool_directory in its section"
        ) from None
    return descriptor
