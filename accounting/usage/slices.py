"""MIG devices as parts of their GPU: the weight of each, its activity, and its holder."""

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
# "3g.40gb", "1c.2g.20gb", "1g.10gb+me": compute slices; those of a compute instance come first.
_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")
# NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles": of these models a GPU has four
# compute slices, of all others that can be cut seven.
_FOUR = re.compile(r"\bA30\b|RTX PRO [56]000", re.IGNORECASE)
_MOST, _FEW = 7, 4


@lru_cache(maxsize=10_000)
def weight(profile: str, model: str) -> float:
    """Return the part of its GPU that a MIG device is, by compute slices; 0 for an unknown profile.

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
    """MIG devices of numbered GPUs, in the order of their own numbers."""

    known: Bools  # whether each head's GPU has a number
    of_head: Ints  # device number of each known head
    keys: tuple[Gpu, ...]
    parent: Ints  # number of the GPU
    whole: Floats  # the part of its GPU that each device is
    number: Mapping[Gpu, int]  # of GPUs, followed by devices

    @classmethod
    def of(cls, question: tuple[pa.Table, Gpus]) -> "Devices":
        """Read heads with columns `node`, `uuid`, `mig` and `profile`, and the GPUs."""
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
    """MIG devices (rows) and minutes (columns); they follow the GPUs as units of the count.

    `weight` is 0 in a minute without the device. The weights of one GPU's devices add up to at most 1: where
    devices from before and after a change appear in one minute, they share it.
    """

    keys: Sequence[Gpu]
    parent: Ints
    weight: Floats
    used: Floats  # as a share, NaN where not measured
    processes: Floats


def slices_of(rows: pa.Table, length: Ints, devices: Devices, grid: Grid) -> Slices:
    """Return the devices' activity from their rows, `length` per head; only minutes of GPUs that answer count."""
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
    """Return a grid of GPUs and slices, each unit's weight per minute, and the minutes in which a GPU was cut.

    The rest of a cut GPU belongs to nobody and computes nothing: nobody can hold it.
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
    """Assign pieces of a cut GPU to its devices with a process, unless an allocation names the device.

    The mask says in which minutes each piece counts.
    """
    count = len(cut)
    named = np.isin(np.arange(count, count + len(slices.keys)), held.gpu)
    unnamed = np.nonzero(~named)[0]
    # The pieces of each GPU are adjacent, and a device takes those of its GPU.
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
