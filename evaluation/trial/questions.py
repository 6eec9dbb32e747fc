"""What to ask a Prometheus about GPUs, hosts and ports: only what a rule, the usage count or the report reads."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from accounting.usage.grid import FIELDS
from analyzer.correlation.all_detectors import DETECTORS, questions
from gpuvigil.metrics import GPU, Kind
from gpuvigil.store.exporter_names import EXPORTERS, Column, Exporter

XID = "DCGM_FI_DEV_XID_ERRORS"
XID_FIELD = "xid"  # the last Xid's code; in none of our measurements
REMAPPED = "remapped_rows_uncorrected"
# Names in DCGM before 3.3 (dcgm_fields.h, field 112, read 2026-11).
_OLD_NAMES = {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"}
# These are asked first: if time runs out, the rest is missing and named.
_FIRST = (
    *("utilization_percent", "memory_used_bytes", XID_FIELD, "power_watts"),
    *("remapped_rows_uncorrected", "remap_failure", "remap_pending", "ecc_uncorrected_errors"),
    *("temperature_celsius", "clock_event_reasons", "sm_activity_percent"),
)
# What changes at any moment; everything else is asked more rarely and stands until then.
_MOVING = (Kind.GAUGE,)
_MOVES = frozenset({"clock_event_reasons", "utilization_percent"})
_STANDS: tuple[str, ...] = (
    "_max",
    "_limit_watts",
    "_default_watts",
    "_max_hertz",
    "_total_bytes",
    "_corrected",
)
_STANDS += ("_uncorrected", "_pending")
# Power shows the same, without a counter that restarts.
_NOT_ASKED = frozenset({"energy_joules"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One metric of one kind of target, and the fields it gives."""

    exporter: Exporter
    metric: str
    fields: tuple[tuple[str, Column], ...]
    fast: bool

    @property
    def presence(self) -> bool:
        """Whether each of its values is a row."""
        return self.metric in self.exporter.presence


def wanted() -> dict[str, frozenset[str]]:
    """Return, by measurement, the fields that anything reads."""
    found = {"gpu": {*FIELDS, "index", REMAPPED}, "node": {"load_average"}, "port": {"up"}}
    for (measurement, _), need in questions(DETECTORS).items():
        names = {*need.fields, *(one.field for one in need.aggregates)}
        found.setdefault(measurement, set()).update(names)
    return {name: frozenset(fields - _NOT_ASKED) for name, fields in found.items()}


def names_of(exporters: Sequence[Exporter] = EXPORTERS) -> frozenset[str]:
    """Return every metric that could be asked for."""
    fields, found = wanted(), {XID}
    for exporter in exporters:
        found.update(exporter.presence)
        for field, column in exporter.columns.items():
            if field in fields.get(exporter.measurement.name, ()):
                found |= {column.metric, _OLD_NAMES.get(column.metric, column.metric)}
    return frozenset(found)


def asked(exporter: Exporter, there: Collection[str]) -> list[Question]:
    """Return the questions for one kind of target about metrics that exist, the most telling first."""
    fields = wanted().get(exporter.measurement.name, frozenset())
    by_metric: dict[str, list[tuple[str, Column]]] = {}
    for field, column in exporter.columns.items():
        metric = _named(column.metric, there)
        if field in fields and metric in there:
            by_metric.setdefault(metric, []).append((field, column))
    if exporter.measurement is GPU and XID in there and XID not in by_metric:
        by_metric[XID] = [(XID_FIELD, Column(metric=XID))]
    presence = next((one for one in _presences(exporter) if one in there), None)
    if presence is None:
        return []
    by_metric.setdefault(presence, [])
    found = [
        Question(
            exporter=exporter,
            metric=metric,
            fields=tuple(named),
            fast=metric == presence or any(_moves(exporter, field) for field, _ in named),
        )
        for metric, named in by_metric.items()
    ]
    return sorted(found, key=lambda one: (one.metric != presence, _place(one), one.metric))


def presence_of(exporter: Exporter, there: Collection[str]) -> str | None:
    """Return the metric whose values are the rows of a kind of target; None without one."""
    return next((one for one in _presences(exporter) if one in there), None)


def missing(there: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield GPU fields that something reads and an exporter could report, with the metric that is missing."""
    fields = wanted()["gpu"]
    for exporter in EXPORTERS:
        if exporter.measurement is GPU and not exporter.fallback:
            for field, column in exporter.columns.items():
                if field in fields and _named(column.metric, there) not in there:
                    yield f"gpu.{field}", column.metric


def _presences(exporter: Exporter) -> list[str]:
    """Return the presence metrics, utilisation first: it is asked for in any case."""
    return sorted(exporter.presence, key=lambda name: "util" not in name.lower())


def _named(metric: str, there: Collection[str]) -> str:
    return metric if metric in there else _OLD_NAMES.get(metric, metric)


def _moves(exporter: Exporter, field: str) -> bool:
    if field in _MOVES:
        return True
    if exporter.measurement is not GPU or field == XID_FIELD or field.endswith(_STANDS):
        return False
    metric = GPU.metric(field)
    return metric.kind in _MOVING or (
        metric.integer and metric.kind not in (Kind.STATE, Kind.COUNTER)
    )


def _place(one: Question) -> int:
    places = [_FIRST.index(field) for field, _ in one.fields if field in _FIRST]
    return min(places, default=len(_FIRST))
