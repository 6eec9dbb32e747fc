"""The spool: nothing lost that was to be kept, bounded, whole after kill -9 and torn files."""

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.spool.ages import Ages
from collector.spool.batches import Sender
from collector.spool.body import Body
from collector.spool.disk_queue import DiskQueue, SpoolEntry
from collector.spool.queue import Spool
from collector.spool.subscriptions import Lane
from gpuvigil.clock import ManualClock
from gpuvigil.errors import ConfigError
from tests.shortage import shortage

NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)
SENDER = Sender(cluster="c", node="n1", boot="b1")
ALL = (Lane.RECORDS, Lane.LIVE, Lane.BACKLOG)
MIB = 1024 * 1024


def telemetry(text: str = "x a=1", seconds: float = 0.0) -> Body:
    return SENDER.telemetry([text], NOW + timedelta(seconds=seconds))


def identity(body: Body) -> tuple[str, ...]:
    return body.headers["Gpuvigil-Lane"], body.headers["Gpuvigil-Sequence"]


def drain(spool: Spool) -> Iterator[Body]:
    while (body := spool.next(ALL)) is not None:
        spool.done(body)
        yield body


def bodies(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.body"))


def test_telemetry_that_is_acknowledged_never_touches_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB)
    spool.put(telemetry())
    (body,) = drain(spool)
    assert body.content == b"x a=1"
    assert identity(body) == ("live", "1")
    assert not bodies(tmp_path)
    assert spool.bytes == 0


def test_records_are_on_disk_before_put_returns(tmp_path: Path) -> None:
    Spool(tmp_path, MIB).put(SENDER.records([], NOW))
    assert len(bodies(tmp_path)) == 1


def test_a_full_spool_is_told_once_an_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, 2 * 4096)
    for outage in (1, 2):
        for second in range(10):
            spool.put(telemetry(seconds=100.0 * outage + 6.0 * second))
        assert caplog.text.count("spool is full") == outage
        assert len(list(drain(spool))) == 3
    assert spool.dropped == 14


def test_a_body_keeps_its_identity_in_every_attempt(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB)
    spool.put(telemetry())
    first = spool.next(ALL)
    assert first is not None
    spool.retry_later(first)
    assert len(bodies(tmp_path)) == 1
    second = spool.next([Lane.BACKLOG])
    assert second is not None
    assert (identity(second), second.content) == (identity(first), first.content)
    spool.close()
    (third,) = drain(Spool(tmp_path, MIB))
    assert (third.headers, third.content, third.at) == (first.headers, first.content, first.at)


def test_live_bodies_go_before_the_backlog_and_records_before_both(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB, memory_seconds=5)
    spool.put(telemetry("old a=1", 0))
    spool.put(telemetry("new a=1", 6))
    spool.put(SENDER.records([], NOW))
    found = list(drain(spool))
    assert [body.content for body in found] == [b"", b"new a=1", b"old a=1"]
    assert [identity(body) for body in found[1:]] == [("live", "1"), ("backlog", "1")]


def test_memory_holds_only_the_last_seconds_and_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB, memory_bytes=100, memory_seconds=5)
    for second in range(3):
        spool.put(telemetry("x" * 40, second))
    assert len(bodies(tmp_path)) == 1
    spool.put(telemetry("y", 7))
    assert len(bodies(tmp_path)) == 3


def test_a_body_under_way_for_long_is_on_disk_and_its_end_removes_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB)
    spool.put(telemetry())
    under_way = spool.next(ALL)
    assert under_way is not None
    spool.put(telemetry(seconds=6))
    assert len(bodies(tmp_path)) == 1
    spool.done(under_way)
    assert not bodies(tmp_path)
    assert len(list(drain(spool))) == 1


def test_a_full_spool_drops_its_oldest_telemetry_and_counts_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 3 * 4096, memory_bytes=0)
    spool.put(SENDER.records([], NOW))
    for number in range(5):
        spool.put(telemetry(f"x a={number}", number))
    assert spool.bytes <= 3 * 4096
    assert spool.dropped == 3
    assert spool.oldest_seconds(NOW + timedelta(seconds=10)) == 10.0
    assert [body.content for body in drain(spool)] == [b"", b"x a=3", b"x a=4"]


def test_a_disk_that_takes_nothing_costs_bodies_and_not_the_process(tmp_path: Path) -> None:
    directory = tmp_path / "spool"
    spool = Spool(directory, MIB, memory_bytes=10)
    # Nothing can be written into a directory that is gone, whoever asks.
    (directory / "lock").unlink()
    directory.rmdir()
    for number in range(4):
        spool.put(telemetry(f"x a={number}", 6 * number))
    spool.put(SENDER.records([], NOW))
    assert spool.dropped == 2
    failed = spool.next(ALL)
    assert failed is not None
    spool.retry_later(failed)
    # A disk that has room again is used again.
    directory.mkdir()
    spool.put(telemetry("x a=4", 30))
    assert spool.bytes > 0
    assert [body.content for body in drain(spool)] == [b"", b"x a=4", b"x a=2", b"x a=3"]


@given(data=st.data())
def test_a_torn_or_changed_file_is_counted_and_never_sent(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("torn")
    spool = Spool(directory, MIB, memory_bytes=0)
    spool.put(telemetry("first a=1"))
    spool.put(telemetry("second a=1", 1))
    spool.close()
    victim = bodies(directory)[0]
    content = victim.read_bytes()
    cut = data.draw(st.integers(0, len(content) - 1))
    flipped = bytes([content[cut] ^ data.draw(st.integers(1, 255))])
    torn = (
        content[:cut] if data.draw(st.booleans()) else content[:cut] + flipped + content[cut + 1 :]
    )
    victim.write_bytes(torn)
    (directory / "000000000009.draft").write_bytes(b"half")
    again = Spool(directory, MIB)
    assert [body.content for body in drain(again)] == [b"second a=1"]
    assert again.dropped == 1
    assert not bodies(directory)
    assert not list(directory.glob("*.draft"))


def in_its_place(file: Path) -> Path:
    """A directory, which can be neither read nor taken away as a file, whoever asks."""
    kept = file.rename(file.with_suffix(".kept"))
    file.mkdir()
    return kept


def test_a_file_that_cannot_be_taken_away_is_left_to_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, 3 * 4096, memory_bytes=0)
    sent = {}
    for number in range(2):
        spool.put(telemetry(f"x a={number}", number))
    first = spool.next(ALL)
    assert first is not None
    for file in bodies(tmp_path):
        sent[file] = in_its_place(file)
    spool.done(first)
    for number in range(2, 5):
        spool.put(telemetry(f"x a={number}", number))  # the second gives way
    assert (spool.dropped, spool.bytes) == (1, 3 * 4096)
    assert caplog.text.count("spool cannot be tidied") == 1
    spool.close()
    for file, kept in sent.items():
        file.rmdir()
        kept.rename(file)
    again = Spool(tmp_path, MIB)
    assert [body.content for body in drain(again)] == [b"x a=%d" % number for number in range(5)]


def test_a_body_that_cannot_be_read_now_is_kept_and_lets_the_others_go_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(NOW)
    spool = Spool(tmp_path, MIB, memory_bytes=0, monotonic=clock.monotonic)
    for number in range(3):
        spool.put(telemetry(f"x a={number}", number))
    first = bodies(tmp_path)[0]
    kept = in_its_place(first)
    assert spool.next(ALL) is None
    assert not spool.wait(ALL, 0.0)  # so that nobody tries all the time
    clock.advance(1.0)
    assert [body.content for body in drain(spool)] == [b"x a=1", b"x a=2"]
    first.rmdir()
    kept.rename(first)
    clock.advance(1.0)
    assert [body.content for body in drain(spool)] == [b"x a=0"]
    assert (spool.dropped, spool.bytes) == (0, 0)
    assert caplog.text.count("spool cannot be read") == 2


def test_without_a_free_descriptor_nothing_is_lost(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB, memory_bytes=0)
    for number in range(20):
        spool.put(telemetry(f"x a={number}", number))
    with shortage("descriptors"):
        assert spool.next(ALL) is None
    assert (spool.dropped, len(bodies(tmp_path))) == (0, 20)
    assert spool.wait(ALL, 5.0) or spool.wait(ALL, 5.0)
    assert len(list(drain(spool))) == 20


OPERATIONS = st.lists(
    st.sampled_from(["put", "record", "send", "fail", "set aside", "refuse", "restart"])
)


class Owner:
    """Puts bodies into a spool, takes them out again, and keeps count."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self.spool = self.open()
        self.dropped = 0  # by spools before this one
        self.put: list[bytes] = []
        self.gone: list[Body] = []
        self.refused: list[Body] = []

    def open(self) -> Spool:
        return Spool(self.directory, self.limit_bytes, memory_seconds=3, memory_bytes=4096)

    def do(self, operation: str, second: int) -> None:
        at = NOW + timedelta(seconds=second)
        body = SENDER.records([], at) if operation == "record" else SENDER.telemetry([], at)
        if operation in {"put", "record"}:
            self.put.append(b"%d" % len(self.put))
            self.spool.put(replace(body, content=self.put[-1]))
        elif operation == "restart":
            self.spool.close()
            self.dropped += self.spool.dropped
            self.spool = self.open()
        elif (taken := self.spool.next(ALL)) is not None and operation in {
            "fail",
            "set aside",
        }:
            self.spool.retry_later(taken, last=operation == "set aside")
        elif taken is not None:
            self.gone.append(taken)
            self.refused += [taken] if operation == "refuse" else []
            (self.spool.done if operation == "send" else self.spool.drop)(taken)


@given(operations=OPERATIONS, blocks=st.integers(1, 5))
def test_what_there_is_no_room_for_is_counted_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str], blocks: int
) -> None:
    owner = Owner(tmp_path_factory.mktemp("spool"), blocks * 4096)
    for second, operation in enumerate(operations):
        owner.do(operation, second)
        assert owner.spool.bytes <= blocks * 4096
        assert owner.spool.bytes == 4096 * len(bodies(owner.directory))
    refused = owner.spool.dropped + owner.dropped
    gone = [*owner.gone, *drain(owner.spool)]
    assert len({body.content for body in gone}) == len(gone)
    # Those that the test itself dropped are among both.
    assert len(gone) - len(owner.refused) + refused == len(owner.put)
    owner.spool.close()


@given(operations=OPERATIONS)
def test_every_body_is_delivered_once_or_counted(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str]
) -> None:
    owner = Owner(tmp_path_factory.mktemp("spool"), MIB)
    for second, operation in enumerate(operations):
        owner.do(operation, second)
    gone = [*owner.gone, *drain(owner.spool)]
    assert sorted(body.content for body in gone) == sorted(owner.put)
    assert owner.spool.bytes == 0
    assert not bodies(owner.directory)
    owner.spool.close()
    identities = [identity(body) for body in gone if body.path.startswith("/api/v2")]
    # A restart of the collector is a new boot, which these bodies do not show.
    assert "restart" in operations or len(set(identities)) == len(identities)


WRITER = """
import sys
from datetime import datetime, timezone
from pathlib import Path
from collector.spool.batches import Sender
from collector.spool.queue import Spool
spool = Spool(Path(sys.argv[1]), 1 << 30, memory_bytes=0)
sender = Sender(cluster="c", node="n", boot="b")
for number in range(1_000_000):
    spool.put(sender.telemetry([f"x a={number}"], datetime.now(timezone.utc)))
    print(number, flush=True)
"""


@pytest.mark.medium
def test_what_was_put_on_disk_survives_kill_9(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        cwd=Path(__file__).parent.parent.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    with writer.stdout:
        while int(writer.stdout.readline()) < 200:
            pass
        os.kill(writer.pid, signal.SIGKILL)
        last = max([200, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    writer.wait()
    found = [body.content for body in drain(Spool(tmp_path, 1 << 30))]
    assert found[: last + 1] == [b"x a=%d" % number for number in range(last + 1)]
    assert len(found) <= last + 2


def test_what_waits_for_too_long_is_dropped_and_counted(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    spool = Spool(tmp_path, MIB, limit_seconds=60, memory_bytes=0, monotonic=clock.monotonic)
    spool.put(SENDER.records([], NOW))
    for number in range(4):
        spool.put(telemetry(f"x a={number}"))
        clock.advance(0 if number == 3 else 25)
    assert spool.dropped == 2  # the record and the first
    at_fault = spool.next(ALL)
    assert at_fault is not None
    spool.retry_later(at_fault, last=True)
    clock.advance(20)
    spool.put(telemetry("x a=4"))
    assert [body.content for body in drain(spool)] == [b"x a=2", b"x a=3", b"x a=4"]
    assert spool.dropped == 3
    # What an earlier process left is as old as this one.
    spool.put(telemetry("x a=5"))
    spool.close()
    clock.advance(1000.0)
    spool = Spool(tmp_path, MIB, limit_seconds=60, memory_bytes=0, monotonic=clock.monotonic)
    clock.advance(59.0)
    spool.put(telemetry("x a=6"))
    assert spool.dropped == 0
    clock.advance(1.5)
    spool.put(telemetry("x a=7"))
    assert [body.content for body in drain(spool)] == [b"x a=6", b"x a=7"]


@pytest.mark.parametrize("step", [timedelta(days=800), timedelta(days=-800)])
def test_a_wall_clock_that_is_set_drops_nothing(tmp_path: Path, step: timedelta) -> None:
    spool = Spool(tmp_path, MIB)
    for second in range(2):
        spool.put(SENDER.records([], NOW + timedelta(seconds=second)))
        spool.put(telemetry("old", second))
    for second in range(2):
        spool.put(telemetry("new", step.total_seconds() + second))
    assert len(list(drain(spool))) == 6
    assert spool.dropped == 0


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 50)), max_size=60),
    limit=st.integers(1, 100_000),
)
def test_nothing_is_outdated_early_nor_much_too_late(
    steps: list[tuple[bool, int]], limit: int
) -> None:
    ages, now, given_at = Ages(limit), 0.0, []
    for is_new, seconds in steps:
        now += seconds
        if is_new:
            given_at.append(now)
            ages.note(len(given_at) - 1, now)
        outdated = ages.outdated(now)
        assert all(now - at > limit for at in given_at[: outdated + 1])
        assert all(now - at <= 1.002 * limit for at in given_at[outdated + 1 :])


def test_a_body_waits_in_its_place_for_its_next_attempt(tmp_path: Path) -> None:
    spool = Spool(tmp_path, MIB, memory_bytes=0)
    for number in range(3):
        spool.put(telemetry(f"x a={number}", number))
    first = spool.next(ALL)
    assert first is not None
    spool.retry_later(first)
    assert [body.content for body in drain(spool)] == [b"x a=0", b"x a=1", b"x a=2"]


def test_a_body_that_may_be_at_fault_lets_the_others_go_first(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 3 * 4096, memory_bytes=0)
    for number in range(3):
        spool.put(telemetry(f"x a={number}", number))
    first = spool.next(ALL)
    assert first is not None
    spool.retry_later(first, last=True)
    assert spool.oldest_seconds(NOW + timedelta(seconds=5)) == 5.0
    assert [body.content for body in drain(spool)] == [b"x a=1", b"x a=2", b"x a=0"]


@pytest.mark.slow
def test_a_long_outage_costs_neither_time_nor_memory(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 30, memory_bytes=0)
    tracemalloc.start()
    took, memory = [], []
    for number in range(6000):
        start = time.perf_counter()
        spool.put(telemetry(f"x a={number}", number))
        took.append(time.perf_counter() - start)
        if number in {1000, 5999}:
            # Of the spool alone: threads that other tests have left behind allocate, too.
            ours = [tracemalloc.Filter(True, "*/collector/*")]
            kept = tracemalloc.take_snapshot().filter_traces(ours).statistics("filename")
            memory.append(sum(statistic.size for statistic in kept))
    tracemalloc.stop()
    # A walk over what waits would take 30 times as long at the end as at the start.
    assert min(took[-200:]) < 5 * min(took[:200])
    assert memory[1] - memory[0] < 5000 * 60
    assert len(list(drain(spool))) == 6000


@given(st.lists(st.integers(0, 40) | st.none(), max_size=80))
def test_the_lowest_number_is_always_first(steps: list[int | None]) -> None:
    queue, kept = DiskQueue(), list[SpoolEntry]()
    for number in steps:
        if number is None and kept:
            assert queue.pop() == kept.pop(0)
        elif number is not None:
            entry = SpoolEntry(number, -number, 4096)
            queue.add(entry)
            kept = sorted([*kept, entry])
        assert queue.first == (kept[0] if kept else None)
        assert len(queue) == len(kept)


FULL_DISK = """
import json, os, resource, sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from collector.spool.batches import Sender
from collector.spool.subscriptions import Lane
from collector.spool.queue import Spool
directory, limit = Path(sys.argv[1]), int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
spool = Spool(directory, 1 << 30, memory_bytes=100_000, memory_seconds=0)
sender = Sender(cluster="c", node="n", boot="b")
now = datetime.now(timezone.utc)
for number in range(200):
    line = f"x a={number},b=\\"{os.urandom(4000).hex()}\\""
    spool.put(sender.telemetry([line], now + timedelta(seconds=number)))
full = spool.dropped
spool.put(sender.records([], now))
found = []
while (body := spool.next(tuple(Lane))) is not None:
    found.append(body.content[4:8].split(b",")[0].decode() or "record")
    spool.done(body)
spool.put(sender.records([], now))
print(json.dumps({"full": full, "dropped": spool.dropped, "found": found, "bytes": spool.bytes}))
"""


@pytest.mark.medium
def test_a_full_disk_costs_the_oldest_bodies_and_not_the_process(tmp_path: Path) -> None:
    """On a file system of 400 KiB where one may be mounted, else with files of no size."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=400k tmpfs {disk} 2>/dev/null"
    may_mount = subprocess.run(["unshare", "-rm", "sh", "-c", mount], check=False).returncode == 0
    python = [sys.executable, "-c", FULL_DISK, str(disk / "spool")]
    command = (
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *python, "0"]
        if may_mount
        else [*python, "100"]
    )
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert said["full"] > 0
    assert len(said["found"]) + said["dropped"] == 201
    assert said["found"][0] == "record"
    kept = sorted(int(number) for number in said["found"] if number != "record")
    # Where there is no room the oldest give way; where nothing can be written, memory is all.
    assert kept == list(range(200 - len(kept), 200))
    assert len(kept) > (40 if may_mount else 10)
    assert may_mount == (said["bytes"] > 0)
    assert done.stderr.count("spool cannot be written") <= 2


def test_a_directory_is_of_one_process(tmp_path: Path) -> None:
    first = Spool(tmp_path, MIB)
    with pytest.raises(ConfigError, match="used by another collector"):
        Spool(tmp_path, MIB)
    first.close()
    Spool(tmp_path, MIB)


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot use the spool directory .*/file/spool: Not a"):
        Spool(tmp_path / "file/spool", MIB)
