"""Who waits least in collectives, by the lines that NCCL Inspector writes: they wait for that one.

The format: NVIDIA/nccl v2.30.7, plugins/profiler/inspector/inspector_json.cc:26-258, a line for each operation of
a rank; older versions have the same names. `coll_sn` counts for a communicator and a type of collective, so the
same number at several ranks is the same collective; who comes to it last is in it for the shortest time.

Files are not rotated by NCCL and may be of any size: the end of each is read anew every time, so that
it does not matter whether somebody cut or replaced it.
"""

import json
import os
import stat
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import time_ns
from typing import Any

from gpuvigil.model import Collective, RankStand, Source, Stand

from .dump_files import stat_of
from .unreadable import UnreadableError

# Some 450 bytes for an operation: of each file the last 500.
TAIL_BYTES, LONGEST_LINE = 256 * 1024, 8 * 1024
_MOST_FILES, _MOST_NAMES = 64, 65_536
_LONGEST = 128
# Ours: so many ranks and collectives at least, in so many of which one is in it for the shortest time, and for
# half as long as the others.
LEAST_RANKS, LEAST_COMPARED = 4, 20
LEAST_PERCENT, MOST_OF_OTHERS = 70, 0.5
# And who is in it for so much longer waits for somebody: less is the order in which a ring goes round.
LEAST_MICROSECONDS = 1000
# In these the root, or all but the root, are through early, and wait for nobody.
_ROOTED = frozenset({"Broadcast", "Reduce", "Gather", "Scatter"})
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One rank's part in one collective."""

    communicator: str
    size: int
    rank: int
    host: str
    pid: int
    operation: str
    number: int
    microseconds: int
    clock: str  # which clock measured it: only of one they compare
    owner: int  # the user whose file says it


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """The rank of a communicator that the others wait for."""

    op: Op
    compared: int
    percent: int
    microseconds: int
    others: int
    pids: Mapping[str, set[int]]  # all that told, by host

    @property
    def host(self) -> str:
        return self.op.host

    @property
    def pid(self) -> int:
        return self.op.pid

    def collective(self, holder: str, gpu: str | None) -> Collective:
        """As it is told."""
        rank = RankStand(
            rank=self.op.rank,
            stand=Stand.FIRST,
            gpu=gpu,
            host=self.op.host,
            microseconds=self.microseconds,
        )
        return Collective(
            by=Source.INSPECTOR,
            holder=holder,
            stand=Stand.FIRST,
            group=self.op.communicator,
            size=self.op.size,
            operation=self.op.operation,
            count=1,
            ranks=(rank,),
            compared=self.compared,
            percent=self.percent,
            microseconds=self.others,
        )


def parse(line: bytes, owner: int) -> Op | None:
    """None for a line of something else, as of a send or a broadcast; UnreadableError for what is no line of Inspector's."""
    if len(line) > LONGEST_LINE:
        raise UnreadableError("a line is too long")
    try:
        value: Mapping[str, Any] = json.loads(line)
        is_one = "coll_perf" in value.keys()  # noqa: SIM118 - a list has none
        is_one = is_one and value["coll_perf"]["coll"] not in _ROOTED
        return _op(value, owner) if is_one else None
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UnreadableError(f"it is no line of NCCL Inspector's: {error!r}"[:200]) from None


def _op(value: Mapping[str, Any], owner: int) -> Op:
    header, about, found = value["header"], value["metadata"], value["coll_perf"]
    return Op(
        communicator=_text(header["id"]),
        size=_whole(header["n_ranks"]),
        rank=_whole(header["rank"]),
        host=_text(about["hostname"]),
        pid=_whole(about["pid"]),
        operation=_text(found["coll"]),
        number=_whole(found["coll_sn"]),
        microseconds=_whole(found["coll_exec_time_us"]),
        clock=_text(found.get("coll_timing_source", "")),
        owner=owner,
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise TypeError("a text was expected")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise TypeError("a number was expected")
    return value


def read(directories: Iterable[str], users: Collection[int], youth_seconds: float) -> Iterator[Op]:
    """What these users' processes wrote last, in files that changed lately; what is unreadable is left out."""
    oldest, left = time_ns() - int(youth_seconds * 1e9), _MOST_FILES
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            for _, entry in zip(range(_MOST_NAMES), entries, strict=False):
                if left and entry.name.endswith(".log"):
                    about = stat_of(entry)
                    if about is not None and _is_ours(about, users) and about.st_mtime_ns >= oldest:
                        left -= 1
                        yield from _ops(entry.path, users)


def _is_ours(about: os.stat_result, users: Collection[int]) -> bool:
    return stat.S_ISREG(about.st_mode) and about.st_uid in users


def _ops(path: str, users: Collection[int]) -> Iterator[Op]:
    with suppress(OSError):
        owner, lines = _tail(path, users)
        for line in lines:
            with suppress(UnreadableError):
                if (op := parse(line, owner)) is not None:
                    yield op


def _tail(path: str, users: Collection[int]) -> tuple[int, Sequence[bytes]]:
    """Whose file it is, and the whole lines at its end."""
    file = os.open(path, _FLAGS)
    try:
        about = os.fstat(file)
        if not _is_ours(about, users):
            return about.st_uid, ()
        begin = max(about.st_size - TAIL_BYTES, 0)
        content = os.pread(file, TAIL_BYTES, begin)
    finally:
        os.close(file)
    # What the first line began with was cut, and the last one may not be whole yet.
    return about.st_uid, content.split(b"\n")[bool(begin) : -1]


def first(ops: Iterable[Op]) -> list[First]:
    """Of each communicator the rank that the others wait for, where there is one; large ones first.

    Whatever another user writes of it is of another one.
    """
    found: dict[tuple[int, str], dict[tuple[str, int, str], dict[int, Op]]] = defaultdict(dict)
    for op in ops:
        of = found[op.owner, op.communicator].setdefault((op.operation, op.number, op.clock), {})
        of[op.rank] = op
    ones = [_first(list(them.values())) for them in found.values()]
    return sorted(
        (it for it in ones if it is not None), key=lambda it: (-it.op.size, it.op.communicator)
    )


def _first(collectives: Sequence[Mapping[int, Op]]) -> First | None:
    """In each the ranks are held against each other that told of it: as many as ever did."""
    most = max(len(ranks) for ranks in collectives)
    whole = [ranks for ranks in collectives if len(ranks) == most]
    if most < LEAST_RANKS or len(whole) < LEAST_COMPARED:
        return None
    times: dict[int, list[int]] = defaultdict(list)
    shortest: dict[int, int] = defaultdict(int)
    for ranks in whole:
        least, second = sorted(ranks.values(), key=lambda op: op.microseconds)[:2]
        shortest[least.rank] += least.microseconds < second.microseconds
        for op in ranks.values():
            times[op.rank].append(op.microseconds)
    rank = max(shortest, key=lambda it: (shortest[it], -it))
    own = statistics.median(times.pop(rank))
    others = statistics.median([statistics.median(them) for them in times.values()])
    percent = 100 * shortest[rank] // len(whole)
    is_much = own <= MOST_OF_OTHERS * others and others - own >= LEAST_MICROSECONDS
    if percent < LEAST_PERCENT or not is_much:
        return None
    told = [op for ranks in whole for op in ranks.values()]
    pids: dict[str, set[int]] = defaultdict(set)
    for op in told:
        pids[op.host].add(op.pid)
    return First(
        op=next(op for op in reversed(told) if op.rank == rank),
        compared=len(whole),
        percent=percent,
        microseconds=int(own),
        others=int(others),
        pids=pids,
    )
