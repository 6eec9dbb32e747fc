"""Detectors, one per module: each module defines a `DETECTOR` and is discovered by that alone.

A detector filters all subjects at once as columns, and looks closely at the few that are left:

    rows = window.get("gpu", Span.RECENT)              # one row per subject that has lines there
    hot = rows.values("temperature_celsius_max") > 90  # a column: float64, NaN is not measured
    hot &= window.get("gpu", Span.NOW).beside(rows, "up") == 1   # the same subjects' newest lines
    hot &= window.get("node", Span.NOW).beside(rows, "driver_answering") == 1    # their nodes'
    hot &= window.of_allocations(rows, _held_since) <= micros(window.now)        # their records
    return [_finding(window, gpu, row) for gpu, row in rows.where(hot)]

A comparison with a value that was not measured is false, so NaN needs no special care. Only the
remaining rows become `Row`s, whose cells are plain values and None. Building `Row`s, events and
strings for every subject in every pass is what makes a pass over a large fleet slow.
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

    A detector that reads events runs again as soon as an event arrives; the findings of the others stand until
    the next pass.
    """

    name: str
    find: Callable[[Window], list[Finding]]
    faults: tuple[str, ...]
    needs: tuple[Need, ...]
    sentence: str
    source: str
    reads_events: bool = False
    # Whether it finds nothing where no record says who holds a GPU.
    needs_holders: bool = False
    # Whether it also judges by which subjects have rows at all, whatever these hold.
    judges_absence: bool = False
    # For faults that show only under load or over a span: whether the window's data can tell that the fault of
    # an open incident is over. Without this function any row of the subject tells it.
    would_show: Callable[[Window, Incident], bool | None] | None = None
    # When an incident was last seen that nothing can show any more.
    lapsed: Callable[[Window, Incident], datetime | None] | None = None
    # What later windows learn from this one, by the name that they ask for.
    learns: Mapping[str, Callable[[Window], Usual]] | None = None
