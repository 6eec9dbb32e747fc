"""What is kept of each field, as tables: one part of all fields that have it in one type.

A span is thereby reduced for many fields at once, not for one after the other.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate, Function

Numbers = npt.NDArray[Any]

NEVER = np.iinfo(np.int64).min
_FOREVER = np.iinfo(np.int64).max
_LEAST: Mapping[type, Any] = {np.int64: NEVER, np.float64: -np.inf}
_MOST: Mapping[type, Any] = {np.int64: _FOREVER, np.float64: np.inf}

PARTS: Mapping[Function, tuple[str, ...]] = {
    Function.COUNT: ("count",),
    Function.MEAN: ("count", "sum"),
    Function.MIN: ("count", "min"),
    Function.MAX: ("count", "max"),
    Function.FIRST: ("count", "first", "first_us"),
    Function.LAST: ("count", "last", "last_us"),
    Function.INCREASE: ("count", "min", "max"),
}
# The key that stands for the rows themselves among the fields.
LINES = ""
# The newest row in its step, for `Store.latest`.
NEWEST = ("newest", "held")
# The oldest and the newest value, from the first and the last cell that has one.
TIME_OF = frozenset({"first", "last"})

REDUCE: Mapping[str, np.ufunc] = {
    "count": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "first_us": np.minimum,
    "last_us": np.maximum,
}


@dataclass(slots=True)
class Field:
    """One field by step and subject; each array is its part of a table."""

    kind: type
    parts: frozenset[str]
    arrays: dict[str, Numbers] = field(default_factory=dict)
    blocks: dict[str, Numbers] = field(default_factory=dict)  # the same for whole blocks


Kind = tuple[str, type]  # a part, and the type of its values


class Table:
    """One part of all fields that have it in one type, reduced for many of them at once.

    `cells` are by field, step and subject, `blocks` by field, whole block and subject.
    """

    def __init__(self, part: str, kind: type, names: Sequence[str]) -> None:
        self.part, self.kind = part, kind
        self.key = (part, kind)
        self.places = {name: place for place, name in enumerate(names)}
        self.blank: Any = {
            "count": 0,
            "sum": 0.0,
            "min": _MOST.get(kind),
            "max": _LEAST.get(kind),
            "first_us": _FOREVER,
            "last_us": NEVER,
        }.get(part, 0)
        self.cells: Numbers = np.empty((len(names), 0, 0), kind)
        self.blocks: Numbers = np.empty((len(names), 0, 0), kind)

    def grow(self, steps: int, blocks: int, width: int) -> None:
        """Make room for so many steps, blocks and subjects; what is known of blocks is lost."""
        cells: Numbers = np.full((len(self.places), steps, width), self.blank, self.kind)
        before = self.cells.shape[2]
        if before:
            cells[:, :, :before] = self.cells
        self.cells = cells
        self.blocks = np.full((len(self.places), blocks, width), self.blank, self.kind)

    def reduced(self, array: Numbers, fields: slice, rows: Sequence[slice]) -> Numbers:
        """Reduce some fields by subject; the initial value is an empty cell's, so that no row is a valid input."""
        reduce = REDUCE[self.part]
        found = [
            reduce.reduce(array[fields, some], axis=1, dtype=self.kind, initial=self.blank)
            for some in rows
        ]
        one: Numbers = functools.reduce(reduce, found)
        return one

    def runs(self, names: Collection[str]) -> list[tuple[slice, list[str]]]:
        """Return the ranges in which these fields lie, with neighbours joined, and their names in order."""
        runs: list[tuple[slice, list[str]]] = []
        for name, place in self.places.items():
            if name not in names:
                continue
            if runs and runs[-1][0].stop == place:
                first, known = runs[-1]
                runs[-1] = (slice(first.start, place + 1), [*known, name])
            else:
                runs.append((slice(place, place + 1), [name]))
        return runs


def _type(part: str, kind: type) -> type:
    if part in {"first_us", "last_us"}:
        return np.int64
    return {"count": np.int32, "sum": np.float64, "held": np.bool_}.get(part, kind)


def fields_of(
    catalogue: Measurement, newest: Collection[str], asked: Sequence[Collection[Aggregate]]
) -> tuple[dict[str, Field], Field]:
    """Return what is kept of each field, by name, and of the rows themselves.

    Fields that the same spans ask for are neighbours, so that they are reduced at once.
    """
    parts: dict[str, set[str]] = {name: set(NEWEST) for name in newest}
    spans: dict[str, list[bool]] = {name: [] for name in newest}
    for one in asked:
        for it in one:
            parts.setdefault(it.field, set()).update(PARTS[it.function])
    for name in parts:
        spans[name] = [any(it.field == name for it in one) for one in asked]
    fields = {
        name: Field(
            kind=np.int64 if catalogue.metric(name).integer else np.float64,
            parts=frozenset(parts[name]),
        )
        for name in sorted(parts, key=lambda name: (spans[name], name))
    }
    return fields, Field(kind=np.int64, parts=frozenset({"count", "first_us", "last_us"}))


def tables_of(fields: Mapping[str, Field]) -> dict[Kind, Table]:
    """Return, by part and type, a table of all fields that have it."""
    names: dict[Kind, list[str]] = {}
    for name, it in fields.items():
        for part in sorted(it.parts):
            names.setdefault((part, _type(part, it.kind)), []).append(name)
    return {key: Table(*key, them) for key, them in names.items()}
