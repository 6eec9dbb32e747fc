"""The journal: all commits to the records, kept a second time in files that outlive the database.

A segment is begun with each backup and holds what was committed after it, a line per commit: the
CRC of the rest, and JSON with the rows as they were then. Replaying one again, or one that a backup
holds in part, changes nothing: rows carry their sequence. Notices of alerts and tokens are on disk
before they are acknowledged; the rest a second later.
"""

import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuvigil.clock import Clock, to_text
from gpuvigil.file_sync import sync
from gpuvigil.log import Log
from gpuvigil.model import RecordKind

_LOG = Log("hub")

SUFFIX = ".journal"
# Must never be lost: who was told what.
_AT_ONCE = RecordKind.NOTICE.value


@dataclass(slots=True)
class Changes:
    """The changes of one transaction: rows of `record`, claims that ended, rows of `token`."""

    before: int = 0  # the sequence before the commit, and after it
    after: int = 0
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    done: list[tuple[str, str, int, str]] = field(default_factory=list)  # kind, id, sequence, owner
    tokens: list[Mapping[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.done or self.tokens or self.before != self.after)

    @property
    def at_once(self) -> bool:
        return bool(self.tokens) or any(row["kind"] == _AT_ONCE for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One file; `lineage` names the database it belongs to, None when its head cannot be read."""

    number: int
    path: Path
    lineage: int | None

    def lines(self) -> Iterator[Mapping[str, Any] | None]:
        """Yield each commit, in order; None for an unreadable line, unless it was cut short."""
        with self.path.open("rb") as file:
            next(file, None)
            for line in file:
                found = _parsed(line)
                if found is not None or line.endswith(b"\n"):
                    yield found


class Journal:
    """The segment being written. Any thread may sync; who appends holds the writers' turn."""

    def __init__(self, folder: Path, lineage: int, clock: Clock) -> None:
        self._folder = folder
        self._lineage = lineage
        self._clock = clock
        self._syncing = threading.Lock()
        self._file: int | None = None
        self._unsynced = False
        self.number = max((one.number for one in segments(folder)), default=0)
        self.bytes = 0
        # Set when a line could not be written: only a new segment, with a new backup, is whole
        # again.
        self.broken = False

    def begin(self, sequence: int) -> int:
        """Begin the next segment, for commits after `sequence`, and return its number.

        OSError when it cannot be begun.
        """
        number = self.number + 1
        head = {"lineage": self._lineage, "sequence": sequence, "at": to_text(self._clock.now())}
        path = segment_file(self._folder, number)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            _write(file, _line(head))
            os.fsync(file)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        sync(self._folder)
        with self._syncing:
            before, self._file = self._file, file
            self.number, self.bytes, self.broken = number, 0, False
            self._unsynced = False
        if before is not None:
            os.fsync(before)
            os.close(before)
        return number

    def append(self, changes: Changes) -> None:
        """Append a commit. Never raises: the commit is made already."""
        if self._file is None or self.broken or not changes:
            return
        entry: dict[str, Any] = {
            "from": changes.before,
            "to": changes.after,
            "at": to_text(self._clock.now()),
        }
        for key in ("rows", "done", "tokens"):
            if value := getattr(changes, key):
                entry[key] = value
        line = _line(entry)
        try:
            _write(self._file, line)
        except OSError as error:
            self._failed(error)
        self.bytes += len(line)
        self._unsynced = True

    def sync(self) -> None:
        """Wait until all that was appended is on the disk."""
        with self._syncing:
            if self._file is None or not self._unsynced:
                return
            self._unsynced = False
            try:
                os.fdatasync(self._file)
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        self.sync()
        with self._syncing:
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def _failed(self, error: OSError) -> None:
        self.broken = True
        _LOG.error(
            "records' journal not written: the next backup makes up for it",
            file=str(segment_file(self._folder, self.number)),
            error=error.strerror or str(error),
        )


def segment_file(folder: Path, number: int) -> Path:
    """Return the path of a segment."""
    return folder / f"records-{number:08}{SUFFIX}"


def number_of(path: Path) -> int:
    """Return the number in the name of a segment or a backup; ValueError for any other file."""
    return int(path.name.removeprefix("records-").partition(".")[0])


def segments(folder: Path) -> list[Segment]:
    """Return all segments, oldest first."""
    found = []
    for path in folder.glob(f"records-*{SUFFIX}"):
        with suppress(ValueError), path.open("rb") as file:
            head = _parsed(file.readline())
            lineage = None if head is None else head.get("lineage")
            found.append(Segment(number=number_of(path), path=path, lineage=lineage))
    return sorted(found, key=lambda one: one.number)


def newest_sequence(found: Sequence[Segment], lineage: int) -> int:
    """Return the highest sequence in the segments of a lineage; 0 for none."""
    for one in reversed(found):
        if one.lineage != lineage:
            continue
        told = [int(entry["to"]) for entry in _last_lines(one.path) if "to" in entry]
        if told:
            return max(told)
    return 0


def _last_lines(path: Path, size: int = 64 * 1024) -> Iterable[Mapping[str, Any]]:
    """Return the readable lines in a file's last `size` bytes, or in all of it if none are."""
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(length - size, 0))
        found = [one for line in file if (one := _parsed(line)) is not None]
    if not found and size < length:
        return _last_lines(path, length)
    return found


def _line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    sum_of, _, text = line.rstrip(b"\n").partition(b" ")
    try:
        if int(sum_of, 16) != zlib.crc32(text):
            return None
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, Mapping) else None


def _write(file: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
