"""Reading and writing of InfluxDB v2 line protocol.

Grammar: InfluxData, "Line protocol reference, InfluxDB OSS v2", page read 2026-11.
"""

from gpuvigil.lineprotocol.columns import parse_columns
from gpuvigil.lineprotocol.model import (
    MAX_LINE_BYTES,
    MAX_TAGS,
    Column,
    ColumnBlock,
    Line,
    Parsed,
    ParsedColumns,
    Precision,
    Refusal,
    Value,
)
from gpuvigil.lineprotocol.parser import parse
from gpuvigil.lineprotocol.writer import LineTemplate, encode

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_TAGS",
    "Column",
    "ColumnBlock",
    "Line",
    "LineTemplate",
    "Parsed",
    "ParsedColumns",
    "Precision",
    "Refusal",
    "Value",
    "encode",
    "parse",
    "parse_columns",
]
