"""Follows the kernel log in a thread of its own: `/dev/kmsg`, or the journal where it is closed.

The ring in the kernel is the only buffer: a batch is handed over before the next is read. Records
that the kernel has overwritten meanwhile are counted.
"""

import errno
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.clock import Clock
from gpuvigil.log import Log

from . import kernel_log_journal
from .host import boot_id
from .kernel_event import KernelEvent
from .kernel_log_parser import parse
from .kernel_log_records import (
    JournalRecord,
    KernelClock,
    KmsgReader,
    journal_record,
    plain_boot_id,
)

log = Log("collector")

_RECORD_BYTES = 8192  # CONSOLE_EXT_LOG_MAX: no record is longer
_RECORDS_AT_ONCE = 500
_STOP_SECONDS = 1.0  # how soon a stop is noticed
_FILE_SECONDS = 0.1  # how often a file that is no device is read
_AGAIN_SECONDS = 60.0
# Events long before a node's first collector were lived with, and are not reported.
FIRST_LOOK_BACK = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Up to where the log of one boot was read: in the ring, in the journal, or in both."""

    boot_id: str = ""
    sequence: int = -1
    cursor: str | None = None
    at: datetime | None = None  # of the last record
    drift_microseconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One record's report and time; `id` is the same whenever the record is read."""

    id: str
    at: datetime
    event: KernelEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Events in order, and the position after them."""

    events: tuple[LogEvent, ...]
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where to read: a device or file like `/dev/kmsg`, and the program for the journal, if any."""

    path: Path
    journalctl: str
    proc_root: Path


class KernelLog:
    """One node's kernel log, read from a position on; `None` at the first start on this node."""

    def __init__(
        self,
        source: Source,
        position: Position | None,
        deliver: Callable[[Batch], None],
        clock: Clock,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up; `deliver` is called in the thread of `run`, and returns when the batch is safe."""
        self._source = source
        self._deliver = deliver
        self._clock = clock
        self._uptime = uptime
        self._boot = plain_boot_id(boot_id(source.proc_root) or "")
        self._first = position is None
        known = position or Position()
        # A new boot starts without a position.
        self._position = known if known.boot_id == self._boot else Position(boot_id=self._boot)
        self._kernel_clock = KernelClock(self._position.drift_microseconds)
        self._lost = 0
        self._warned = ""
        self._resumed: datetime | None = None  # up to when another source has reported

    @property
    def lost(self) -> int:
        """The number of records that the kernel overwrote before they were read."""
        return self._lost

    def run(self, stop: threading.Event) -> None:
        """Follow the log until `stop`; a log that cannot be read is tried again every minute."""
        while not stop.is_set():
            kmsg = self._follow_kmsg(stop)
            journal = "" if stop.is_set() else self._follow_journal(stop)
            if not stop.is_set():
                self._warn(kmsg, journal)
                self._clock.wait(stop, _AGAIN_SECONDS)

    def _warn(self, kmsg: str, journal: str) -> None:
        """Log one line when nothing can be read, and another only for another reason."""
        told = f"{kmsg}; {journal}"
        if told != self._warned:
            self._warned = told
            log.warning(
                "kernel log cannot be read, only the driver tells of Xids: grant CAP_SYSLOG, or join"
                " the group systemd-journal",
                kmsg=f"{self._source.path}: {kmsg}",
                journal=journal,
            )

    def _follow_kmsg(self, stop: threading.Event) -> str:
        """Follow /dev/kmsg until `stop`; return why it cannot be read, or no longer."""
        try:
            descriptor = os.open(self._source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return str(error.strerror)
        log.info("reading the kernel log", source=str(self._source.path))
        self._resumed = self._position.at if self._position.sequence < 0 else None
        try:
            self._read_until(descriptor, stop)
        except OSError as error:
            return str(error.strerror)
        finally:
            os.close(descriptor)
        return ""

    def _read_until(self, descriptor: int, stop: threading.Event) -> None:
        reader, poller = KmsgReader(), select.poll()
        poller.register(descriptor, select.POLLIN)
        drained: float | None = None  # when nothing was left to read
        while not stop.is_set():
            data, count = b"", 0
            while count < _RECORDS_AT_ONCE and (chunk := _read(descriptor)):
                data, count = data + chunk, count + 1
            # A record that was not there a moment ago has been written since.
            uptime = self._uptime()
            fresh = drained is not None and uptime - drained < 2 * _STOP_SECONDS
            self._ingest(reader, data, uptime, fresh=fresh)
            if count == _RECORDS_AT_ONCE:
                continue
            drained = self._uptime()
            while not poller.poll(_STOP_SECONDS * 1000) and not stop.is_set():
                drained = self._uptime()
            # A file is always ready to be read, also at its end.
            if not count:
                stop.wait(_FILE_SECONDS)

    def _ingest(self, reader: KmsgReader, data: bytes, uptime: float, *, fresh: bool) -> None:
        now, position, found = self._clock.now(), self._position, list[LogEvent]()
        for record in reader.feed(data):
            if record.sequence <= position.sequence:
                continue
            if 0 <= position.sequence < record.sequence - 1:
                self._lose(record.sequence - 1 - position.sequence)
            at = self._kernel_clock.wall(record.microseconds, now, uptime, fresh=fresh)
            position = replace(position, sequence=record.sequence, cursor=None, at=at)
            event = parse(record.text) if record.of_kernel else None
            if event is not None and not self._is_history(at, now):
                name = f"{self._boot}-{record.sequence}"
                found.append(LogEvent(id=name, at=at, event=event))
        self._position = replace(position, drift_microseconds=self._kernel_clock.drift_microseconds)
        if found:
            self._deliver(Batch(events=tuple(found), position=self._position))

    def _lose(self, count: int) -> None:
        self._lost += count
        log.warning("kernel log was overwritten before it was read", records=count)

    def _is_history(self, at: datetime, now: datetime) -> bool:
        if self._resumed is not None and at <= self._resumed:
            return True
        return self._first and now - at > FIRST_LOOK_BACK

    def _follow_journal(self, stop: threading.Event) -> str:
        """Follow the journal until `stop`; return why it cannot be read, or no longer."""
        program = self._source.journalctl
        if not program:
            return "not asked for"
        options = ["--dmesg", "--follow", "--no-tail", "--no-pager", "--output=json"]
        if self._position.cursor is not None:
            options.append(f"--after-cursor={self._position.cursor}")
        try:
            why = kernel_log_journal.follow(program, options, self._ingest_journal, stop)
        except OSError as error:  # no process can be started
            return str(error.strerror)
        if "seek to cursor" in why:
            # The journal has dropped the cursor; the time tells what was reported.
            self._position = replace(self._position, cursor=None)
        return why

    def _ingest_journal(self, line: bytes) -> None:
        record = journal_record(line)
        if record is None or not self._is_new(record):
            return
        self._position = replace(self._position, sequence=-1, cursor=record.cursor, at=record.at)
        event = parse(record.text) if record.of_kernel else None
        if event is not None and not self._is_history(record.at, self._clock.now()):
            name = f"{self._boot}-{record.name}"
            told = LogEvent(id=name, at=record.at, event=event)
            self._deliver(Batch(events=(told,), position=self._position))

    def _is_new(self, record: JournalRecord) -> bool:
        """Return whether a record is of this boot and has not been read from the ring or journal."""
        if self._boot and record.boot_id != self._boot:
            return False
        position = self._position
        return position.cursor is not None or position.at is None or record.at > position.at


def _read(descriptor: int) -> bytes:
    """Return what is there, without waiting; empty at the end of a file."""
    while True:
        try:
            return os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            # Overwritten while we were behind: the next read gets the oldest record left.
            if error.errno != errno.EPIPE:
                raise
