"""A transceiver that is too hot, or that says that it is broken."""

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding
from gpuvigil.store import Aggregate, Function

from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_CELSIUS = Aggregate(function=Function.MIN, field="module_celsius")
_MEAN = Aggregate(function=Function.MEAN, field="module_celsius")
_FAULTS = Aggregate(function=Function.INCREASE, field="module_faults")
NEEDS = (
    Need(measurement="port", span=Span.RECENT, aggregates=(_CELSIUS,)),
    Need(measurement="port", span=Span.STEADY, aggregates=(_FAULTS, _MEAN)),
)

_FAULT = FAULTS["port_module"]
# Optical modules of the commercial class are rated for a case of 0 to 70 degrees (SFF-8024's classes); five
# more allow for the error of their own sensor [own].
HOT_CELSIUS = 75.0
_SAMPLES = 2


def failing_modules(window: Window) -> list[Finding]:
    """Return one finding per port whose module reported a fault or was too hot.

    Too hot means all the last minute, or on average over ten minutes.
    """
    rows = window.get("port", Span.STEADY)
    lately = window.get("port", Span.RECENT)
    least, mean = lately.beside(rows, _CELSIUS.column), rows.values(_MEAN.column)
    now = (least >= HOT_CELSIUS) & (lately.beside(rows, "samples") >= _SAMPLES)
    # A node that is read seldom is judged by the ten minutes.
    hot = now | (mean >= HOT_CELSIUS)
    broken = rows.values(_FAULTS.column) >= 1.0
    found = []
    for number in np.flatnonzero(hot | broken).tolist():
        evidence = []
        if hot[number]:
            limit = f"{HOT_CELSIUS:g} °C"
            evidence.append(
                Evidence(name="module", value=f"{np.fmax(least, mean)[number]:.0f} °C", limit=limit)
            )
        if broken[number]:
            times = rows.values(_FAULTS.column)[number]
            evidence.append(Evidence(name="faults that the module reported", value=f"{times:.0f}"))
        found.append(
            Finding(
                fault="port_module",
                subject=rows.subjects[number],
                severity=_FAULT.severity,
                since=Row(rows, number)["first_at"],
                evidence=tuple(evidence),
                detector="port_module",
                action=_FAULT.action,
                source=_FAULT.source,
                own_limit=_FAULT.own_limit,
            )
        )
    return found


DETECTOR = Detector(
    name="port_module",
    find=failing_modules,
    faults=found_by("port_module"),
    needs=NEEDS,
    sentence="A transceiver that is too hot, or that says that it is broken.",
    source="the module's own sensor",
)
