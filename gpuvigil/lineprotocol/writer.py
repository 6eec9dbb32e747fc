"""Writes values as line protocol."""

import re
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite

from gpuvigil.lineprotocol.model import INT64_MAX, INT64_MIN, Value

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_IN_MEASUREMENT = str.maketrans({",": r"\,", " ": r"\ "})
_IN_NAME = str.maketrans({",": r"\,", "=": r"\=", " ": r"\ "})
_IN_STRING = str.maketrans({'"': r"\"", "\\": r"\\"})


def encode(
    measurement: str,
    tags: Mapping[str, str],
    fields: Mapping[str, Value | None],
    at_ns: int | None,
) -> str | None:
    """Return one line without its newline, or None when no field was measured.

    A field that is None, NaN or infinite was not measured and is left out; so is an empty tag.
    ValueError for what line protocol cannot express: an empty name, a control character in a name or
    tag, one that ends in a backslash, a measurement that starts with `#`, a NUL or a lone
    surrogate anywhere, an integer or a time (Unix nanoseconds) outside int64.
    """
    return LineTemplate(measurement, tags).line(fields, at_ns)


class LineTemplate:
    """Writes many lines of one measurement and one set of tags; rules and errors are those of `encode`."""

    __slots__ = ("_prefix",)

    def __init__(self, measurement: str, tags: Mapping[str, str]) -> None:
        if measurement.startswith("#"):
            raise ValueError(f"measurement {measurement!r} would read as a comment")
        parts = [_name("measurement", measurement).translate(_IN_MEASUREMENT)]
        for key, value in sorted(tags.items()):
            if value:
                escaped = _name("tag key", key).translate(_IN_NAME)
                parts.append(f"{escaped}={_name(f'tag {key!r}', value).translate(_IN_NAME)}")
        self._prefix = ",".join(parts) + " "

    def line(
        self, fields: Mapping[str, Value | None], at_ns: int | None, more: str = ""
    ) -> str | None:
        """Return one line without its newline, or None when no field was measured.

        `more` are further fields as `fields_text` writes them.
        """
        text = fields_text(fields)
        if more:
            text = f"{text},{more}" if text else more
        return f"{self._prefix}{text}{_time(at_ns)}" if text else None


def fields_text(fields: Mapping[str, Value | None]) -> str:
    """Return the fields of a line as text; empty when none was measured."""
    parts = []
    for key, value in fields.items():
        # Numbers are what the collector mostly writes; x - x is 0 only for a finite x.
        if type(value) is int and INT64_MIN <= value <= INT64_MAX:
            parts.append(f"{_field_key(key)}{value}i")
        elif type(value) is float:
            if value - value == 0.0:
                parts.append(f"{_field_key(key)}{value!r}")
        elif value is not None and (text := _value_text(key, value)) is not None:
            parts.append(_field_key(key) + text)
    return ",".join(parts)


def _time(at_ns: int | None) -> str:
    if at_ns is None:
        return ""
    if not INT64_MIN <= at_ns <= INT64_MAX:
        raise ValueError(f"time {at_ns} ns is outside int64")
    return f" {at_ns:d}"


def _name(what: str, text: str) -> str:
    """Return `text` unchanged; raise ValueError when line protocol cannot carry it as a name or tag."""
    if not text:
        raise ValueError(f"{what} is empty")
    if _CONTROL.search(text):
        raise ValueError(f"{what} {text!r} holds a control character")
    if text.endswith("\\"):
        raise ValueError(f"{what} {text!r} ends in a backslash")
    return _as_utf8(what, text)


def _as_utf8(what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {text!r} cannot be written as UTF-8") from error
    return text


@lru_cache(maxsize=4096)
def _field_key(key: str) -> str:
    return _name("field key", key).translate(_IN_NAME) + "="


def _value_text(key: str, value: Value) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError(f"field {key!r}: {value} is outside int64")
        return f"{value:d}i"
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(f"field {key!r} holds a NUL")
        return f'"{_as_utf8(f"field {key!r}", value).translate(_IN_STRING)}"'
    # A subclass of float may have another repr, as NumPy's does.
    return float.__repr__(value) if isfinite(value) else None
