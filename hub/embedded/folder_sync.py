"""fsync of a folder, so that the names in it survive a power loss."""

import time
from pathlib import Path

from gpuvigil.file_sync import sync

# File systems stamp a folder with the time of the last timer tick: names that are created soon
# after a check may leave its stamp as it was.
_TICK_NS = 100_000_000


class FolderSync:
    """Syncs the names in a folder when they have changed since the last sync.

    DuckDB recreates its log after each checkpoint and syncs its content, but not its name; without
    that a power loss may take the whole log (fsync(2), "Calling fsync() does not necessarily ensure
    that the entry in the directory containing the file has also reached disk").
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced_ns = 0  # the folder's stamp when all its names were on the disk

    def sync(self) -> None:
        """Wait until all names are on the disk; do nothing when none has changed."""
        stamp_ns = self._folder.stat().st_mtime_ns
        if stamp_ns == self._synced_ns:
            return
        settled = time.time_ns() - stamp_ns > _TICK_NS
        sync(self._folder)
        self._synced_ns = stamp_ns if settled else 0
