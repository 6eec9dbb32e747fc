"""Time series as columns, since rows of thousands of subjects would not fit into memory."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from accounting.usage.grid import runs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TimeSeries:
    """One subject's series: `at` in microseconds since 1970, and a value per time by field, NaN if not measured."""

    at: Ints
    values: Mapping[str, Floats]

    def on(self, steps: Ints, field: str) -> Floats:
        """Return the field at each of the sorted `steps`, NaN if missing; of several rows the last measured one."""
        found = np.full(len(steps), np.nan)
        if len(steps):
            place = np.minimum(np.searchsorted(steps, self.at), len(steps) - 1)
            good = (steps[place] == self.at) & ~np.isnan(self.values[field])
            found[place[good]] = self.values[field][good]
        return found

    def measured(self, field: str) -> bool:
        """Return whether the field was measured at all."""
        return not bool(np.isnan(self.values[field]).all())


def time_series(
    tables: Iterable[pa.Table], key: Sequence[str], fields: Sequence[str]
) -> dict[Key, TimeSeries]:
    """Return the series of `Store.series` tables, by the values of the `key` columns, "" for null."""
    parts: defaultdict[Key, list[tuple[Ints, Sequence[Floats]]]] = defaultdict(list)
    for table in tables:
        heads, length = runs(table, key)
        at = table["at"].cast(pa.int64()).to_numpy()
        columns = [table[name].cast(pa.float64()).to_numpy() for name in fields]
        end = np.cumsum(length)
        names = zip(*(heads[name].to_pylist() for name in key), strict=True)
        for said, first, last in zip(names, end - length, end, strict=True):
            values = [column[first:last] for column in columns]
            parts[tuple(one or "" for one in said)].append((at[first:last], values))
    found = {}
    for said, them in parts.items():
        values = [np.concatenate([of[place] for _, of in them]) for place in range(len(fields))]
        found[said] = TimeSeries(
            at=np.concatenate([at for at, _ in them]),
            values=dict(zip(fields, values, strict=True)),
        )
    return found
