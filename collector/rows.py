"""Rows of telemetry: what the catalogue says of them, as line protocol and for `/metrics`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.clock import to_ns
from gpuvigil.lineprotocol.writer import encode
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
        fields: dict[str, Number] = {}
        for metric in self.measurement.metrics:
            value = self.fields.get(metric.name)
            if value is not None:
                fields[metric.name] = int(value) if metric.integer else float(value)
        return encode(self.measurement.name, self.tags, fields, to_ns(self.at))
