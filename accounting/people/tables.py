"""The columns of usage that name people, packed as one text in a record."""

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from gpuvigil.model import RecordKind

from ..usage.columns import SHARES, packed, unpacked

# The keys and kinds of records with such a text.
PACKED: Mapping[str, frozenset[RecordKind]] = {
    "holders": frozenset({RecordKind.USAGE, RecordKind.USAGE_SPAN})
}


Row = tuple[str, str | None, str | None]  # holder, user, account


class Shown(Protocol):
    """A person's view of the names in one record."""

    def row(self, holder: str, user: str | None, account: str | None) -> Row: ...


def with_others(text: str, shown: Shown) -> str:
    """Return the same rows with people as they are shown; ValueError for a text that was not packed."""
    table = unpacked(text, SHARES)
    before = [table[name].cast(pa.string()).to_pylist() for name in _PEOPLE]
    seen: dict[Row, Row] = {}
    for row in zip(*before, strict=True):
        seen[row] = seen.get(row) or shown.row(row[0] or "", *row[1:])
    after = [seen[row] for row in zip(*before, strict=True)]
    kept = [old == new for old, new in zip(zip(*before, strict=True), after, strict=True)]
    columns = {name: [row[place] for row in after] for place, name in enumerate(_PEOPLE)}
    for name in _PROGRAMS:
        values = table[name].cast(pa.string()).to_pylist()
        columns[name] = [value if own else None for value, own in zip(values, kept, strict=True)]
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, pa.string()))
    return packed(table)


_PEOPLE, _PROGRAMS = ("holder", "user", "account"), ("project", "command")
