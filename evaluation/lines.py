"""Lines on their way into cells: by time, by place, and one value for each cell."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .tables import Field, Numbers

# Values and which of them were measured; None when all were.
Measured = tuple[Numbers, Numbers | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines of one measurement as arrays of one length; subjects and steps are numbers."""

    subjects: Numbers
    at_us: Numbers
    steps: Numbers
    columns: Mapping[str, Measured]

    def __len__(self) -> int:
        return len(self.steps)

    def where(self, chosen: Numbers | slice) -> "Lines":
        """Those of a mask, or of places in this order."""
        return Lines(
            subjects=self.subjects[chosen],
            at_us=self.at_us[chosen],
            steps=self.steps[chosen],
            columns={
                name: (values[chosen], None if valid is None else valid[chosen])
                for name, (values, valid) in self.columns.items()
            },
        )

    def in_order(self) -> "Lines":
        """By subject, then time; of equal times what came first stays first."""
        return self.where(np.lexsort((self.at_us, self.subjects)))

    def by(self, keys: Numbers) -> Iterator[tuple[int, "Lines"]]:
        """Those of each key together."""
        order = np.argsort(keys, kind="stable")
        ordered, keys = self.where(order), keys[order]
        changes = np.append(True, keys[1:] != keys[:-1]) if len(keys) else keys
        begins = [int(it) for it in np.flatnonzero(changes)]
        for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True):
            yield int(keys[begin]), ordered.where(slice(begin, end))


def order_of(places: Numbers, at_us: Numbers) -> Numbers | None:
    """By place, then time; None when they are so already, each place once."""
    if (places[1:] > places[:-1]).all():
        return None
    # Lines come in the order of time, which is nearly that of places.
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    if (ordered[1:] > ordered[:-1]).all():
        return order
    return np.lexsort((at_us, places))


@dataclass(frozen=True, slots=True)
class Groups:
    """Lines in the order of place and time, by cell."""

    cells: Numbers
    begins: Numbers | None  # None when each cell has one line
    ends: Numbers | None  # the last line of each
    counts: Any  # how many lines each cell has

    @classmethod
    def of(cls, places: Numbers) -> "Groups":
        begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        if len(begins) == len(places):
            return cls(places, None, None, 1)
        ends = np.append(begins[1:], len(places)) - 1
        return cls(places[begins], begins, ends, (ends - begins + 1).astype(np.int32))

    def reduced(self, reduce: np.ufunc, values: Numbers) -> Numbers:
        """One value for each cell."""
        found: Numbers = values if self.begins is None else reduce.reduceat(values, self.begins)
        return found

    def first(self, values: Numbers) -> Numbers:
        found: Numbers = values if self.begins is None else values[self.begins]
        return found

    def last(self, values: Numbers) -> Numbers:
        found: Numbers = values if self.ends is None else values[self.ends]
        return found


def put(it: Field, groups: Groups, values: Numbers, at_us: Numbers) -> None:
    """Values in the order of place and time into their cells."""
    cells = groups.cells
    flat = {part: array.reshape(-1) for part, array in it.arrays.items()}
    if "min" in flat:
        flat["min"][cells] = np.minimum(flat["min"][cells], groups.reduced(np.minimum, values))
    if "max" in flat:
        flat["max"][cells] = np.maximum(flat["max"][cells], groups.reduced(np.maximum, values))
    if "sum" in flat:
        flat["sum"][cells] += groups.reduced(np.add, values.astype(np.float64))
    if "first" in flat:
        older = groups.first(at_us) < flat["first_us"][cells]
        flat["first"][cells[older]] = groups.first(values)[older]
    if "last" in flat:
        newer = groups.last(at_us) >= flat["last_us"][cells]
        flat["last"][cells[newer]] = groups.last(values)[newer]
    if "first_us" in flat:
        flat["first_us"][cells] = np.minimum(flat["first_us"][cells], groups.first(at_us))
    if "last_us" in flat:
        flat["last_us"][cells] = np.maximum(flat["last_us"][cells], groups.last(at_us))
    flat["count"][cells] += groups.counts
