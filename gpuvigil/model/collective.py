"""Reports by a job's communication library on the collective that its ranks are in."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..plain import known, plain
from .rank_spans import Spans, read_spans

# Limit on named ranks per look; their total is given beside them.
MOST_RANKS = 64
LONGEST_WORD = 128
_MOST = 2**53  # largest integer that JSON readers keep exactly


class Source(str, Enum):
    """The source of a statement about a collective."""

    RAS = "ras"  # NCCL's own status socket
    FLIGHT_RECORDER = "flight_recorder"  # PyTorch's dumps
    INSPECTOR = "inspector"  # NCCL's profiler plugin


class RankState(str, Enum):
    """The position of a job or a rank in a collective; of several that apply, the first one counts."""

    DEAD = "dead"  # NCCL has given the process up
    UNREACHABLE = "unreachable"  # the others' NCCL hears nothing from it
    FAILED = "failed"  # it reports an error itself, or was aborted
    BEHIND = "behind"  # it never entered the collective that the others wait in
    DIFFERENT = "different"  # it calls another operation than the others at the same point
    NO_DUMP = "no dump"  # it wrote no dump, while the others wait in one collective
    STARTING = "starting"  # its communicator is not ready, nor was it half a minute before
    SILENT = "silent"  # the node's own process takes the query and never answers
    FIRST = "first"  # it waits least: the others wait for it
    TOGETHER = "together"  # all are at the same point: stalled or idle
    WAITING = "waiting"  # it is in the collective that those behind have not entered


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """One rank's position, by its number in the job's largest communicator."""

    rank: int
    stand: RankState
    gpu: str | None = None  # UUID, if it is on the reporting node
    host: str = ""  # its node as the library names it: an address
    device: int | None = None  # NVML index of its GPU, as that rank counts
    reached: int | None = None  # the last collective that it entered
    microseconds: int | None = None  # typical time in a collective, where measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One look at one job from one node; numbers, and no prose."""

    by: Source
    holder: str  # as in allocations: "job 17"
    stand: RankState
    group: str = ""  # the communicator: its hash, or its name
    size: int = 0  # ranks in it
    operation: str = ""  # AllReduce, all_reduce
    entered: int | None = None  # the last collective that anybody entered
    count: int = 0  # ranks in this position, including those not named
    ranks: tuple[RankStatus, ...] = ()
    # From dumps, all ranks that were read, including those not named: those waiting in `entered`,
    # those that have left it, and those that never entered it.
    waiting: Spans = ()
    left: Spans = ()
    late: Spans = ()
    compared: int = 0  # collectives for which all these ranks reported their time
    percent: int | None = None  # percentage of those in which this rank's time was the shortest
    microseconds: int | None = None  # the others' typical time in one
    cost: int | None = None  # thousandths of the job's time in which the others wait for this rank
    cost_before: int | None = None  # the same, when the job was young
    seconds: int | None = None  # for which the rank has come last, at least
    hosts: tuple[str, ...] = ()  # the library's addresses of the reporting node

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**plain(self), "ranks": [plain(rank) for rank in self.ranks]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Collective":
        """Parse a collective; raise ValueError, KeyError or TypeError. Names and numbers are bounded."""
        said = known(cls, value)
        ranks = list(value.get("ranks", ()))[:MOST_RANKS]
        texts = {name: _word(said.get(name, "")) for name in ("holder", "group", "operation")}
        return cls(
            by=Source(said["by"]),
            stand=RankState(said["stand"]),
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


def _rank(value: Mapping[str, Any]) -> RankStatus:
    rank = _number(value["rank"])
    if rank is None:
        raise ValueError("a rank is a number")
    return RankStatus(
        rank=rank,
        stand=RankState(value["stand"]),
        gpu=None if value.get("gpu") is None else _word(value["gpu"]),
        host=_word(value.get("host", "")),
        device=_number(value.get("device")),
        reached=_number(value.get("reached")),
        microseconds=_number(value.get("microseconds")),
    )


def _word(text: object) -> str:
    """Return an untrusted name, shortened and without anything that a terminal or a page would obey."""
    if not isinstance(text, str):
        raise TypeError("a name must be a text")
    said = "".join(ch if ch.isprintable() else "?" for ch in text[:LONGEST_WORD])
    return said.encode(errors="replace").decode()


def _number(value: object) -> int | None:
    """Return a count; None means not known. Anything else than an integer from -1 on is an error."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < _MOST:
        raise ValueError("a count must be a whole number from -1 on")
    return value
