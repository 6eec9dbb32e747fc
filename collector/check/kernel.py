"""What the kernel log of this boot says about GPUs and NVSwitches."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from ..sensors.kernel_log_parser import KernelEvent, KernelEventKind, parse
from ..sensors.kernel_log_records import KmsgReader

_RECORD_BYTES = 8192  # CONSOLE_EXT_LOG_MAX: no record is longer
_KINDS = frozenset({KernelEventKind.XID, KernelEventKind.SXID, KernelEventKind.PCI_RESET})


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSeen:
    """One report, and how long ago the kernel wrote it by its own clock."""

    event: KernelEvent
    seconds_ago: float


def read(path: Path) -> tuple[KernelSeen, ...]:
    """What `/dev/kmsg`, or a file with the same text, holds; OSError when it cannot be read."""
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
    """One record, or what comes next of a file; nothing at the end."""
    while True:
        try:
            return os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return b""
        except BrokenPipeError:
            continue  # overwritten while we were behind: the next is the oldest that is left
