"""Line protocol read the slow and obvious way: a character at a time, a row more at a time."""

import math
import re

from gpuvigil.lineprotocol import MAX_TAGS, Line, Value

SCALE = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
TRUE = {"t", "T", "true", "True", "TRUE"}
FALSE = {"f", "F", "false", "False", "FALSE"}


class WrongError(Exception):
    """The line is malformed."""


def naive_parse(body: bytes, precision: str = "ns") -> tuple[list[tuple[int, Line]], list[int]]:
    """The good lines with their numbers, and the numbers of the refused."""
    rows = body.split(b"\n")
    good: list[tuple[int, Line]] = []
    refused: list[int] = []
    index = 0
    while index < len(rows):
        stripped = rows[index].strip(b" \t\r")
        taken = 1
        if stripped and not stripped.startswith(b"#"):
            for taken in range(1, len(rows) - index + 1):
                try:
                    text = b"\n".join(rows[index : index + taken]).decode()
                    good.append((index + 1, naive_line(text, SCALE[precision])))
                    break
                except (WrongError, UnicodeDecodeError):
                    continue
            else:
                refused.append(index + 1)
                taken = 1
        index += taken
    return good, refused


def naive_line(text: str, scale: int) -> Line:
    """The one line that is the whole of `text`."""
    if "\0" in text:
        raise WrongError
    rest = text.lstrip(" \t").removesuffix("\r")
    measurement, rest = until(rest, ", ", ", ")
    tags: dict[str, str] = {}
    while rest.startswith(","):
        key, rest = until(rest[1:], ",= ", ",= ")
        if not rest.startswith("="):
            raise WrongError
        value, rest = until(rest[1:], ",= ", ",= ")
        if not key or not value or key in tags or len(tags) == MAX_TAGS:
            raise WrongError
        tags[key] = value
    if not measurement or not rest.startswith(" "):
        raise WrongError
    fields, rest = naive_fields(rest.lstrip(" "))
    at = rest.strip(" ")
    if rest and not rest.startswith(" "):
        raise WrongError
    return Line(
        measurement=measurement,
        tags=tuple(sorted(tags.items())),
        fields=tuple(fields.items()),
        at_ns=bounded(at, 63, scale) if at else None,
    )


def naive_fields(rest: str) -> tuple[dict[str, Value], str]:
    fields: dict[str, Value] = {}
    more = True
    while more:
        key, rest = until(rest, ",= ", ",= ")
        if not key or not rest.startswith("="):
            raise WrongError
        rest = rest[1:]
        if rest.startswith('"'):
            fields[key], rest = quoted(rest[1:])
        else:
            end = next((i for i, c in enumerate(rest) if c in ", "), len(rest))
            fields[key], rest = bare(rest[:end]), rest[end:]
        more = rest.startswith(",")
        rest = rest[1:] if more else rest
    return fields, rest


def until(rest: str, stops: str, escapable: str) -> tuple[str, str]:
    """The name before the first bare stop or newline, its escapes undone, and what follows."""
    name, i = "", 0
    while i < len(rest) and rest[i] not in stops and rest[i] != "\n":
        if rest[i] == "\\" and i + 1 < len(rest) and rest[i + 1] in escapable:
            i += 1
        name += rest[i]
        i += 1
    return name, rest[i:]


def quoted(rest: str) -> tuple[str, str]:
    value, i = "", 0
    while i < len(rest) and rest[i] != '"':
        if rest[i] == "\\" and i + 1 < len(rest) and rest[i + 1] in '"\\':
            i += 1
        value += rest[i]
        i += 1
    if i == len(rest):
        raise WrongError
    return value, rest[i + 1 :]


def bare(text: str) -> float | int | bool:
    if text in TRUE | FALSE:
        return text in TRUE
    if text.endswith("i"):
        return bounded(text[:-1], 63, 1)
    if text.endswith("u"):
        number = bounded(text[:-1], 64, 1)
        if number < 0:
            raise WrongError
        return number
    if not FLOAT.fullmatch(text) or not math.isfinite(float(text)):
        raise WrongError
    return float(text)


def bounded(text: str, bits: int, scale: int) -> int:
    if not re.fullmatch(r"-?[0-9]+", text, re.ASCII) or len(text) > 100:
        raise WrongError
    number = int(text) * scale
    if not -(2**bits) <= number < 2**bits:
        raise WrongError
    return number
