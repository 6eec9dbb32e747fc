"""What a job's own communication library says of the collective that its ranks stand in."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .rank_spans import Spans, read_spans
from .record import known, plain

# Of one look; how many there are in all is told beside them.
MOST_RANKS = 64
LONGEST_WORD = 128
_MOST = 2**53  # what JSON's readers keep of a whole number


class Source(str, Enum):
    """Who said it."""

    RAS = "ras"  # NCCL's own status socket
    FLIGHT_RECORDER = "flight_recorder"  # PyTorch's dumps
    INSPECTOR = "inspector"  # NCCL's profiler plugin


class Stand(str, Enum):
    """How a job or a rank stands; of several that are true the first here is told."""

    DEAD = "dead"  # NCCL has given the process up
    UNREACHABLE = "unreachable"  # the others' NCCL hears nothing of it
    FAILED = "failed"  # it says itself that it has an error, or was aborted
    BEHIND = "behind"  # it never entered what the others wait in
    DIFFERENT = "different"  # at the same place it calls something else than the others do
    STARTING = "starting"  # its communicator is not made yet, and was not half a minute before
    SILENT = "silent"  # the node's own process takes the question and never answers
    FIRST = "first"  # it waits least for the others: they wait for it
    TOGETHER = "together"  # all stand at one place: stalled or idle
    WAITING = "waiting"  # it is in the collective, where those behind are missing


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStand:
    """One rank, by its number in the job's largest communicator."""

    rank: int
    stand: Stand
    gpu: str | None = None  # UUID, where it is on the node that tells
    host: str = ""  # as the library names its node: an address
    device: int | None = None  # its GPU's number by NVML, as that rank counts
    reached: int | None = None  # the last collective that it entered
    microseconds: int | None = None  # that it mostly is in a collective, where that is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One look at one job, as one node saw it; numbers, and no sentence."""

    by: Source
    holder: str  # as in allocations: "job 17"
    stand: Stand
    group: str = ""  # the communicator: its hash, or its name
    size: int = 0  # ranks in it
    operation: str = ""  # AllReduce, all_reduce
    entered: int | None = None  # the last collective that anybody entered
    count: int = 0  # ranks that stand so, also beyond those that are named
    ranks: tuple[RankStand, ...] = ()
    # Of dumps all that were read, also beyond those that are named: who waits in `entered`, who has left it, and
    # who never came to it.
    waiting: Spans = ()
    left: Spans = ()
    late: Spans = ()
    compared: int = 0  # collectives of which all these ranks told how long they were in them
    percent: int | None = None  # of those, in how many this rank was in it for the shortest time
    microseconds: int | None = None  # that the others mostly are in one
    cost: int | None = (
        None  # of a thousand of the job's time, in which the others wait for this rank
    )
    cost_before: int | None = None  # the same when the job was young
    seconds: int | None = None  # for which it has come last, at least
    hosts: tuple[str, ...] = ()  # the addresses by which the library knows the node that tells

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**plain(self), "ranks": [plain(rank) for rank in self.ranks]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Collective":
        """ValueError, KeyError or TypeError for what is none; names and numbers are bounded."""
        said = known(cls, value)
        ranks = list(value.get("ranks", ()))[:MOST_RANKS]
        texts = {name: _word(said.get(name, "")) for name in ("holder", "group", "operation")}
        return cls(
            by=Source(said["by"]),
            stand=Stand(said["stand"]),
            **texts,
            waiting=read_spans(said.get("waiting", ())),
            left=read_spans(said.get("left", ())),
            late=read_spans(said.get("late", ())),
            size=_number(said.get("size", 0)) or 0,
            entered=_number(said.get("entered")),
            count=_number(said.get("count", 0)) or 0,
            compared=_number(said.get("compared", 0)) or 0,
            percent=_number(said.get("percent")),
            microseconds=_number(said.get("microseconds")),
            cost=_number(said.get("cost")),
            cost_before=_number(said.get("cost_before")),
            seconds=_number(said.get("seconds")),
            ranks=tuple(map(_rank, ranks)),
            hosts=tuple(map(_word, list(said.get("hosts", ()))[:MOST_RANKS])),
        )


def _rank(value: Mapping[str, Any]) -> RankStand:
    rank = _number(value["rank"])
    if rank is None:
        raise ValueError("a rank is a number")
    return RankStand(
        rank=rank,
        stand=Stand(value["stand"]),
        gpu=None if value.get("gpu") is None else _word(value["gpu"]),
        host=_word(value.get("host", "")),
        device=_number(value.get("device")),
        reached=_number(value.get("reached")),
        microseconds=_number(value.get("microseconds")),
    )


def _word(text: object) -> str:
    """A name from outside: short, and nothing that a terminal or a page would obey."""
    if not isinstance(text, str):
        raise TypeError("a name must be a text")
    said = "".join(ch if ch.isprintable() else "?" for ch in text[:LONGEST_WORD])
    return said.encode(errors="replace").decode()


def _number(value: object) -> int | None:
    """A whole number; None is not known. What is no number, or none that is counted, is an error."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < _MOST:
        raise ValueError("a count must be a whole number from -1 on")
    return value
