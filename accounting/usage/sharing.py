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

# In a bucket with more holders the smallest are merged.
MOST_HOLDERS = 1000
# The default of `analyzer.idle_below_percent`, as a share. That setting is for incidents; counts do not follow it.
IDLE_BELOW = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Parallel rows: `parts` (seconds per minute) of unit number `gpu` belonged to an owner."""

    gpu: Ints
    owner: Ints
    owners: tuple[Owner, ...]
    parts: Floats
    shared: Bools  # while others had the GPU as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What is known of each GPU or slice (rows) and minute (columns)."""

    known: Bools
    measured: Bools
    used: Floats  # as a share, 0 where not measured
    power: Floats  # W, NaN where not measured
    physical: Ints  # number of each unit's GPU
    models: tuple[str, ...]  # by number, "" where unknown
    model: Ints  # of each unit

    @property
    def under_limit(self) -> Bools:
        """The minutes whose mean utilisation was measured and under `IDLE_BELOW`."""
        under: Bools = self.measured & (self.used < IDLE_BELOW)
        return under

    @property
    def under_limit_throughout(self) -> Bools:
        """The units that were under it in every minute."""
        throughout: Bools = np.logical_and.reduce(self.under_limit, axis=1)
        return throughout

    @property
    def at_zero(self) -> Bools:
        """The minutes with a measured utilisation of 0, whether or not somebody holds the unit."""
        at_zero: Bools = self.measured & (self.used == 0)
        return at_zero


def shares(held: Held, units: Units, more: Mapping[str, Floats] | None = None) -> Sequence[Share]:
    """Return the holders with allocated time by model, the largest first.

    `more` are amounts by row that are counted elsewhere; without them these amounts are unknown.
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
    # Energy drawn while nothing else was measured belongs to them as well.
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
    # The largest first; of equals by name.
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
    """Holders by model as parallel columns, the largest first."""

    owners: list[Owner]
    models: list[str]
    gpus: Ints
    sums: dict[str, Floats]

    def shares(self) -> pa.Table:
        """Return the largest, and the rest merged by user, account, partition, project and model."""
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
    """Return a table with a row per owner; what is unknown is null."""
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
    """Return the GPU-seconds and joules of each row."""
    gpu, parts = held.gpu, held.parts
    power = np.maximum(np.nan_to_num(units.power), 0.0)
    allocated = _where(parts, units.known[gpu])
    whole = units.under_limit_throughout[gpu] & (parts > 0).all(axis=1)
    return {
        "allocated": allocated,
        "quiet": np.where(whole, allocated, 0.0),
        "measured": _where(parts, units.measured[gpu]),
        "used": _where(parts, units.used[gpu]),
        "idle": _where(parts, units.at_zero[gpu]),
        "shared": np.where(held.shared, allocated, 0.0),
        "energy_joules": _where(parts, power[gpu]),
    }


def _where(values: Floats, weights: Bools | Floats) -> Floats:
    """Return the weighted sum of each row over its minutes."""
    found: Floats = np.einsum("ij,ij->i", values, weights)
    return found


def _spokesmen(of_row: Ints, owner: Ints, allocated: Floats, owners: tuple[Owner, ...]) -> Ints:
    """Return the owner whose command had most of each holder's time, which names it; of equals the last."""
    code = of_row * len(owners) + owner
    found = different(code)
    most = np.bincount(np.searchsorted(found, code), allocated)
    best: dict[int, tuple[float, Owner, int]] = {}
    for pair, amount in zip(found.tolist(), most.tolist(), strict=True):
        holder, number = divmod(pair, len(owners))
        value = amount, owners[number], number
        best[holder] = max(value, best.get(holder, value))
    return np.array([number for *_, number in best.values()], np.int64)
