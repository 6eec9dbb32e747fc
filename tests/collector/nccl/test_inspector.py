"""Lines and files of NCCL Inspector."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.nccl import inspector, ranks_child
from collector.nccl.awaited_rank import AwaitedRank, awaited_ranks
from collector.nccl.inspector import LONGEST_LINE, TAIL_BYTES, Op, earlier, parse
from collector.nccl.question import Asked, Look
from collector.nccl.unreadable import UnreadableError
from tests.collector.nccl.inspector_lines import line

RANKS = 4
SLOW = 2
Exec = Callable[[int, int], int]


def waits(rank: int, _: int) -> int:
    """Rank 2 comes last."""
    return 1000 if rank == SLOW else 4000


def of(took: Exec, count: int = 30, ranks: int = RANKS, **more: Any) -> list[AwaitedRank]:
    lines = (line(r, n, took(r, n), **more) for n in range(count) for r in range(ranks))
    return awaited_ranks(op for it in lines if (op := parse(it, 0)) is not None)


@pytest.mark.parametrize("version", ["v1.0", "v4.0", "v5.0"])
def test_a_version_that_has_the_names_is_read(version: str) -> None:
    assert len(of(waits, version=version)) == 1


def test_a_send_is_no_collective() -> None:
    value = json.loads(line(0, 1, 2))
    value["p2p_perf"] = value.pop("coll_perf")
    assert parse(json.dumps(value).encode(), 0) is None


@pytest.mark.parametrize(
    ("operation", "is_found"),
    [
        *(("AllReduce", True), ("AllGather", True), ("ReduceScatter", True), ("AlltoAll", True)),
        *(("Broadcast", False), ("Reduce", False), ("Gather", False), ("Scatter", False)),
    ],
)
def test_whoever_is_a_root_may_be_through_early(operation: str, is_found: bool) -> None:
    assert bool(of(waits, operation=operation)) is is_found


def test_what_another_user_writes_of_a_communicator_changes_nothing() -> None:
    own = [line(r, n, 4000) for n in range(30) for r in range(RANKS)]
    forged = [line(SLOW, n, 1000) for n in range(30)]

    def ops(*owners: int) -> Iterator[Op]:
        for owner, lines in zip(owners, (own, forged), strict=True):
            yield from (op for it in lines if (op := parse(it, owner)) is not None)

    assert awaited_ranks(ops(7, 8)) == []
    (found,) = awaited_ranks(ops(7, 7))
    assert found.op.owner == 7


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 5000,
        b'{"coll_perf": 1}',
        b"\x00" * 100,
        line(0, 1, "nan"),
        line(0, 1, -1),
        line(0, 1, 2**53),
        line(0, 1, 2, host="\x1b[2J"),
        line(0, 1, 2, host="n" * 129),
        line(0, 1, 2) + b" " * LONGEST_LINE,
    ],
)
def test_what_is_no_line_is_one_named_error(content: bytes) -> None:
    with pytest.raises(UnreadableError):
        parse(content, 0)


@given(st.randoms(use_true_random=False), st.integers(1, 10))
def test_no_damaged_line_raises_anything_else(chance: random.Random, times: int) -> None:
    content = bytearray(line(0, 1, 2))
    for _ in range(times):
        at = chance.randrange(len(content))
        content[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    try:
        awaited_ranks([op] if (op := parse(bytes(content), 0)) is not None else [])
    except UnreadableError:
        return


# --- files -------------------------------------------------------------------------------------------


def write(directory: Path, took: Exec = waits, count: int = 30, **more: Any) -> Iterator[Path]:
    for rank in range(RANKS):
        file = directory / f"n1-pid{4242 + rank}.log"
        lines = [line(rank, n, took(rank, n), **more) for n in range(count)]
        file.write_bytes(b"\n".join(lines) + b"\n")
        yield file


def read(directory: Path, youth: float = 60.0, user: int | None = None) -> list[AwaitedRank]:
    users = [os.getuid() if user is None else user]
    return awaited_ranks(inspector.read([str(directory)], users, youth))


def test_files_of_the_users_that_changed_lately_are_read(tmp_path: Path) -> None:
    files = list(write(tmp_path))
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "link.log").symlink_to("/etc/passwd")
    (tmp_path / "n1-pid1.log").write_bytes(b"\x00" * 10_000 + b"\nno line\n")
    assert [it.op.rank for it in read(tmp_path)] == [SLOW]
    assert read(tmp_path, user=os.getuid() + 1) == []
    assert read(tmp_path / "none") == []
    old = time.time() - 61.0
    for file in files:
        os.utime(file, (old, old))
    assert read(tmp_path) == []


def test_only_the_end_of_a_file_is_read_also_after_it_was_cut(tmp_path: Path) -> None:
    """It once was another rank; a line of the cut is not whole."""
    length = len(line(0, 1000, 400)) + 1
    for file in write(tmp_path, count=30):
        end = file.read_bytes()
        file.write_bytes((b"x" * (length - 1) + b"\n") * (TAIL_BYTES // length) + end)
        with file.open("ab") as stream:
            stream.write(b'{"header": {"id"')
    (found,) = read(tmp_path)
    assert found.compared == 30
    for file in write(tmp_path, lambda r, n: 1000 if r == 1 else 4000, count=25):
        assert file.stat().st_size < TAIL_BYTES
    (found,) = read(tmp_path)
    assert (found.op.rank, found.compared) == (1, 25)


def asked_of(directory: Path) -> Asked:
    """Of a job of this process, and of one of another."""
    return Asked(
        proc_root="/proc",
        port=0,
        pause_seconds=0.0,
        versions=(),
        holders={"job 7": {os.getpid(): {0: "GPU-0"}}, "job 8": {1: {1: "GPU-1"}}},
        look=Look.INSPECTOR,
        directories=(str(directory),),
        users=(os.getuid(),),
        youth_seconds=60.0,
    )


@pytest.mark.parametrize(
    ("size", "begin"), [(0, None), (25, None), (26, 6), (40, 10), (10_000, 10)]
)
def test_what_was_written_earlier_is_no_part_of_the_end(size: int, begin: int | None) -> None:
    """Of a file of 25 it would begin at the sixth, and reach into its last ten."""
    assert earlier(size, 10) == begin


@pytest.mark.parametrize(("rank", "before"), [(1, 0), (SLOW, 750)])
def test_how_much_the_others_waited_for_it_earlier_is_read_of_the_same_file(
    tmp_path: Path, rank: int, before: int
) -> None:
    """For another rank then, or for the same."""
    length = len(line(0, 1000, 4000, pid=os.getpid())) + 1
    count = 4 * TAIL_BYTES // length
    for number in range(RANKS):
        lines = [
            line(number, n, 1000 if number == (rank if n < count // 2 else SLOW) else 4000,
                 pid=os.getpid() + number, host=os.uname().nodename, written=10**15 + 4000 * n)
            for n in range(count)
        ]  # fmt: skip
        (tmp_path / f"{number}.log").write_bytes(b"\n".join(lines) + b"\n")
    (found,) = ranks_child.waits(asked_of(tmp_path)).found
    assert (found.ranks[0].rank, found.cost, found.cost_before) == (SLOW, 750, before)


@pytest.mark.parametrize(("pid", "host", "gpu"), [(0, "", "GPU-0"), (0, "n9", None), (1, "", None)])
def test_it_is_told_of_the_job_whose_process_wrote_it(
    tmp_path: Path, pid: int, host: str, gpu: str | None
) -> None:
    """The slow rank is a process here, on another node, or is not; rank 0 is always one of here."""
    own, here = os.getpid(), os.uname().nodename
    for rank in range(RANKS):
        is_slow = rank == SLOW
        number = own if rank == 0 or (is_slow and not pid) else 10_000_000 + rank
        lines = [
            line(rank, n, waits(rank, n), pid=number, host=(is_slow and host) or here)
            for n in range(30)
        ]
        (tmp_path / f"{rank}.log").write_bytes(b"\n".join(lines) + b"\n")
    (found,) = ranks_child.waits(asked_of(tmp_path)).found
    assert (found.holder, found.ranks[0].rank, found.ranks[0].gpu) == ("job 7", SLOW, gpu)


@pytest.mark.parametrize(("user", "count"), [(0, 1), (1, 0)])
def test_lines_count_for_processes_of_their_own_user(tmp_path: Path, user: int, count: int) -> None:
    """Everybody may write to the directory, and name any process."""
    proc = tmp_path / "proc" / "4242"
    proc.mkdir(parents=True)
    owner = os.getuid() + user
    (proc / "status").write_text(f"Uid:\t{owner}\t{owner}\t{owner}\t{owner}\nNSpid:\t4242\t17\n")
    for rank in range(RANKS):
        lines = [
            line(rank, n, waits(rank, n), pid=17 + rank, host=os.uname().nodename)
            for n in range(30)
        ]
        (tmp_path / f"{rank}.log").write_bytes(b"\n".join(lines) + b"\n")
    asked = Asked(
        proc_root=str(tmp_path / "proc"),
        port=0,
        pause_seconds=0.0,
        versions=(),
        holders={"job 7": {4242: {0: "GPU-0"}}},
        look=Look.INSPECTOR,
        directories=(str(tmp_path),),
        users=(os.getuid(), os.getuid() + 1),
        youth_seconds=60.0,
    )
    assert len(ranks_child.waits(asked).found) == count
