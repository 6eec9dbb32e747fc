"""A GPU whose clocks stay low under load, without anything that explains it."""

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident
from gpuvigil.store import Aggregate, Function

from ..window.columns import clusters, models, nodes, per_group, seconds, together
from ..window.window import Need, Span, Window
from . import Detector

# What holds clocks down for a good reason, in seconds of it.
_EXPLAINED = tuple(
    Aggregate(function=Function.INCREASE, field=name)
    for name in (
        "power_cap_seconds",
        "software_thermal_slowdown_seconds",
        "hardware_thermal_slowdown_seconds",
        "power_brake_seconds",
    )
)
_CLOCK = Aggregate(function=Function.MAX, field="sm_clock_hertz")
_MOST = Aggregate(function=Function.MAX, field="sm_clock_max_hertz")
_BUSY = Aggregate(function=Function.MEAN, field="utilization_percent")
NEEDS = (Need(measurement="gpu", span=Span.STEADY, aggregates=(_CLOCK, _MOST, _BUSY, *_EXPLAINED)),)

_FAULT = FAULTS["gpu_clocks"]
# An idle GPU saves power; one that works now and then is at its clock at some sample of many.
_LOW, _BUSY_PERCENT = 0.9, 10.0
# A clock that somebody set is set on all of a node: that of the cluster's others of the model is
# higher by more than this, and so is that of the node's own at work.
_PEERS_HIGHER, _PEERS = 1.08, 3
_EXPLAINED_SHARE, _COVERAGE = 0.1, 0.8


def says_whether_stuck(window: Window, incident: Incident) -> bool | None:
    """Whether a GPU was busy over the steady span: the clocks of one that rests are low anyway.

    None where nobody reads its utilization, as of one that MIG has cut in slices.
    """
    row = window.get("gpu", Span.STEADY).get(incident.subject)
    if row is None:
        return False
    busy = row[_BUSY.column]
    return None if busy is None else bool(busy >= _BUSY_PERCENT)


def stuck_clocks(window: Window) -> list[Finding]:
    """Busy over the whole steady span, never near its clock, and neither power nor heat says why."""
    rows = window.get("gpu", Span.STEADY)
    span = window.settings.steady_seconds
    clock, most = rows.values(_CLOCK.column), rows.values(_MOST.column)
    covered = seconds(rows) >= _COVERAGE * span
    explained = sum(np.nan_to_num(rows.values(it.column)) for it in _EXPLAINED)
    share = np.divide(clock, most)
    busy = (rows.values(_BUSY.column) >= _BUSY_PERCENT) & covered
    share[~busy] = np.nan
    usual, peers = per_group(together(clusters(rows), models(window, rows)), share)
    of_node, at_work = per_group(together(nodes(rows), models(window, rows)), share)
    stuck = (share < _LOW) & (share * _PEERS_HIGHER < usual) & (peers >= _PEERS)
    stuck &= (share * _PEERS_HIGHER < of_node) | (at_work < 2)
    stuck &= explained < _EXPLAINED_SHARE * span
    return [
        Finding(
            fault="gpu_clocks",
            subject=subject,
            severity=_FAULT.severity,
            since=row["first_at"],
            evidence=(
                Evidence(
                    name="SM clock",
                    value=f"{row[_CLOCK.column] / 1e6:.0f} MHz at most in {span / 60.0:g} min",
                    limit=f"{row[_MOST.column] / 1e6:.0f} MHz",
                    peers=f"{usual_share * row[_MOST.column] / 1e6:.0f} MHz",
                ),
                Evidence(name="utilisation", value=f"{row[_BUSY.column]:.0f} %"),
            ),
            detector="gpu_clocks",
            action=_FAULT.action,
            source=_FAULT.source,
            own_limit=_FAULT.own_limit,
        )
        for (subject, row), usual_share in zip(rows.where(stuck), usual[stuck], strict=True)
    ]


DETECTOR = Detector(
    name="gpu_clocks",
    find=stuck_clocks,
    faults=found_by("gpu_clocks"),
    needs=NEEDS,
    sentence="A GPU whose clocks stay low under load, though neither power nor heat says why.",
    source="clock event counters, and the cluster's other GPUs of the model",
    would_show=says_whether_stuck,
)
