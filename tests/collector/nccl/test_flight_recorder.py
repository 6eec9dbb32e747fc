"""Reading PyTorch's dumps: real ones, and whatever else lies in their place."""

import json
import os
import pickle
import pickletools
import random
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.nccl import containers, dump_files, flight_recorder
from collector.nccl.dump_files import StartRank
from collector.nccl.flight_recorder import Dump, collectives, parse
from collector.nccl.unreadable import UnreadableError
from gpuvigil.model import MOST_RANKS, Collective, RankState
from tests.sources import ROOT

REAL = ROOT / "tests/fixtures/flight_recorder"
RANKS = range(4)


def real(rank: int) -> bytes:
    return (REAL / f"comm_lib_trace_rank_{rank}").read_bytes()


def told(found: Sequence[Collective]) -> dict[str, tuple[str, int | None, dict[int, int | None]]]:
    return {
        of.group: (of.stand.value, of.entered, {it.rank: it.reached for it in of.ranks})
        for of in found
    }


def test_real_dumps_say_who_never_came() -> None:
    found = collectives({rank: parse(real(rank)) for rank in RANKS}, "job 7")
    assert told(found) == {
        "0": ("waiting", 6, {2: 5, 0: 6, 1: 6, 3: 6}),
        "1": ("together", 1, {0: 1, 1: 1}),
    }
    assert {of.operation for of in found} == {"all_reduce", "all_gather"}
    assert [it.stand for it in found[0].ranks] == [RankState.TOGETHER, *[RankState.WAITING] * 3]


@pytest.mark.parametrize("rank", RANKS)
def test_a_dump_is_read_as_python_itself_reads_it(rank: int) -> None:
    assert containers.load(real(rank)) == pickle.loads(real(rank))


# --- dumps of NCCL, by their schema ------------------------------------------------------------------


def entry(number: int, state: str = "completed", **more: Any) -> dict[str, Any]:
    """pytorch/pytorch v2.14.1, FlightRecorderDetail.hpp:343-510."""
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_000,
        "duration_ms": 0.5,
        "input_sizes": [[16]],
        "output_sizes": [[16]],
        "state": state,
        "time_discovered_started_ns": None,
        "retired": state == "completed",
        "is_p2p": False,
        "timeout_ms": 600_000,
        "frames": [{"name": "step", "filename": "/home/ada/train.py", "line": 7}],
        **more,
    }


def dumped(*entries: Mapping[str, Any], last: int | None = None, **more: Any) -> dict[str, Any]:
    enqueued = (
        max((it["collective_seq_id"] for it in entries), default=-1) if last is None else last
    )
    status = {
        "last_enqueued_collective": enqueued,
        "last_started_collective": -1,
        "last_completed_collective": enqueued - 1,
    }
    config = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}
    return {
        "version": "2.10",
        "comm_lib_version": "2.30.7",
        "pg_config": {"0": config},
        "pg_status": {"0": status},
        "entries": list(entries),
        **more,
    }


def of(*dumps: Mapping[str, Any]) -> Sequence[Collective]:
    """Each by the pickle and by the JSON of the same; both say the same."""
    pickled = {n: parse(pickle.dumps(it, 2)) for n, it in enumerate(dumps)}
    texts = {n: parse(json.dumps(it).encode()) for n, it in enumerate(dumps)}
    found = collectives(pickled, "job 7")
    assert collectives(texts, "job 7") == found
    return found


def test_a_rank_of_nccl_waits_in_what_is_not_completed() -> None:
    waits, done = dumped(entry(1), entry(2, "scheduled")), dumped(entry(1))
    (found,) = of(waits, done, waits)
    assert (found.stand, found.entered, found.size, found.count) == (RankState.WAITING, 2, 3, 3)
    assert [(it.rank, it.reached, it.stand) for it in found.ranks] == [
        (1, 1, RankState.TOGETHER),
        (0, 2, RankState.WAITING),
        (2, 2, RankState.WAITING),
    ]
    assert "ada" not in repr(found)


def test_what_timed_out_is_still_waited_in() -> None:
    (found,) = of(dumped(entry(1, "started", retired=True)))
    assert found.stand is RankState.WAITING


def test_what_the_ring_has_lost_was_entered_all_the_same() -> None:
    """The last of the group is in the ring no more, as its status says; another group's are."""
    late = entry(3, record_id=7)
    (found,) = of(dumped(late, last=5))
    assert (found.entered, found.stand) == (5, RankState.WAITING)
    other = entry(9, record_id=3000, process_group=("1", "pair"), pg_id=1)
    assert [it.group for it in of(dumped(other))] == ["1"]
    assert {it.group: it.entered for it in of(dumped(other | {"record_id": 0}, last=9))} == {
        "0": 0,
        "1": 9,
    }


def test_sends_count_for_nothing_and_coalesced_ones_once() -> None:
    sent = entry(1, "scheduled", is_p2p=True, collective_seq_id=9)
    (found,) = of(dumped(entry(1), entry(2), entry(2, op_id=3), sent, last=2))
    assert (found.entered, found.stand) == (2, RankState.TOGETHER)


def test_ranks_that_call_different_things_at_one_place_are_told() -> None:
    one, other = entry(2, "scheduled"), entry(2, "scheduled", profiling_name="nccl:broadcast")
    (found,) = of(*(dumped(entry(1), it) for it in (one, other, one)))
    assert (found.stand, found.entered) == (RankState.DIFFERENT, 2)
    assert [it.rank for it in found.ranks] == [1]


@pytest.mark.parametrize("count", [MOST_RANKS, MOST_RANKS + 1])
def test_of_very_many_those_behind_are_named_first(count: int) -> None:
    waits, done = (
        parse(pickle.dumps(dumped(entry(2, "scheduled")), 2)),
        Dump(version="", groups={"0": flight_recorder.GroupProgress(reached=1)}),
    )
    dumps = {rank: done if rank == count - 1 else waits for rank in range(count)}
    (found,) = collectives(dumps, "job 7")
    assert (found.count, len(found.ranks), found.ranks[0].rank) == (count, MOST_RANKS, count - 1)
    assert (found.waiting, found.left, found.late) == (
        *(((0, count - 2),), (), ((count - 1, count - 1),)),
    )
    assert Collective.from_json(json.loads(json.dumps(found.to_json()))) == found


# --- hostile files -----------------------------------------------------------------------------------


class Trap:
    """What Python's own unpickler would run."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.marker),))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_of_a_file_is_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"
    for trap in (Trap(marker), {"entries": [Trap(marker)]}, {"version": Trap(marker)}):
        with pytest.raises(UnreadableError):
            parse(pickle.dumps(trap, protocol))
    assert not marker.exists()


# What could name a class, call something, ask for an object elsewhere, or take memory by a number.
_FORBIDDEN = (
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1"),
    *("EXT2", "EXT4", "PERSID", "BINPERSID", "BYTEARRAY8", "NEXT_BUFFER", "BINUNICODE8", "LONG4"),
    *("BINBYTES8", "FRAME", "MEMOIZE", "DUP", "PUT", "GET"),
)


@pytest.mark.parametrize("name", _FORBIDDEN)
def test_no_opcode_is_obeyed_that_plain_data_does_not_need(name: str) -> None:
    (code,) = [it.code for it in pickletools.opcodes if it.name == name]
    stack = b"\x80\x02}q\x00X\x01\x00\x00\x00a)"
    with pytest.raises(UnreadableError, match="opcode that no plain data needs"):
        containers.load(stack + code.encode("latin-1") + b"\xff" * 8 + b"cos\nsystem\n(.")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no pickle of protocol 2"),
        (b"\x80\x04N.", "no pickle of protocol 2"),
        (b"\x80\x02", "ends too early"),
        (b"\x80\x02.", "a value is missing"),
        (b"\x80\x02X\xff\xff\xff\xffabc.", "ends too early"),
        (b"\x80\x02\x8a\x0a" + b"\x00" * 10 + b".", "a number is too long"),
        (b"\x80\x02h\x07.", "refers to what is not there"),
        (b"\x80\x02Nu.", "a mark is missing"),
        (b"\x80\x02(NNu.", "a dict was expected"),
        (b"\x80\x02}(Nu.", "a key is without a value"),
        (b"\x80\x02})Ns.", "a key is no text"),
        (b"\x80\x02NNa.", "a list was expected"),
        (b"\x80\x02r\xff\xff\xff\xff.", "a object was expected"),
        (b"\x80\x02" + b"N" * containers.MOST_STEPS, "over 2000000 parts"),
        (b"\x80\x02" + b"}" * (containers.MOST_CONTAINERS + 1) + b".", "over 250000 lists"),
        (b"\x80\x02" + b"]" * containers.MOST_CONTAINERS + b".", "no Flight Recorder dump"),
        (b"{" * 100_000, "no JSON"),
        (b"{}" + b" " * containers.LARGEST_BYTES, "over 16 MiB"),
        (b"\x80\x02" + b"N" * containers.LARGEST_BYTES, "over 16 MiB"),
        (b"\x80\x02N.", "no Flight Recorder dump"),
        (b"\x80\x02}q\x00(X\x07\x00\x00\x00entriesh\x00u.", "no Flight Recorder dump"),
    ],
)
def test_what_is_no_dump_is_one_named_error(content: bytes, why: str) -> None:
    with pytest.raises(UnreadableError, match=why):
        parse(content)


def test_a_group_without_a_name_is_one_named_error() -> None:
    with pytest.raises(UnreadableError, match="IndexError"):
        parse(pickle.dumps(dumped(entry(1, process_group=())), 2))


def test_a_number_for_the_memo_takes_no_memory() -> None:
    """Python's own unpickler reserves 16 GiB for this one."""
    tracemalloc.start()
    try:
        containers.load(b"\x80\x02Nr\xff\xff\xff\x7f.")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_doubled_again_and_again_it_is_read_in_no_time() -> None:
    """A tuple of itself twice, eighty times: whoever hashes or prints it never ends."""
    content = b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 80 + b"."
    began = time.monotonic()
    with pytest.raises(UnreadableError):
        parse(content)
    with pytest.raises(UnreadableError):
        parse(
            b"\x80\x02}(X\x07\x00\x00\x00versionX\x01\x00\x00\x00aX\x07\x00\x00\x00entries"
            + content[2:-1]
            + b"u."
        )
    assert time.monotonic() - began < 5.0


@given(st.randoms(use_true_random=False), st.sampled_from(RANKS), st.integers(1, 20))
def test_no_damaged_dump_raises_anything_else(chance: random.Random, rank: int, times: int) -> None:
    content = bytearray(real(rank))
    for _ in range(times):
        at = chance.randrange(len(content))
        content[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
    _reads_or_says(bytes(content))


@given(
    st.lists(
        st.sampled_from([it.code.encode("latin-1") for it in pickletools.opcodes])
        | st.binary(max_size=4),
        max_size=40,
    )
)
@example([b"c", b"os\nsystem\n", b"(", b"t", b"R", b"."])
def test_no_opcodes_in_any_order_raise_anything_else(parts: list[bytes]) -> None:
    _reads_or_says(b"\x80\x02" + b"".join(parts) + b".")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=5), of, max_size=3),
    max_leaves=8,
)


@given(st.data(), JUNK)
def test_no_other_value_at_any_place_raises_anything_else(data: st.DataObject, junk: Any) -> None:
    value: Any = json.loads(json.dumps(dumped(entry(1), entry(2, "scheduled"))))
    place = value
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = junk
            break
        place = place[key]
    _reads_or_says(pickle.dumps(value, 2))


def _reads_or_says(content: bytes) -> None:
    try:
        dump = parse(content)
    except UnreadableError:
        return
    for one in collectives({0: dump}, "job 7"):
        assert Collective.from_json(json.loads(json.dumps(one.to_json())))


# --- whose files are read ----------------------------------------------------------------------------


def read(*directories: Path, user: int | None = None, youth: float = 60.0) -> list[int]:
    user = os.getuid() if user is None else user
    return sorted(dump_files.read(map(str, directories), user, youth, lambda _: None, StartRank()))


def put(directory: Path, rank: int, name: str = "comm_lib_trace_rank_") -> Path:
    file = directory / f"{name}{rank}"
    file.write_bytes(real(rank % 4))
    return file


def test_dumps_of_the_user_are_read_and_nothing_else(tmp_path: Path) -> None:
    put(tmp_path, 2)
    put(tmp_path, 3, name="nccl_trace_rank_")
    (tmp_path / "trace_rank_4").symlink_to(put(tmp_path, 0, name="x"))
    (tmp_path / "trace_rank_5").mkdir()
    os.mkfifo(tmp_path / "trace_rank_6")
    (tmp_path / "trace_rank_7").write_bytes(b"")
    (tmp_path / "trace_rank_8").write_bytes(b"\x80\x02N.")
    (tmp_path / "trace_rank_x").write_bytes(real(0))
    os.truncate(put(tmp_path, 9), containers.LARGEST_BYTES + 1)
    before = {it.name: it.lstat().st_mtime_ns for it in tmp_path.iterdir()}
    assert read(tmp_path) == [0, 2, 3]
    assert read(tmp_path, user=os.getuid() + 1) == []
    assert read(tmp_path / "none", tmp_path) == [0, 2, 3]
    assert {it.name: it.lstat().st_mtime_ns for it in tmp_path.iterdir()} == before


def test_who_waits_at_a_pipe_is_not_let_go(tmp_path: Path) -> None:
    """PyTorch's own trigger is a pipe: who opens it would free its writers, to be killed as they write."""
    os.mkfifo(tmp_path / "pipe_rank_1")
    assert read(tmp_path) == []
    with pytest.raises(OSError, match="No such device"):
        os.open(tmp_path / "pipe_rank_1", os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.parametrize(("ago", "found"), [(64.0, [1]), (66.0, [])])
def test_only_what_was_written_since_the_job_stalled_counts(
    tmp_path: Path, ago: float, found: list[int]
) -> None:
    file = put(tmp_path, 1)
    at = time.time() - ago
    os.utime(file, (at, at))
    assert read(tmp_path) == found


def test_what_is_still_being_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    put(tmp_path, 1)
    grows = put(tmp_path, 2)

    def grow(seconds: float) -> None:
        assert seconds == dump_files.STABLE_SECONDS
        with grows.open("ab") as stream:
            stream.write(b" ")

    assert sorted(dump_files.read([str(tmp_path)], os.getuid(), 60.0, grow, StartRank())) == [1]


def test_of_two_dumps_of_one_rank_the_newer_counts(tmp_path: Path) -> None:
    old, new = put(tmp_path, 1), tmp_path / "other_1"
    new.write_bytes(pickle.dumps(dumped(entry(1)), 2))
    os.utime(old, (time.time() - 30.0, time.time() - 30.0))
    found = dump_files.read([str(tmp_path)], os.getuid(), 60.0, lambda _: None, StartRank())
    assert found[1].groups["0"].reached == 1


@pytest.mark.parametrize(
    ("start", "order"),
    [
        (StartRank(), [0, 3, 5, 9]),
        (StartRank(share=0.5), [5, 9, 0, 3]),
        (StartRank(share=0.99), [9, 0, 3, 5]),
        (StartRank(rank=4, share=0.99), [5, 9, 0, 3]),
        (StartRank(rank=0), [0, 3, 5, 9]),
        (StartRank(rank=10), [0, 3, 5, 9]),
    ],
)
def test_a_node_begins_at_a_rank_of_its_own(
    start: StartRank, order: list[int], tmp_path: Path
) -> None:
    for rank in (9, 3, 0, 5):
        put(tmp_path, rank)
    assert start.order({9, 3, 0, 5}) == order
    found = dump_files.read([str(tmp_path)], os.getuid(), 60.0, lambda _: None, start)
    assert list(found) == order


def test_a_file_that_vanishes_meanwhile_is_left_out_alone(tmp_path: Path) -> None:
    files = [put(tmp_path, rank) for rank in (1, 2)]
    with os.scandir(tmp_path) as scanned:
        entries = list(scanned)
    files[0].unlink()
    found = {entry.name: dump_files.stat_of(entry) is not None for entry in entries}
    assert found == {files[0].name: False, files[1].name: True}
