"""Who holds a GPU, from a procfs of our own."""

import os
import pwd
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.owners.processes import Holders, ProcessTable
from gpuvigil.model import Allocation, Subject

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
    (held,) = Holders(NODE, table).update({"GPU-1": [99]}, NOW)
    assert (str(held.holder), held.started_at) == ("pid 99", NOW)


def ids(holders: Holders, processes: Mapping[str, list[int]]) -> list[tuple[str, str, bool]]:
    return [
        (a.subject.gpu or "", str(a.holder), a.ended_at is not None)
        for a in holders.update(processes, NOW)
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
    holders.update({"A": [1, 99]}, NOW)
    assert ids(holders, {}) == []
    (proc.root / "1/stat").unlink()
    # Of pid 99 nothing could ever be seen.
    assert ids(holders, {}) == [("A", "pid 1", True)]


def test_a_process_id_used_again_is_another_holder(proc: Proc, table: ProcessTable) -> None:
    proc.process(1, 10)
    holders = Holders(NODE, table)
    (first,) = holders.update({"A": [1]}, NOW)
    # The kernel's idea of its boot wavers by a second, which is no other process.
    proc.process(1, 11)
    assert holders.update({"A": [1]}, NOW + LATER) == ()
    proc.process(1, 500)
    began = (NOW - BOOT).total_seconds()
    proc.process(1, began + 2)  # the kernel's idea of its boot wavers
    assert holders.update({"A": [1]}, NOW + 2 * LATER) == ()
    proc.process(1, began + 3)
    ended, second = holders.update({"A": [1]}, NOW + 3 * LATER)
    assert ended.id == first.id
    assert ended.ended_at == NOW + timedelta(seconds=3)
    assert (second.started_at, second.began_before) == (NOW + 3 * LATER, False)


def test_whoever_left_while_the_collector_was_away_is_ended(
    proc: Proc, table: ProcessTable
) -> None:
    proc.process(1, 10)
    before = Holders(NODE, table)
    before.update({"A": [1]}, NOW)
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
    found = holders.update({"GPU-0": [1, 2]}, NOW)
    for _ in range(100):
        assert holders.update({}, NOW) == ()
    assert time.monotonic() - began < 5.0
    assert [(str(a.holder), a.command) for a in found] == [
        ("pid 1", "kernel name"),
        ("pid 2", "kernel name"),
    ]
    assert {a.user for a in found} == {pwd.getpwuid(os.getuid()).pw_name}
    os.close(os.open(proc.root / "1/cmdline", os.O_WRONLY))


def test_a_hold_begins_when_the_process_is_first_seen_on_that_gpu(
    proc: Proc, table: ProcessTable
) -> None:
    proc.process(1, 10)
    holders = Holders(NODE, table)
    gpus = [f"GPU-{number}" for number in range(8)]
    holders.update(dict.fromkeys(gpus, ()), NOW)
    for number, gpu in enumerate(gpus):
        at = NOW + number * LATER
        (held,) = holders.update({one: [1] if one <= gpu else [] for one in gpus}, at)
        assert (held.subject.gpu, held.started_at, held.began_before) == (gpu, at, False)


def test_what_is_there_at_the_first_look_or_after_a_gap_may_have_begun_before(
    proc: Proc, table: ProcessTable
) -> None:
    for pid in (1, 2, 3):
        proc.process(pid, 10)
    holders = Holders(NODE, table)
    (first,) = holders.update({"A": [1]}, NOW)
    assert (first.started_at, first.began_before) == (NOW, True)
    (second,) = holders.update({"A": [1, 2]}, NOW + LATER)
    assert (second.started_at, second.began_before) == (NOW + LATER, False)
    holders.update({}, NOW + 2 * LATER)
    (third,) = holders.update({"A": [1, 2, 3]}, NOW + 3 * LATER)
    assert (third.started_at, third.began_before) == (NOW + 3 * LATER, True)


def test_a_process_that_left_its_gpu_and_came_back_is_another_hold(
    proc: Proc, table: ProcessTable
) -> None:
    proc.process(1, 10)
    holders = Holders(NODE, table)
    (first,) = holders.update({"A": [1]}, NOW)
    holders.update({"A": []}, NOW + LATER)
    (second,) = holders.update({"A": [1]}, NOW + 2 * LATER)
    # The hub keeps one record for each id, and an end is newer than any beginning.
    assert (second.started_at, second.id == first.id) == (NOW + 2 * LATER, False)


@pytest.mark.parametrize(("seconds", "goes_on"), [(0, True), (2, True), (3, False)])
def test_a_hold_that_only_the_hub_remembers_goes_on_while_the_process_is_the_same(
    proc: Proc, table: ProcessTable, seconds: int, goes_on: bool
) -> None:
    proc.process(1, 10)
    (old,) = Holders(NODE, table).update({"A": [1]}, NOW)
    started = NOW + timedelta(seconds=seconds)
    proc.process(1, (started - BOOT).total_seconds())
    after = Holders(NODE, table)
    (young,) = after.update({"A": [1]}, NOW + LATER)
    (ended,) = after.restore([old, young])
    if goes_on:
        assert after.held == [old]
        assert ended == replace(young, ended_at=young.started_at)
    else:
        assert after.held == [young]
        assert ended == replace(old, ended_at=started)
    assert after.update({"A": [1]}, NOW + 2 * LATER) == ()


def test_who_left_while_all_was_forgotten_is_ended(proc: Proc, table: ProcessTable) -> None:
    proc.process(1, 10)
    (old,) = Holders(NODE, table).update({"A": [1]}, NOW)
    after = Holders(NODE, table)
    assert after.restore([old]) == ()
    assert after.update({"A": []}, NOW + LATER) == (replace(old, ended_at=NOW + LATER),)


_Look = tuple[str, dict[str, set[int]]]  # what happens before it, and who is on each GPU read
_LOOKS = st.lists(
    st.tuples(
        st.sampled_from(["", "", "restarted", "wiped"]),
        st.dictionaries(st.sampled_from("AB"), st.sets(st.sampled_from([1, 2, 3]))),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> ProcessTable:
    """Processes 1 to 3, which all began long before."""
    proc = Proc(tmp_path_factory.mktemp("running") / "proc")
    for pid in (1, 2, 3):
        proc.process(pid, 10)
    return ProcessTable(proc.root)


def told(table: ProcessTable, looks: list[_Look], start: datetime) -> dict[str, Allocation]:
    """What the hub has by id after these looks; a node that is wiped asks it after its next look."""
    hub: dict[str, Allocation] = {}
    holders = Holders(NODE, table)
    for number, (before, processes) in enumerate(looks):
        if before:
            holders = Holders(NODE, table, holders.held if before == "restarted" else ())
        changed = list(holders.update(processes, start + number * LATER))
        for one in changed:
            hub[one.id] = one
        if before == "wiped":
            opened = [one for one in hub.values() if one.ended_at is None]
            hub |= {one.id: one for one in holders.restore(opened)}
    return hub


def spans(looks: list[_Look], start: datetime) -> Iterator[tuple[str, int, datetime, datetime]]:
    """GPU, process, and between which looks it was there at each that read the GPU."""
    for gpu in "AB":
        read = [
            (start + n * LATER, found[gpu]) for n, (_, found) in enumerate(looks) if gpu in found
        ]
        for pid in (1, 2, 3):
            since = None
            for at, pids in read:
                if pid in pids:
                    since = since or at
                elif since is not None:
                    yield gpu, pid, since, at
                    since = None
            if since is not None:
                yield gpu, pid, since, start + len(looks) * LATER


def unmoved(looks: list[_Look]) -> list[_Look]:
    """The same, but nobody comes or goes while all is forgotten: that would be seen a look later."""
    last: dict[str, set[int]] = {}
    found: list[_Look] = []
    for before, processes in looks:
        seen = dict(last) if before == "wiped" else processes
        last |= seen
        found.append((before, seen))
    return found


@given(looks=_LOOKS.map(unmoved), shift=st.integers(-(10**6), 10**9))
def test_holds_are_as_they_were_seen_whatever_was_restarted_or_forgotten(
    running: ProcessTable, looks: list[_Look], shift: int
) -> None:
    start = NOW + timedelta(days=30, seconds=shift)
    end = start + len(looks) * LATER
    hub = told(running, looks, start)
    found = [
        (one.subject.gpu, int(one.holder.name), one.started_at, one.ended_at or end)
        for one in hub.values()
        if one.ended_at != one.started_at
    ]
    assert sorted(found) == sorted(spans(looks, start))
