"""Subjects by number, as in sealed files, and in the order of their tags."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.metrics import Measurement

from .line_arrays import Ints
from .schema import quoted, subjects_table

Tags = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """Subjects of one measurement. A place is the index of a subject in the order of the tags."""

    names: Sequence[Tags]  # by place
    place_of: dict[Tags, int]
    by_number: Ints  # the place of each number; -1 for a number that no subject has
    columns: Sequence[pa.Array]  # the tags by place

    def with_more(self, names: Iterable[Tags]) -> "Subjects":
        """Return these subjects and others, which have no number."""
        numbered = [
            (int(n), self.names[self.by_number[n]]) for n in np.flatnonzero(self.by_number >= 0)
        ]
        return subjects(numbered, {*self.names, *names}, len(self.columns))

    def wanted(self, measurement: Measurement, where: Iterable[tuple[str, str]]) -> Ints | None:
        """Return places by number, -1 for subjects without all these tags; None without tags."""
        conditions = [
            pc.equal(self.columns[measurement.tags.index(tag)], value) for tag, value in where
        ]
        if not conditions:
            return None
        # One entry more, for the place -1, which stays -1.
        chosen = np.ones(len(self.names) + 1, np.bool_)
        for condition in conditions:
            chosen[:-1] &= condition.to_numpy(zero_copy_only=False)
        return np.where(chosen[self.by_number], self.by_number, -1)


def subjects(numbered: Iterable[tuple[int, Tags]], names: Iterable[Tags], tags: int) -> Subjects:
    """Return subjects by number and name; several numbers may have one name.

    `tags`: how many tags a subject has.
    """
    ordered = sorted(set(names))
    place_of = {name: place for place, name in enumerate(ordered)}
    pairs = list(numbered)
    by_number = np.full(max((number for number, _ in pairs), default=0) + 1, -1, np.int64)
    for number, name in pairs:
        by_number[number] = place_of[name]
    columns = zip(*ordered, strict=True) if ordered else [()] * tags
    return Subjects(
        names=ordered,
        place_of=place_of,
        by_number=by_number,
        columns=[pa.array(column, pa.string()) for column in columns],
    )


def read_subjects(cursor: duckdb.DuckDBPyConnection, measurement: Measurement) -> Subjects:
    """Read all subjects that have a number."""
    tags = ", ".join(map(quoted, measurement.tags))
    rows = cursor.execute(
        f"SELECT subject, {tags} FROM {quoted(subjects_table(measurement))}"
    ).fetchall()
    numbered = [(row[0], tuple(row[1:])) for row in rows]
    return subjects(numbered, (name for _, name in numbered), len(measurement.tags))
