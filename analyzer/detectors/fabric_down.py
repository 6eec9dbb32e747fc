"""A node whose GPUs have not joined the NVLink fabric: CUDA programs cannot start there."""

from collections import defaultdict
from datetime import timedelta

from gpuvigil.faults import FAULTS
from gpuvigil.model import EventKind, Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..rows import Row
from ..window import Need, Span, Window

_LEAST = Aggregate(function=Function.MIN, field="fabric_state")
_MOST = Aggregate(function=Function.MAX, field="fabric_state")
NEEDS = (Need(measurement="gpu", span=Span.RECENT, aggregates=(_LEAST, _MOST)),)

_FAULT = FAULTS["fabric_down"]
# nvmlGpuFabricState_t: 0 is "not supported", 3 "completed".
_COMPLETED = 3
_WORDS = {1: "not started", 2: "in progress"}
# What a node still starts after a boot is no fault.
_BOOT = timedelta(minutes=10)


def fabrics_down(window: Window) -> list[Finding]:
    """One finding per node: GPUs that support the fabric and were not in it over the whole span."""
    rows = window.get("gpu", Span.RECENT)
    least, most = rows.values(_LEAST.column), rows.values(_MOST.column)
    nodes: dict[Subject, list[tuple[Subject, Row]]] = defaultdict(list)
    for subject, row in rows.where((least >= 1) & (most < _COMPLETED)):
        nodes[subject.of_node()].append((subject, row))
    return [
        _finding(window, node, nodes[node]) for node in sorted(nodes) if not _boots(window, node)
    ]


def _boots(window: Window, node: Subject) -> bool:
    return any(window.now - e.at < _BOOT for e in window.node_events(node, EventKind.BOOT))


def _finding(window: Window, node: Subject, found: list[tuple[Subject, Row]]) -> Finding:
    states = sorted({_WORDS.get(row[_MOST.column], "?") for _, row in found})
    return Finding(
        fault="fabric_down",
        subject=node,
        severity=_FAULT.severity,
        since=min(row["first_at"] for _, row in found),
        evidence=(
            Evidence(name="fabric", value=", ".join(states), limit="completed"),
            Evidence(name="GPUs that have not joined", value=str(len(found))),
        ),
        detector="fabric_down",
        action=_FAULT.action,
        source=_FAULT.source,
        members=tuple(sorted(subject for subject, _ in found)),
    )
