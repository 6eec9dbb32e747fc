"""The spool: nothing lost that was to be kept, bounded, whole after kill -9 and torn files."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.envelope import Sender
from collector.spool import Body, Lane, Spool
from gpuvigil.errors import ConfigError

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
    spool.again(first)
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
    spool.again(failed)
    # A disk that has room again is used again.
    directory.mkdir()
    spool.put(telemetry("x a=4", 30))
    assert spool.bytes > 0
    assert [body.content for body in drain(spool)] == [b"", b"x a=4", b"x a=2", b"x a=3"]


@settings(max_examples=60, deadline=None)
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


OPERATIONS = st.lists(st.sampled_from(["put", "record", "send", "fail", "refuse", "restart"]))


class Owner:
    """Puts bodies into a spool, takes them out again, and keeps count."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.spool = Spool(directory, MIB, memory_seconds=3)
        self.put: list[bytes] = []
        self.gone: list[Body] = []

    def do(self, operation: str, second: int) -> None:
        at = NOW + timedelta(seconds=second)
        body = SENDER.records([], at) if operation == "record" else SENDER.telemetry([], at)
        if operation in {"put", "record"}:
            self.put.append(b"%d" % len(self.put))
            self.spool.put(replace(body, content=self.put[-1]))
        elif operation == "restart":
            self.spool.close()
            self.spool = Spool(self.directory, MIB, memory_seconds=3)
        elif (taken := self.spool.next(ALL)) is not None and operation == "fail":
            self.spool.again(taken)
        elif taken is not None:
            self.gone.append(taken)
            (self.spool.done if operation == "send" else self.spool.drop)(taken)


@settings(max_examples=80, deadline=None)
@given(operations=OPERATIONS)
def test_every_body_is_delivered_once_or_counted(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str]
) -> None:
    owner = Owner(tmp_path_factory.mktemp("spool"))
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
from collector.envelope import Sender
from collector.spool import Spool
spool = Spool(Path(sys.argv[1]), 1 << 30, memory_bytes=0)
sender = Sender(cluster="c", node="n", boot="b")
for number in range(1_000_000):
    spool.put(sender.telemetry([f"x a={number}"], datetime.now(timezone.utc)))
    print(number, flush=True)
"""


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
