"""A job whose kernels spin: its GPUs are fully used at the power of idle ones, and move nothing."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from gpuvigil.faults import FAULTS
from gpuvigil.model import Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..columns import seconds
from ..rows import Row
from ..window import Need, Span, Window

_BUSY = Aggregate(function=Function.MIN, field="utilization_percent")
_WATTS = Aggregate(function=Function.MAX, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
_MEMORY = Aggregate(function=Function.MAX, field="memory_utilization_percent")
_MOVED = Aggregate(function=Function.INCREASE, field="nvlink_receive_bytes")
_COPIED = Aggregate(function=Function.MAX, field="pcie_receive_bytes_per_second")
_ASKED = (_BUSY, _WATTS, _LIMIT, _MEMORY, _MOVED, _COPIED)
RECENT = Need(measurement="gpu", span=Span.RECENT, aggregates=_ASKED)
NEEDS = (
    RECENT,
    Need(measurement="gpu", span=Span.STEADY, aggregates=_ASKED),
)

_FAULT = FAULTS["gpu_hung"]
_BUSY_PERCENT, _MEMORY_PERCENT = 98, 5
# A GPU that waits in a collective draws little more than one with an open context.
_POWER_SHARE = 0.4
# Per second; heartbeats and polling move a little.
_NVLINK_BYTES, _PCIE_BYTES = 1e6, 50e6
_COVERAGE = 0.8


def hung_jobs(window: Window) -> list[Finding]:
    """One finding per holder: suspected after the recent span, a warning after the steady one.

    Never critical: without steps nobody knows whether the program is meant to be like this.
    """
    lasting = dict(_spinning(window, Span.STEADY, window.settings.steady_seconds))
    recent = dict(_spinning(window, Span.RECENT, window.settings.window_seconds))
    holders: dict[tuple[str, ...], list[Subject]] = defaultdict(list)
    for gpu in sorted({**recent, **lasting}):
        held = sorted({a.holder for a in window.held(gpu)})
        holders[(gpu.cluster, *(held or (gpu.key,)))].append(gpu)
    found = [
        _finding(window, names[1:], gpus, recent, lasting)
        for names, gpus in sorted(holders.items())
    ]
    return sorted(found, key=lambda finding: finding.subject)


def _spinning(window: Window, span: Span, length: float) -> Iterator[tuple[Subject, Row]]:
    rows = window.get("gpu", span)
    spins = seconds(rows) >= _COVERAGE * length
    spins &= rows.values(_BUSY.column) >= _BUSY_PERCENT
    spins &= rows.values(_WATTS.column) < _POWER_SHARE * rows.values(_LIMIT.column)
    spins &= rows.values(_MEMORY.column) < _MEMORY_PERCENT
    # Where links are not measured they say nothing against it.
    spins &= np.nan_to_num(rows.values(_MOVED.column)) < _NVLINK_BYTES * length
    spins &= np.nan_to_num(rows.values(_COPIED.column)) < _PCIE_BYTES
    yield from rows.where(spins)


def spinning(window: Window) -> frozenset[Subject]:
    """The GPUs that have spun over the recent span."""
    seconds_long = window.settings.window_seconds
    return frozenset(gpu for gpu, _ in _spinning(window, Span.RECENT, seconds_long))


def working(window: Window) -> frozenset[Subject]:
    """The GPUs that within the recent span drew more than those that spin."""
    rows = window.get("gpu", Span.RECENT)
    drew = rows.values(_WATTS.column) >= _POWER_SHARE * rows.values(_LIMIT.column)
    return frozenset(gpu for gpu, _ in rows.where(drew))


def _finding(
    window: Window,
    holders: tuple[str, ...],
    gpus: list[Subject],
    recent: Mapping[Subject, Row],
    lasting: Mapping[Subject, Row],
) -> Finding:
    nodes = sorted({gpu.of_node() for gpu in gpus})
    rows = [lasting.get(gpu) or recent[gpu] for gpu in gpus]
    lasts = any(gpu in lasting for gpu in gpus)
    seconds = window.settings.steady_seconds if lasts else window.settings.window_seconds
    watts = max(row[_WATTS.column] for row in rows)
    name = holders[0] if window.held(gpus[0]) else "a process"
    return Finding(
        fault="gpu_hung",
        subject=gpus[0] if len(gpus) == 1 else nodes[0],
        severity=Severity.WARNING if lasts else Severity.INFO,
        since=min(row["first_at"] for row in rows),
        evidence=(
            Evidence(name="utilisation", value=f"{_BUSY_PERCENT} % or more at every sample"),
            Evidence(
                name="power",
                value=f"{watts:.0f} W at most in {seconds / 60.0:g} min",
                limit=f"over {_POWER_SHARE * rows[0][_LIMIT.column]:.0f} W for a GPU at work",
            ),
            Evidence(name="GPUs", value=f"{len(gpus)} on {len(nodes)} nodes, held by {name}"),
        ),
        detector="gpu_hung",
        action=_FAULT.action,
        source=_FAULT.source,
        members=() if len(gpus) == 1 else tuple(gpus),
    )
