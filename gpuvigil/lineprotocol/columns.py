"""Parses line protocol into columns, fast for lines that machines write.

A line without a quoted string is cut with `str.split`, grouped with the lines of its schema, and
converted a column at a time. Every value is checked, a whole column at once. Whatever is unusual in any
way goes to the full parser, line by line, so both give the same result for every body.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from gpuvigil.lineprotocol import convert
from gpuvigil.lineprotocol.convert import MASKS, unmasked
from gpuvigil.lineprotocol.model import (
    MAX_LINE_BYTES,
    MAX_TAGS,
    NANOSECONDS,
    Column,
    ColumnBlock,
    Line,
    ParsedColumns,
    Precision,
    Refusal,
    Value,
)
from gpuvigil.lineprotocol.parser import LineReader, text_of

# A block that fails is halved to find the rows at fault; in one this small all are parsed in full.
_SMALLEST_HALVED = 8
# Quotes hide delimiters and newlines; a mask in the body itself would be taken for an escape.
_HIDING = ('"', "\0", *MASKS.values())


def parse_columns(
    body: bytes, precision: Precision = "ns", max_line_bytes: int = MAX_LINE_BYTES
) -> ParsedColumns:
    """Return the same lines and refusals as `parse`, with the lines as one block of columns per schema.

    A schema is the measurement, the tag keys, the field keys in order, and the fields' types.
    """
    text = text_of(body)
    work = _Work(LineReader(text, precision, max_line_bytes), NANOSECONDS[precision])
    work.sort_rows(_masked(text), max_line_bytes)
    for group in work.groups.values():
        work.settle(group.schema, group.cells, group.indexes)
    for block in work.blocks.values():
        _order(block)
    work.refused.sort(key=lambda refusal: refusal.number)
    return ParsedColumns(tables=list(work.blocks.values()), refused=work.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    measurement: str
    tag_keys: tuple[str, ...]
    field_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Rows of one schema: each row's texts of tags, fields and time, and the rows' indexes.

    The schema is None when something in the names is unusual.
    """

    schema: _Schema | None
    cells: list[list[str]] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)


_BlockKey = tuple[str, tuple[str, ...], tuple[str, ...], tuple[type[Value], ...]]


class _Work:
    """One body while it is turned into blocks."""

    def __init__(self, reader: LineReader, scale: int) -> None:
        self.reader = reader
        self.scale = scale
        self.groups: dict[str, _Group] = {}
        self.blocks: dict[_BlockKey, ColumnBlock] = {}
        self.refused: list[Refusal] = []

    def sort_rows(self, rows: list[str], max_line_bytes: int) -> None:
        """Group every row by its schema; fully parse rows that are not three plain parts."""
        resume = 0
        for index, row in enumerate(rows):
            if index < resume:
                continue
            parts = row.split(" ")
            if not 2 <= len(parts) <= 3 or _unusual(self.reader.rows[index], max_line_bytes):
                resume = self.read_in_full(index)
                continue
            # The equals sign stays with its key: a key without one, or a value with one, is then
            # visible.
            head = parts[0].replace("=", "=,").split(",")
            body = parts[1].replace("=", "=,").split(",")
            at = parts[2] if len(parts) == 3 else ""
            names = ",".join((head[0], *head[1::2]))
            signature = f"{names} {','.join(body[::2])}{' ' if at else ''}"
            group = self.groups.get(signature)
            if group is None:
                group = _Group(schema=_schema(head[0], head[1::2], body[::2]))
                self.groups[signature] = group
            cells = head[2::2]
            cells += body[1::2]
            cells.append(at)
            group.cells.append(cells)
            group.indexes.append(index)

    def settle(self, schema: _Schema | None, cells: list[list[str]], indexes: list[int]) -> None:
        """Turn rows of one schema into columns; rows that do not convert are parsed in full."""
        block = schema and _block(schema, cells, indexes, self.scale)
        if block:
            self._add(block)
        elif schema is None or len(indexes) <= _SMALLEST_HALVED:
            for index in indexes:
                self.read_in_full(index)
        else:
            half = len(indexes) // 2
            self.settle(schema, cells[:half], indexes[:half])
            self.settle(schema, cells[half:], indexes[half:])

    def read_in_full(self, index: int) -> int:
        """Parse the row with the full parser; return the index to continue at."""
        found, resume = self.reader.read(index)
        if isinstance(found, Line):
            self._add(_block_of_line(found, index))
        elif found is not None:
            self.refused.append(found)
        return resume

    def _add(self, block: ColumnBlock) -> None:
        key = (block.measurement, block.tag_keys, block.field_keys, block.field_types)
        known = self.blocks.setdefault(key, block)
        if known is not block:
            for mine, more in zip(_columns(known), _columns(block), strict=True):
                mine.extend(more)


def _masked(text: str) -> list[str]:
    """Return the rows with escaped delimiters masked and without the CR of a CR LF."""
    for escaped, mask in MASKS.items():
        text = text.replace(escaped, mask)
    return [row.removesuffix("\r") for row in text.split("\n")]


def _unusual(row: str, max_line_bytes: int) -> bool:
    """Return whether a row must be parsed in full: too long, not UTF-8, or with a hiding character."""
    try:
        too_long = len(row.encode()) > max_line_bytes
    except UnicodeEncodeError:
        return True
    return too_long or any(map(row.__contains__, _HIDING))


def _schema(measurement: str, tag_keys: list[str], field_keys: list[str]) -> _Schema | None:
    """Return the schema that the names give, each key still with its equals sign; None if unusual."""
    keys = tag_keys + field_keys
    if not measurement or measurement[0] in "#\t" or "=" in measurement:
        return None
    if not all(len(key) > 1 and key[-1] == "=" for key in keys):
        return None
    if len(set(tag_keys)) < len(tag_keys) or len(set(field_keys)) < len(field_keys):
        return None
    if len(tag_keys) > MAX_TAGS:
        return None
    return _Schema(
        # A measurement has no escape for the equals sign, so its backslash is literal.
        measurement=unmasked(measurement.replace("\x03", "\\=")),
        tag_keys=tuple(unmasked(key[:-1]) for key in tag_keys),
        field_keys=tuple(unmasked(key[:-1]) for key in field_keys),
    )


def _block(
    schema: _Schema, cells: list[list[str]], indexes: list[int], scale: int
) -> ColumnBlock | None:
    """Return the rows as columns; None when any value does not fit its column's type."""
    columns = list(zip(*cells, strict=True))
    at_ns = convert.times(columns.pop(), scale)
    tag_count = len(schema.tag_keys)
    tags = [convert.tags(column) for column in columns[:tag_count]]
    fields = [convert.values(column) for column in columns[tag_count:]]
    if at_ns is None or not all(tags) or not all(fields):
        return None
    order = sorted(range(tag_count), key=schema.tag_keys.__getitem__)
    return ColumnBlock(
        measurement=schema.measurement,
        tag_keys=tuple(schema.tag_keys[i] for i in order),
        tags=[tags[i] or [] for i in order],
        field_keys=schema.field_keys,
        field_types=tuple(type(column[0]) for column in fields if column),
        fields=[column for column in fields if column],
        at_ns=at_ns,
        numbers=[index + 1 for index in indexes],
    )


def _block_of_line(line: Line, index: int) -> ColumnBlock:
    return ColumnBlock(
        measurement=line.measurement,
        tag_keys=tuple(key for key, _ in line.tags),
        tags=[[value] for _, value in line.tags],
        field_keys=tuple(key for key, _ in line.fields),
        field_types=tuple(type(value) for _, value in line.fields),
        fields=[cast("Column", [value]) for _, value in line.fields],
        at_ns=[line.at_ns],
        numbers=[index + 1],
    )


def _columns(block: ColumnBlock) -> Iterable[list[object]]:
    """Return every column of the block, to be changed in place."""
    columns = [*block.tags, *block.fields, block.at_ns, block.numbers]
    return cast("list[list[object]]", columns)


def _order(block: ColumnBlock) -> None:
    """Sort the rows into the order of the body."""
    if all(map(int.__lt__, block.numbers, block.numbers[1:])):
        return
    order = sorted(range(len(block.numbers)), key=block.numbers.__getitem__)
    for column in _columns(block):
        column[:] = [column[i] for i in order]
