"""An answer of the store with a way to find one subject's row; the rest stays in Arrow."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.model import Subject

Row = Mapping[str, Any]


class Rows:
    """Rows of one measurement, one per subject, as `Store.window` and `Store.latest` give them."""

    __slots__ = ("_numbers", "_pages", "table")

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._numbers: dict[tuple[str, ...], int] | None = None
        self._pages: dict[tuple[str, int], list[Any]] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        """A column, to build a mask for `where`."""
        return self.table[column]

    def where(self, mask: pa.ChunkedArray) -> Iterator[tuple[Subject, Row]]:
        """The rows for which the mask is true; null counts as false."""
        for row in self.table.filter(mask).to_pylist():
            yield subject_of(row), row

    def get(self, subject: Subject) -> Row | None:
        """The row of one subject, None when it has none."""
        if self._numbers is None:
            columns = [
                self.table[tag].to_pylist() for tag in _TAGS if tag in self.table.column_names
            ]
            self._numbers = {tags: n for n, tags in enumerate(zip(*columns, strict=True))}
        named = (subject.cluster, subject.node, subject.gpu, subject.device, subject.port)
        number = self._numbers.get(tuple(part for part in named if part is not None))
        return None if number is None else _Lazy(self, number)

    def value(self, column: str, number: int) -> Any:
        """One cell; neighbours are asked for together, and leave Arrow together."""
        page, place = divmod(number, _PAGE)
        values = self._pages.get((column, page))
        if values is None:
            values = self.table[column].slice(page * _PAGE, _PAGE).to_pylist()
            self._pages[column, page] = values
        return values[place]

    def of_node(self, node: Subject) -> "Rows":
        """Only the rows of one node."""
        if not len(self):
            return self
        same = pc.and_(
            pc.equal(self.table["node"], node.node), pc.equal(self.table["cluster"], node.cluster)
        )
        return Rows(self.table.filter(same))


class _Lazy(Mapping[str, Any]):
    """One row of which only those cells leave Arrow that are looked at."""

    __slots__ = ("_number", "_rows")

    def __init__(self, rows: Rows, number: int) -> None:
        self._rows = rows
        self._number = number

    def __getitem__(self, column: str) -> Any:
        return self._rows.value(column, self._number)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows.table.column_names)

    def __len__(self) -> int:
        return int(self._rows.table.num_columns)


_PAGE = 256
_TAGS = ("cluster", "node", "uuid", "device", "port")


def subject_of(row: Row) -> Subject:
    """The subject that a row's tags name."""
    return Subject(
        cluster=row["cluster"],
        node=row["node"],
        gpu=row.get("uuid"),
        device=row.get("device"),
        port=row.get("port"),
    )
