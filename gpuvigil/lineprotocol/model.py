"""Parsed line protocol, as values."""

from dataclasses import dataclass
from typing import Literal

Value = float | int | bool | str
Column = list[int] | list[float] | list[bool] | list[str]
Precision = Literal["ns", "us", "ms", "s"]

NANOSECONDS: dict[Precision, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UINT64_MAX = 2**64 - 1

# A GPU line with 52 fields takes about 1,000 bytes.
MAX_LINE_BYTES = 65_536
MAX_TAGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One sample of one subject; `at_ns` is Unix time, None when the sender gave none.

    Tags are sorted by key, keys are unique. Fields keep the order of the line, at least one.
    """

    measurement: str
    tags: tuple[tuple[str, str], ...]
    fields: tuple[tuple[str, Value], ...]
    at_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the line that starts at row `number` of the body (the first is 1) was refused."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The accepted lines and the refused ones, each in the order of the body."""

    lines: list[Line]
    refused: list[Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBlock:
    """Lines of one schema, one column per tag and field; every column has one value per line.

    `tag_keys` are sorted; `field_keys` keep the order of the lines; `field_types[i]` is the type
    of every value of `fields[i]`. An int lies within int64 or, sent with the suffix `u`, uint64.
    `numbers` are the lines' row numbers in the body, ascending.
    """

    measurement: str
    tag_keys: tuple[str, ...]
    tags: list[list[str]]
    field_keys: tuple[str, ...]
    field_types: tuple[type[Value], ...]
    fields: list[Column]
    at_ns: list[int | None]
    numbers: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedColumns:
    """The accepted lines, one block per schema, and the refused ones in the order of the body."""

    tables: list[ColumnBlock]
    refused: list[Refusal]
