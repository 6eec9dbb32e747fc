"""Who held which GPU when, cut into pieces that belong to one holder each."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from ..model import Allocation

Gpu = tuple[str, str]  # its node's name and its UUID
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Processes come and go by the thousand: those of one user are one holder.
PROCESSES = "processes"
# Somebody has a compute context, and no allocation says who.
NOBODY_KNOWN = "unknown"
_LONGEST_NAME, _LONGEST_COMMAND = 120, 200


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owner:
    """One holder of a user, with one command of its own."""

    user: str
    holder: str
    command: str = ""
    partition: str = ""
    account: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.user, self.holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Parallel columns: `share` of GPU number `gpu` was its owner's from `start` to `end`.

    Times are seconds since the start of the span. At every moment the shares of a held GPU add up to 1.
    """

    gpu: Ints
    owner: Ints
    start: Floats
    end: Floats
    share: Floats
    owners: tuple[Owner, ...]


def pieces(
    allocations: Iterable[Allocation], numbers: Mapping[Gpu, int], start: datetime, end: datetime
) -> Pieces:
    """The allocations that overlap `[start, end)`, of GPUs that have a number."""
    length = (end - start).total_seconds()
    owners: dict[Owner, int] = {}
    spans: dict[int, list[_Span]] = defaultdict(list)
    for one in allocations:
        gpu = numbers.get((one.subject.node, one.subject.gpu or ""))
        began = max((one.started_at - start).total_seconds(), 0.0)
        ended = length if one.ended_at is None else (one.ended_at - start).total_seconds()
        if gpu is not None and began < min(ended, length):
            owner = owners.setdefault(owner_of(one), len(owners))
            spans[gpu].append((began, min(ended, length), owner))
    keys = [owner.key for owner in owners]
    found = [piece for gpu, them in spans.items() for piece in _cut(gpu, them, keys)]
    columns: Sequence[Sequence[Any]] = list(zip(*found, strict=True)) or [[]] * 5
    return Pieces(
        gpu=np.array(columns[0], dtype=np.int64),
        owner=np.array(columns[1], dtype=np.int64),
        start=np.array(columns[2], dtype=np.float64),
        end=np.array(columns[3], dtype=np.float64),
        share=np.array(columns[4], dtype=np.float64),
        owners=tuple(owners),
    )


def owner_of(allocation: Allocation) -> Owner:
    """A job by itself, a process as one of its user's."""
    job = allocation.holder.startswith("job ")
    return Owner(
        user=_line(allocation.user or "", _LONGEST_NAME),
        holder=_line(allocation.holder, _LONGEST_NAME) if job else PROCESSES,
        command=_line(allocation.command or "", _LONGEST_COMMAND),
        partition=_line(allocation.partition or "", _LONGEST_NAME),
        account=_line(allocation.account or "", _LONGEST_NAME),
    )


_Span = tuple[float, float, int]  # start, end, owner
_Piece = tuple[int, int, float, float, float]


def _cut(gpu: int, spans: list[_Span], keys: Sequence[tuple[str, str]]) -> Iterator[_Piece]:
    """Pieces of one GPU: holders have equal parts, and within one its commands have."""
    if len(spans) == 1:
        start, end, owner = spans[0]
        yield gpu, owner, start, end, 1.0
        return
    changes: dict[float, list[tuple[int, int]]] = defaultdict(list)
    for start, end, owner in spans:
        changes[start].append((owner, 1))
        changes[end].append((owner, -1))
    held: dict[int, int] = {}  # how many allocations of each owner
    before = 0.0
    for at in sorted(changes):
        yield from _parts(gpu, held, before, at, keys)
        for owner, change in changes[at]:
            held[owner] = held.get(owner, 0) + change
            if held[owner] == 0:
                del held[owner]
        before = at


def _parts(
    gpu: int, held: Mapping[int, int], start: float, end: float, keys: Sequence[tuple[str, str]]
) -> Iterator[_Piece]:
    of_holder: dict[tuple[str, str], int] = {}
    for owner, count in held.items():
        of_holder[keys[owner]] = of_holder.get(keys[owner], 0) + count
    for owner, count in held.items():
        yield gpu, owner, start, end, count / of_holder[keys[owner]] / len(of_holder)


def _line(text: str, most: int) -> str:
    """One printable line of bounded length: names come from outside."""
    return "".join(ch if ch.isprintable() else " " for ch in text[:most])
