"""Bulk parser of line protocol into Arrow columns, for lines as collectors write them.

The bodies of a commit are cut as one text. NumPy finds the separators between names and values; a
line without its values identifies its schema. Each value is a slice of the text that Arrow turns
into a number, so that no value ever is a Python object. Unusual lines are left to the full parser
and `fit`, line by line; both ways give the same result for every line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gpuvigil.lineprotocol import ColumnBlock
from gpuvigil.store import EARLIEST_NS, LATEST_NS

from .columns import integers, names, numbers
from .line_protocol_scanner import Indexes, Origin, SplitLines
from .schema import Schema, schema_of
from .tables import TIME

# A body with one of these is left to the full parser: quoted strings may hide the end of a line.
_UNUSUAL = (b'"', b"\0", b"\r", b"\t")
# Offsets into the text are 32-bit integers.
_MOST_BYTES = 2**31 - 2**16
# For fewer lines of a schema than this, a column costs more than parsing its values one by one.
_FEWEST_LINES = 16

_Row = tuple[int, bytes]
# A head is what stands before the fields of a line.
Refusals = Callable[[Sequence[tuple[int, str, int]]], Sequence[str | None]]


@dataclass(slots=True)
class ParseResult:
    """The result of reading some texts.

    `tables` holds rows of the measurements' own tables, `beside` the fields that the catalogue does
    not know, and `lines` how many lines of each text are in them. `rest` holds the rows of each
    text that are left to the full parser, with their line numbers from 1; `refused` holds those
    that the line filter refused, with the reason.
    """

    lines: list[int]
    rest: list[list[_Row]]
    refused: list[list[tuple[int, str]]]
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    beside: list[ColumnBlock] = field(default_factory=list)


def is_plain(text: bytes) -> bool:
    """Return whether each row of `text` stands alone: ASCII, and nothing spans or hides rows."""
    return text.isascii() and not any(sign in text for sign in _UNUSUAL)


def read(
    texts: Sequence[bytes],
    scale: int,
    shifts_ns: Sequence[int],
    refusals: Refusals | None = None,
) -> ParseResult:
    """Read plain texts with times in units of `scale` ns; each is shifted by its `shifts_ns`.

    `refusals` gets every head of each text, those of unusual lines too, with the text's index and
    the number of its lines, and says why they are refused, or None.
    """
    found = ParseResult([0] * len(texts), [[] for _ in texts], [[] for _ in texts])
    text = b"\n".join([b"", *texts, b""])
    if len(text) > _MOST_BYTES:
        for rest, one in zip(found.rest, texts, strict=True):
            rest.extend(enumerate(one.split(b"\n"), 1))
        return found
    cut = SplitLines(text)
    work = _Work(found, Origin.of(texts, cut), cut, scale, np.array(shifts_ns, np.int64))
    if refusals is not None:
        work.ask(refusals)
    work.run()
    for rest in found.rest:
        rest.sort()
    return found


class _Work:
    """Rows that are being turned into tables."""

    def __init__(
        self, found: ParseResult, origin: Origin, cut: SplitLines, scale: int, shifts_ns: Indexes
    ) -> None:
        self._found = found
        self._origin = origin
        self._cut = cut
        self._scale = scale
        self._shifts_ns = shifts_ns

    def ask(self, refusals: Refusals) -> None:
        """Leave out the lines that are refused by their heads."""
        heads = self._cut.heads()
        codes, names = heads.indices.to_numpy(), heads.dictionary.to_pylist()
        both = self._origin.texts * len(names) + codes
        pairs, of_row, counts = np.unique(both, return_inverse=True, return_counts=True)
        texts, codes = np.divmod(pairs, len(names))
        asked = zip(texts.tolist(), codes.tolist(), counts.tolist(), strict=True)
        reasons = refusals([(text, names[code], count) for text, code, count in asked])
        struck = np.array([reason is not None for reason in reasons])
        if not struck.any():
            return
        for row in np.flatnonzero(struck[of_row]):
            number, reason = int(self._origin.numbers[row]), reasons[of_row[row]]
            self._found.refused[self._origin.texts[row]].append((number, reason or ""))
        self._keep_only(~struck[of_row])

    def run(self) -> None:
        if not self._cut.regular.all():
            self._leave(np.flatnonzero(~self._cut.regular))
            self._keep_only(self._cut.regular)
        if not len(self._origin.texts):
            return
        schemas = self._cut.schemas()
        codes = schemas.indices.to_numpy()
        sizes = np.bincount(codes)
        self._leave(np.flatnonzero(sizes[codes] < _FEWEST_LINES))
        order, ends = np.argsort(codes, kind="stable"), np.cumsum(sizes)
        for code in np.flatnonzero(sizes >= _FEWEST_LINES).tolist():
            rows = order[ends[code] - sizes[code] : ends[code]]
            schema = schema_of(schemas.dictionary[code].as_py())
            if schema is None:
                self._leave(rows)
            else:
                self._settle(schema, rows)

    def _keep_only(self, which: Any) -> None:
        kept = np.flatnonzero(which)
        self._origin = self._origin.only(kept)
        self._cut = SplitLines(b"\n".join([b"", *self._cut.rows(kept), b""]))

    def _leave(self, rows: Indexes) -> None:
        """Leave rows to the full parser."""
        texts, numbers = self._origin.texts[rows].tolist(), self._origin.numbers[rows].tolist()
        for text, number, row in zip(texts, numbers, self._cut.rows(rows), strict=True):
            self._found.rest[text].append((number, row))

    def _settle(self, schema: Schema, rows: Indexes) -> None:
        """Turn rows of one schema into columns; those with an invalid value are left to the parser."""
        wrong = np.zeros(len(rows), bool)
        columns = self._columns(schema, rows, wrong)
        if wrong.any():
            self._leave(rows[wrong])
            rows = rows[~wrong]
            wrong = np.zeros(len(rows), bool)
            columns = self._columns(schema, rows, wrong)
            if wrong.any():
                self._leave(rows)
                return
        if not len(rows):
            return
        self._keep(schema, columns)
        texts, lines = np.unique(self._origin.texts[rows], return_counts=True)
        for text, count in zip(texts.tolist(), lines.tolist(), strict=True):
            self._found.lines[text] += count

    def _columns(self, schema: Schema, rows: Indexes, wrong: Any) -> list[pa.Array]:
        """Return tag, field and time columns of rows; an invalid value marks its row in `wrong`."""
        columns = []
        for index, (_, suffix) in enumerate(schema.tags):
            columns.append(names(self._cut.values(rows, index), suffix, wrong))
        for index, it in enumerate(schema.fields, len(schema.tags)):
            columns.append(numbers(self._cut.values(rows, index), it, wrong))
        at = integers(self._cut.values(rows, len(columns)), wrong)
        columns.append(None if at is None else self._times(at.to_numpy(), rows, wrong))
        return columns

    def _times(self, at: Indexes, rows: Indexes, wrong: Any) -> pa.Array:
        earliest, latest = -(-EARLIEST_NS // self._scale), LATEST_NS // self._scale
        wrong |= (at < earliest) | (at > latest)
        at_ns = at * self._scale
        if self._shifts_ns.any():
            # Clamped to the times that lines can have; the sum of both may not fit into 64 bits.
            shifts = self._shifts_ns[self._origin.texts[rows]]
            moved = np.maximum(at_ns + shifts, EARLIEST_NS)
            at_ns = np.where(shifts > LATEST_NS - at_ns, LATEST_NS, moved)
        return pa.array(at_ns).cast(TIME)

    def _keep(self, schema: Schema, columns: Sequence[pa.Array]) -> None:
        """Add the rows to the measurement's own table, and fields it does not know to `beside`."""
        at = columns[-1]
        tags = {key: column for (key, _), column in zip(schema.tags, columns, strict=False)}
        empty = pa.repeat(pa.scalar("", pa.string()), len(at))
        table = {tag: tags.get(tag, empty) for tag in schema.measurement.tags}
        table["at"] = at
        beside = []
        for it, column in zip(schema.fields, columns[len(schema.tags) :], strict=False):
            if it.metric is None:
                beside.append((it, column))
            else:
                table[it.name] = column
        self._found.tables.setdefault(schema.measurement.name, []).append(pa.table(table))
        if beside:
            order = sorted(tags)
            self._found.beside.append(
                ColumnBlock(
                    measurement=schema.measurement.name,
                    tag_keys=tuple(order),
                    tags=[tags[key].to_pylist() for key in order],
                    field_keys=tuple(it.name for it, _ in beside),
                    field_types=tuple(int if it.integer else float for it, _ in beside),
                    fields=[column.to_pylist() for _, column in beside],
                    at_ns=at.cast(pa.int64()).to_pylist(),
                    numbers=[0] * len(at),
                )
            )
