"""What each holder had of a bucket."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .holding import Floats, Ints, Owner
from .model import OTHERS, Share

# A bucket with more holders joins the smallest.
MOST_HOLDERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Parallel rows: `parts` (seconds per minute) of GPU number `gpu` were an owner's."""

    gpu: Ints
    owner: Ints
    owners: tuple[Owner, ...]
    parts: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    owner: Owner
    gpus: frozenset[int]
    allocated: float
    measured: float
    used: float
    idle: float


def shares(
    held: Held, known: npt.NDArray[np.bool_], measured: npt.NDArray[np.bool_], used: Floats
) -> tuple[Share, ...]:
    """Holders with an allocated second, those that had most first; masks are GPU by minute."""
    of_holder: dict[tuple[str, str], list[_Amount]] = defaultdict(list)
    for amount in _by_owner(held, known, measured, used):
        of_holder[amount.owner.key].append(amount)
    found = [_share(amounts) for amounts in of_holder.values()]
    return _bounded(sorted(found, key=lambda one: (-one.allocated, one.key)))


def _by_owner(
    held: Held, known: npt.NDArray[np.bool_], measured: npt.NDArray[np.bool_], used: Floats
) -> Iterable[_Amount]:
    of_gpu = measured[held.gpu]
    allocated = np.where(known[held.gpu], held.parts, 0.0).sum(axis=1)
    columns = {
        "allocated": allocated,
        "measured": np.where(of_gpu, held.parts, 0.0).sum(axis=1),
        "used": np.where(of_gpu, held.parts * used[held.gpu], 0.0).sum(axis=1),
        "idle": np.where(of_gpu & (used[held.gpu] == 0), held.parts, 0.0).sum(axis=1),
    }
    size = len(held.owners)
    totals = {k: np.bincount(held.owner, v, size).tolist() for k, v in columns.items()}
    gpus: dict[int, set[int]] = defaultdict(set)
    for owner, gpu in zip(
        held.owner[allocated > 0].tolist(), held.gpu[allocated > 0].tolist(), strict=True
    ):
        gpus[owner].add(gpu)
    for number in sorted(gpus):
        amounts = {name: values[number] for name, values in totals.items()}
        yield _Amount(owner=held.owners[number], gpus=frozenset(gpus[number]), **amounts)


def _share(amounts: list[_Amount]) -> Share:
    """All commands of one holder; the one that had most gives its name."""
    most = max(amounts, key=lambda one: (one.allocated, one.owner.command))
    return Share(
        holder=most.owner.holder,
        user=most.owner.user or None,
        command=most.owner.command or None,
        partition=most.owner.partition or None,
        account=most.owner.account or None,
        gpus=len(frozenset[int]().union(*(one.gpus for one in amounts))),
        allocated=sum(one.allocated for one in amounts),
        measured=sum(one.measured for one in amounts),
        used=sum(one.used for one in amounts),
        idle=sum(one.idle for one in amounts),
    )


def _bounded(found: list[Share]) -> tuple[Share, ...]:
    """The largest, and the rest of each user, account and partition as one."""
    rest: dict[tuple[str | None, ...], list[Share]] = defaultdict(list)
    for share in found[MOST_HOLDERS:]:
        rest[share.user, share.account, share.partition].append(share)
    others = [
        Share(
            holder=OTHERS,
            user=user,
            command=None,
            gpus=sum(one.gpus for one in them),
            allocated=sum(one.allocated for one in them),
            measured=sum(one.measured for one in them),
            used=sum(one.used for one in them),
            idle=sum(one.idle for one in them),
            partition=partition,
            account=account,
        )
        for (user, account, partition), them in rest.items()
    ]
    return (*found[:MOST_HOLDERS], *others)
