"""Who holds a GPU, from a procfs of our own."""

import os
import pwd
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from collector.owners.processes import Holders, ProcessTable
from gpuvigil.model import Subject

BOOT = datetime(2026, 1, 31, tzinfo=timezone.utc)
NOW = BOOT + timedelta(hours=1)
LATER = timedelta(seconds=15)
NODE = Subject(cluster="c", node="n1")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Proc:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "stat").write_text(f"cpu 1 2 3\nbtime {int(BOOT.timestamp())}\n")

    def process(
        self, pid: int, started_seconds: float, command: str = "a\0b", uid: int | None = None
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        middle = " ".join(["0"] * 18)
        ticks = int(started_seconds * TICKS_PER_SECOND)
        (folder / "stat").write_text(f"{pid} (my (odd) name) S {middle} {ticks} 0 0\n")
        owner = os.getuid() if uid is None else uid
        (folder / "status").write_text(f"Name:\tx\nUid:\t{owner}\t{owner}\t{owner}\t{owner}\n")
        (folder / "cmdline").write_text(command + "\0")
        (folder / "comm").write_text("kernel name\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


@pytest.fixture
def table(proc: Proc) -> ProcessTable:
    return ProcessTable(proc.root)


def test_a_process_is_told_with_user_command_and_start(proc: Proc, table: ProcessTable) -> None:
    proc.process(4711, 90.5)
    process = table.find(4711)
    assert process.user == pwd.getpwuid(os.getuid()).pw_name
    assert process.command == "a"
    assert process.started_at == BOOT + timedelta(seconds=90.5)


def test_a_user_without_a_name_goes_by_number(proc: Proc, table: ProcessTable) -> None:
    proc.process(4711, 1, uid=4_000_000)
    assert table.find(4711).user == "uid 4000000"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/usr/bin/python3\0/home/a/train.py\0--token=secret", "python3 train.py"),
        ("python\0-m\0torch.distributed.run\0--x", "python -m torch.distributed.run"),
        ("python\0-c\0import os; key = 'secret'", "python"),
        ("python\0-X\0dev\0train.py", "python"),
        ("./a.out\0secret", "a.out"),
        ("bash\0./run.sh", "bash run.sh"),
        ("", "kernel name"),
    ],
)
def test_a_command_is_named_without_what_may_be_secret(
    proc: Proc, table: ProcessTable, line: str, told: str
) -> None:
    proc.process(1, 1, command=line)
    assert table.find(1).command == told


def test_a_process_of_another_world_is_still_a_holder(table: ProcessTable) -> None:
    process = table.find(99)
    assert (process.user, process.command, process.started_at) == (None, None, None)
    (held,) = Holders(NODE, table).take({"GPU-1": [99]}, NOW)
    assert (held.holder, held.started_at) == ("pid 99", NOW)


def ids(holders: Holders, processes: Mapping[str, list[int]]) -> list[tuple[str, str, bool]]:
    return [
        (a.subject.gpu or "", a.holder, a.ended_at is not None)
        for a in holders.take(processes, NOW)
    ]


def test_holders_come_and_go(proc: Proc, table: ProcessTable) -> None:
    proc.process(1, 10)
    proc.process(2, 20)
    holders = Holders(NODE, table)
    assert ids(holders, {"A": [1], "B": [1, 2]}) == [
        ("A", "pid 1", False),
        ("B", "pid 1", False),
        ("B", "pid 2", False),
    ]
    assert ids(holders, {"A": [1], "B": [1, 2]}) == []
    # A GPU that could not be read is held as before.
    assert ids(holders, {"A": [1]}) == []
    assert ids(holders, {"A": [1], "B": [2]}) == [("B", "pid 1", True)]


def test_a_holder_that_dies_on_a_gpu_that_is_not_read_is_ended(
    proc: Proc, table: ProcessTable
) -> None:
    proc.process(1, 10)
    holders = Holders(NODE, table)
    holders.take({"A": [1, 99]}, NOW)
    assert ids(holders, {}) == []
    (proc.root / "1/stat").unlink()
    # Of pid 99 nothing could ever be seen.
    assert ids(holders, {}) == [("A", "pid 1", True)]


def test_a_process_id_used_again_is_another_holder(proc: Proc, table: ProcessTable) -> None:
    proc.process(1, 10)
    holders = Holders(NODE, table)
    (first,) = holders.take({"A": [1]}, NOW)
    # The kernel's idea of its boot wavers by a second, which is no other process.
    proc.process(1, 11)
    assert holders.take({"A": [1]}, NOW + LATER) == ()
    proc.process(1, 500)
    ended, second = holders.take({"A": [1]}, NOW + 2 * LATER)
    assert ended.id == first.id
    assert ended.ended_at == second.started_at == BOOT + timedelta(seconds=500)
    assert second.id != first.id


def test_whoever_left_while_the_collector_was_away_is_ended(
    proc: Proc, table: ProcessTable
) -> None:
    proc.process(1, 10)
    before = Holders(NODE, table)
    before.take({"A": [1]}, NOW)
    after = Holders(NODE, table, before.held)
    assert ids(after, {"A": []}) == [("A", "pid 1", True)]
    assert after.held == []


def test_a_process_that_is_stuck_in_the_kernel_holds_up_nobody(
    proc: Proc, table: ProcessTable
) -> None:
    for pid in (1, 2):
        proc.process(pid, 10)
        (proc.root / f"{pid}/cmdline").unlink()
        # Whoever opens it waits for a writer, as for the lock on the memory of such a process.
        os.mkfifo(proc.root / f"{pid}/cmdline")
    holders = Holders(NODE, table)
    began = time.monotonic()
    found = holders.take({"GPU-0": [1, 2]}, NOW)
    for _ in range(100):
        assert holders.take({}, NOW) == ()
    assert time.monotonic() - began < 5.0
    assert [(a.holder, a.command) for a in found] == [
        ("pid 1", "kernel name"),
        ("pid 2", "kernel name"),
    ]
    assert {a.user for a in found} == {pwd.getpwuid(os.getuid()).pw_name}
    os.close(os.open(proc.root / "1/cmdline", os.O_WRONLY))
