"""A GPU whose utilisation reads 0 % although its power or SM activity says that it works, or whose
temperature does not follow its power.
"""

from collections.abc import Iterator

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence.claims import Claim, findings
from ..evidence.power import least_at_work, limits
from ..window.columns import Floats, Mask, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_USED = Aggregate(function=Function.MAX, field="utilization_percent")
_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
_ACTIVE = Aggregate(function=Function.MEAN, field="sm_activity_percent")
_COLDEST, _WARMEST = (
    Aggregate(function=function, field="temperature_celsius")
    for function in (Function.MIN, Function.MAX)
)
_LEAST, _MOST = (
    Aggregate(function=function, field="power_watts") for function in (Function.MIN, Function.MAX)
)
NEEDS = (
    Need(
        measurement="gpu", span=Span.STEADY, aggregates=(_USED, _WATTS, _LIMIT, _ACTIVE, _WARMEST)
    ),
    Need(
        measurement="gpu",
        span=Span.TREND,
        aggregates=(_COLDEST, _WARMEST, _LEAST, _WATTS, _MOST, _LIMIT),
    ),
)

_FAULT = FAULTS["gpu_sensor"]
# Mean share of cycles in which a multiprocessor had work: utilisation counts any kernel at all. Ours.
_ACTIVE_PERCENT = 5.0
_COVERAGE, _SAMPLES = 0.8, 5
# A core under load is warmer than its air, which is this cold in no machine room (ASHRAE's class A4 begins
# here).
_COLD_CELSIUS = 5.0
# A swing of this share of the power limit moves any core's temperature by degrees, be it on a cold plate of
# 0.03 K/W. The mean must be this share of the swing away from either end: a dip of a second moves nothing.
# Ours.
_SWING, _OF_SWING = 0.4, 0.25


def contradicting_sensors(window: Window) -> list[Finding]:
    """Return one finding per GPU; the utilisation counter comes first, since a GPU that reads as idle is somebody's."""
    unused = _unused(window)
    known = {finding.subject for finding in unused}
    stuck = [it for it in (*_cold(window), *_still(window)) if it.subject not in known]
    return [*unused, *findings("gpu_sensor", stuck)]


def _cold(window: Window) -> Iterator[Claim]:
    """Yield GPUs that worked while every line of the steady span read colder than any machine room's air."""
    rows = window.get("gpu", Span.STEADY)
    told = _works(window, rows) & (rows.values(_WARMEST.column) <= _COLD_CELSIUS)
    for subject, row in rows.where(told):
        drew = "" if row[_WATTS.column] is None else f"{row[_WATTS.column]:.0f} W meanwhile"
        said = Evidence(name="core", value=f"{row[_WARMEST.column]} °C at most", peers=drew or None)
        yield _stuck(subject, row, said)


def _still(window: Window) -> Iterator[Claim]:
    """Yield GPUs whose temperature is the same in every line of the trend span, although their power swung."""
    rows = window.get("gpu", Span.TREND)
    if not len(rows):
        return
    least, mean, most = (rows.values(it.column) for it in (_LEAST, _WATTS, _MOST))
    part = _OF_SWING * (most - least)
    told = most - least >= _SWING * limits(window, rows, _LIMIT.column)
    told &= (mean >= least + part) & (mean <= most - part)
    told &= rows.values(_COLDEST.column) == rows.values(_WARMEST.column)
    told &= seconds(rows) >= _COVERAGE * window.settings.trend_seconds
    for subject, row in rows.where(told & (rows.values("samples") >= _SAMPLES)):
        degrees = f"{row[_WARMEST.column]} °C at each of {row['samples']} samples"
        drew = f"{row[_LEAST.column]:.0f} to {row[_MOST.column]:.0f} W meanwhile"
        yield _stuck(subject, row, Evidence(name="core", value=degrees, peers=drew))


def _stuck(subject: Subject, row: Row, said: Evidence) -> Claim:
    return Claim(
        condition="temperature_stuck", subject=subject, since=row["first_at"], evidence=(said,)
    )


def _unused(window: Window) -> list[Finding]:
    """Return one finding per GPU at 0 % utilisation at every sample of the steady span.

    Its mean power or SM activity over the span says that it worked.
    """
    rows = window.get("gpu", Span.STEADY)
    told = _works(window, rows) & (rows.values(_USED.column) == 0)
    least = _least(window, rows)[told]
    minutes = window.settings.steady_seconds / 60.0
    return [
        Finding(
            fault="gpu_sensor",
            subject=subject,
            severity=_FAULT.severity,
            since=row["first_at"],
            evidence=(
                Evidence(name="utilisation", value=f"0 % at each of {row['samples']} samples"),
                *_works_by(row, watts, minutes),
            ),
            detector="gpu_sensor",
            action=_FAULT.action,
            source=_FAULT.source,
            own_limit=_FAULT.own_limit,
        )
        for (subject, row), watts in zip(rows.where(told), least.tolist(), strict=True)
    ]


def _works_by(row: Row, least: float, minutes: float) -> Iterator[Evidence]:
    """Yield the power and the SM activity that contradict the utilisation, where they are read."""
    watts, active = (row[it.column] for it in (_WATTS, _ACTIVE))
    if watts is not None:
        yield Evidence(
            name="power", value=f"{watts:.0f} W over {minutes:g} min", limit=f"{least:.0f} W"
        )
    if active is not None:
        yield Evidence(name="SM activity", value=f"{active:.0f} %", limit=f"{_ACTIVE_PERCENT:g} %")


def would_show_contradiction(window: Window, incident: Incident) -> bool:
    """Return whether the GPU did enough to show the fault: for an idle one, 0 % is right."""
    if incident.condition == "temperature_stuck":
        return _moved(window.get("gpu", Span.TREND).of_subject(incident.subject))
    rows = window.get("gpu", Span.STEADY).of_subject(incident.subject)
    used = rows.values(_USED.column) > 0
    return bool((_works(window, rows) | used).any())


def _moved(rows: Rows) -> bool:
    """Return whether the temperature differed in any line; at even power it may rightly stand still."""
    return bool((rows.values(_WARMEST.column) > rows.values(_COLDEST.column)).any())


def _least(window: Window, rows: Rows) -> Floats:
    """Return for each row from how many watts on its GPU is at work."""
    return least_at_work(limits(window, rows, _LIMIT.column))


def _works(window: Window, rows: Rows) -> Mask:
    works: Mask = rows.values(_WATTS.column) >= _least(window, rows)
    works |= rows.values(_ACTIVE.column) >= _ACTIVE_PERCENT
    works &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    works &= rows.values("samples") >= _SAMPLES
    return works


DETECTOR = Detector(
    name="gpu_sensor",
    find=contradicting_sensors,
    faults=found_by("gpu_sensor"),
    needs=NEEDS,
    sentence="A GPU whose utilisation reads 0 % although it draws the power of one at work, or its multiprocessors are active; or whose temperature does not change while its power does.",
    source="NVML's utilisation against its power and its own SM activity, its temperature against its power",
    would_show=would_show_contradiction,
)
