"""What each holder had of a bucket."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .amounts import OTHERS, Share, summed
from .holding import Bools, Floats, Ints, Owner

# A bucket with more holders joins the smallest.
MOST_HOLDERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Parallel rows: `parts` (seconds per minute) of GPU number `gpu` were an owner's."""

    gpu: Ints
    owner: Ints
    owners: tuple[Owner, ...]
    parts: Floats
    shared: Bools  # at a time at which others had it too


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What is known of each GPU or slice (down) and minute (across)."""

    known: Bools
    measured: Bools
    used: Floats  # as a share, 0 where it was not measured
    power: Floats  # W, NaN where it was not measured
    physical: Ints  # of each unit, the number of the GPU that it is a part of
    models: tuple[str, ...]  # by number, "" where nobody names one
    model: Ints  # of each unit


def shares(held: Held, units: Units) -> tuple[Share, ...]:
    """Holders with an allocated second by model, those that had most first."""
    amounts = _amounts(held, units)
    model = units.model[held.gpu]
    keys: dict[tuple[str, str], int] = {}
    holder = np.array([keys.setdefault(one.key, len(keys)) for one in held.owners], np.int64)
    models = max(len(units.models), 1)
    code = holder[held.owner] * models + model
    some = amounts["allocated"] > 0
    found, of_row = np.unique(code[some], return_inverse=True)
    sums: dict[str, Floats] = {
        name: np.bincount(of_row, values[some], len(found)).astype(np.float64)
        for name, values in amounts.items()
    }
    gpus = _different(of_row, units.physical[held.gpu[some]], len(found))
    owner = _spokesman(of_row, held.owner[some], amounts["allocated"][some], held.owners)
    names = list(keys)
    order = sorted(
        range(len(found)),
        key=lambda n: (-sums["allocated"][n], names[found[n] // models], found[n] % models),
    )
    first = [
        _share(held.owners[owner[n]], units.models[found[n] % models], int(gpus[n]), sums, n)
        for n in order
    ]
    return _bounded(first)


def _amounts(held: Held, units: Units) -> dict[str, Floats]:
    """Of each row its GPU-seconds, and joules."""
    gpu, parts = held.gpu, held.parts
    power = np.where(units.power >= 0, units.power, 0.0)
    allocated = _where(parts, units.known[gpu])
    return {
        "allocated": allocated,
        "measured": _where(parts, units.measured[gpu]),
        "used": _where(parts, units.used[gpu]),
        "idle": _where(parts, (units.measured & (units.used == 0))[gpu]),
        "shared": np.where(held.shared, allocated, 0.0),
        "energy_joules": _where(parts, power[gpu]),
    }


def _where(values: Floats, weights: Bools | Floats) -> Floats:
    """The weighted sum of each row over its minutes."""
    found: Floats = np.einsum("ij,ij->i", values, weights)
    return found


def _different(of_row: Ints, gpu: Ints, size: int) -> Ints:
    """How many different GPUs each has."""
    pairs = np.unique(np.stack([of_row, gpu]), axis=1) if len(gpu) else np.zeros((2, 0), np.int64)
    return np.bincount(pairs[0], minlength=size)


def _spokesman(
    of_row: Ints, owner: Ints, allocated: Floats, owners: tuple[Owner, ...]
) -> npt.NDArray[np.int64]:
    """Of all commands of one holder the one that had most, which gives its name."""
    code = of_row * max(len(owners), 1) + owner
    found, of_pair = np.unique(code, return_inverse=True)
    most = np.bincount(of_pair, allocated, len(found))
    rank: dict[int, tuple[float, str]] = {}
    chosen = np.zeros(int(of_row.max()) + 1 if len(of_row) else 0, dtype=np.int64)
    for pair, amount in zip(found.tolist(), most.tolist(), strict=True):
        holder, number = divmod(pair, len(owners))
        value = (amount, owners[number].command)
        if holder not in rank or value > rank[holder]:
            rank[holder] = value
            chosen[holder] = number
    return chosen


def _share(owner: Owner, model: str, gpus: int, sums: dict[str, Floats], number: int) -> Share:
    return Share(
        holder=owner.holder,
        user=owner.user or None,
        command=owner.command or None,
        partition=owner.partition or None,
        account=owner.account or None,
        project=owner.project or None,
        model=model or None,
        gpus=gpus,
        **{name: float(values[number]) for name, values in sums.items()},
    )


def _bounded(found: list[Share]) -> tuple[Share, ...]:
    """The largest, and the rest of each user, account, partition, project and model as one."""
    rest: dict[tuple[str | None, ...], list[Share]] = defaultdict(list)
    for one in found[MOST_HOLDERS:]:
        rest[one.user, one.account, one.partition, one.project, one.model].append(one)
    others = (
        replace(summed(them), holder=OTHERS, command=None, gpus=sum(one.gpus for one in them))
        for them in rest.values()
    )
    return (*found[:MOST_HOLDERS], *others)
