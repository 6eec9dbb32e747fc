"""A GPU whose utilisation reads 0 % although its power says that it works."""

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident
from gpuvigil.store import Aggregate, Function

from ..window.columns import Mask, seconds
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import Detector

_USED = Aggregate(function=Function.MAX, field="utilization_percent")
_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
NEEDS = (Need(measurement="gpu", span=Span.STEADY, aggregates=(_USED, _WATTS, _LIMIT)),)

_FAULT = FAULTS["gpu_sensor"]
# Of its power limit in the mean: no GPU at rest draws that, at whatever clock. The number is ours.
_WORKS_AT, _COVERAGE, _SAMPLES = 0.5, 0.8, 5


def contradicting_sensors(window: Window) -> list[Finding]:
    """One finding per GPU that was at 0 % at every sample of the steady span, and drew half of its limit in the mean."""
    rows = window.get("gpu", Span.STEADY)
    told = _works(window, rows) & (rows.values(_USED.column) == 0)
    minutes = window.settings.steady_seconds / 60.0
    return [
        Finding(
            fault="gpu_sensor",
            subject=subject,
            severity=_FAULT.severity,
            since=row["first_at"],
            evidence=(
                Evidence(name="utilisation", value=f"0 % at each of {row['samples']} samples"),
                Evidence(
                    name="power",
                    value=f"{row[_WATTS.column]:.0f} W over {minutes:g} min",
                    limit=f"{_WORKS_AT * row[_LIMIT.column]:.0f} W",
                ),
            ),
            detector="gpu_sensor",
            action=_FAULT.action,
            source=_FAULT.source,
            own_limit=_FAULT.own_limit,
        )
        for subject, row in rows.where(told)
    ]


def says_whether_it_contradicts(window: Window, incident: Incident) -> bool:
    """Whether the GPU drew enough to tell: of one that rests 0 % is right."""
    rows = window.get("gpu", Span.STEADY).of_subject(incident.subject)
    used = rows.values(_USED.column) > 0
    return bool((_works(window, rows) | used).any())


def _works(window: Window, rows: Rows) -> Mask:
    works: Mask = rows.values(_WATTS.column) >= _WORKS_AT * rows.values(_LIMIT.column)
    works &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    works &= rows.values("samples") >= _SAMPLES
    return works


DETECTOR = Detector(
    name="gpu_sensor",
    find=contradicting_sensors,
    faults=found_by("gpu_sensor"),
    needs=NEEDS,
    sentence="A GPU whose utilisation reads 0 % although it draws the power of one at work.",
    source="NVML's utilisation against its power",
    would_show=says_whether_it_contradicts,
)
