"""Cells of a recording as texts, numbers and times; an unreadable cell is an error with its line."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.store.schema import TIME

from .problems import Problems, line_of

# How exporters, drivers and tables write that nothing was measured, in lower case.
_NOTHING = frozenset(
    {
        *("", "-", "na", "n/a", "[n/a]", "<na>", "null", "none", "nil"),
        *("nan", "+nan", "-nan", "inf", "+inf", "-inf", "not supported", "[not supported]"),
        *("[unknown error]", "[gpu is lost]", "[insufficient permissions]"),
    }
)
# For times, this includes sacct's word for a running job.
_NEVER = _NOTHING | {"unknown"}
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(?: ?([a-z%°/]+))?", re.ASCII)
# How tools write yes and no.
_STATES: Mapping[str, float] = {
    **dict.fromkeys(("true", "yes", "on", "enabled", "active", "up"), 1.0),
    **dict.fromkeys(("false", "no", "off", "disabled", "not active", "inactive", "down"), 0.0),
}
# Units that may follow a number: the suffix of their fields, and the factor to the field's unit.
_UNITS: Mapping[str, tuple[str, float]] = {
    "%": ("_percent", 1.0),
    "w": ("_watts", 1.0),
    "c": ("_celsius", 1.0),
    "°c": ("_celsius", 1.0),
    "mib": ("_bytes", 2.0**20),
    "gib": ("_bytes", 2.0**30),
    "mhz": ("_hertz", 1e6),
}
# DCGM's values for what it could not read (dcgm_structs.h, DCGM_INT32_BLANK and DCGM_INT64_BLANK); a value that does
# not fit into a counter is no number either.
_BLANK_32, _BLANK_64 = 0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0
_SMALL = ("_celsius", "_percent", "_watts")
# The year 5138 in seconds; the same number is in 1973 in milliseconds, likewise for microseconds and nanoseconds.
_SECONDS_END = 1e11
_EARLIEST = datetime(2000, 1, 1, tzinfo=timezone.utc)
_LATEST = datetime(2200, 1, 1, tzinfo=timezone.utc)
_FORMS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A file as it was read: its columns by name, and the lines of its rows."""

    path: Path
    table: pa.Table
    torn: Collection[int] = field(default_factory=frozenset)

    def line(self, row: int) -> int | None:
        """Return the line of a row; None for a file without lines."""
        return line_of(self.path, row, self.torn)


def texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts without surrounding spaces; null for empty cells."""
    words = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.equal(words, ""), pa.scalar(None, pa.string()), words)


def numbers(raw: Raw, name: str, problems: Problems, state: bool = False) -> pa.ChunkedArray:
    """Return float64 values, null where nothing was measured; with `state`, `true` and `false` are 1 and 0."""
    column = raw.table.column(name)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column = _from_text(raw, name, problems, state)
    found = column.cast(pa.float64(), safe=False)
    most = _BLANK_32 if name.endswith(_SMALL) else _BLANK_64
    known = pc.and_(pc.less(pc.abs(found), float(most)), pc.is_finite(found))
    return pc.if_else(pc.fill_null(known, False), found, pa.scalar(None, pa.float64()))


def _from_text(raw: Raw, name: str, problems: Problems, state: bool) -> pa.ChunkedArray:
    coded = texts(raw.table.column(name)).combine_chunks().dictionary_encode()
    found: list[float | None] = [None] * len(coded.dictionary)
    for number, text in enumerate(coded.dictionary.to_pylist()):
        try:
            found[number] = number_of(text.lower(), name, state)
        except ValueError as error:
            row = pc.index(coded.indices, number).as_py()
            problems.error(raw.path, f"{text!r}: {error}", raw.line(row), name)
            break
    return pa.chunked_array([pa.array(found, pa.float64()).take(coded.indices)])


def number_of(word: str, field: str, state: bool = False) -> float | None:
    """Return the number in a cell, given in lower case, in the field's unit; None where nothing was measured.

    ValueError states what is wrong with the cell. With `state`, `true`, `Disabled`, `0x48` and `P0` are read as well.
    """
    if word in _NOTHING:
        return None
    if state and re.fullmatch(r"0x[0-9a-f]{1,16}", word):
        return float(int(word, 16))
    if field == "performance_state" and re.fullmatch(r"p\d+", word):
        return float(word[1:])
    if state and word in _STATES:
        return _STATES[word]
    found = _NUMBER.fullmatch(word)
    if found is None:
        raise ValueError("it is not a number")
    suffix, times = _UNITS.get(found[2] or "", ("", 1.0))
    if found[2] is not None and not (suffix and field.endswith(suffix)):
        raise ValueError("write the number alone, in the unit of the column's name")
    return float(found[1]) * times


def times(
    raw: Raw, name: str, problems: Problems, zone: ZoneInfo | None, needed: bool = True
) -> pa.Array:
    """Return timestamps[us, UTC], null where no time is given; a missing time is an error where it is `needed`."""
    column = raw.table.column(name)
    if pa.types.is_timestamp(column.type):
        found = _of_timestamps(raw, name, problems, zone)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        found = pa.array([_since_1970(it) for it in column.to_pylist()], TIME)
    else:
        found = _of_texts(raw, name, problems, zone)
    row = pc.index(pc.is_valid(found), False).as_py() if needed and not problems.errors else -1
    if row >= 0:
        problems.error(raw.path, "every row needs a time", raw.line(row), name)
    outside = pc.or_(pc.less(found, _EARLIEST), pc.greater(found, _LATEST))
    if (row := pc.index(pc.fill_null(outside, False), True).as_py()) >= 0:
        text = f"{found[row].as_py():%Y-%m-%d %H:%M} is not a time of a GPU: check the unit"
        problems.error(raw.path, text, raw.line(row), name)
    return found


def _of_timestamps(raw: Raw, name: str, problems: Problems, zone: ZoneInfo | None) -> pa.Array:
    column = raw.table.column(name)
    if column.type.tz is None:
        if zone is None:
            problems.error(raw.path, _WITHOUT_ZONE, None, name)
        naive = column.cast(pa.timestamp("us"), safe=False)
        column = pc.assume_timezone(naive, str(zone or "UTC"), ambiguous="earliest")
    return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(TIME).combine_chunks()


_WITHOUT_ZONE = "the time has no zone: write 2026-01-31T12:00:00Z or +01:00, or name it: --timezone Europe/Berlin"


def _of_texts(raw: Raw, name: str, problems: Problems, zone: ZoneInfo | None) -> pa.Array:
    coded = texts(raw.table.column(name)).combine_chunks().dictionary_encode()
    found: list[datetime | None] = [None] * len(coded.dictionary)
    for number, text in enumerate(coded.dictionary.to_pylist()):
        if text.lower() in _NEVER:
            continue
        try:
            found[number] = time_of(text, zone)
        except ValueError as error:
            row = pc.index(coded.indices, number).as_py()
            problems.error(raw.path, str(error), raw.line(row), name)
            break
    return pa.array(found, TIME).take(coded.indices)


def time_of(text: str, zone: tzinfo | None) -> datetime:
    """Parse ISO 8601, or a number since 1970 whose size shows whether it is in seconds or smaller units.

    A time without a zone is in `zone`. ValueError is raised without one, and for a text that is no time.
    """
    try:
        number = float(text)
    except ValueError:
        return _written(text, zone)
    since = _since_1970(number)
    if since is None:
        raise ValueError(f"{text!r} is no time")
    return since


def _written(text: str, zone: tzinfo | None) -> datetime:
    found = None
    for form in _FORMS:
        try:
            found = datetime.strptime(text, form)  # noqa: DTZ007 - its zone is asked for below
        except ValueError:
            continue
    try:
        found = found or datetime.fromisoformat(text.replace(" UTC", "Z"))
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write 2026-01-31T12:00:00Z (year, month, day), or seconds since 1970"
        ) from None
    if found.tzinfo is None:
        if zone is None:
            raise ValueError(f"{text!r}: {_WITHOUT_ZONE}")
        found = found.replace(tzinfo=zone)
    return found.astimezone(timezone.utc)


def _since_1970(number: float | None) -> datetime | None:
    for factor in (1.0, 1e3, 1e6, 1e9):
        if number is not None and 0.0 <= number / factor < _SECONDS_END:
            return datetime.fromtimestamp(number / factor, timezone.utc)
    return None
