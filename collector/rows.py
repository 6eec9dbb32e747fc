"""Rows of telemetry: what the catalogue says of them, as line protocol and for `/metrics`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol.writer import LineTemplate, fields_text
from gpuvigil.metrics import Measurement

Number = float | int
_Column = tuple[str, type[int] | type[float]]  # the name, and how it is written


class Steady:
    """Numbers of a row that stay for many ticks: what they are as text is made once."""

    __slots__ = ("columns", "text", "values")

    def __init__(self, measurement: Measurement, values: Mapping[str, Number]) -> None:
        every = _columns(measurement)
        self.values = values
        self.text = fields_text(_typed(every, values))
        self.columns = tuple(column for column in every if column[0] not in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a measurement: tags name the subject, fields hold what was measured.

    `steady` may hold those of `fields` that are as they were in the row before.
    """

    measurement: Measurement
    tags: Mapping[str, str]
    fields: Mapping[str, Number | None]
    at: datetime
    steady: Steady | None = None

    def line(self) -> str | None:
        """Line protocol, each field in the type of its column; None when nothing was measured."""
        template = _template(self.measurement.name, tuple(self.tags.items()))
        if self.steady is None:
            fields = _typed(_columns(self.measurement), self.fields)
            return template.line(fields, to_ns(self.at))
        fields = _typed(self.steady.columns, self.fields)
        return template.line(fields, to_ns(self.at), self.steady.text)


def _typed(
    columns: Iterable[_Column], fields: Mapping[str, Number | None]
) -> dict[str, Number | None]:
    measured = fields.get
    return {
        name: value if type(value) is kind else kind(value)
        for name, kind in columns
        if (value := measured(name)) is not None
    }


@cache
def _columns(measurement: Measurement) -> tuple[_Column, ...]:
    return tuple((metric.name, int if metric.integer else float) for metric in measurement.metrics)


# More subjects than a node has: each GPU has up to 18 NVLinks.
@lru_cache(maxsize=4096)
def _template(measurement: str, tags: tuple[tuple[str, str], ...]) -> LineTemplate:
    return LineTemplate(measurement, dict(tags))
