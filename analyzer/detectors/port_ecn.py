"""Congestion control that is set up on one side only.

A RoCE port gets packets marked as congested and notifies no sender, or ignores what it is notified of, or one
end of a link takes no part in PFC.
"""

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Evidence, Finding
from gpuvigil.store import Aggregate, Function

from ..evidence import pfc
from ..window.columns import seconds
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_MARKED, _SENT, _IGNORED, _OBEYED = (
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("ecn_marked_packets", "cnp_sent", "cnp_ignored", "cnp_handled")
)
_COUNTS = (_MARKED, _SENT, _IGNORED, _OBEYED)
NEEDS = (Need(measurement="port", span=Span.TREND, aggregates=_COUNTS), *pfc.NEEDS)

_FAULT, _ONE_SIDED = FAULTS["port_ecn"], CONDITIONS["pfc_one_sided"]
_DEAF = CONDITIONS["cnp_ignored"]
# This many marks over the span without a single answer are no chance [own].
_MARKS = 1000.0
_COVERAGE = 0.5
# So many times as many notifications ignored as obeyed: a few come for a connection that is gone [own].
_MOSTLY = 10.0


def deaf_ports(window: Window) -> list[Finding]:
    """Return one finding per port, by its marked packets or by its link's pauses."""
    return [
        *_without_answer(window),
        *_without_reaction(window),
        *map(_of_link, pfc.one_sided(window)),
    ]


def _of_link(found: pfc.OneSided) -> Finding:
    return Finding(
        fault="port_ecn",
        subject=found.port,
        severity=_ONE_SIDED.severity,
        title=_ONE_SIDED.title,
        condition=_ONE_SIDED.key,
        since=found.since,
        evidence=found.evidence,
        detector="port_ecn",
        action=_ONE_SIDED.action,
        source=_ONE_SIDED.source,
        own_limit=_ONE_SIDED.own_limit,
    )


def _without_reaction(window: Window) -> list[Finding]:
    """Return ports that are told of congestion and go on sending as before."""
    rows = window.get("port", Span.TREND)
    if not len(rows):
        return []
    ignored, obeyed = rows.values(_IGNORED.column), rows.values(_OBEYED.column)
    deaf = (ignored >= _MARKS) & (ignored >= _MOSTLY * obeyed)
    deaf &= seconds(rows) >= _COVERAGE * window.settings.trend_seconds
    minutes = window.settings.trend_seconds / 60.0
    return [
        Finding(
            fault="port_ecn",
            subject=rows.subjects[number],
            severity=_DEAF.severity,
            title=_DEAF.title,
            condition=_DEAF.key,
            since=Row(rows, number)["first_at"],
            evidence=(
                Evidence(
                    name="congestion notifications ignored",
                    value=f"{ignored[number]:,.0f} in {minutes:g} min",
                ),
                Evidence(name="obeyed", value=f"{obeyed[number]:,.0f}", limit="most of them"),
            ),
            detector="port_ecn",
            action=_DEAF.action,
            source=_DEAF.source,
            own_limit=_DEAF.own_limit,
        )
        for number in np.flatnonzero(deaf).tolist()
    ]


def _without_answer(window: Window) -> list[Finding]:
    """Return ports whose marked packets are counted, and whose congestion notifications are counted as none."""
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
                Evidence(
                    name="packets marked as congested",
                    value=f"{marked[number]:,.0f} in {minutes:g} min",
                ),
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
    sentence="A RoCE port that gets packets marked as congested and notifies no sender, that ignores congestion notifications, or whose link has PFC at one end only.",
    source="what its card counts of both, and of pauses the switch's port, too",
)
