"""The kernel log followed as it is written: a file, a pipe of packets, the device, the journal."""

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.sensors.kernel_log import Batch, KernelLog, LogEvent, Position, Source
from collector.sensors.kernel_log_records import KernelClock, KmsgReader, journal_record
from gpuvigil.clock import SystemClock
from tests.polling import wait_until

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
BOOT = "11111111-2222-3333-4444-555555555555"
PLAIN = BOOT.replace("-", "")
UPTIME = 10_000.0


class Log:
    """A kernel log as a file, and what a collector hears of it."""

    def __init__(self, directory: Path, journalctl: str = "") -> None:
        self.path = directory / "kmsg"
        self.boot = directory / "proc/sys/kernel/random/boot_id"
        self.boot.parent.mkdir(parents=True)
        self.boot.write_text(BOOT + "\n")
        self.source = Source(path=self.path, journalctl=journalctl, proc_root=directory / "proc")
        self.heard: list[Batch] = []
        self.kernel_log: KernelLog | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, *records: str) -> None:
        with self.path.open("a") as stream:
            stream.write("".join(f"{record}\n" for record in records))

    def follow(self, position: Position | None = None) -> None:
        """Like a collector that starts, once it has ended."""
        self.end()
        self._stop = threading.Event()
        self.kernel_log = KernelLog(
            self.source, position, self.heard.append, SystemClock(), lambda: UPTIME
        )
        self._thread = threading.Thread(target=self.kernel_log.run, args=(self._stop,))
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def events(self) -> list[LogEvent]:
        return [event for batch in list(self.heard) for event in batch.events]

    @property
    def codes(self) -> list[int | None]:
        return [event.event.code for event in self.events]

    @property
    def position(self) -> Position:
        return self.heard[-1].position


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    log.path.write_text("")
    try:
        yield log
    finally:
        log.end()


def xid(sequence: int, code: int, seconds_ago: float = 5.0, priority: int = 4) -> str:
    microseconds = int((UPTIME - seconds_ago) * 1e6)
    text = f"NVRM: Xid (PCI:0000:05:00): {code}, pid=7, name=x, words"
    return f"{priority},{sequence},{microseconds},-;{text}"


def test_events_come_with_the_kernels_own_time(kernel: Log) -> None:
    kernel.write("6,1,0,-;Linux version 6.18", xid(2, 79, 90.0), " SUBSYSTEM=pci", xid(3, 48))
    kernel.follow()
    wait_until("both", lambda: kernel.codes == [79, 48])
    ago = [(datetime.now(timezone.utc) - event.at).total_seconds() for event in kernel.events]
    assert ago == pytest.approx([90, 5], abs=3)
    assert [event.id for event in kernel.events] == [f"{PLAIN}-2", f"{PLAIN}-3"]
    kernel.write(xid(4, 13))
    wait_until("what comes later", lambda: kernel.codes == [79, 48, 13])


def test_nothing_is_told_again_after_a_restart(kernel: Log) -> None:
    kernel.write(xid(1, 79), xid(2, 48))
    kernel.follow()
    wait_until("both", lambda: kernel.codes == [79, 48])
    kernel.end()
    kernel.write(xid(3, 13))
    kernel.follow(kernel.position)
    wait_until("the new one", lambda: kernel.codes == [79, 48, 13])


def test_a_new_boot_begins_anew(kernel: Log) -> None:
    kernel.write(xid(7, 79))
    kernel.follow()
    wait_until("it", lambda: kernel.codes == [79])
    kernel.end()
    kernel.boot.write_text("66666666-2222-3333-4444-555555555555\n")
    kernel.path.write_text("")
    kernel.write(xid(1, 48, seconds_ago=7200))
    kernel.follow(kernel.position)
    wait_until("the first of the new boot", lambda: kernel.codes == [79, 48])
    assert kernel.events[1].id == "66666666222233334444555555555555-1"


def test_a_first_collector_does_not_tell_what_a_node_has_lived_with(kernel: Log) -> None:
    kernel.write(xid(1, 79, seconds_ago=4000), xid(2, 48, seconds_ago=3000))
    kernel.follow()
    wait_until("the young one", lambda: kernel.codes == [48])


def test_what_was_overwritten_before_it_was_read_is_counted(
    kernel: Log, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.write(xid(1, 79), xid(5, 48), xid(6, 48), xid(9, 48))
    kernel.follow()
    wait_until("all that is left", lambda: len(kernel.codes) == 4)
    assert kernel.kernel_log is not None
    assert kernel.kernel_log.lost == 5
    assert "overwritten before it was read" in caplog.text


def test_only_the_kernel_and_root_are_believed(kernel: Log) -> None:
    """What a service manager passes on for a program has the facility of daemons."""
    kernel.write(xid(1, 79, priority=3 << 3), xid(2, 48, priority=1 << 3 | 4))
    kernel.follow()
    wait_until("root's", lambda: kernel.codes == [48])


def test_a_pipe_gives_one_record_a_read(kernel: Log) -> None:
    kernel.path.unlink()
    os.mkfifo(kernel.path)
    kernel.follow()
    end = os.open(kernel.path, os.O_WRONLY)
    try:
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_DIRECT)  # packets, as the device gives them
        for sequence in range(50):
            os.write(end, f"{xid(sequence, 31)}\n SUBSYSTEM=pci\n".encode())
        wait_until("all", lambda: len(kernel.codes) == 50)
    finally:
        os.close(end)


def test_a_log_that_cannot_be_read_is_said_once_and_why(
    kernel: Log, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.path.unlink()
    kernel.follow()
    wait_until("the line", lambda: "kernel log cannot be read" in caplog.text)
    kernel.end()
    assert "kmsg: No such file or directory" in caplog.text
    assert caplog.text.count("cannot be read") == 1


JOURNALCTL = """#!{python}
import json, sys, time
options = sys.argv[1:]
cursor = next((o.partition("=")[2] for o in options if o.startswith("--after-cursor=")), None)
if "{fail}":
    print("{fail}", file=sys.stderr, flush=True)
    time.sleep(30)
    sys.exit(1)
for line in open("{records}"):
    if cursor is None:
        print(line, end="", flush=True)
    elif json.loads(line)["__CURSOR"] == cursor:
        cursor = None
time.sleep(30)
"""


def journal(directory: Path, *records: dict[str, object], fail: str = "") -> str:
    """A program that answers as journalctl does, where no journal runs."""
    lines = directory / "records"
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    program = directory / "journalctl"
    program.write_text(JOURNALCTL.format(python=sys.executable, records=lines, fail=fail))
    program.chmod(0o755)
    return str(program)


def entry(number: int, text: str | list[int], boot: str = PLAIN) -> dict[str, object]:
    at = int(time.time() * 1e6) - 5_000_000 + number
    return {
        "__CURSOR": f"s=1;i={number:x};b={boot}",
        "_BOOT_ID": boot,
        "__REALTIME_TIMESTAMP": str(at),
        "SYSLOG_FACILITY": "0",
        "MESSAGE": text,
    }


XID = "NVRM: Xid (PCI:0000:05:00): {}, words"


@pytest.mark.medium
def test_the_journal_is_read_where_the_device_is_closed(tmp_path: Path) -> None:
    entries = [
        entry(1, XID.format(79), boot="f" * 32),
        entry(2, XID.format(48)),
        {
            **entry(3, list(b"Xid (PCI:0000:05:00): 31, \xff")),
            "SYSLOG_IDENTIFIER": "NVRM",
            "SYSLOG_FACILITY": "1",
        },
    ]
    kernel = Log(tmp_path, journal(tmp_path, *entries))
    try:
        kernel.follow()
        wait_until("this boot's", lambda: kernel.codes == [48, 31])
        kernel.end()
        assert kernel.position.cursor == entries[2]["__CURSOR"]
        journal(tmp_path, *entries, entry(4, XID.format(13)))
        kernel.follow(kernel.position)
        wait_until("the new one", lambda: kernel.codes == [48, 31, 13])
    finally:
        kernel.end()


@pytest.mark.parametrize(
    ("fail", "why"),
    [
        ("No journal files were opened due to insufficient permissions.", "no permission"),
        ("", "No such file or directory"),
    ],
)
def test_a_closed_journal_is_said_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fail: str, why: str
) -> None:
    program = journal(tmp_path, fail=fail) if fail else str(tmp_path / "journalctl")
    kernel = Log(tmp_path, program)
    try:
        kernel.follow()
        wait_until("the line", lambda: "kernel log cannot be read" in caplog.text)
    finally:
        kernel.end()
    assert why in caplog.text
    assert "CAP_SYSLOG" in caplog.text


@given(
    drift=st.integers(-(10**10), 10**10),
    gaps=st.lists(st.floats(0.0, 10.0), min_size=1, max_size=20),
)
def test_a_clock_that_runs_wrong_is_set_right_by_what_comes(drift: int, gaps: list[float]) -> None:
    """`drift` microseconds are what the kernel's clock is ahead of the uptime."""
    clock, uptime, now = KernelClock(), 100_000.0, NOW
    for gap in gaps:
        uptime, now = uptime + gap, now + timedelta(seconds=gap)
        stamp = int(uptime * 1e6) + drift
        at = clock.wall(stamp, now, uptime, fresh=True)
        assert timedelta(0) <= now - at <= timedelta(seconds=1)
    # What lay there before it was looked at is dated by what was learned.
    old = clock.wall(stamp - 60_000_000, now, uptime, fresh=False)
    assert abs(now - old - timedelta(seconds=60)) <= timedelta(seconds=1)


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["C"]), min_size=1), max_size=8),
    cuts=st.lists(st.integers(0, 400)),
)
def test_records_are_whole_however_they_are_cut(texts: list[str], cuts: list[int]) -> None:
    data = b"".join(
        f"6,{number},{number},-;".encode() + _escaped(text) + b"\n SUBSYSTEM=x\n"
        for number, text in enumerate(texts)
    )
    reader, found, places = (
        KmsgReader(),
        [],
        sorted({0, len(data), *(c for c in cuts if c < len(data))}),
    )
    for start, end in pairwise(places):
        found += reader.feed(data[start:end])
    assert [record.text for record in found] == texts
    assert [record.sequence for record in found] == list(range(len(texts)))


def _escaped(text: str) -> bytes:
    """As the kernel writes it: what is not printed, and backslashes, as numbers."""
    return b"".join(
        bytes([c]) if 32 <= c < 127 and c != 0x5C else b"\\x%02x" % c for c in text.encode()
    )


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"no json", b'{"MESSAGE": null}'])
def test_a_line_that_is_no_journal_record_is_none(line: bytes) -> None:
    assert journal_record(line) is None
