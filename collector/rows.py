"""Rows of telemetry: what the catalogue says of them, as line protocol and for `/metrics`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol.model import INT64_MAX, INT64_MIN
from gpuvigil.lineprotocol.writer import LineTemplate
from gpuvigil.metrics import Measurement

Number = float | int
_Column = tuple[str, bool]  # as a line names it, and whether it is written as a whole number


class Steady:
    """Numbers of a row that stay for many ticks: what they are as text is made once."""

    __slots__ = ("text", "values")

    def __init__(self, measurement: Measurement, values: Mapping[str, Number]) -> None:
        self.values = values
        self.text = _text(_columns(measurement), values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a measurement: tags name the subject, fields hold what was measured.

    `steady` holds further fields, none of `fields` among them, that are as in the row before.
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
        """Line protocol, each field in the type of its column; None when nothing was measured."""
        text = _text(_columns(self.measurement), self.fields)
        if self.steady is not None and self.steady.text:
            text = f"{text},{self.steady.text}" if text else self.steady.text
        template = _template(self.measurement.name, tuple(self.tags.items()))
        return template.line({}, to_ns(self.at), text)


def _text(columns: Mapping[str, _Column], fields: Mapping[str, Number | None]) -> str:
    """The fields that have a column; one that is no finite number, or too large, is none."""
    parts = []
    for name, value in fields.items():
        if value is None or (column := columns.get(name)) is None:
            continue
        key, whole = column
        # x - x is 0 only for a finite x.
        if value - value != 0:
            continue
        if not whole:
            parts.append(f"{key}{float(value)!r}")
        elif INT64_MIN <= (number := int(value)) <= INT64_MAX:
            parts.append(f"{key}{number}i")
    return ",".join(parts)


@cache
def _columns(measurement: Measurement) -> Mapping[str, _Column]:
    return {metric.name: (f"{metric.name}=", metric.integer) for metric in measurement.metrics}


# More subjects than a node has: each GPU has up to 18 NVLinks.
@lru_cache(maxsize=4096)
def _template(measurement: str, tags: tuple[tuple[str, str], ...]) -> LineTemplate:
    return LineTemplate(measurement, dict(tags))
