"""A node whose GPUs have not joined the NVLink fabric: CUDA programs cannot start there."""

from collections import defaultdict
from datetime import timedelta

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.faults.symptoms import (
    FABRIC_COMPLETED,
    FABRIC_STATES,
    NO_FABRIC,
    STARTS_WITHIN_SECONDS,
)
from gpuvigil.model import EventKind, Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import clusters, combined_codes, group_maximum, models, seconds
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_LEAST = Aggregate(function=Function.MIN, field="fabric_state")
_MOST = Aggregate(function=Function.MAX, field="fabric_state")
_READ = Aggregate(function=Function.COUNT, field="fabric_state")
_STATUS = Aggregate(function=Function.MIN, field="fabric_status")
NEEDS = (Need(measurement="gpu", span=Span.STEADY, aggregates=(_LEAST, _MOST, _READ, _STATUS)),)

_FAULT = FAULTS["fabric_down"]
# The state is read once a minute and repeated in each line until the next reading: a single reading must not
# make a fault. At least this share of the steady span must have been measured.
_SAMPLES, _COVERAGE = 3, 0.5
# GPUs that are still joining after a boot, a reset or a driver reload are no fault.
_JOINS = timedelta(seconds=STARTS_WITHIN_SECONDS)
_BEGINS = (EventKind.BOOT, EventKind.GPU_RESET, EventKind.DRIVER_BACK)


def fabrics_down(window: Window) -> list[Finding]:
    """Return one finding per node with GPUs that support the fabric and were outside it over the whole span.

    The finding is critical where another GPU of the model in the cluster has joined; where none has, nobody may
    have set a fabric up.
    """
    rows = window.get("gpu", Span.STEADY)
    least, highest = rows.values(_LEAST.column), rows.values(_MOST.column)
    seen = rows.values(_READ.column) >= _SAMPLES
    seen &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    status = rows.values(_STATUS.column)
    outside = NO_FABRIC.holds(least, status) & NO_FABRIC.holds(highest, status)
    out = outside & seen
    if not out.any():
        return []
    joined = np.where(outside, np.nan, highest)
    kin = (
        group_maximum(combined_codes(clusters(rows), models(window, rows)), joined)
        >= FABRIC_COMPLETED
    )
    nodes: dict[Subject, list[tuple[Subject, Row]]] = defaultdict(list)
    expected: set[Subject] = set()
    for (subject, row), used in zip(rows.where(out), kin[out].tolist(), strict=True):
        nodes[subject.of_node()].append((subject, row))
        if used:
            expected.add(subject.of_node())
    return [
        _finding(node, nodes[node], node in expected)
        for node in sorted(nodes)
        if not _joins(window, node)
    ]


def _joins(window: Window, node: Subject) -> bool:
    return any(window.now - e.at < _JOINS for e in window.node_events(node, *_BEGINS))


def _finding(node: Subject, found: list[tuple[Subject, Row]], expected: bool) -> Finding:
    states = sorted({_state(row) for _, row in found})
    return Finding(
        fault="fabric_down",
        subject=node,
        severity=_FAULT.severity if expected else Severity.INFO,
        since=min(row["first_at"] for _, row in found),
        evidence=(
            Evidence(
                name="fabric",
                value=", ".join(states),
                limit="completed",
                peers=None if expected else "none of the model has joined",
            ),
            Evidence(name="GPUs that have not joined", value=str(len(found))),
        ),
        detector="fabric_down",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        members=tuple(sorted(subject for subject, _ in found)),
    )


def _state(row: Row) -> str:
    """Describe the fabric state in words; where the attempt has ended, with its NVML error code."""
    ended = f"ended with NVML code {row[_STATUS.column]}"
    return FABRIC_STATES.get(row[_MOST.column], ended)


DETECTOR = Detector(
    name="fabric_down",
    find=fabrics_down,
    faults=found_by("fabric_down"),
    needs=NEEDS,
    sentence="A node whose GPUs have not joined the NVLink fabric.",
    source="nvmlDeviceGetGpuFabricInfoV",
)
