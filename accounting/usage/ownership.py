"""Who held which GPU when, in pieces with one holder each."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gpuvigil.model import Allocation, HolderKind

Gpu = tuple[str, str]  # node name and GPU UUID
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Processes come and go by the thousand: those of one user are merged into one holder.
PROCESSES = "processes"
# A compute context without an allocation that names its holder.
NOBODY_KNOWN = "unknown"
# As in `Allocation.part`.
_SHARED = "shared"
_LONGEST_NAME, _LONGEST_COMMAND = 120, 200


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owner:
    """One holder of a user, with one of its commands."""

    user: str
    holder: str
    command: str = ""
    partition: str = ""
    account: str = ""
    project: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.user, self.holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Parallel columns: `share` of GPU number `gpu` was its owner's from `start` to `end`.

    Times are seconds since the start of the span. At every moment the shares of a held GPU add up to 1.
    `shared`: several holders had it at that time, and nobody knows who used how much.
    """

    gpu: Ints
    owner: Ints
    start: Floats
    end: Floats
    share: Floats
    shared: Bools
    owners: tuple[Owner, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationTable:
    """All allocations as columns that serve any number of spans.

    `gpu` is an index into `gpus`, `owner` one into `owners`; times are seconds since the epoch, infinite for
    what is still held.
    """

    gpus: tuple[Gpu, ...]
    owners: tuple[Owner, ...]
    gpu: Ints
    owner: Ints
    start: Floats
    end: Floats
    shared: Bools  # by time slicing or MPS, even if no other holder is seen
    # The mapping passed last, and the number of each of `gpus` in it.
    _asked: list[tuple[Mapping[Gpu, int], Ints]] = field(default_factory=list)

    @classmethod
    def of(cls, allocations: Iterable[Allocation]) -> "AllocationTable":
        """Build a row for each allocation, or for each MIG device that it names."""
        gpus: dict[Gpu, int] = {}
        owners: dict[Owner, int] = {}
        rows = [
            (
                gpus.setdefault((one.subject.node, uuid), len(gpus)),
                owners.setdefault(owner_of(one), len(owners)),
                one.started_at.timestamp(),
                math.inf if one.ended_at is None else one.ended_at.timestamp(),
                _SHARED in (one.part or "").split(","),
            )
            for one in allocations
            for uuid in _held_of(one)
        ]
        gpu, owner, start, end, shared = _columns(rows, 5)
        return cls(
            gpus=tuple(gpus),
            owners=tuple(owners),
            gpu=gpu.astype(np.int64),
            owner=owner.astype(np.int64),
            start=start,
            end=end,
            shared=shared > 0,
        )

    def pieces(self, numbers: Mapping[Gpu, int], start: datetime, end: datetime) -> Pieces:
        """Return the pieces that overlap `[start, end)`, of GPUs in `numbers`, which must not change."""
        number = self._numbers(numbers)
        zero, length = start.timestamp(), (end - start).total_seconds()
        # Most allocations of a book over weeks are over: only the others are compared to the second.
        near = np.nonzero((self.end >= zero) & (self.start <= zero + length))[0]
        began, ended = np.maximum(self.start[near] - zero, 0.0), self.end[near] - zero
        ended = np.minimum(ended, length)
        inside = (began < ended) & (number[self.gpu[near]] >= 0)
        rows, began, ended = near[inside], began[inside], ended[inside]
        gpu = number[self.gpu[rows]]
        alone = np.bincount(gpu)[gpu] == 1
        one = rows[alone]
        crowds: dict[int, list[_Span]] = defaultdict(list)
        columns = (gpu, began, ended, self.owner[rows])
        for which, *span in zip(*(one[~alone].tolist() for one in columns), strict=True):
            crowds[which].append((span[0], span[1], span[2]))
        keys = [owner.key for owner in self.owners] if crowds else []
        cut = [piece for which, spans in crowds.items() for piece in _cut(which, spans, keys)]
        of_gpu, owner, since, until, share, shared = _columns(cut, 6)
        of = np.concatenate([gpu[alone], of_gpu.astype(np.int64)])
        sliced = np.isin(of, gpu[self.shared[rows]])
        return Pieces(
            gpu=of,
            owner=np.concatenate([self.owner[one], owner.astype(np.int64)]),
            start=np.concatenate([began[alone], since]),
            end=np.concatenate([ended[alone], until]),
            share=np.concatenate([np.ones(len(one)), share]),
            shared=np.concatenate([np.zeros(len(one), np.bool_), shared > 0]) | sliced,
            owners=self.owners,
        )

    def _numbers(self, numbers: Mapping[Gpu, int]) -> Ints:
        """Return the number of each of `gpus`, -1 for none; cached while the same mapping is passed."""
        if not self._asked or self._asked[0][0] is not numbers:
            found = np.array([numbers.get(gpu, -1) for gpu in self.gpus], dtype=np.int64)
            self._asked[:] = [(numbers, found)]
        return self._asked[0][1]


def _columns(rows: Sequence[Sequence[float]], width: int) -> Floats:
    return np.array(rows, dtype=np.float64).reshape(len(rows), width).T


def owner_of(allocation: Allocation) -> Owner:
    """Return the owner under whom an allocation is summed up."""
    return _owner(
        allocation.user or "",
        holder_of(allocation),
        allocation.command or "",
        allocation.partition or "",
        allocation.account or "",
        project_of(allocation),
    )


def holder_of(allocation: Allocation) -> str:
    """Return the holder's name: of a job or pod its own, of a process that of all processes of its user."""
    return PROCESSES if allocation.holder.kind is HolderKind.PROCESS else str(allocation.holder)


def project_of(allocation: Allocation) -> str:
    """Return the project that is charged: the namespace of a pod, else the account of a job."""
    namespace = (allocation.pod or "").partition("/")[0]
    return namespace or allocation.account or ""


def _held_of(allocation: Allocation) -> Sequence[str]:
    """Return the UUID of the GPU, or those of the MIG devices that the allocation names."""
    devices = [it for it in (allocation.part or "").split(",") if it.startswith("MIG-")]
    return devices or (allocation.subject.gpu or "",)


@lru_cache(maxsize=100_000)
def _owner(
    user: str, holder: str, command: str, partition: str, account: str, project: str
) -> Owner:
    """Return the owner with printable texts; cached, since the same texts come often."""
    return Owner(
        user=_line(user, _LONGEST_NAME),
        holder=_line(holder, _LONGEST_NAME),
        command=_line(command, _LONGEST_COMMAND),
        partition=_line(partition, _LONGEST_NAME),
        account=_line(account, _LONGEST_NAME),
        project=_line(project, _LONGEST_NAME),
    )


_Span = tuple[float, float, int]  # start, end, owner
_Piece = tuple[int, int, float, float, float, bool]


def _cut(gpu: int, spans: list[_Span], keys: Sequence[tuple[str, str]]) -> Iterator[_Piece]:
    """Yield the pieces of one GPU: holders get equal parts, and a holder's part is divided among its allocations."""
    changes: dict[float, list[tuple[int, int]]] = defaultdict(list)
    for start, end, owner in spans:
        changes[start].append((owner, 1))
        changes[end].append((owner, -1))
    held: dict[int, int] = {}  # number of allocations by owner
    for since, until in pairwise(sorted(changes)):
        for owner, change in changes[since]:
            held[owner] = held.get(owner, 0) + change
            if held[owner] == 0:
                del held[owner]
        yield from _parts(gpu, held, since, until, keys)


def _parts(
    gpu: int, held: Mapping[int, int], start: float, end: float, keys: Sequence[tuple[str, str]]
) -> Iterator[_Piece]:
    of_holder: dict[tuple[str, str], int] = {}
    for owner, count in held.items():
        of_holder[keys[owner]] = of_holder.get(keys[owner], 0) + count
    for owner, count in held.items():
        share = count / of_holder[keys[owner]] / len(of_holder)
        yield gpu, owner, start, end, share, len(of_holder) > 1


def _line(text: str, most: int) -> str:
    """Return one printable line of bounded length, since names come from outside."""
    return "".join(ch if ch.isprintable() else " " for ch in text[:most])
