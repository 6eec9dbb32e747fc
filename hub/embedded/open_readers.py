"""Counts open readers, so that no file is removed under them."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class OpenReaders:
    """Removes files that have left the manifest once the last reader that may use them is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets = 0
        self._reading: set[int] = set()
        self._doomed: list[tuple[int, Sequence[Path]]] = []

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the files that are in the manifest now until the context ends."""
        with self._lock:
            self._tickets += 1
            mine = self._tickets
            self._reading.add(mine)
        try:
            yield
        finally:
            with self._lock:
                self._reading.discard(mine)
            self.sweep()

    def doom(self, paths: Sequence[Path]) -> None:
        """Remove files that have just left the manifest, as soon as nobody reads them."""
        with self._lock:
            self._doomed.append((self._tickets, paths))
        self.sweep()

    def sweep(self) -> None:
        """Remove the files that no reader can use any more."""
        with self._lock:
            oldest = min(self._reading, default=self._tickets + 1)
            due = [paths for ticket, paths in self._doomed if ticket < oldest]
            self._doomed = [it for it in self._doomed if it[0] >= oldest]
        for path in (path for paths in due for path in paths):
            path.unlink(missing_ok=True)
