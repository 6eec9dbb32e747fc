"""Parses the JSON answer of NCCL's RAS socket to `STATUS`. Pure.

The format: NVIDIA/nccl v2.30.7, src/ras/client_support.cc:1918-2166; its keys are those of 2.28.7.
It comes from a user's process: everything in it is checked, and any fault raises one named error.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .unreadable import TooLargeError, UnreadableError, flag, number, text

# 1,024 GPUs in six communicators answer 3.4 MB (555 bytes for a rank of a communicator); parsing takes
# up to twenty times as much memory.
LARGEST_BYTES = 4 * 1024 * 1024
MOST_COMMUNICATORS, MOST_RANKS = 4_096, 65_536
# ncclResult_t, nccl.h.in:44: success, and in progress.
FINE, IN_PROGRESS = 0, 7


@dataclass(frozen=True, slots=True)
class Place:
    """One GPU of one process; the same in all communicators of a job."""

    host: str
    pid: int
    device: int  # NVML's index


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank that answered."""

    rank: int
    place: Place
    init_state: int
    async_error: int
    ending: bool  # it is being finalized or destroyed
    aborted: bool
    counts: Mapping[str, int]  # launched so far, by type of collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A rank without an answer."""

    rank: int
    place: Place
    unresponsive: (
        bool  # its process is silent; else the process answered, but is not in that communicator
    )
    dead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """A communicator; `key` is both of its hashes, since one alone may be shared by several."""

    key: str
    size: int
    ranks: tuple[Rank, ...]
    missing: tuple[Missing, ...]

    def places(self) -> Iterator[tuple[int, Place]]:
        """Yield rank and place of all ranks, with or without an answer."""
        yield from ((one.rank, one.place) for one in self.ranks)
        yield from ((one.rank, one.place) for one in self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One answer, about one job."""

    version: str
    communicators: tuple[Communicator, ...]
    timeouts: int = 0


def parse(content: bytes | bytearray) -> Status:
    """Parse an answer; UnreadableError for everything else."""
    if len(content) > LARGEST_BYTES:
        raise TooLargeError(f"its status is over {LARGEST_BYTES // 1024**2} MiB")
    try:
        value = json.loads(content)
    except RecursionError:
        raise UnreadableError("its status is nested too deep") from None
    except ValueError as error:
        raise UnreadableError(f"its status is no JSON: {type(error).__name__}") from None
    try:
        return _status(value)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UnreadableError(f"its status is not as NCCL writes it: {error!r}"[:200]) from None


def _status(value: Mapping[str, Any]) -> Status:
    said = value["communicators"]
    if len(said) > MOST_COMMUNICATORS:
        raise ValueError(f"over {MOST_COMMUNICATORS} communicators")
    if sum(len(one["ranks"]) + len(one["missing_ranks"]) for one in said) > MOST_RANKS:
        raise ValueError(f"over {MOST_RANKS} ranks")
    return Status(
        version=text(value["nccl_version"]),
        communicators=tuple(map(_communicator, said)),
        timeouts=number(value["ras"]["timeouts_count"]),
    )


def _communicator(value: Mapping[str, Any]) -> Communicator:
    return Communicator(
        key=f"{text(value['hash'])} {text(value['secondary_hash'])}",
        size=number(value["size"]),
        ranks=tuple(map(_rank, value["ranks"])),
        missing=tuple(map(_missing, value["missing_ranks"])),
    )


def _rank(value: Mapping[str, Any]) -> Rank:
    status = value["status"]
    counts = value["collective_counts"]
    if len(counts) > 64:
        raise ValueError("over 64 types of collectives")
    return Rank(
        rank=number(value["rank"]),
        place=_place(value),
        init_state=number(status["init_state"]),
        async_error=number(status["async_error"]),
        ending=flag(status["finalize_called"]) or flag(status["destroy_flag"]),
        aborted=flag(status["abort_flag"]),
        counts={text(name): number(count) for name, count in counts.items()},
    )


def _missing(value: Mapping[str, Any]) -> Missing:
    status = value["status"]
    return Missing(
        rank=number(value["rank"]),
        place=_place(value),
        unresponsive=flag(status["unresponsive"]),
        dead=flag(status["considered_dead"]),
    )


def _place(value: Mapping[str, Any]) -> Place:
    return Place(text(value["host"]), number(value["pid"], -1), number(value["nvml_dev"], -1))


def numbers_in_the_job(communicators: Iterable[Communicator]) -> dict[Place, int]:
    """Return each rank's number for people: that in the largest communicator that it is in."""
    found: dict[Place, int] = {}
    for one in by_size(communicators):
        for rank, place in one.places():
            found.setdefault(place, rank)
    return found


def by_size(communicators: Iterable[Communicator]) -> Sequence[Communicator]:
    """Return the communicators, the largest first, equal ones in the order of their keys."""
    return sorted(communicators, key=lambda one: (-one.size, one.key))
