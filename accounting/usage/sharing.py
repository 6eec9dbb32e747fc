"""The share of each holder in a bucket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .amounts import AMOUNTS, OTHERS, Share
from .columns import SHARES, Rows, shares_of
from .grid import different
from .ownership import Bools, Floats, Ints, Owner

# A bucket with more holders joins the smallest.
MOST_HOLDERS = 1000
# What `analyzer.idle_below_percent` is if nobody sets it. That setting is for incidents: a count changes with none.
QUIET_BELOW = 0.01


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

    @property
    def still(self) -> Bools:
        """Where nothing was computed by the mean of a minute, as the idle rule's limit has it."""
        still: Bools = self.measured & (self.used < QUIET_BELOW)
        return still

    @property
    def quiet(self) -> Bools:
        """Which of them computed nothing in any minute, by the mean of each."""
        quiet: Bools = np.logical_and.reduce(self.still, axis=1)
        return quiet

    @property
    def idle(self) -> Bools:
        """Where nothing was computed: utilisation was measured and is 0, whether or not somebody holds it."""
        idle: Bools = self.measured & (self.used == 0)
        return idle


def shares(held: Held, units: Units, more: Mapping[str, Floats] | None = None) -> Sequence[Share]:
    """Holders with an allocated second by model, those that had most first.

    `more`: amounts by row that are counted elsewhere; without them nobody knows those.
    """
    amounts = {**_amounts(held, units), **(more or {})}
    model = units.model[held.gpu]
    keys: dict[tuple[str, str], int] = {}
    holder = np.zeros(len(held.owners), np.int64)
    for number in different(held.owner).tolist():  # a book may have many more
        holder[number] = keys.setdefault(held.owners[number].key, len(keys))
    models = len(units.models)
    code = holder[held.owner] * models + model
    some = amounts["allocated"] > 0
    found = different(code[some])
    # What was drawn while nothing else was measured is theirs as well, of whichever part.
    theirs = np.isin(code, found)
    of_part = np.searchsorted(found, code[theirs])
    sums: dict[str, Floats] = {
        name: np.bincount(of_part, values[theirs], len(found)).astype(np.float64)
        for name, values in amounts.items()
    }
    of_row = np.searchsorted(found, code[some])
    width = len(units.physical)
    gpus = np.bincount(different(of_row * width + units.physical[held.gpu[some]]) // width)
    owner = _spokesmen(of_row, held.owner[some], amounts["allocated"][some], held.owners)
    # Those that had most first; of equals by name.
    rank = {key: place for place, key in enumerate(sorted(keys))}
    by_name = np.array([rank[key] for key in keys], np.int64)[found // models]
    order = np.lexsort((found % models, by_name, -sums["allocated"]))
    many = _Many(
        owners=[held.owners[one] for one in owner[order].tolist()],
        models=[units.models[one] for one in (found[order] % models).tolist()],
        gpus=gpus[order],
        sums={name: values[order] for name, values in sums.items()},
    )
    return Rows(many.shares(), shares_of)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Many:
    """Holders by model as parallel columns, those that had most first."""

    owners: list[Owner]
    models: list[str]
    gpus: Ints
    sums: dict[str, Floats]

    def shares(self) -> pa.Table:
        """The largest, and the rest of each user, account, partition, project and model as one."""
        first = _table(self.owners[:MOST_HOLDERS], self.models, self.gpus, self.sums)
        groups: dict[tuple[str, ...], int] = {}
        of = np.array(
            [
                groups.setdefault((o.user, o.account, o.partition, o.project, model), len(groups))
                for o, model in zip(
                    self.owners[MOST_HOLDERS:], self.models[MOST_HOLDERS:], strict=True
                )
            ],
            np.int64,
        )
        owners = [
            Owner(user=user, holder=OTHERS, account=account, partition=partition, project=project)
            for user, account, partition, project, _ in groups
        ]
        sums = {
            name: np.bincount(of, one[MOST_HOLDERS:]).astype(np.float64)
            for name, one in self.sums.items()
        }
        gpus = np.bincount(of, self.gpus[MOST_HOLDERS:]).astype(np.int64)
        rest = _table(owners, [model for *_, model in groups], gpus, sums)
        return pa.concat_tables([first, rest]).combine_chunks()


def _table(
    owners: Sequence[Owner], models: Sequence[str], gpus: Ints, sums: Mapping[str, Floats]
) -> pa.Table:
    """A row per owner; what nobody names is null."""
    size = len(owners)
    columns: dict[str, Any] = {
        name: [getattr(owner, name) or None for owner in owners]
        for name in ("user", "account", "project", "partition", "command")
    }
    columns |= {
        "holder": [owner.holder for owner in owners],
        "model": [model or None for model in models[:size]],
        "gpus": gpus[:size],
        **{name: sums[name][:size] if name in sums else [None] * size for name in AMOUNTS},
    }
    return pa.table({name: columns[name] for name in SHARES.names}, SHARES)


def _amounts(held: Held, units: Units) -> dict[str, Floats]:
    """Of each row its GPU-seconds, and joules."""
    gpu, parts = held.gpu, held.parts
    power = np.maximum(np.nan_to_num(units.power), 0.0)
    allocated = _where(parts, units.known[gpu])
    whole = units.quiet[gpu] & (parts > 0).all(axis=1)
    return {
        "allocated": allocated,
        "quiet": np.where(whole, allocated, 0.0),
        "measured": _where(parts, units.measured[gpu]),
        "used": _where(parts, units.used[gpu]),
        "idle": _where(parts, units.idle[gpu]),
        "shared": np.where(held.shared, allocated, 0.0),
        "energy_joules": _where(parts, power[gpu]),
    }


def _where(values: Floats, weights: Bools | Floats) -> Floats:
    """The weighted sum of each row over its minutes."""
    found: Floats = np.einsum("ij,ij->i", values, weights)
    return found


def _spokesmen(of_row: Ints, owner: Ints, allocated: Floats, owners: tuple[Owner, ...]) -> Ints:
    """Of all commands of each holder the one that had most, which gives its name; of equals the last."""
    code = of_row * len(owners) + owner
    found = different(code)
    most = np.bincount(np.searchsorted(found, code), allocated)
    best: dict[int, tuple[float, Owner, int]] = {}
    for pair, amount in zip(found.tolist(), most.tolist(), strict=True):
        holder, number = divmod(pair, len(owners))
        value = amount, owners[number], number
        best[holder] = max(value, best.get(holder, value))
    return np.array([number for *_, number in best.values()], np.int64)
