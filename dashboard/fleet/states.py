"""The state of every GPU, decided only by `gpuvigil.faults.gpu_states.gpu_state`.

Of ten thousand GPUs most are in the same situation as many others: the deciding fields and the faults are
the same. Each situation is decided once for all GPUs in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import moment
from gpuvigil.faults.gpu_states import HUNG, gpu_state, is_failing
from gpuvigil.model import GpuState, Severity

from ..model.gpus import HANGS, STATES, Column, DisplayState
from .liveness import NEVER, time_of
from .marks import Faults, Holders, OpenFaults, OutOfService

# The fields of a row on which the state depends.
DECIDING = ("up", "unmeasured_reason", "utilization_percent", "compute_processes")
_SECOND = 1_000_000
_LARGEST = 2**62

_LOOKS = {
    GpuState.ACTIVE: DisplayState.ACTIVE,
    GpuState.IDLE: DisplayState.IDLE,
    GpuState.FREE: DisplayState.FREE,
    GpuState.UNAVAILABLE: DisplayState.FAILED,
    GpuState.UNKNOWN: DisplayState.UNKNOWN,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuStates:
    """The states per GPU, in the given order; `reason` is an index into `reasons`."""

    state: Column
    look: Column
    hung: Column
    reason: Column
    reasons: tuple[str, ...]


def decide_states(
    rows: pa.Table,
    row: Column,
    young: Column,
    holders: Holders,
    active: OpenFaults,
    out: OutOfService,
) -> GpuStates:
    """Decide each GPU's state; `row` is its row in `rows`, which is used only if `young` is true."""
    held = holders.holder > 0
    said = [_numbered(rows.column(name), row, young) for name in DECIDING]
    example, situation = _situations([*said, young, held, active.faults, out.why])
    newest = _deciding_fields(rows, row[example])
    states, looks, hangs, reasons = [], [], [], []
    texts: dict[str, int] = {}
    for number, values in zip(example.tolist(), newest, strict=True):
        faults, own = active.kinds[active.faults[number]]
        believed = values if young[number] else None
        why = out.texts[out.why[number]]
        state, reason = gpu_state(believed, held=bool(held[number]), faults=faults, out=why)
        states.append(STATES.index(state))
        looks.append(_display_state(state, own, bool(why)))
        hides = "" if looks[-1] is DisplayState.FAILED else _hung(state, faults)
        hangs.append(HANGS.index(hides))
        reasons.append(texts.setdefault(reason, len(texts)))
    return GpuStates(
        state=np.array(states, np.uint8)[situation],
        look=np.array(looks, np.uint8)[situation],
        hung=np.array(hangs, np.uint8)[situation],
        reason=np.array(reasons, np.int64)[situation],
        reasons=tuple(texts),
    )


def with_since(states: GpuStates, chosen: Column, seen_at: Column) -> GpuStates:
    """Add "since ..." to the reasons of the `chosen` GPUs; `seen_at` is in microseconds, or NEVER."""
    reasons = states.reason.copy()
    places = {text: place for place, text in enumerate(states.reasons)}
    numbers = np.flatnonzero(chosen & (seen_at != NEVER))
    pairs = np.stack([states.reason[numbers], seen_at[numbers] // _SECOND])
    different, which = np.unique(pairs, axis=1, return_inverse=True)
    said = [
        places.setdefault(
            f"{states.reasons[reason]} since {moment(time_of(second * _SECOND))}", len(places)
        )
        for reason, second in different.T.tolist()
    ]
    reasons[numbers] = np.array(said, np.int64)[which.reshape(-1)]
    return replace(states, reason=reasons, reasons=tuple(places))


def _numbered(column: pa.ChunkedArray, row: Column, young: Column) -> Column:
    """Return per GPU a code for its row's value in this column; 0 for none."""
    codes = pc.dictionary_encode(column.combine_chunks()).indices.fill_null(-1).to_numpy()
    return np.where(young, at_rows(codes + 1, row, 0), 0)


def at_rows(values: Column, row: Column, missing: float) -> Column:
    """Return the value at each GPU's row; `missing` for GPUs without a row."""
    return np.append(values, missing)[row]


def _situations(columns: Sequence[Column]) -> tuple[Column, Column]:
    """Return one example GPU per distinct combination of values, and per GPU its combination's number."""
    combined, most = columns[0], int(columns[0].max(initial=0)) + 1
    for column in columns[1:]:
        kinds = int(column.max(initial=0)) + 1
        if most * kinds > _LARGEST:
            _, combined = np.unique(combined, return_inverse=True)
            most = len(combined)
        combined, most = combined * kinds + column, most * kinds
    _, example, situation = np.unique(combined, return_index=True, return_inverse=True)
    return example, situation


def _deciding_fields(rows: pa.Table, numbers: Column) -> Sequence[Mapping[str, Any]]:
    """Return the deciding fields of these rows; all None where the number is -1."""
    indices = pa.array(numbers, mask=numbers < 0)
    found: list[Mapping[str, Any]] = rows.select(DECIDING).take(indices).to_pylist()
    return found


def _hung(state: GpuState, faults: Faults) -> str:
    if state is not GpuState.UNKNOWN:
        return ""
    return next((fault for fault in HUNG if fault in faults), "")


def _display_state(state: GpuState, own: Faults, out: bool) -> DisplayState:
    """Return how a GPU is drawn; one that works despite a fault of its own, worse than info, is degraded."""
    if is_failing(state, own, out):
        return DisplayState.FAILED
    look = DisplayState.OUT if out and state is GpuState.UNAVAILABLE else _LOOKS[state]
    working = look in {DisplayState.ACTIVE, DisplayState.IDLE, DisplayState.FREE}
    if working and any(severity is not Severity.INFO for severity in own.values()):
        return DisplayState.DEGRADED
    return look
