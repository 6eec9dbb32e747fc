"""Congestion control that is set up on one side only.

A RoCE port gets packets marked as congested and notifies no sender, or ignores what it is notified of, or one
end of a link takes no part in PFC.
"""

from datetime import datetime

import numpy as np

from gpuvigil.faults import FAULTS, Described, found_by
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.model import Evidence, Finding, Subject
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
        *(_finding(it.port, it.since, it.evidence, _ONE_SIDED) for it in pfc.one_sided(window)),
    ]


def _finding(
    port: Subject,
    since: datetime,
    evidence: tuple[Evidence, ...],
    condition: Described | None = None,
) -> Finding:
    """Return a finding in the words of its condition; in the fault's own if it has none."""
    row = condition or _FAULT
    return Finding(
        fault=_FAULT.key,
        subject=port,
        severity=row.severity,
        title="" if condition is None else condition.title,
        condition="" if condition is None else condition.key,
        since=since,
        evidence=evidence,
        detector="port_ecn",
        action=row.action,
        source=row.source,
        own_limit=row.own_limit,
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
        _finding(
            rows.subjects[number],
            Row(rows, number)["first_at"],
            (
                Evidence(
                    name="congestion notifications ignored",
                    value=f"{ignored[number]:,.0f} in {minutes:g} min",
                ),
                Evidence(name="obeyed", value=f"{obeyed[number]:,.0f}", limit="most of them"),
            ),
            _DEAF,
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
        _finding(
            rows.subjects[number],
            Row(rows, number)["first_at"],
            (
                Evidence(
                    name="packets marked as congested",
                    value=f"{marked[number]:,.0f} in {minutes:g} min",
                ),
                Evidence(name="congestion notifications sent", value="0", limit="one at least"),
            ),
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
