"""Line protocol of many bodies straight into Arrow columns, for lines as collectors write them.

The bodies of a commit are cut as one text: NumPy finds the signs between names and values, and what
is left of a line without its values tells its schema. Each value is a slice of the text that Arrow
turns into a number, so that no value ever is a Python object. Whatever is unusual in any way is
left to the parser and `fit`, line by line, so both say the same about every line.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.lineprotocol import MAX_LINE_BYTES, MAX_TAGS, ColumnBlock
from gpuvigil.metrics import MEASUREMENTS, Measurement, Metric
from gpuvigil.store import EARLIEST_NS, LATEST_NS

from .rows import TIME, arrow_type

# A body that holds one of these is read in full: quoted strings may hide the end of a line.
_UNUSUAL = (b'"', b"\0", b"\r", b"\t")
_NEWLINE, _SPACE, _EQUALS, _SUFFIX, _ESCAPE = b"\n =i\\"
# By which `bytes.translate` makes every mark 1 and all else 0.
_MARKS = bytes(sign in b"\n ,=" for sign in range(256))
# Offsets into the text are 32-bit integers.
_MOST_BYTES = 2**31 - 2**16
# Of fewer lines than this a column costs more than their values one by one.
_FEWEST_LINES = 16

_DIGITS = b"-0123456789"
_FLOAT = b"+-.0123456789eE"
_INTEGER_LOOKS = r"^-?(0*[0-9]{1,18}|0*[0-8][0-9]{18})$"
_FLOAT_LOOKS = r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
# Whole numbers beyond this are not exact in a float.
_EXACT = float(2**53)

Indexes = np.ndarray[Any, np.dtype[Any]]
_Row = tuple[int, bytes]


@dataclass(slots=True)
class Read:
    """What became of the lines of some texts.

    `tables` are rows of measurements' own tables, `beside` holds the fields that the catalogue does
    not know, `lines` is how many lines of each text are in them. `rest` are the rows of each text
    that must be read in full, with their numbers from 1; `refused` are those that a censor struck.
    """

    lines: list[int]
    rest: list[list[_Row]]
    refused: list[list[tuple[int, str]]]
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    beside: list[ColumnBlock] = field(default_factory=list)


def is_plain(text: bytes) -> bool:
    """Whether each row of `text` stands for itself: ASCII, and no sign that spans or hides rows."""
    return text.isascii() and not any(sign in text for sign in _UNUSUAL)


def read(
    texts: Sequence[bytes], scale: int, shifts_ns: Sequence[int], censor: "Censor | None" = None
) -> Read:
    """Read plain texts whose times are in units of `scale` ns; `shifts_ns` is added to each's.

    `censor` gets every head of each text, an unusual one too, and says which lines are left out.
    """
    counts = [text.count(b"\n") + 1 for text in texts]
    nothing = [0] * len(texts)
    found = Read(nothing, [[] for _ in texts], [[] for _ in texts])
    text = b"\n".join([b"", *texts, b""])
    if len(text) > _MOST_BYTES:
        for rest, one in zip(found.rest, texts, strict=True):
            rest.extend(enumerate(one.split(b"\n"), 1))
        return found
    work = _Work(found, _Origin.of(counts), text, scale, np.array(shifts_ns, np.int64))
    if censor is not None:
        work.ask(censor)
    work.run()
    for rest in found.rest:
        rest.sort()
    return found


class Censor(Protocol):
    """Decides about lines by what stands before their fields."""

    def look(self, heads: Sequence[tuple[int, str, int]]) -> Sequence[str | None]:
        """For each text's index, head and number of lines, why the lines are refused, or None."""

    def silenced(self) -> Collection[int]:
        """The indexes of texts of which nothing may be read."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where each row is from: the index of its text, and its number in it."""

    texts: Indexes
    numbers: Indexes

    @classmethod
    def of(cls, counts: Sequence[int]) -> "_Origin":
        sizes = np.array(counts)
        first = np.cumsum(sizes) - sizes
        texts = np.repeat(np.arange(len(sizes)), sizes)
        return cls(texts, np.arange(len(texts)) - first[texts] + 1)

    def only(self, rows: Indexes) -> "_Origin":
        return _Origin(self.texts[rows], self.numbers[rows])


class _Cut:
    """Rows cut in two kinds of pieces by turns: names and signs, and the values between them.

    A row's pieces are pairs; the last value is its time. The suffix of a whole number goes with
    the names after it, so that the names of a row tell its schema.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        signs = np.frombuffer(text, np.uint8)
        marks = np.flatnonzero(np.frombuffer(text.translate(_MARKS), bool))
        kinds = signs[marks]
        if b"\\" in text:
            bare = (signs[marks - 1] != _ESCAPE) | (kinds == _NEWLINE)
            marks, kinds = marks[bare], kinds[bare]
        newlines = np.flatnonzero(kinds == _NEWLINE)
        self._edges = marks[newlines]
        times = newlines[1:] - 1
        self.regular = (kinds[times] == _SPACE) & (np.diff(self._edges) <= MAX_LINE_BYTES // 2)
        self._signs, self._marks, self._kinds, self._times = signs, marks, kinds, times

    def heads(self) -> pa.DictionaryArray:
        """What stands before the first space of each row."""
        starts, ends = self._edges[:-1] + 1, self._edges[1:]
        spaces = self._marks[self._kinds == _SPACE]
        first = np.searchsorted(spaces, starts)
        ends = np.minimum(ends, np.append(spaces, len(self.text))[first])
        offsets = np.empty(2 * len(starts) + 1, np.int32)
        offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, len(self.text)
        pieces = _strings(offsets, pa.py_buffer(self.text))
        return pieces.take(pa.array(np.arange(0, 2 * len(starts), 2))).dictionary_encode()

    def rows(self, indexes: Indexes) -> list[bytes]:
        edges = zip(self._edges[indexes] + 1, self._edges[indexes + 1], strict=True)
        return [self.text[start:end] for start, end in edges]

    def pieces(self) -> None:
        """Find names and values; every row must be regular."""
        starts_value = self._kinds == _EQUALS
        starts_value[self._times] = True
        pairs = np.flatnonzero(starts_value)
        kinds = self._kinds[pairs]
        starts, ends = self._marks[pairs] + 1, self._marks[pairs + 1]
        ends = ends - ((kinds == _EQUALS) & (self._signs[ends - 1] == _SUFFIX))
        offsets = np.empty(2 * len(pairs) + 2, np.int32)
        offsets[0], offsets[-1] = 0, len(self.text)
        offsets[1:-1:2], offsets[2:-1:2] = starts, ends
        self._pieces = _strings(offsets, pa.py_buffer(self.text))
        self._first = np.concatenate(([0], np.flatnonzero(kinds == _SPACE)[:-1] + 1))
        self._pairs = len(pairs)

    def schemas(self) -> pa.DictionaryArray:
        """Each row without its values."""
        names = self._pieces.take(pa.array(np.arange(0, 2 * self._pairs, 2)))
        _, offsets, content = names.buffers()
        edges = np.frombuffer(offsets, np.int32)[np.append(self._first, self._pairs)]
        return _strings(edges, content).dictionary_encode()

    def values(self, rows: Indexes, index: int) -> pa.StringArray:
        """The value with that index in each of some rows of one schema."""
        return self._pieces.take(pa.array(2 * (self._first[rows] + index) + 1))


def _strings(offsets: Any, content: Any) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), content)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    integer: bool  # as it is written
    metric: Metric | None


@dataclass(frozen=True, slots=True)
class _Schema:
    """What lines of one schema hold, in their order; a tag's suffix is the end of its value."""

    measurement: Measurement
    tags: tuple[tuple[str, str], ...]
    fields: tuple[_Field, ...]


@lru_cache(maxsize=4096)
def _schema(row: str) -> _Schema | None:
    """The schema of a row without its values; None when anything in it is unusual."""
    parts = row[1:].split(" ")
    if len(parts) != 3 or parts[2]:
        return None
    name, *tags = parts[0].split(",")
    measurement = MEASUREMENTS.get(name)
    named_tags = [_named(tag) for tag in tags]
    named_fields = [_named(text) for text in parts[1].split(",")]
    tag_keys = {key for key, _ in named_tags}
    field_keys = {key for key, _ in named_fields}
    if measurement is None or "" in tag_keys | field_keys or len(tags) > MAX_TAGS:
        return None
    if len(tag_keys) < len(named_tags) or len(field_keys) < len(named_fields):
        return None
    metrics = {metric.name: metric for metric in measurement.metrics}
    if not field_keys & set(metrics):
        return None
    fields = tuple(_Field(key, suffix == "i", metrics.get(key)) for key, suffix in named_fields)
    return _Schema(measurement, tuple(named_tags), fields)


def unescaped(text: str) -> str:
    """A name or tag as it is meant; a backslash before any other sign stands for itself."""
    return text.replace("\\ ", " ").replace("\\,", ",").replace("\\=", "=")


def _named(text: str) -> tuple[str, str]:
    """The key of `key=` or `key=i`, and the suffix; no key when it is neither."""
    key, sign, suffix = text.partition("=")
    return (unescaped(key), suffix) if sign and suffix in {"", "i"} else ("", "")


class _Work:
    """Some rows on their way into tables."""

    def __init__(
        self, found: Read, origin: _Origin, text: bytes, scale: int, shifts_ns: Indexes
    ) -> None:
        self._found = found
        self._origin = origin
        self._cut = _Cut(text)
        self._scale = scale
        self._shifts_ns = shifts_ns

    def ask(self, censor: Censor) -> None:
        """Leave out what a censor strikes."""
        heads = self._cut.heads()
        codes, names = heads.indices.to_numpy(), heads.dictionary.to_pylist()
        both = self._origin.texts * len(names) + codes
        pairs, of_row, counts = np.unique(both, return_inverse=True, return_counts=True)
        texts, codes = np.divmod(pairs, len(names))
        asked = zip(texts.tolist(), codes.tolist(), counts.tolist(), strict=True)
        reasons = censor.look([(text, names[code], count) for text, code, count in asked])
        silenced = np.isin(texts, list(censor.silenced()))
        struck = silenced | np.array([reason is not None for reason in reasons])
        if not struck.any():
            return
        for row in np.flatnonzero((struck & ~silenced)[of_row]):
            number, reason = int(self._origin.numbers[row]), reasons[of_row[row]]
            self._found.refused[self._origin.texts[row]].append((number, reason or ""))
        self._keep_only(~struck[of_row])

    def run(self) -> None:
        if not self._cut.regular.all():
            self._leave(np.flatnonzero(~self._cut.regular))
            self._keep_only(self._cut.regular)
        if not len(self._origin.texts):
            return
        self._cut.pieces()
        schemas = self._cut.schemas()
        codes = schemas.indices.to_numpy()
        sizes = np.bincount(codes)
        self._leave(np.flatnonzero(sizes[codes] < _FEWEST_LINES))
        order, ends = np.argsort(codes, kind="stable"), np.cumsum(sizes)
        for code in np.flatnonzero(sizes >= _FEWEST_LINES).tolist():
            rows = order[ends[code] - sizes[code] : ends[code]]
            schema = _schema(schemas.dictionary[code].as_py())
            if schema is None:
                self._leave(rows)
            else:
                self._settle(schema, rows)

    def _keep_only(self, which: Any) -> None:
        kept = np.flatnonzero(which)
        self._origin = self._origin.only(kept)
        self._cut = _Cut(b"\n".join([b"", *self._cut.rows(kept), b""]))

    def _leave(self, rows: Indexes) -> None:
        """Have rows read in full."""
        texts, numbers = self._origin.texts[rows].tolist(), self._origin.numbers[rows].tolist()
        for text, number, row in zip(texts, numbers, self._cut.rows(rows), strict=True):
            self._found.rest[text].append((number, row))

    def _settle(self, schema: _Schema, rows: Indexes) -> None:
        """Turn rows of one schema into columns; the rows with a value at fault are left."""
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

    def _columns(self, schema: _Schema, rows: Indexes, wrong: Any) -> list[pa.Array]:
        """Tags, fields and time of some rows; those with a value at fault are marked in `wrong`."""
        columns = []
        for index, (_, suffix) in enumerate(schema.tags):
            columns.append(_tag(self._cut.values(rows, index), suffix, wrong))
        for index, it in enumerate(schema.fields, len(schema.tags)):
            columns.append(_field(self._cut.values(rows, index), it, wrong))
        at = _integers(self._cut.values(rows, len(columns)), wrong)
        columns.append(None if at is None else self._times(at.to_numpy(), rows, wrong))
        return columns

    def _times(self, at: Indexes, rows: Indexes, wrong: Any) -> pa.Array:
        earliest, latest = -(-EARLIEST_NS // self._scale), LATEST_NS // self._scale
        wrong |= (at < earliest) | (at > latest)
        at_ns = at * self._scale
        if self._shifts_ns.any():
            # Held within the times that lines can have; the sum of two may not fit.
            shifts = self._shifts_ns[self._origin.texts[rows]]
            moved = np.maximum(at_ns + shifts, EARLIEST_NS)
            at_ns = np.where(shifts > LATEST_NS - at_ns, LATEST_NS, moved)
        return pa.array(at_ns).cast(TIME)

    def _keep(self, schema: _Schema, columns: Sequence[pa.Array]) -> None:
        """Make rows of the measurement's own table, and of what it does not know."""
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


def _tag(column: pa.StringArray, suffix: str, wrong: Any) -> pa.Array:
    """The values of a tag; none may be empty."""
    found = column.dictionary_encode()
    values = [unescaped(text) + suffix for text in found.dictionary.to_pylist()]
    if "" in values:
        wrong |= found.indices.to_numpy() == values.index("")
    return pa.DictionaryArray.from_arrays(found.indices, pa.array(values, pa.string())).cast(
        pa.string()
    )


def _field(column: pa.StringArray, it: _Field, wrong: Any) -> pa.Array | None:
    """The values of a field in the type that its metric has; None when some are marked."""
    numbers = _integers(column, wrong) if it.integer else _floats(column, wrong)
    if numbers is None or it.metric is None:
        return numbers
    if it.metric.integer and not it.integer:
        values = numbers.to_numpy()
        odd = (np.floor(values) != values) | (np.abs(values) > _EXACT)
        wrong |= odd
        return None if odd.any() else numbers.cast(pa.int64())
    # As Python does it, a whole number beyond 2**53 becomes the nearest float.
    return numbers.cast(arrow_type(it.metric), safe=False)


def _integers(column: pa.StringArray, wrong: Any) -> pa.Array | None:
    return _cast(column, pa.int64(), _DIGITS, _INTEGER_LOOKS, wrong)


def _floats(column: pa.StringArray, wrong: Any) -> pa.Array | None:
    found = _cast(column, pa.float64(), _FLOAT, _FLOAT_LOOKS, wrong)
    if found is not None:
        endless = ~np.isfinite(found.to_numpy())
        wrong |= endless
    return found


def _cast(
    column: pa.StringArray, kind: pa.DataType, signs: bytes, looks: str, wrong: Any
) -> pa.Array | None:
    """The numbers that a column says; None when it says something else, with the rows marked."""
    content = column.buffers()[2]
    if content is not None and not content.to_pybytes().translate(None, signs):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            pass
    wrong |= ~pc.match_substring_regex(column, looks).to_numpy(zero_copy_only=False)
    return None
