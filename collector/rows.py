"""Rows of telemetry: what the catalogue says of them, as line protocol and for `/metrics`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol.writer import LineTemplate
from gpuvigil.metrics import Measurement

Number = float | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a measurement: tags name the subject, fields hold what was measured."""

    measurement: Measurement
    tags: Mapping[str, str]
    fields: Mapping[str, Number | None]
    at: datetime

    def line(self) -> str | None:
        """Line protocol, each field in the type of its column; None when nothing was measured."""
        measured = self.fields.get
        fields = {
            name: value if type(value) is kind else kind(value)
            for name, kind in _columns(self.measurement)
            if (value := measured(name)) is not None
        }
        template = _template(self.measurement.name, tuple(self.tags.items()))
        return template.line(fields, to_ns(self.at))


@cache
def _columns(measurement: Measurement) -> tuple[tuple[str, type[int] | type[float]], ...]:
    return tuple((metric.name, int if metric.integer else float) for metric in measurement.metrics)


# More subjects than a node has: each GPU has up to 18 NVLinks.
@lru_cache(maxsize=4096)
def _template(measurement: str, tags: tuple[tuple[str, str], ...]) -> LineTemplate:
    return LineTemplate(measurement, dict(tags))
