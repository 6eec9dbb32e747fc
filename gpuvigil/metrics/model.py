"""The types of metrics and measurements, and the format of their tables."""

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """The behaviour of a metric over time."""

    GAUGE = "gauge"  # goes up and down
    COUNTER = "counter"  # only grows: the collector makes it monotone
    STATE = "state"  # a whole number that stands for a state


class Seen(str, Enum):
    """Where a metric's value has been read so far."""

    HARDWARE = "read on hardware"
    FIXTURE = "fixture"  # in tests, from values in the format that a source describes
    NEVER = "never seen"


# Compared by identity, since there is one of each: that makes them fast dictionary keys.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """One column of one measurement."""

    measurement: str
    name: str  # with its unit
    kind: Kind
    integer: bool
    source: str  # the call or the file it is read from
    used_by: str
    seen: Seen
    seen_in: str  # the source of the fixture
    sentence: str
    dcgm: str | None = None  # dcgm-exporter's name for the same metric

    @property
    def prometheus(self) -> str:
        """The name on `/metrics`: counters end in `_total`."""
        suffix = "_total" if self.kind is Kind.COUNTER else ""
        return f"gpuvigil_{self.measurement}_{self.name}{suffix}"

    def misfit(self, value: float | int | bool | str) -> str | None:
        """Return why a store must refuse this value; None when it fits.

        An integer fits everywhere; a float fits an integer metric only if it is whole.
        """
        name = f"field {self.measurement}.{self.name}"
        if isinstance(value, bool | str):
            return f"{name} is not a number"
        if not self.integer:
            return None
        if value != int(value):
            return f"{name} is not a whole number"
        return None if -(2**63) <= value < 2**63 else f"{name} is out of range"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """A table of the store: the tags name a subject, with one row per subject and tick."""

    name: str
    tags: tuple[str, ...]
    metrics: tuple[Metric, ...]
    sentence: str

    def metric(self, name: str) -> Metric:
        """Return the metric of that name; raise KeyError when there is none."""
        return {metric.name: metric for metric in self.metrics}[name]


_SEEN = {"hardware": Seen.HARDWARE, "-": Seen.NEVER}


def table(measurement: str, rows: str) -> tuple[Metric, ...]:
    """Parse metrics from lines `name | kind | source | used by | seen | DCGM name or - | sentence`.

    `gauge` holds a float; `integer`, `counter` and `state` hold whole numbers, `float counter` a
    counter with a fraction. `seen` is `hardware`, `-` for never, or the source of the fixture.
    """
    metrics = []
    for row in rows.strip().splitlines():
        name, kind, source, used_by, seen, dcgm, sentence = map(str.strip, row.split("|"))
        metrics.append(
            Metric(
                measurement=measurement,
                name=name,
                kind=Kind(kind.replace("float ", "").replace("integer", "gauge")),
                integer=kind in {"integer", "counter", "state"},
                source=source,
                used_by=used_by,
                seen=_SEEN.get(seen, Seen.FIXTURE),
                seen_in="" if seen in _SEEN else seen,
                dcgm=None if dcgm == "-" else dcgm,
                sentence=sentence,
            )
        )
    return tuple(metrics)
