"""Records of the kernel log as `/dev/kmsg` and the journal give them, and their times.

Formats: Linux, Documentation/ABI/testing/dev-kmsg; systemd.journal-fields(7), Journal JSON Format.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.clock import EPOCH

# syslog facilities: the kernel itself, and what root wrote into /dev/kmsg. Not what a service
# manager hands on for programs that anybody may run.
_FACILITIES = frozenset({0, 1})
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message; `microseconds` are the kernel's own, since its boot."""

    sequence: int
    microseconds: int
    facility: int
    text: str

    @property
    def of_kernel(self) -> bool:
        return self.facility in _FACILITIES


_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


class KmsgReader:
    """Splits what was read from `/dev/kmsg`, or from a file with the same text, into records."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Record]:
        """Return the records that are complete now; other lines and the lines of tags are left out."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = (None if line.startswith(b" ") else _kmsg(line) for line in lines)
        return [record for record in found if record is not None]


def _kmsg(line: bytes) -> Record | None:
    """Parse `4,1234,5678901,-;text`: priority, sequence, microseconds, flags, and maybe more.

    None for another line.
    """
    head, mark, text = line.partition(b";")
    parts = head.split(b",")
    if not mark or len(parts) < 4 or not all(part.isdigit() for part in parts[:3]):
        return None
    priority, sequence, microseconds = map(int, parts[:3])
    return Record(
        sequence=sequence,
        microseconds=microseconds,
        facility=priority >> 3,
        text=_ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), text).decode(errors="replace"),
    )


class KernelClock:
    """Converts the kernel's times to the wall clock.

    The kernel counts from its boot with a clock that nobody corrects, and which is off by minutes
    after months. A record that has just arrived was just written: that shows how far the clock is
    off.
    """

    def __init__(self, drift_microseconds: int = 0) -> None:
        self.drift_microseconds = drift_microseconds

    def wall(self, microseconds: int, now: datetime, uptime: float, *, fresh: bool) -> datetime:
        """Return when a record was written, never later than `now`.

        `uptime` is CLOCK_MONOTONIC in seconds at `now`; `fresh` records correct the drift.
        """
        written = int(uptime * 1_000_000) - microseconds
        age = written + self.drift_microseconds
        if fresh and not -_CLOSE <= age <= _CLOSE:
            self.drift_microseconds, age = -written, 0
        return now - max(age, 0) * _MICROSECOND


_CLOSE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """One message of the kernel in the journal; `at` is when the journal got it."""

    cursor: str
    boot_id: str
    at: datetime
    facility: int
    text: str

    @property
    def of_kernel(self) -> bool:
        return self.facility in _FACILITIES

    @property
    def name(self) -> str:
        """A short name, the same whenever the record is read."""
        return hashlib.sha256(self.cursor.encode()).hexdigest()[:16]


def journal_record(line: bytes) -> JournalRecord | None:
    """Parse a line of `journalctl -o json`; None for anything else."""
    try:
        value = json.loads(line)
        message = value["MESSAGE"]
        # A message that is not UTF-8 comes as a list of bytes.
        is_list = isinstance(message, list)
        text = bytes(message).decode(errors="replace") if is_list else str(message)
        # The journal removes the first word of what root wrote into /dev/kmsg.
        name = str(value.get("SYSLOG_IDENTIFIER", "kernel"))
        return JournalRecord(
            cursor=str(value["__CURSOR"]),
            boot_id=plain_boot_id(str(value["_BOOT_ID"])),
            at=EPOCH + int(value["__REALTIME_TIMESTAMP"]) * _MICROSECOND,
            facility=int(value.get("SYSLOG_FACILITY", 0)),
            text=text if name == "kernel" else f"{name}: {text}",
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def plain_boot_id(text: str) -> str:
    """Return a boot's id as the journal writes it: without hyphens."""
    return text.replace("-", "")
