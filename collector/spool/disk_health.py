"""Whether the spool's disk accepts writes, and since when and why it does not."""

import os
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpuvigil.clock import SystemClock
from gpuvigil.log import Log

from .body import bytes_on_disk, write

log = Log("collector")

# With less room than this, a disk is tried at each look: the largest body takes less than that.
LITTLE_BYTES = 1024 * 1024
# What must fit before a full disk counts as having room: a single free page is used up at once.
ROOM_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A disk that is full or fails: no `size` bytes have been written since."""

    since: datetime
    why: str
    size: int


class SpoolDisk:
    """The disk of one directory; one log line when it begins to refuse, and one when it ends.

    Any thread may call.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._now = SystemClock().now
        self._lock = threading.Lock()
        self._refusal: Refusal | None = None

    @property
    def refusal(self) -> Refusal | None:
        """The current refusal, None while the disk accepts writes."""
        return self._refusal

    def accepted(self, size: int) -> None:
        """Note a write of `size` bytes: a refusal of no more than that is over."""
        with self._lock:
            before = self._refusal
            if before is None or size < before.size:
                return
            self._refusal = None
        log.info("spool can be written again", directory=str(self._directory))

    def refused(self, error: OSError, size: int) -> None:
        """Note that `size` bytes could not be written."""
        with self._lock:
            before = self._refusal
            since = before.since if before else self._now()
            size = max(size, before.size) if before else size
            why = error.strerror or str(error)
            self._refusal = Refusal(since=since, why=why, size=max(size, ROOM_BYTES))
        if before is None:
            log.warning(
                "spool cannot be written",
                directory=str(self._directory),
                why=str(error),
                todo="free space there; what waits is kept in memory, and dropped when that is full",
            )

    def probe(self) -> None:
        """Try the disk if it has refused, or has little room."""
        before = self._refusal
        size = before.size if before else 1
        try:
            if before is None and _free_bytes(self._directory) >= LITTLE_BYTES:
                return
            probe = self._directory / "probe"
            write(probe, bytes(bytes_on_disk(size)), durable=False)
            probe.unlink()
        except OSError as error:
            self.refused(error, size)
        else:
            self.accepted(size)


def _free_bytes(directory: Path) -> int:
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize
