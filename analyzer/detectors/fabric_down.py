"""A node whose GPUs have not joined the NVLink fabric: CUDA programs cannot start there."""

from collections import defaultdict
from datetime import timedelta

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import EventKind, Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import clusters, models, most, seconds, together
from ..window.rows import Row
from ..window.window import Need, Span, Window
from . import Detector

_LEAST = Aggregate(function=Function.MIN, field="fabric_state")
_MOST = Aggregate(function=Function.MAX, field="fabric_state")
_READ = Aggregate(function=Function.COUNT, field="fabric_state")
NEEDS = (Need(measurement="gpu", span=Span.STEADY, aggregates=(_LEAST, _MOST, _READ)),)

_FAULT = FAULTS["fabric_down"]
# nvmlGpuFabricState_t: 0 is "not supported", 3 "completed".
_COMPLETED = 3
_WORDS = {1: "not started", 2: "in progress"}
# The state is read once a minute and stands in the lines until it is read again: a single reading
# must not make a fault. So much of the steady span must have been measured.
_SAMPLES, _COVERAGE = 3, 0.5
# What GPUs still join after a boot, a reset or a reload of the driver is no fault.
_JOINS = timedelta(minutes=10)
_BEGINS = (EventKind.BOOT, EventKind.GPU_RESET, EventKind.DRIVER_BACK)


def fabrics_down(window: Window) -> list[Finding]:
    """One finding per node: GPUs that support the fabric and were not in it over the whole span.

    Critical where another GPU of the model is in the fabric; where none of the cluster is, nobody
    may have set one up.
    """
    rows = window.get("gpu", Span.STEADY)
    least, highest = rows.values(_LEAST.column), rows.values(_MOST.column)
    seen = rows.values(_READ.column) >= _SAMPLES
    seen &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    out = (least >= 1) & (highest < _COMPLETED) & seen
    if not out.any():
        return []
    kin = most(together(clusters(rows), models(window, rows)), highest) >= _COMPLETED
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
    states = sorted({_WORDS.get(row[_MOST.column], "?") for _, row in found})
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


DETECTOR = Detector(
    name="fabric_down",
    find=fabrics_down,
    faults=found_by("fabric_down"),
    needs=NEEDS,
    sentence="A node whose GPUs have not joined the NVLink fabric.",
    source="nvmlDeviceGetGpuFabricInfoV",
)
