"""A GPU whose utilisation reads 0 % although its power or its multiprocessors say that it works."""

from collections.abc import Iterator

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident
from gpuvigil.store import Aggregate, Function

from ..evidence.power import least_at_work
from ..window.columns import Mask, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_USED = Aggregate(function=Function.MAX, field="utilization_percent")
_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
_ACTIVE = Aggregate(function=Function.MEAN, field="sm_activity_percent")
NEEDS = (Need(measurement="gpu", span=Span.STEADY, aggregates=(_USED, _WATTS, _LIMIT, _ACTIVE)),)

_FAULT = FAULTS["gpu_sensor"]
# Of the cycles in the mean, in which a multiprocessor had work: utilisation counts any kernel at all. Ours.
_ACTIVE_PERCENT = 5.0
_COVERAGE, _SAMPLES = 0.8, 5


def contradicting_sensors(window: Window) -> list[Finding]:
    """One finding per GPU that was at 0 % at every sample of the steady span, and worked in the mean by what else is read."""
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
                *_works_by(row, minutes),
            ),
            detector="gpu_sensor",
            action=_FAULT.action,
            source=_FAULT.source,
            own_limit=_FAULT.own_limit,
        )
        for subject, row in rows.where(told)
    ]


def _works_by(row: Row, minutes: float) -> Iterator[Evidence]:
    """What contradicts it, of what is read."""
    watts, limit, active = (row[it.column] for it in (_WATTS, _LIMIT, _ACTIVE))
    if watts is not None and limit is not None:
        least = float(least_at_work(np.asarray(limit)))
        yield Evidence(
            name="power", value=f"{watts:.0f} W over {minutes:g} min", limit=f"{least:.0f} W"
        )
    if active is not None:
        yield Evidence(name="SM activity", value=f"{active:.0f} %", limit=f"{_ACTIVE_PERCENT:g} %")


def says_whether_it_contradicts(window: Window, incident: Incident) -> bool:
    """Whether the GPU did enough to tell: of one that rests 0 % is right."""
    rows = window.get("gpu", Span.STEADY).of_subject(incident.subject)
    used = rows.values(_USED.column) > 0
    return bool((_works(window, rows) | used).any())


def _works(window: Window, rows: Rows) -> Mask:
    works: Mask = rows.values(_WATTS.column) >= least_at_work(rows.values(_LIMIT.column))
    works |= rows.values(_ACTIVE.column) >= _ACTIVE_PERCENT
    works &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    works &= rows.values("samples") >= _SAMPLES
    return works


DETECTOR = Detector(
    name="gpu_sensor",
    find=contradicting_sensors,
    faults=found_by("gpu_sensor"),
    needs=NEEDS,
    sentence="A GPU whose utilisation reads 0 % although it draws the power of one at work, or its multiprocessors are active.",
    source="NVML's utilisation against its power and its own SM activity",
    would_show=says_whether_it_contradicts,
)
