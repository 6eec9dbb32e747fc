"""A RoCE port that gets packets marked as congested and tells no sender to slow down."""

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding
from gpuvigil.store import Aggregate, Function

from ..window.columns import seconds
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_MARKED, _SENT = (
    Aggregate(function=Function.INCREASE, field=name) for name in ("ecn_marked_packets", "cnp_sent")
)
NEEDS = (Need(measurement="port", span=Span.TREND, aggregates=(_MARKED, _SENT)),)

_FAULT = FAULTS["port_ecn"]
# So many marks over the span and no answer to any of them is no chance [own].
_MARKS = 1000.0
_COVERAGE = 0.5


def deaf_ports(window: Window) -> list[Finding]:
    """One finding per port: its marks are counted, and so is that nothing follows from them."""
    rows = window.get("port", Span.TREND)
    if not len(rows):
        return []
    marked = rows.values(_MARKED.column)
    deaf = (marked >= _MARKS) & (rows.values(_SENT.column) == 0.0)
    deaf &= seconds(rows) >= _COVERAGE * window.settings.trend_seconds
    minutes = window.settings.trend_seconds / 60.0
    return [
        Finding(
            fault="port_ecn",
            subject=rows.subjects[number],
            severity=_FAULT.severity,
            since=Row(rows, number)["first_at"],
            evidence=(
                Evidence(name="packets marked", value=f"{marked[number]:.0f} in {minutes:g} min"),
                Evidence(name="congestion notifications sent", value="0", limit="one at least"),
            ),
            detector="port_ecn",
            action=_FAULT.action,
            source=_FAULT.source,
            own_limit=_FAULT.own_limit,
        )
        for number in np.flatnonzero(deaf).tolist()
    ]


DETECTOR = Detector(
    name="port_ecn",
    find=deaf_ports,
    faults=found_by("port_ecn"),
    needs=NEEDS,
    sentence="A RoCE port that gets packets marked as congested and tells no sender.",
    source="what its card counts of both",
)
