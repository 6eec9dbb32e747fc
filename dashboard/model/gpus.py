"""The GPUs of a cluster as columns, a single GPU as a `Cell`, and sums over GPUs.

Not measured is None in a `Cell` and NaN in a column.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuvigil.faults.gpu_states import HUNG, NO_PROCESSES, NO_UTILIZATION
from gpuvigil.model import GpuState, Subject

Column = npt.NDArray[Any]

STATES = tuple(GpuState)
HANGS = ("", *HUNG)
# Reasons why the state of a GPU that answers is not known.
UNSAID = (NO_PROCESSES, NO_UTILIZATION)


class DisplayState(IntEnum):
    """How a cell is drawn; the number is the byte in the map's data."""

    FREE = 0
    ACTIVE = 1
    IDLE = 2
    DEGRADED = 3
    FAILED = 4
    UNKNOWN = 5
    OUT = 6  # its node is out of service


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One GPU on the map; numbers are None where nothing trustworthy was measured."""

    subject: Subject
    index: int | None
    look: DisplayState
    state: GpuState
    reason: str
    held: bool | None  # None: not known
    holder: str = ""
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    hung: str = ""  # the key of the fault that keeps the GPU or its driver from answering

    @property
    def label(self) -> str:
        """The GPU's name on its node: `GPU` and its index, or its UUID without one."""
        return f"GPU {self.index}" if self.index is not None else self.subject.gpu or ""

    @property
    def address(self) -> str:
        """The GPU's name in links: its index, or its UUID if it has none now."""
        return str(self.index) if self.index is not None else self.subject.gpu or ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gpus:
    """GPUs as columns of the same length, in the order of the map; `holders` and `reasons` are texts."""

    uuid: Column
    index: Column
    look: Column
    state: Column  # index into STATES
    held: Column  # 1, 0, or -1 for not known
    hung: Column  # index into HANGS
    reason: Column  # index into `reasons`
    holder: Column  # index into `holders`
    utilization_percent: Column
    temperature_celsius: Column
    power_watts: Column
    power_limit_watts: Column
    reasons: Sequence[str]
    holders: Sequence[str]

    def __len__(self) -> int:
        return len(self.uuid)

    def part(self, chosen: slice | Column) -> "Gpus":
        """Return the chosen GPUs, in the order of `chosen`."""
        columns = (getattr(self, name)[chosen] for name in _GPU_COLUMNS)
        return replace(self, **dict(zip(_GPU_COLUMNS, columns, strict=True)))

    def cell(self, number: int, node: Subject) -> Cell:
        """Return the GPU with this number, which is on `node`."""
        index = measured(self.index[number])
        return Cell(
            subject=Subject(cluster=node.cluster, node=node.node, gpu=self.uuid[number]),
            index=None if index is None else int(index),
            look=DisplayState(int(self.look[number])),
            state=STATES[self.state[number]],
            reason=self.reasons[self.reason[number]],
            held=None if self.held[number] < 0 else bool(self.held[number]),
            holder=self.holders[self.holder[number]],
            utilization_percent=measured(self.utilization_percent[number]),
            temperature_celsius=measured(self.temperature_celsius[number]),
            power_watts=measured(self.power_watts[number]),
            power_limit_watts=measured(self.power_limit_watts[number]),
            hung=HANGS[self.hung[number]],
        )


_GPU_COLUMNS = tuple(f.name for f in fields(Gpus) if f.name not in {"reasons", "holders"})


def measured(value: float) -> float | None:
    """Return a number of a column; None if it was not measured."""
    return None if math.isnan(value) else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The numbers over the map. Shares are of GPUs that are known; None if there are none."""

    gpus: int
    in_service: (
        int  # not counted or drawn as unavailable, nor unknown; unknown ones that answer count
    )
    looks: Mapping[DisplayState, int]
    hung: Mapping[str, int]  # unknown GPUs, by the fault that hides their state
    known: int
    held: int
    unattributed: int  # not known, as neither holders nor processes are measured
    held_percent: float | None  # also None if only held GPUs are known
    used_percent: float | None  # mean utilisation of the held GPUs that were measured
    power_watts: float | None
    power_limit_watts: float | None  # of GPUs with measured power; None unless each has one
    power_measured: int

    @property
    def holders_known(self) -> bool:
        """Whether free and held can be counted: at least one GPU is known, or none is unattributed."""
        return self.known > 0 or not self.unattributed


def summed(gpus: Gpus) -> Strip:
    """Return the numbers over the map for the GPUs of one cluster."""
    looks, hung = (
        np.bincount(column, minlength=len(kinds)).tolist()
        for column, kinds in ((gpus.look, DisplayState), (gpus.hung, HANGS))
    )
    held, known = gpus.held > 0, int((gpus.held >= 0).sum())
    used = gpus.utilization_percent[held & ~np.isnan(gpus.utilization_percent)]
    blind = [place for place, text in enumerate(gpus.reasons) if text == NO_PROCESSES]
    answers = [place for place, text in enumerate(gpus.reasons) if text in UNSAID]
    # A GPU with a critical incident is drawn and counted as failed though it may still compute.
    useless = (gpus.state == STATES.index(GpuState.UNAVAILABLE)) | (
        gpus.look == DisplayState.FAILED
    )
    dark = (gpus.state == STATES.index(GpuState.UNKNOWN)) & ~np.isin(gpus.reason, answers)
    active = gpus.state == STATES.index(GpuState.ACTIVE)
    unattributed = int(((gpus.held < 0) & (active | np.isin(gpus.reason, blind))).sum())
    only_held = unattributed > 0 and int(held.sum()) == known
    power = ~np.isnan(gpus.power_watts)
    limits = gpus.power_limit_watts[power]
    return Strip(
        gpus=len(gpus),
        in_service=int((~useless & ~dark).sum()),
        looks={look: looks[look] for look in DisplayState},
        hung={fault: hung[place] for place, fault in enumerate(HANGS) if fault},
        known=known,
        held=int(held.sum()),
        unattributed=unattributed,
        held_percent=100 * int(held.sum()) / known if known and not only_held else None,
        used_percent=float(used.mean()) if len(used) else None,
        power_watts=float(gpus.power_watts[power].sum()) if len(limits) else None,
        power_limit_watts=(
            float(limits.sum()) if len(limits) and not np.isnan(limits).any() else None
        ),
        power_measured=int(power.sum()),
    )
