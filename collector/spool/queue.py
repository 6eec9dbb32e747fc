"""Bodies that wait for the hub: the newest in memory, all others on disk, bounded in bytes.

Records are on disk before `put` returns. Telemetry is kept in memory until its first attempt has
failed or a body `memory_seconds` younger arrives, so that a healthy node writes nothing to disk. A
collector that is killed with -9 loses at most the telemetry of those seconds, and no record.
"""

import errno
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import EPOCH, to_text
from gpuvigil.log import Log

from .ages import Ages
from .body import RECORDS_PATH, Body, bytes_on_disk, encode
from .directory import SpoolDirectory
from .disk_health import SpoolDisk
from .disk_queue import DiskQueue, SpoolEntry
from .subscriptions import Lane, Waiters

log = Log("collector")

_Encoded = bytes  # in `Spool`, `bytes` is a property
_MICROSECOND = timedelta(microseconds=1)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_REST_SECONDS = 1.0  # for a disk from which a body could not be read
_MOST_THAT_GIVE_WAY = 8  # for one body: a disk that others fill up is not ours to empty


@dataclass(slots=True, kw_only=True)
class _Item:
    """A body in memory (`body`), or one on disk (`stored_bytes`) that is taken; or both."""

    number: int
    lane: Lane
    at: datetime
    body: Body | None
    stored_bytes: int = 0
    taken: bool = True

    @property
    def length(self) -> int:
        """The bytes of memory that its body takes."""
        return 0 if self.body is None else len(self.body.content)


class Spool:
    """A bounded queue of bodies in one directory, for one process; safe in any thread.

    When `limit_bytes` on disk are reached, or a body waits for longer than `limit_seconds`, the
    oldest telemetry is dropped and counted, and records only when nothing else is left. The same
    happens when the disk has no room; a disk that refuses all writes costs bodies, counted, and
    never the process. Bodies of an earlier process wait from the start of this one: no wall clock
    tells their age. No call takes longer because more bodies wait.
    """

    def __init__(
        self,
        directory: Path,
        limit_bytes: int,
        *,
        limit_seconds: float = 7 * 86_400.0,
        memory_bytes: int = 4 * 1024 * 1024,
        memory_seconds: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take over what an earlier process left; ConfigError when the directory cannot be used."""
        self._limit_bytes = limit_bytes
        self._ages = Ages(limit_seconds)
        self._memory_bytes = memory_bytes
        self._memory = timedelta(seconds=memory_seconds)
        self._monotonic = monotonic
        self._mutex = threading.RLock()
        self._waiters = Waiters()
        # Bodies in memory, taken or deferred; all others are a number in a queue and a file.
        self._items: dict[Lane, OrderedDict[int, _Item]] = {lane: OrderedDict() for lane in Lane}
        self._on_disk = {Lane.RECORDS: DiskQueue(), Lane.BACKLOG: DiskQueue()}
        self._deferred: dict[Lane, OrderedDict[int, _Item]] = {
            lane: OrderedDict() for lane in self._on_disk
        }
        self._loose: dict[bool, OrderedDict[int, _Item]] = {
            is_record: OrderedDict() for is_record in (False, True)
        }
        self._loose_bytes = 0
        self._sequences: dict[tuple[str | None, ...], int] = {}
        self._number = 0
        self._bytes = 0
        self._dropped = 0
        self._litters = False
        self._reads_fail = False
        self._rests_until = 0.0
        self._full = False
        self._interrupted = False
        self._writing = threading.Lock()
        self._directory = SpoolDirectory(directory)
        self.disk = SpoolDisk(directory)
        self._recover()

    @property
    def bytes(self) -> int:
        """The bytes that wait on disk."""
        return self._bytes

    @property
    def dropped(self) -> int:
        """The bodies given up since the start: no room, too old, a torn file, or the hub's refusal."""
        return self._dropped

    def oldest_seconds(self, now: datetime) -> float:
        """Return the age of the oldest waiting body; 0 when none waits."""
        with self._mutex:
            queues = (*self._items.values(), *self._deferred.values())
            oldest = [item.at for queue in queues for item in queue.values()]
            entries = (one.first for one in self._on_disk.values())
            oldest += [_time(entry.microseconds) for entry in entries if entry is not None]
        return max((now - min(oldest)).total_seconds(), 0.0) if oldest else 0.0

    def put(self, body: Body) -> None:
        """Keep a body until `done`; a body of records is on disk when this returns."""
        lane = Lane.RECORDS if body.path == RECORDS_PATH else Lane.LIVE
        with self._mutex:
            self._number += 1
            self._ages.note(self._number, self._monotonic())
            item = _Item(number=self._number, lane=lane, at=body.at, body=body)
            self._items[lane][item.number] = item
            self._loose[lane is Lane.RECORDS][item.number] = item
            self._loose_bytes += item.length
        if lane is Lane.RECORDS:
            self._store(item)
        self._move(item, lane)
        while (overdue := self._overdue(body.at)) is not None and self._spill(overdue):
            pass
        self._make_room()

    def next(self, lanes: Collection[Lane]) -> Body | None:
        """Take the first body of the first of `lanes` that has one, until `done` or `retry_later`.

        None when there is none. A body that cannot be read now is kept, and the disk rests for a
        moment.
        """
        for lane in self._at_hand(lanes):
            while (item := self._next(lane)) is not None:
                try:
                    body = self._load(item)
                except OSError as error:
                    self._defer(item, error)
                    break
                if body is not None:
                    return body
                self._remove(item, counted=True)
        return None

    def wait(self, lanes: Collection[Lane], seconds: float) -> bool:
        """Wait until one of `lanes` has a body.

        False when there is none after `seconds`, another thread was faster, or at `interrupt`.
        """
        with self._mutex:
            if self._interrupted or self._has(lanes):
                return not self._interrupted
            waiter = self._waiters.add(lanes)
            rest = self._rests_until - self._monotonic()
        waiter.wait(min(seconds, rest) if rest > 0 else seconds)
        with self._mutex:
            self._waiters.remove(waiter)
            return not self._interrupted and self._has(lanes)

    def interrupt(self) -> None:
        """End all waits: the collector is about to stop."""
        with self._mutex:
            self._interrupted = True
            self._waiters.wake_all()

    def done(self, body: Body) -> None:
        """Forget the body, which the hub has committed."""
        self._full = False
        self._settle(body, counted=False)

    def drop(self, body: Body) -> None:
        """Forget and count the body, which the hub will never take."""
        self._settle(body, counted=True)

    def retry_later(self, body: Body, *, last: bool = False) -> None:
        """Write the body to disk after a failed attempt; it waits in its place for the next one.

        `last` lets all others of its lane go first, since the body itself may be at fault.
        """
        item = self._find(body.number)
        if item is None:
            return
        self._store(item)
        self._move(item, _resting(item.lane), last=last)
        self._make_room()

    def close(self) -> None:
        """Write to disk whatever is still in memory, and let another process use the directory."""
        with self._mutex:
            loose = [item for queue in self._loose.values() for item in queue.values()]
        for item in loose:
            self._identify(item, Lane.BACKLOG)
            self._store(item)
        self._directory.close()

    def _at_hand(self, lanes: Collection[Lane]) -> Collection[Lane]:
        """Return the lanes that may be read now."""
        if self._monotonic() >= self._rests_until:
            return lanes
        return [lane for lane in lanes if lane is Lane.LIVE]

    def _has(self, lanes: Collection[Lane]) -> bool:
        lanes = self._at_hand(lanes)
        for lane in self._on_disk.keys() & set(lanes):
            if self._on_disk[lane].first is not None or self._deferred[lane]:
                return True
        return any(not item.taken for lane in lanes for item in self._items[lane].values())

    def _next(self, lane: Lane) -> _Item | None:
        """Take the lane's oldest body that is free; one that was deferred when there is no other."""
        with self._mutex:
            queue = self._items[lane]
            item = next((item for item in queue.values() if not item.taken), None)
            entry = self._on_disk[lane].first if lane in self._on_disk else None
            if entry is not None and (item is None or entry.number < item.number):
                return self._pop_from_disk(lane)
            if item is None and self._deferred.get(lane):
                return self._pop_deferred(lane)
            if item is not None:
                item.taken = True
            return item

    def _pop_from_disk(self, lane: Lane) -> _Item:
        """Take and return the first body on disk."""
        entry = self._on_disk[lane].pop()
        item = _Item(
            number=entry.number,
            lane=lane,
            at=_time(entry.microseconds),
            body=None,
            stored_bytes=entry.bytes,
        )
        self._items[lane][item.number] = item
        return item

    def _pop_deferred(self, lane: Lane) -> _Item:
        """Take and return the first body that was deferred."""
        _, item = self._deferred[lane].popitem(last=False)
        self._items[lane][item.number] = item
        item.taken = True
        return item

    def _defer(self, item: _Item, error: OSError) -> None:
        """Let all others go before a body that cannot be read now, and let the disk rest."""
        if not self._reads_fail:
            why = str(error)
            log.warning("spool cannot be read", directory=str(self._directory.path), why=why)
        self._reads_fail = True
        self._rests_until = self._monotonic() + _REST_SECONDS
        self._move(item, _resting(item.lane), last=True)

    def _load(self, item: _Item) -> Body | None:
        """Return the item's body with its identity; None when its file is not what was written.

        Raises OSError when it cannot be read now.
        """
        if item.body is not None:
            return self._identify(item, item.lane)
        body = self._directory.read(_entry(item), _resting(item.lane))
        self._reads_fail = False
        return None if body is None else replace(body, number=item.number)

    def _identify(self, item: _Item, lane: Lane) -> Body:
        """Give the item's body lane and sequence, unless it has them."""
        assert item.body is not None
        headers = item.body.headers
        if item.lane is not Lane.RECORDS and "Gpuvigil-Sequence" not in headers:
            names = ("Gpuvigil-Cluster", "Gpuvigil-Node", "Gpuvigil-Boot")
            key = (*(headers.get(name) for name in names), lane.value)
            with self._mutex:
                self._sequences[key] = sequence = self._sequences.get(key, 0) + 1
            headers = {
                **headers,
                "Gpuvigil-Lane": lane.value,
                "Gpuvigil-Sequence": str(sequence),
            }
        item.body = replace(item.body, headers=headers, number=item.number)
        return item.body

    def _overdue(self, now: datetime) -> _Item | None:
        """Return the oldest item in memory alone, if that is for too long or there are too many.

        Records are in memory alone only while the disk refuses: they are tried first.
        """
        with self._mutex:
            for queue in (self._loose[True], self._loose[False]):
                item = next(iter(queue.values()), None)
                if item is None:
                    continue
                crowded = self._loose_bytes > self._memory_bytes
                if item.lane is Lane.RECORDS or crowded or now - item.at >= self._memory:
                    return item
        return None

    def _spill(self, item: _Item) -> bool:
        """Move an item from memory to disk; one that is being sent keeps its place.

        False when the disk refuses it: then it stays in memory while there is room.
        """
        with self._mutex:
            in_flight, item.taken = item.taken, True
        if in_flight:
            return self._store(item)
        self._identify(item, Lane.BACKLOG)
        stored = self._store(item)
        self._move(item, _resting(item.lane))
        return stored

    def _move(self, item: _Item, lane: Lane, *, last: bool = False) -> None:
        """Put a taken item back into a queue, for others to take."""
        with self._mutex:
            if self._items[item.lane].pop(item.number, None) is None:
                return
            item.lane, item.taken = lane, False
            if item.stored_bytes == 0 or lane not in self._on_disk:
                self._items[lane][item.number] = item
            elif last:
                item.body = None
                self._deferred[lane][item.number] = item
            else:
                self._on_disk[lane].add(_entry(item))
            self._waiters.wake(lane)

    def _store(self, item: _Item) -> bool:
        """Write the item's body to disk, once; return false when the disk refuses."""
        with self._writing:
            body = item.body
            if body is None or item.stored_bytes > 0:
                return True
            content = encode(body)
            error = self._write_down(item, content)
            for _ in range(_MOST_THAT_GIVE_WAY - 1):
                if error is None or error.errno not in _NO_ROOM or not self._give_way(item):
                    break
                error = self._write_down(item, content)
            if error is None:
                self.disk.accepted(bytes_on_disk(len(content)))
            else:
                self.disk.refused(error, bytes_on_disk(len(content)))
            return error is None

    def _give_way(self, item: _Item) -> bool:
        """Drop the oldest telemetry for room on disk; return false if none is older than the item."""
        with self._mutex:
            oldest = self._on_disk[Lane.BACKLOG].first
            if oldest is None or (oldest.number > item.number and item.lane is not Lane.RECORDS):
                return False
            dropped = self._pop_from_disk(Lane.BACKLOG)
        self._drop_oldest(dropped)
        return True

    def _write_down(self, item: _Item, content: _Encoded) -> OSError | None:
        """Write the item's content; return the error when that fails, else None."""
        try:
            self._directory.write(_entry(item), _resting(item.lane), content)
        except OSError as error:
            return error
        with self._mutex:
            self._untrack_memory(item)
            item.stored_bytes = bytes_on_disk(len(content))
            self._bytes += item.stored_bytes
            gone = item.number not in self._items[item.lane]
        if gone:  # the hub has taken it meanwhile
            self._forget_file(item)
        return None

    def _untrack_memory(self, item: _Item) -> None:
        """Note that the item is no longer in memory alone, or not at all."""
        if self._loose[item.lane is Lane.RECORDS].pop(item.number, None) is not None:
            self._loose_bytes -= item.length

    def _make_room(self) -> None:
        """Drop the oldest until disk and memory are within their limits; logged once an outage."""
        while (oldest := self._surplus()) is not None:
            self._drop_oldest(oldest)

    def _drop_oldest(self, oldest: _Item) -> None:
        if not self._full:
            why = "spool is full or has bodies that are too old, the oldest are dropped"
            log.warning(why, since=to_text(oldest.at))
        self._full = True
        self._remove(oldest, counted=True)

    def _surplus(self) -> _Item | None:
        """Take the body to drop next: telemetry first, records when nothing else is left."""
        with self._mutex:
            surplus = self._outdated()
            if surplus is None and self._bytes > self._limit_bytes:
                surplus = self._surplus_on_disk()
            if surplus is None and self._loose_bytes > self._memory_bytes:
                surplus = next((i for i in self._loose_in_order() if not i.taken), None)
            if surplus is not None:
                surplus.taken = True
            return surplus

    def _outdated(self) -> _Item | None:
        last = self._ages.outdated(self._monotonic())
        for lane, stored in self._on_disk.items():
            if stored.first is not None and stored.first.number <= last:
                return self._pop_from_disk(lane)
            deferred = next(iter(self._deferred[lane]), None)
            if deferred is not None and deferred <= last:
                return self._pop_deferred(lane)
        return None

    def _surplus_on_disk(self) -> _Item | None:
        for lane in (Lane.BACKLOG, Lane.RECORDS):
            if self._on_disk[lane].first is not None or self._deferred[lane]:
                return self._next(lane)
        return None

    def _loose_in_order(self) -> Iterable[_Item]:
        for is_record in (False, True):
            yield from self._loose[is_record].values()

    def _settle(self, body: Body, *, counted: bool) -> None:
        item = self._find(body.number)
        if item is not None:
            self._remove(item, counted=counted)

    def _find(self, number: int) -> _Item | None:
        with self._mutex:
            found = (queue.get(number) for queue in self._items.values())
            return next((item for item in found if item is not None), None)

    def _remove(self, item: _Item, *, counted: bool) -> None:
        with self._mutex:
            if self._items[item.lane].pop(item.number, None) is None:
                return
            self._untrack_memory(item)
            self._dropped += counted
        self._forget_file(item)

    def _forget_file(self, item: _Item) -> None:
        with self._mutex:
            stored, item.stored_bytes = item.stored_bytes, 0
            if stored == 0:
                return
            self._bytes -= stored
        try:
            self._directory.forget(_entry(item), _resting(item.lane))
        except OSError as error:  # the next start finds the file, and the hub recognises the body
            if not self._litters:
                why = str(error)
                log.warning("spool cannot be tidied", directory=str(self._directory.path), why=why)
            self._litters = True

    def _recover(self) -> None:
        """Queue every body in the directory, oldest first."""
        for entry, lane in self._directory.entries():
            self._on_disk[lane].add(entry)
            self._bytes += entry.bytes
            self._number = max(self._number, entry.number)
        self._ages.note(self._number, self._monotonic())
        self._make_room()


def _resting(lane: Lane) -> Lane:
    """Return the lane in which a body of this lane waits on disk."""
    return Lane.RECORDS if lane is Lane.RECORDS else Lane.BACKLOG


def _entry(item: _Item) -> SpoolEntry:
    return SpoolEntry(item.number, (item.at - EPOCH) // _MICROSECOND, item.stored_bytes)


def _time(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)
