"""Lines of kernel logs as people have them: the time at their beginning, and the kernel's text.

Forms: `dmesg` with `-T`, `-x` and `--time-format iso`; `journalctl` with `-o short-iso`, `short-iso-precise` and
`json`, or in its default form; syslog, with ISO times or without a year; `/dev/kmsg`. Seconds since the boot give no
time of day, so such a line needs its time in another column.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path

from collector.kernel_log.event_book import KernelBook
from collector.sensors.kernel_log import Batch, LogEvent, Position
from collector.sensors.kernel_log_parser import parse
from collector.sensors.kernel_log_records import journal_record
from gpuvigil.clock import ManualClock
from gpuvigil.model import Event, EventKind, GpuIdentity, Subject

_MONTHS = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_CTIME = rf"{_DAY} \w{{3}} +\d+ \d\d:\d\d:\d\d \d{{4}}"
# The form of syslog and journalctl, which leaves the year out.
_SYSLOG = rf"(?:{'|'.join(_MONTHS)}) [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
# The form of `dmesg -x`.
_FACILITY = r"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d)"
_LEVEL = r"(?:emerg|alert|crit|err|warn|notice|info|debug)"
# Words with which the kernel's text begins. A word before one of these is a host; these words are not hosts,
# though file systems and drives begin like this.
_FIRST = (
    r"(?:NVRM|nvidia|kernel|mlx5|pcieport|nvme|EXT[34]-fs|XFS|BTRFS|EDAC|mce|watchdog|NMI|INFO|rcu|Out|Memory"
    r"|md|sd|blk|print_req|critical|\{\d+\}\[Hardware)"
)
# Each optional, in this order: `kern  :err   : `, `<3>`, a time, a host, `kernel: `, `[12.5] `.
_PREFIX = re.compile(
    rf"\s*(?:{_FACILITY} *: *{_LEVEL} *: )?(?:<\d+>)?(?:\d+ )?"
    rf"(?:\[?(?P<at>{_ISO}|{_CTIME}|{_SYSLOG})\]?:?\s*)?"
    rf"(?:(?!{_FIRST}[ :])[\w.-]+ (?={_FIRST}|\[ *\d))?"
    r"(?:kernel(?:\[\d+\])?: ?)?(?:\[ *\d+\.\d+\] ?)?(?:kernel: ?)?"
)
_KMSG = re.compile(r"\d+,\d+,\d+,[^;]*;")
_BOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of one node's kernel log."""

    node: Subject
    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """What the time of a line leaves out."""

    zone: tzinfo | None
    near: datetime  # the year is chosen near this time


def split(line: str, forms: Forms) -> tuple[datetime | None, str]:
    """Return the time at the beginning of a line, or None, and the kernel's text.

    ValueError is raised for a time without a zone when none was given.
    """
    if line.startswith("{") and (record := journal_record(_with_names(line))) is not None:
        return record.at, record.text
    if (head := _KMSG.match(line)) is not None:
        return None, line[head.end() :]
    found = _PREFIX.match(line)
    if found is None:
        return None, line
    text = line[found.end() :]
    return (None if found["at"] is None else _time(found["at"], forms)), text


def _with_names(line: str) -> bytes:
    """Return a journal record for the collector's parser, which needs the fields that identify a record."""
    return re.sub(r"^\{", '{"__CURSOR": "", "_BOOT_ID": "", ', line, count=1).encode()


def _time(text: str, forms: Forms) -> datetime:
    if text[0].isdigit():
        at = datetime.fromisoformat(text.replace(",", "."))
    elif text[:3] in _MONTHS:
        at = _in_year(text, forms.near)
    else:
        at = datetime.strptime(" ".join(text.split()), "%a %b %d %H:%M:%S %Y")  # noqa: DTZ007
    if at.tzinfo is None:
        if forms.zone is None:
            raise ValueError(f"{text!r} has no time zone: name it with --timezone UTC")
        at = at.replace(tzinfo=forms.zone)
    return at.astimezone(timezone.utc)


def _in_year(text: str, near: datetime) -> datetime:
    """Return that day and time in the year nearest to the recording's beginning."""
    words = " ".join(text.partition(".")[0].split())
    found = []
    for year in (near.year - 1, near.year, near.year + 1):
        try:
            found.append(datetime.strptime(f"{year} {words}", "%Y %b %d %H:%M:%S"))  # noqa: DTZ007
        except ValueError:
            continue  # 29 February
    if not found:
        raise ValueError(f"{text!r} is no time")
    return min(found, key=lambda at: abs(at - near.replace(tzinfo=None)))


def events(
    lines: Sequence[Line],
    gpus: Iterable[GpuIdentity],
    told: Iterable[Event],
    directory: Path,
) -> list[Event]:
    """Return what one node's lines report, as the collector's parser reads them; each burst once, with its count.

    `told` are the node's other events: where one of them and a line report the same Xid, it is one event.
    """
    if not lines:
        return list(told)
    node = lines[0].node
    clock = ManualClock(lines[0].at)
    # Nothing is saved: the file would let an agent continue after its restart.
    book = KernelBook(directory / ".position", node, {gpu.uuid: gpu for gpu in gpus}, clock)
    found: list[Event] = []
    steps: list[tuple[datetime, int, Line | Event]] = [
        *((line.at, number, line) for number, line in enumerate(lines)),
        *((event.at, len(lines) + number, event) for number, event in enumerate(told)),
    ]
    for at, number, one in sorted(steps, key=lambda step: step[:2]):
        clock.advance(max((at - clock.now()).total_seconds(), 0.0))
        found += book.due()
        if isinstance(one, Event):
            found += book.xid(one) if one.kind is EventKind.XID else [one]
        elif (report := parse(one.text)) is not None:
            seen = LogEvent(id=f"{at.isoformat()} {number}", at=at, event=report)
            found += book.ingest(Batch(events=(seen,), position=Position()))
    clock.advance(_BOOK_SECONDS)
    return [*found, *book.due()]


def arrival(event: Event) -> datetime:
    """Return when the hub would get the event: one with a count comes at the end of its burst."""
    return event.at + timedelta(seconds=_BOOK_SECONDS if event.count > 1 else 0.2)
