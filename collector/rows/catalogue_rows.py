"""Rows of telemetry, defined by the catalogue, as line protocol and for `/metrics`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol.model import INT64_MAX, INT64_MIN
from gpuvigil.lineprotocol.writer import LineTemplate
from gpuvigil.log import Log
from gpuvigil.metrics import Measurement

log = Log("collector")

Number = float | int


class Steady:
    """Values of a row that stay for many ticks; their text is made once."""

    __slots__ = ("text", "values")

    def __init__(self, measurement: Measurement, values: Mapping[str, Number]) -> None:
        self.values = values
        self.text = _text(measurement, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a measurement: tags name the subject, fields hold what was measured.

    `steady` holds further fields, distinct from `fields`, that are as in the previous row.
    """

    measurement: Measurement
    tags: Mapping[str, str]
    fields: Mapping[str, Number | None]
    at: datetime
    steady: Steady | None = None

    @property
    def every(self) -> Mapping[str, Number | None]:
        """All fields."""
        return self.fields if self.steady is None else {**self.steady.values, **self.fields}

    def line(self) -> str | None:
        """Return line protocol, each field in its column's type; None when nothing was measured."""
        text = _text(self.measurement, self.fields)
        if self.steady is not None and self.steady.text:
            text = f"{text},{self.steady.text}" if text else self.steady.text
        template = _template(self.measurement.name, tuple(self.tags.items()))
        return template.line({}, to_ns(self.at), text)


def lines_of(rows: Iterable[Row]) -> list[str]:
    """Return the line protocol of the rows that measured something.

    A row with a tag that line protocol cannot carry is left out and logged once; others are
    unaffected.
    """
    found = []
    for row in rows:
        try:
            line = row.line()
        except ValueError as error:
            _refuse(row.measurement.name, str(error))
            continue
        if line is not None:
            found.append(line)
    return found


@lru_cache(maxsize=8)
def _refuse(measurement: str, why: str) -> None:
    """Log one line, and none for what was just logged."""
    log.warning("a row cannot be sent", measurement=measurement, why=why)


def _text(measurement: Measurement, fields: Mapping[str, Number | None]) -> str:
    """Return the fields that have a column; a number that is not finite, or too large, is left out."""
    measured = {name: value for name, value in fields.items() if value is not None}
    if not measured:
        return ""
    values = tuple(measured.values())
    form = _form(measurement, tuple(measured))
    # A row mostly has the names of the previous row. x - x is 0 only for a finite x.
    total = sum(values)
    if form and total - total == 0 and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
        return form % values
    return ",".join(
        _form(measurement, (name,)) % value
        for name, value in measured.items()
        if name in _columns(measurement) and _fits(value)
    )


def _fits(value: Number) -> bool:
    return value - value == 0 and INT64_MIN <= value <= INT64_MAX


@lru_cache(maxsize=512)
def _form(measurement: Measurement, names: tuple[str, ...]) -> str:
    """Return the format of fields with these names, in order; empty when one has no column."""
    columns = _columns(measurement)
    if not columns.keys() >= set(names):
        return ""
    return ",".join(f"{name}=%{'di' if columns[name] else 's'}" for name in names)


@cache
def _columns(measurement: Measurement) -> Mapping[str, bool]:
    """Return the columns' names, and whether each is a whole number."""
    return {metric.name: metric.integer for metric in measurement.metrics}


# More subjects than a node has: each GPU has up to 18 NVLinks.
@lru_cache(maxsize=4096)
def _template(measurement: str, tags: tuple[tuple[str, str], ...]) -> LineTemplate:
    return LineTemplate(measurement, dict(tags))
