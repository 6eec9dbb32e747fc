"""Bodies that wait for the hub: the newest in memory, all others on disk, bounded in bytes.

Records are on disk before `put` returns. Telemetry is kept in memory until its first attempt has
failed or a body `memory_seconds` younger arrives, so that a healthy node writes nothing to disk.
A collector that is killed with -9 loses at most the telemetry of those seconds, and no record.

One body is one file, written aside and renamed. Its checksum tells a file that a power cut tore.
"""

import fcntl
import json
import os
import threading
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

from gpuvigil.clock import EPOCH, from_text, to_text
from gpuvigil.errors import ConfigError
from gpuvigil.log import Log

log = Log("collector")

RECORDS_PATH = "/api/v1/records"
_BLOCK_BYTES = 4096  # what a small file takes on most file systems
_SUFFIX = ".body"


class Lane(str, Enum):
    """Who waits for whom: records go first and alone, live telemetry before what drains."""

    RECORDS = "records"
    LIVE = "live"
    BACKLOG = "backlog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One request to the hub, as it will be sent; `at` is when its content was measured.

    `headers` carry the `Gpuvigil-*` headers of the node it comes from. The spool adds
    `Gpuvigil-Lane` and `Gpuvigil-Sequence`, which then stay the same in every attempt, and
    `number`, the body's place in the spool.
    """

    path: str
    headers: Mapping[str, str]
    content: bytes
    at: datetime
    number: int = 0


@dataclass(slots=True, kw_only=True)
class _Item:
    """A body's place: in memory (`body`), on disk (`file`), or both."""

    number: int
    lane: Lane
    at: datetime
    body: Body | None
    file: Path | None = None
    stored_bytes: int = 0
    taken: bool = True


class Spool:
    """A bounded queue of bodies in one directory, of one process; safe in any thread.

    When `limit_bytes` on disk are reached the oldest telemetry is dropped and counted, and records
    only when nothing else is left. A disk that is full costs bodies, counted, and never the process.
    """

    def __init__(
        self,
        directory: Path,
        limit_bytes: int,
        *,
        memory_bytes: int = 4 * 1024 * 1024,
        memory_seconds: float = 5.0,
    ) -> None:
        """Take up what an earlier process left; ConfigError when the directory cannot be used."""
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._memory_bytes = memory_bytes
        self._memory = timedelta(seconds=memory_seconds)
        self._changed = threading.Condition()
        self._items: dict[Lane, dict[int, _Item]] = {lane: {} for lane in Lane}
        self._sequences: dict[tuple[str | None, ...], int] = {}
        self._number = 0
        self._bytes = 0
        self._dropped = 0
        self._disk_fails = False
        self._full = False
        self._interrupted = False
        self._writing = threading.Lock()
        self._lock = _lock(directory)
        self._recover()

    @property
    def bytes(self) -> int:
        """Bytes that wait on disk."""
        return self._bytes

    @property
    def dropped(self) -> int:
        """Bodies given up since the start: no room, a file that was torn, or the hub's refusal."""
        return self._dropped

    def oldest_seconds(self, now: datetime) -> float:
        """Age of the oldest body that waits; 0 when none does."""
        with self._changed:
            oldest = [item.at for queue in self._items.values() for item in queue.values()]
        return max((now - min(oldest)).total_seconds(), 0.0) if oldest else 0.0

    def put(self, body: Body) -> None:
        """Keep a body until `done`; a body of records is on disk when this returns."""
        lane = Lane.RECORDS if body.path == RECORDS_PATH else Lane.LIVE
        with self._changed:
            self._number += 1
            item = _Item(number=self._number, lane=lane, at=body.at, body=body)
            self._items[lane][item.number] = item
        if lane is Lane.RECORDS:
            self._store(item)
        with self._changed:
            item.taken = False
            overdue = self._overdue(body.at)
            self._changed.notify_all()
        for each in overdue:
            if not self._spill(each):
                break
        self._make_room()

    def next(self, lanes: Collection[Lane]) -> Body | None:
        """The first body of the first of `lanes` that has one, taken until `done` or `again`."""
        for lane in lanes:
            while (item := self._take(lane)) is not None:
                body = self._load(item)
                if body is not None:
                    return body
                self._remove(item, counted=True)
        return None

    def wait(self, lanes: Collection[Lane], seconds: float) -> bool:
        """Wait until one of `lanes` has a body; false when `seconds` passed, or at `interrupt`."""
        with self._changed:
            self._changed.wait_for(lambda: self._interrupted or self._has(lanes), seconds)
            return not self._interrupted and self._has(lanes)

    def interrupt(self) -> None:
        """Let nobody wait any more: the end is near."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def done(self, body: Body) -> None:
        """The hub has committed the body: forget it."""
        self._full = False
        self._settle(body, counted=False)

    def drop(self, body: Body) -> None:
        """The hub will never take the body: forget it, and count it."""
        self._settle(body, counted=True)

    def again(self, body: Body) -> None:
        """The attempt failed: the body goes to disk and waits for its next one."""
        item = self._find(body.number)
        if item is None:
            return
        self._store(item)
        lane = Lane.RECORDS if item.lane is Lane.RECORDS else Lane.BACKLOG
        self._move(item, lane)
        self._make_room()

    def close(self) -> None:
        """Write to disk whatever is still in memory, and let another process use the directory."""
        with self._changed:
            waiting = [item for queue in self._items.values() for item in queue.values()]
        for item in waiting:
            if item.file is None:
                self._identify(item, Lane.BACKLOG)
                self._store(item)
        os.close(self._lock)

    def _has(self, lanes: Collection[Lane]) -> bool:
        return any(not item.taken for lane in lanes for item in self._items[lane].values())

    def _take(self, lane: Lane) -> _Item | None:
        with self._changed:
            for item in self._items[lane].values():
                if not item.taken:
                    item.taken = True
                    return item
        return None

    def _load(self, item: _Item) -> Body | None:
        """The item's body with its identity; None when its file is not what was written."""
        if item.body is not None:
            return self._identify(item, item.lane)
        try:
            body = _decode(item.file.read_bytes()) if item.file else None
        except (OSError, ValueError) as error:
            log.warning("body cannot be read from the spool", file=str(item.file), why=str(error))
            return None
        return body and replace(body, number=item.number)

    def _identify(self, item: _Item, lane: Lane) -> Body:
        """Give the item's body lane and sequence, unless it has them."""
        assert item.body is not None
        headers = item.body.headers
        if item.lane is not Lane.RECORDS and "Gpuvigil-Sequence" not in headers:
            names = ("Gpuvigil-Cluster", "Gpuvigil-Node", "Gpuvigil-Boot")
            key = (*(headers.get(name) for name in names), lane.value)
            with self._changed:
                self._sequences[key] = sequence = self._sequences.get(key, 0) + 1
            headers = {
                **headers,
                "Gpuvigil-Lane": lane.value,
                "Gpuvigil-Sequence": str(sequence),
            }
        item.body = replace(item.body, headers=headers, number=item.number)
        return item.body

    def _overdue(self, now: datetime) -> list[_Item]:
        """Items that have been in memory only for too long, or are too many, oldest first."""
        room = self._memory_bytes
        overdue = []
        for item in reversed(self._in_memory()):
            room -= _length(item)
            if room < 0 or now - item.at >= self._memory:
                overdue.append(item)
        return overdue[::-1]

    def _in_memory(self) -> list[_Item]:
        """Items without a file, the oldest of each lane first."""
        lanes = (Lane.BACKLOG, Lane.LIVE, Lane.RECORDS)
        return [i for lane in lanes for i in self._items[lane].values() if i.file is None]

    def _spill(self, item: _Item) -> bool:
        """Move an item from memory to disk; one that is being sent keeps its place.

        False when the disk does not take it: then it stays in memory while there is room.
        """
        with self._changed:
            in_flight, item.taken = item.taken, True
        if in_flight:
            return self._store(item)
        self._identify(item, Lane.BACKLOG)
        stored = self._store(item)
        self._move(item, Lane.RECORDS if item.lane is Lane.RECORDS else Lane.BACKLOG)
        return stored

    def _move(self, item: _Item, lane: Lane) -> None:
        """Put an item that was taken back into a queue, for others to take."""
        with self._changed:
            if self._items[item.lane].pop(item.number, None) is None:
                return
            item.lane = lane
            item.taken = False
            if item.file is not None:
                item.body = None
            self._items[lane][item.number] = item
            self._changed.notify_all()

    def _store(self, item: _Item) -> bool:
        """Write the item's body to disk, once; false when the disk does not take it."""
        with self._writing:
            return item.body is None or item.file is not None or self._write_down(item, item.body)

    def _write_down(self, item: _Item, body: Body) -> bool:
        content = _encode(body)
        age = (item.at - EPOCH) // timedelta(microseconds=1)
        lane = Lane.RECORDS if item.lane is Lane.RECORDS else Lane.BACKLOG
        file = self._directory / f"{item.number:012d}-{age}-{lane.value}{_SUFFIX}"
        try:
            _write(file, content, durable=item.lane is Lane.RECORDS)
        except OSError as error:
            if not self._disk_fails:
                log.warning(
                    "spool cannot be written", directory=str(self._directory), why=str(error)
                )
            self._disk_fails = True
            return False
        self._disk_fails = False
        with self._changed:
            item.file = file
            item.stored_bytes = _on_disk(len(content))
            self._bytes += item.stored_bytes
            gone = item.number not in self._items[item.lane]
        if gone:  # the hub took it meanwhile
            self._forget_file(item)
        return True

    def _make_room(self) -> None:
        """Drop the oldest until disk and memory are within their limits; told once an outage."""
        while (oldest := self._surplus()) is not None:
            if not self._full:
                log.warning("spool is full, oldest bodies are dropped", since=to_text(oldest.at))
            self._full = True
            self._remove(oldest, counted=True)

    def _surplus(self) -> _Item | None:
        """The body to drop next, now taken: telemetry first, records when nothing else is left."""
        with self._changed:
            on_disk = self._bytes > self._limit_bytes
            if not on_disk and sum(map(_length, self._in_memory())) <= self._memory_bytes:
                return None
            for lane in (Lane.BACKLOG, Lane.LIVE, Lane.RECORDS):
                for item in self._items[lane].values():
                    if not item.taken and (item.file is not None) == on_disk:
                        item.taken = True
                        return item
        return None

    def _settle(self, body: Body, *, counted: bool) -> None:
        item = self._find(body.number)
        if item is not None:
            self._remove(item, counted=counted)

    def _find(self, number: int) -> _Item | None:
        with self._changed:
            found = (queue.get(number) for queue in self._items.values())
            return next((item for item in found if item is not None), None)

    def _remove(self, item: _Item, *, counted: bool) -> None:
        with self._changed:
            if self._items[item.lane].pop(item.number, None) is None:
                return
            self._dropped += counted
        self._forget_file(item)

    def _forget_file(self, item: _Item) -> None:
        with self._changed:
            file, item.file = item.file, None
            if file is None:
                return
            self._bytes -= item.stored_bytes
        file.unlink(missing_ok=True)

    def _recover(self) -> None:
        """Queue every body that lies in the directory, oldest first; sweep drafts away."""
        for entry in sorted(os.scandir(self._directory), key=lambda e: e.name):
            if entry.name.endswith(".draft"):
                os.unlink(entry.path)
            if not entry.name.endswith(_SUFFIX):
                continue
            try:
                number, microseconds, lane = entry.name.removesuffix(_SUFFIX).split("-")
                item = _Item(
                    number=int(number),
                    lane=Lane(lane),
                    at=EPOCH + timedelta(microseconds=int(microseconds)),
                    body=None,
                    file=Path(entry.path),
                    stored_bytes=_on_disk(entry.stat().st_size),
                    taken=False,
                )
            except (ValueError, OverflowError):
                log.warning("file in the spool is not ours", file=entry.path)
                continue
            self._items[item.lane][item.number] = item
            self._bytes += item.stored_bytes
            self._number = max(self._number, item.number)
        self._make_room()


def _lock(directory: Path) -> int:
    """Make the directory and take it for this process; returns the lock's file descriptor."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"cannot use the spool directory {directory}: {error.strerror};"
            " set collector.spool_directory"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigError(
            f"the spool directory {directory} is used by another collector;"
            " stop it or set collector.spool_directory"
        ) from None
    return descriptor


def _length(item: _Item) -> int:
    return 0 if item.body is None else len(item.body.content)


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _write(file: Path, content: bytes, *, durable: bool) -> None:
    """Write a whole file or none; `durable` survives a power cut, too."""
    draft = file.with_suffix(".draft")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        draft.replace(file)
        if durable:
            _sync_directory(file.parent)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(body: Body) -> bytes:
    """One line of checksum, one of JSON, and the content compressed."""
    head = {"path": body.path, "headers": dict(body.headers), "at": to_text(body.at)}
    rest = json.dumps(head).encode() + b"\n" + zlib.compress(body.content, 1)
    return b"%08x\n" % zlib.crc32(rest) + rest


def _decode(content: bytes) -> Body:
    """The body that `_encode` wrote; ValueError when a byte is missing or wrong."""
    checksum, _, rest = content.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(rest):
        raise ValueError("checksum does not match")
    head, _, compressed = rest.partition(b"\n")
    values = json.loads(head)
    return Body(
        path=values["path"],
        headers=values["headers"],
        content=zlib.decompress(compressed),
        at=from_text(values["at"]),
    )
