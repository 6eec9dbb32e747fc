"""What was measured step by step, as columns: of thousands of subjects rows would not fit into memory."""

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
class Course:
    """One subject: `at` in microseconds since 1970, and by field as many values, NaN where nothing was measured."""

    at: Ints
    values: Mapping[str, Floats]

    def on(self, steps: Ints, field: str) -> Floats:
        """The field at each of `steps`, which are ordered; of several lines in one the last that was measured."""
        found = np.full(len(steps), np.nan)
        if len(steps):
            place = np.minimum(np.searchsorted(steps, self.at), len(steps) - 1)
            good = (steps[place] == self.at) & ~np.isnan(self.values[field])
            found[place[good]] = self.values[field][good]
        return found

    def measured(self, field: str) -> bool:
        """Whether it was at all."""
        return not bool(np.isnan(self.values[field]).all())


def courses(
    tables: Iterable[pa.Table], key: Sequence[str], fields: Sequence[str]
) -> dict[Key, Course]:
    """By what the columns of `key` say, "" where they say nothing; `tables` are those of `Store.series`."""
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
        found[said] = Course(
            at=np.concatenate([at for at, _ in them]),
            values=dict(zip(fields, values, strict=True)),
        )
    return found
