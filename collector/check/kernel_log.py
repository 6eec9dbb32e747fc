"""What the kernel log of this boot says about GPUs and NVSwitches."""

import os
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpuvigil.config import CollectorSettings

from ..sensors.kernel_event import KernelEvent, KernelEventKind
from ..sensors.kernel_log_journal import ENDED, follow
from ..sensors.kernel_log_parser import parse
from ..sensors.kernel_log_records import KmsgReader, journal_record

_RECORD_BYTES = 8192  # CONSOLE_EXT_LOG_MAX: no record is longer
_JOURNAL = ("--dmesg", "--boot", "--since=-2h", "--no-pager", "--output=json")
_KINDS = frozenset({KernelEventKind.XID, KernelEventKind.SXID, KernelEventKind.PCI_RESET})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSeen:
    """One report, and how many seconds ago the kernel wrote it, by its own clock."""

    event: KernelEvent
    seconds_ago: float


def read_log(settings: CollectorSettings, now: datetime) -> tuple[KernelSeen, ...]:
    """Return recent reports from the kernel log, or from the journal where the log is closed.

    Raises OSError with both reasons when neither can be read.
    """
    try:
        return read(settings.kernel_log)
    except OSError as error:
        found, why = read_journal(settings.journalctl, now)
        if why:
            text = f"{settings.kernel_log}: {error.strerror}; journal: {why}"
            raise OSError(error.errno, text) from None
        return found


def read_journal(program: str, now: datetime) -> tuple[tuple[KernelSeen, ...], str]:
    """Return the journal's reports of the last hours of this boot, and why it cannot be read."""
    if not program:
        return (), "not asked for"
    found: list[KernelSeen] = []

    def add(line: bytes) -> None:
        record = journal_record(line)
        event = parse(record.text) if record is not None and record.of_kernel else None
        if record is not None and event is not None and event.kind in _KINDS:
            ago = max((now - record.at).total_seconds(), 0.0)
            found.append(KernelSeen(event=event, seconds_ago=ago))

    why = follow(program, _JOURNAL, add, threading.Event())
    return tuple(found), "" if why == ENDED else why


def read(path: Path) -> tuple[KernelSeen, ...]:
    """Return the reports in `/dev/kmsg`, or in a file with the same text; OSError if unreadable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    reader, found = KmsgReader(), list[KernelSeen]()
    uptime = time.monotonic()
    try:
        while data := _next(descriptor):
            for record in reader.feed(data):
                event = parse(record.text) if record.of_kernel else None
                if event is not None and event.kind in _KINDS:
                    ago = max(uptime - record.microseconds / 1_000_000, 0.0)
                    found.append(KernelSeen(event=event, seconds_ago=ago))
    finally:
        os.close(descriptor)
    return tuple(found)


def _next(descriptor: int) -> bytes:
    """Return one record, or the next part of a file; empty at the end."""
    while True:
        try:
            return os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return b""
        except BrokenPipeError:
            continue  # overwritten while we were behind: the next is the oldest that is left
