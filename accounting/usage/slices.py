"""MIG devices as parts of their GPU: what each weighs, what it did, and who held it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from .grid import Grid, numbered, paired
from .identities import Gpus
from .ownership import Bools, Floats, Gpu, Ints, Pieces

SLICE_FIELDS = ("graphics_activity_percent", "sm_activity_percent", "compute_processes")
# "3g.40gb", "1c.2g.20gb", "1g.10gb+me": compute slices, of a compute instance its own.
_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")
# NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles": of these models a GPU has four
# compute slices, of all others that can be cut seven.
_FOUR = re.compile(r"\bA30\b|RTX PRO [56]000", re.IGNORECASE)
_MOST, _FEW = 7, 4


@lru_cache(maxsize=10_000)
def weight(profile: str, model: str) -> float:
    """The part of its GPU that a MIG device is, by compute slices; 0 for a profile like no other.

    >>> weight("3g.40gb", "NVIDIA H100 80GB HBM3") == 3 / 7
    True
    >>> weight("1c.3g.40gb", "NVIDIA H100 80GB HBM3") == 1 / 7
    True
    >>> weight("2g.12gb", "NVIDIA A30")
    0.5
    """
    found = _PROFILE.match(profile)
    if found is None:
        return 0.0
    return min(int(found[1] or found[2]) / (_FEW if _FOUR.search(model) else _MOST), 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Devices:
    """MIG devices of GPUs that have a number, in the order of their own numbers."""

    known: Bools  # of each head, whether its GPU has a number
    of_head: Ints  # of those heads, the number of their device
    keys: tuple[Gpu, ...]
    parent: Ints  # the number of the GPU
    whole: Floats  # the part of it that each device is
    number: Mapping[Gpu, int]  # of GPUs, and behind them of devices

    @classmethod
    def of(cls, question: tuple[pa.Table, Gpus]) -> "Devices":
        """Heads with columns `node`, `uuid`, `mig` and `profile`, and the GPUs."""
        heads, gpus = question
        named, of_gpu = numbered(heads, "node", "uuid")
        number = np.array([gpus.number.get(one, -1) for one in named], dtype=np.int64)
        devices, of_device = numbered(heads, "profile", "mig")
        known = number[of_gpu] >= 0
        parent, device, of_head = paired(number[of_gpu][known], of_device[known], len(devices))
        parts = [devices[one] for one in device.tolist()]
        whole = [
            weight(profile, gpus.models[of])
            for of, (profile, _) in zip(parent.tolist(), parts, strict=True)
        ]
        node_of = dict(zip(number.tolist(), (node for node, _ in named), strict=True))
        keys = tuple(
            (node_of[of], mig) for of, (_, mig) in zip(parent.tolist(), parts, strict=True)
        )
        behind = {key: len(gpus.keys) + place for place, key in enumerate(keys)}
        return cls(
            known=known,
            of_head=of_head,
            keys=keys,
            parent=parent,
            whole=np.array(whole, dtype=np.float64),
            number={**gpus.number, **behind},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """MIG devices (down) and minutes (across); after the GPUs, units of the count.

    `weight` is 0 in a minute in which a device was not there. The weights of one GPU's devices add
    up to at most 1: where devices of before and after a change are in one minute, they share it.
    """

    keys: Sequence[Gpu]
    parent: Ints
    weight: Floats
    used: Floats  # as a share, NaN where it was not measured
    processes: Floats


def slices_of(rows: pa.Table, length: Ints, devices: Devices, grid: Grid) -> Slices:
    """What devices did by their rows, of which each head of theirs has `length`; of GPUs that answer."""
    of_row = np.repeat(devices.of_head, length[devices.known])
    if not devices.known.all():
        rows = rows.filter(pa.array(np.repeat(devices.known, length)))
    parent = devices.parent
    own = Grid.of(rows, of_row, grid.start, len(parent), SLICE_FIELDS, minutes=grid.used.shape[1])
    there = own.row & grid.answering[parent]
    weights = np.where(there, devices.whole[:, None], 0.0)
    total = np.zeros_like(grid.used)
    np.add.at(total, parent, weights)
    weights /= np.maximum(total, 1.0)[parent]
    activity = np.where(
        np.isnan(own.means[SLICE_FIELDS[0]]), own.means[SLICE_FIELDS[1]], own.means[SLICE_FIELDS[0]]
    )
    return Slices(
        keys=devices.keys,
        parent=parent,
        weight=weights,
        used=np.clip(activity, 0.0, 100.0) / 100.0,
        processes=own.means["compute_processes"],
    )


def with_slices(grid: Grid, slices: Slices) -> tuple[Grid, Floats, Bools]:
    """Units for GPUs and slices, the weight of each in each minute, and where a GPU was cut.

    What is left of a GPU that is cut belongs to nobody and computes nothing: nobody can hold it.
    """
    taken = np.zeros(grid.used.shape)
    np.add.at(taken, slices.parent, slices.weight)
    cut = taken > 0
    measured = ~np.isnan(slices.used)
    joined = replace(
        grid,
        power=np.vstack([grid.power, grid.power[slices.parent]]),
        processes=np.vstack([np.where(cut, 0.0, grid.processes), slices.processes]),
        lost=np.vstack([grid.lost, np.zeros(slices.weight.shape, np.bool_)]),
        released=np.vstack([grid.released, np.zeros(slices.weight.shape, np.bool_)]),
        measured=np.vstack([grid.measured | cut, measured]),
        used=np.vstack([np.where(cut, 0.0, grid.used), np.where(measured, slices.used, 0.0)]),
    )
    return joined, np.vstack([np.maximum(1.0 - taken, 0.0), slices.weight]), cut


def on_slices(held: Pieces, slices: Slices, cut: Bools) -> tuple[Pieces, Bools]:
    """Pieces of a GPU that is cut are of its devices with a process, unless those are named.

    The mask says in which minutes each piece counts.
    """
    count = len(cut)
    named = np.isin(np.arange(count, count + len(slices.keys)), held.gpu)
    unnamed = np.nonzero(~named)[0]
    # The pieces of each GPU lie together, and a device takes those of its own.
    order = np.argsort(held.gpu, kind="stable")
    begin, end = (
        np.searchsorted(held.gpu[order], slices.parent[unnamed], side) for side in ("left", "right")
    )
    many = end - begin
    within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    copied = order[np.repeat(begin, many) + within]
    onto = np.repeat(unnamed, many)
    rows = np.concatenate([np.arange(len(held.gpu)), copied])
    mask = np.ones((len(held.gpu), cut.shape[1]), np.bool_)
    whole = held.gpu < count
    mask[whole] = ~cut[held.gpu[whole]]
    more = slices.processes[onto] > 0
    return (
        Pieces(
            gpu=np.concatenate([held.gpu, onto + count]),
            owner=held.owner[rows],
            start=held.start[rows],
            end=held.end[rows],
            share=held.share[rows],
            shared=held.shared[rows],
            owners=held.owners,
        ),
        np.vstack([mask, more]),
    )
