"""Detectors, a module for each: every module here has a `DETECTOR`, and is found by that alone.

A detector looks at all subjects at once and at few of them closely:

    rows = window.get("gpu", Span.RECENT)              # one row per subject that has lines there
    hot = rows.values("temperature_celsius_max") > 90  # a column: float64, NaN is not measured
    hot &= window.get("gpu", Span.NOW).beside(rows, "up") == 1   # the same subjects' newest lines
    hot &= window.get("node", Span.NOW).beside(rows, "driver_answering") == 1    # their nodes'
    hot &= window.of_allocations(rows, _held_since) <= micros(window.now)        # their records
    return [_finding(window, gpu, row) for gpu, row in rows.where(hot)]

A comparison with what was not measured does not hold, so NaN needs no care of its own. Only the
rows that are left become `Row`s, whose cells are plain values and None. `Row`s, events and strings
of every subject in every pass are what makes a pass over a large fleet slow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.model import Finding, Incident

from ..window.usual import Usual
from ..window.window import Need, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A pure function from a window to findings, with what it reads and where its rule comes from.

    One that reads events runs again as soon as an event comes; the findings of the others stand
    until the next pass.
    """

    name: str
    find: Callable[[Window], list[Finding]]
    faults: tuple[str, ...]
    needs: tuple[Need, ...]
    sentence: str
    source: str
    reads_events: bool = False
    # Of what shows itself only under load, or over a span: whether an incident that stands would
    # show now if it were there. None: the lines of its subject are enough.
    would_show: Callable[[Window, Incident], bool | None] | None = None
    # When an incident was seen last that nothing can show any more.
    lapsed: Callable[[Window, Incident], datetime | None] | None = None
    # What later windows know of this one, by the name that they ask for.
    learns: Mapping[str, Callable[[Window], Usual]] | None = None
