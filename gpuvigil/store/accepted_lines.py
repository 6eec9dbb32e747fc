"""Which lines a store keeps, and in what form: the same for every store that parses them in Python."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..lineprotocol import Line, encode, parse
from ..lineprotocol.mark import MARK
from ..metrics import MEASUREMENTS
from . import EARLIEST_NS, LATEST_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: its subject, its time, and its measured fields, typed as in the catalogue."""

    measurement: str
    tags: tuple[str, ...]
    at_ns: int
    fields: Mapping[str, int | float]


def read(lines: bytes, now_ns: int) -> tuple[list[Row], list[str]]:
    """Return the lines of the catalogue's measurements, and why others are refused (`Store.write`).

    A line without a time gets `now_ns`.
    """
    parsed = parse(lines, "ns")
    refused = [refusal.reason for refusal in parsed.refused]
    rows = []
    for line in parsed.lines:
        reason = _why_not(line)
        if reason is not None:
            refused.append(reason)
        elif (row := _row(line, now_ns)) is not None:
            rows.append(row)
    return rows, refused


def marked(row: Row, labels: Mapping[str, str]) -> str:
    """Return the row as line protocol with its mark and additional tags."""
    tags = dict(labels) | dict(zip(MEASUREMENTS[row.measurement].tags, row.tags, strict=True))
    fields = {**row.fields, MARK: row.at_ns // 1000}
    line = encode(row.measurement, tags, fields, row.at_ns)
    assert line is not None, "the mark is always measured"
    return line


def _why_not(line: Line) -> str | None:
    if line.at_ns is not None and not EARLIEST_NS <= line.at_ns <= LATEST_NS:
        return "the time is before 1970 or after 2200"
    catalogue = MEASUREMENTS.get(line.measurement)
    metrics = {} if catalogue is None else {it.name: it for it in catalogue.metrics}
    reasons = (metrics[name].misfit(value) for name, value in line.fields if name in metrics)
    return next((reason for reason in reasons if reason is not None), None)


def _row(line: Line, now_ns: int) -> Row | None:
    """Return the catalogue's part of a line; None when the catalogue knows nothing of it."""
    catalogue = MEASUREMENTS.get(line.measurement)
    if catalogue is None:
        return None
    given = dict(line.tags)
    integer = {metric.name: metric.integer for metric in catalogue.metrics}
    fields = {
        name: int(value) if integer[name] else float(value)
        for name, value in line.fields
        if name in integer
    }
    if not fields:
        return None
    return Row(
        measurement=line.measurement,
        tags=tuple(given.get(tag, "") for tag in catalogue.tags),
        at_ns=now_ns if line.at_ns is None else line.at_ns,
        fields=fields,
    )
