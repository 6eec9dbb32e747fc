"""Parses line protocol into lines, one at a time, with the whole grammar and every check.

A row is the text between two newlines. A line is one row, or several when a quoted string in it
contains newlines. Whatever is wrong with a line, its first row is refused and reading continues at
the next row, so nothing that a sender writes can hide the lines after it.
"""

import re
from functools import cached_property
from itertools import accumulate
from math import isfinite

from gpuvigil.lineprotocol.model import (
    INT64_MAX,
    INT64_MIN,
    MAX_LINE_BYTES,
    MAX_TAGS,
    NANOSECONDS,
    UINT64_MAX,
    Line,
    Parsed,
    Precision,
    Refusal,
    Value,
)

BOOLEANS = {
    **dict.fromkeys(("t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("f", "F", "false", "False", "FALSE"), False),
}
# Python's int() and float() accept more than line protocol: spaces, underscores, other digits.
INTEGER_CHARACTERS = "-0123456789"
FLOAT_CHARACTERS = "+-.0123456789eE"

# A backslash escapes only a character that would end the name; before any other it is literal. Each
# pattern takes the longest name; nothing may be appended to it, or it could backtrack out of an
# escape.
_MEASUREMENT = re.compile(r"[^, \\\n]*(?:\\[, ]?[^, \\\n]*)*")
_NAME = re.compile(r"[^,= \\\n]*(?:\\[,= ]?[^,= \\\n]*)*")
_MEASUREMENT_ESCAPE = re.compile(r"\\([, ])")
_NAME_ESCAPE = re.compile(r"\\([,= ])")
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_STRING_ESCAPE = re.compile(r'\\(["\\])')
_BARE_VALUE = re.compile(r"[^, \r\n]*")
_SPACES = re.compile(" *")
_MARGIN = re.compile(r"[ \t]*")
_TIMESTAMP = re.compile(r"[^ \r\n]*")
_END = re.compile(r"\r?(?=\n|\Z)")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


class _Malformed(Exception):
    """The line breaks a rule; the text says which."""


class _Unclosed(_Malformed):
    """The text ends inside a quoted string."""


def parse(body: bytes, precision: Precision = "ns", max_line_bytes: int = MAX_LINE_BYTES) -> Parsed:
    """Return every valid line of `body`, and the number and the mistake of every other.

    `precision` is the unit of the timestamps in `body`. Never raises for anything in `body`.
    Blank rows and comments are skipped; a row may end in CR LF. If a field is named twice, the last
    value holds.
    """
    reader = LineReader(text_of(body), precision, max_line_bytes)
    lines: list[Line] = []
    refused: list[Refusal] = []
    index = 0
    while index < len(reader.rows):
        found, index = reader.read(index)
        if isinstance(found, Line):
            lines.append(found)
        elif found is not None:
            refused.append(found)
    return Parsed(lines=lines, refused=refused)


def text_of(body: bytes) -> str:
    """Decode `body`, with each byte that is not UTF-8 as a lone surrogate; no newline is lost."""
    return body.decode("utf-8", "surrogateescape")


class LineReader:
    """Reads the line that starts at a given row."""

    def __init__(self, text: str, precision: Precision, max_line_bytes: int) -> None:
        self.rows = text.split("\n")
        self._text = text
        self._scale = NANOSECONDS[precision]
        self._max_line_bytes = max_line_bytes

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of each row's start in the text."""
        return [0, *accumulate(len(row) + 1 for row in self.rows)]

    def read(self, index: int) -> tuple[Line | Refusal | None, int]:
        """Return what starts at `rows[index]` (None: blank or comment), and the index to continue at."""
        row = self.rows[index]
        start = row.strip(" \t\r")
        if not start or start.startswith("#"):
            return None, index + 1
        try:
            self._check(row)
            try:
                line, _ = _Scanner(row, 0, len(row), self._scale).line()
                return line, index + 1
            except _Unclosed:
                return self._read_across(index)
        except _Malformed as malformed:
            return Refusal(number=index + 1, reason=str(malformed)), index + 1

    def _read_across(self, index: int) -> tuple[Line, int]:
        """Return the line that starts at `rows[index]` and continues in later rows, and the next index."""
        # Little is read in vain: a row that opens a string of its own always ends the string that
        # reaches it, so no row is read for many earlier lines.
        start = self._starts[index]
        # One more than allowed, so that a line that was cut is recognised as too long.
        limit = start + self._max_line_bytes + 1
        line, end = _Scanner(self._text, start, limit, self._scale).line()
        self._check(self._text[start:end])
        return line, index + self._text.count("\n", start, end) + 1

    def _check(self, text: str) -> None:
        if len(text.encode("utf-8", "surrogateescape")) > self._max_line_bytes:
            raise _Malformed(f"longer than {self._max_line_bytes} bytes")
        if _NOT_UTF8.search(text):
            raise _Malformed("not UTF-8")
        if "\0" in text:
            raise _Malformed("holds a NUL")


class _Scanner:
    """Reads one line that starts at `at` in `text` and ends by `limit`."""

    def __init__(self, text: str, at: int, limit: int, scale: int) -> None:
        self._text = text
        self._at = at
        self._limit = limit
        self._scale = scale

    def line(self) -> tuple[Line, int]:
        """Return the line and where it ends in the text, without its newline."""
        self._take(_MARGIN)
        measurement = _MEASUREMENT_ESCAPE.sub(r"\1", self._take(_MEASUREMENT))
        if not measurement:
            raise _Malformed("no measurement")
        tags = self._tags()
        if not self._take(_SPACES):
            raise _Malformed(self._unexpected("after the tags" if tags else "in the measurement"))
        fields = self._fields()
        at_ns = self._time()
        line = Line(
            measurement=measurement,
            tags=tuple(sorted(tags.items())),
            fields=tuple(fields.items()),
            at_ns=at_ns,
        )
        return line, self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at, self._limit)
        assert match is not None, "each of them matches nothing, too"
        self._at = match.end()
        return match.group()

    def _next_is(self, character: str) -> bool:
        return self._text.startswith(character, self._at, self._limit)

    def _passes(self, character: str) -> bool:
        """Return whether `character` comes next, and skip it if so."""
        passes = self._next_is(character)
        self._at += passes
        return passes

    def _unexpected(self, where: str) -> str:
        rest = self._text[self._at : self._limit].partition("\n")[0].rstrip("\r")
        return f"{_shown(rest)} {where}" if rest else f"ends {where}"

    def _key(self, what: str) -> str:
        """Read a tag or field key and the equals sign after it."""
        key = _NAME_ESCAPE.sub(r"\1", self._take(_NAME))
        if not key:
            raise _Malformed(f"a {what} has no key")
        if not self._passes("="):
            raise _Malformed(f"{what} {_shown(key)} has no value")
        return key

    def _tags(self) -> dict[str, str]:
        tags: dict[str, str] = {}
        while self._passes(","):
            key = self._key("tag")
            value = _NAME_ESCAPE.sub(r"\1", self._take(_NAME))
            if not value:
                raise _Malformed(f"tag {_shown(key)} has no value")
            if key in tags:
                raise _Malformed(f"tag {_shown(key)} is given twice")
            tags[key] = value
            if len(tags) > MAX_TAGS:
                raise _Malformed(f"more than {MAX_TAGS} tags")
        return tags

    def _fields(self) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        more = True
        while more:
            key = self._key("field")
            if self._next_is('"'):
                fields[key] = self._string()
            else:
                fields[key] = _bare_value(key, self._take(_BARE_VALUE))
            more = self._passes(",")
        return fields

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at, self._limit)
        if match is None:
            raise _Unclosed("a quoted string is not closed")
        self._at = match.end()
        return _STRING_ESCAPE.sub(r"\1", match.group(1))

    def _time(self) -> int | None:
        """Read the time at the end of the line, in nanoseconds, and the end itself; None without a time."""
        at_ns = None
        if self._take(_SPACES) and (text := self._take(_TIMESTAMP)):
            at_ns = _integer(text, "time", INT64_MIN, INT64_MAX) * self._scale
            if not INT64_MIN <= at_ns <= INT64_MAX:
                raise _Malformed(f"time {_shown(text)} is out of range")
            self._take(_SPACES)
        end = _END.match(self._text, self._at, self._limit)
        if end is None:
            where = "after the fields" if at_ns is None else "after the time"
            raise _Malformed(self._unexpected(where))
        self._at = end.end()
        return at_ns


def _bare_value(key: str, text: str) -> float | int | bool:
    if text in BOOLEANS:
        return BOOLEANS[text]
    what = f"field {_shown(key)}"
    if text.endswith("i"):
        return _integer(text[:-1], what, INT64_MIN, INT64_MAX)
    if text.endswith("u"):
        return _integer(text[:-1], what, 0, UINT64_MAX)
    if not text:
        raise _Malformed(f"{what} has no value")
    return _float(text, what)


def _integer(text: str, what: str, lowest: int, highest: int) -> int:
    try:
        number = None if text.strip(INTEGER_CHARACTERS) else int(text)
    except ValueError:
        number = None
    if number is None:
        raise _Malformed(f"{what}: {_shown(text)} is not an integer")
    if not lowest <= number <= highest:
        raise _Malformed(f"{what}: {_shown(text)} is out of range")
    return number


def _float(text: str, what: str) -> float:
    try:
        number = None if text.strip(FLOAT_CHARACTERS) else float(text)
    except ValueError:
        number = None
    if number is None:
        raise _Malformed(f"{what}: {_shown(text)} is not a number")
    if not isfinite(number):
        raise _Malformed(f"{what}: {_shown(text)} is out of range")
    return number


def _shown(text: str) -> str:
    """Return `text` in one short, readable line."""
    return ascii(text if len(text) <= 40 else text[:39] + "…")
