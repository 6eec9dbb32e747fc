"""GPU rows as the hub has them at a moment, for queries about idle GPUs.

Answers have the columns of `gpuvigil.store.Store.window`, one row of values per GPU.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpuvigil.clock import EPOCH, micros
from gpuvigil.store import Aggregate, Function

Columns = dict[str, NDArray[Any]]


class Measured:
    """The rows of a fleet's GPUs by UUID, as far as they have arrived."""

    def __init__(self, fields: Iterable[str]) -> None:
        self._fields = tuple(dict.fromkeys(fields))
        self._parts: dict[str, list[Columns]] = {}

    def take(self, table: pa.Table, arrivals: pa.Array) -> None:
        """Take the rows of a block; a missing field was not measured."""
        names = table.column("uuid").combine_chunks()
        order = np.argsort(names.indices.to_numpy(), kind="stable")
        edges = np.flatnonzero(np.diff(names.indices.to_numpy()[order], prepend=-1))
        columns: Columns = {
            "at": table.column("at").cast(pa.int64()).to_numpy()[order],
            "arrived": arrivals.cast(pa.int64()).to_numpy()[order],
        }
        for field in self._fields:
            if field in table.column_names:
                values = table.column(field).cast(pa.float64()).to_numpy()
                columns[field] = values[order]
            else:
                columns[field] = np.full(len(order), np.nan)
        uuids = names.dictionary.to_pylist()
        whose = names.indices.to_numpy()[order][edges]
        for number, first, last in zip(whose, edges, [*edges[1:], len(order)], strict=True):
            part = {name: values[first:last] for name, values in columns.items()}
            self._parts.setdefault(uuids[number], []).append(part)

    def newest(self, uuid: str, field: str, now: datetime, young: timedelta) -> float | None:
        """Return the field's value in the newest arrived row that is young enough; None without one."""
        rows = self._rows(uuid, now - young, now, now)
        values = rows[field] if rows else np.empty(0)
        return None if not len(values) or np.isnan(values[-1]) else float(values[-1])

    def window(
        self,
        uuid: str,
        aggregates: Sequence[Aggregate],
        span: tuple[datetime, datetime],
        now: datetime,
    ) -> Mapping[str, Any] | None:
        """Return the aggregates of a GPU's rows in the span; None without any row."""
        rows = self._rows(uuid, *span, now)
        if not rows or not len(rows["at"]):
            return None
        found: dict[str, Any] = {
            it.column: _reduced(it.function, rows[it.field]) for it in aggregates
        }
        found["first_at"] = EPOCH + timedelta(microseconds=int(rows["at"][0]))
        return found

    def _rows(self, uuid: str, start: datetime, end: datetime, now: datetime) -> Columns:
        parts = self._parts.get(uuid)
        if not parts:
            return {}
        if len(parts) > 1:
            whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            order = np.argsort(whole["at"], kind="stable")
            parts[:] = [{name: values[order] for name, values in whole.items()}]
        (only,) = parts
        first, last = np.searchsorted(only["at"], [micros(start), micros(end)])
        known = only["arrived"][first:last] < micros(now)
        return {name: values[first:last][known] for name, values in only.items()}


def _reduced(function: Function, values: NDArray[Any]) -> float | None:
    """Reduce values as the stores do: unmeasured ones are ignored."""
    known = values[~np.isnan(values)]
    if function is Function.COUNT:
        return float(len(known))
    if not len(known):
        return None
    if function is Function.LAST:
        return float(known[-1])
    return float(_REDUCE[function](known))


_REDUCE: Mapping[Function, Callable[[NDArray[Any]], Any]] = {
    Function.MEAN: np.mean,
    Function.MIN: np.min,
    Function.MAX: np.max,
}
