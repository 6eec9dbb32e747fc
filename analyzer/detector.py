"""What a detector is, and the one table of them.

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuvigil.model import Finding

from .detectors import (
    driver_silent,
    gpu_idle_held,
    gpu_lost,
    gpu_silent,
    gpu_xid,
    node_silent,
    nvswitch_error,
    port_down,
)
from .window import Key, Need, Window


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
    reads_events: bool
    sentence: str
    source: str


DETECTORS: tuple[Detector, ...] = (
    Detector(
        name="gpu_lost",
        find=gpu_lost.lost_gpus,
        faults=("gpu_lost",),
        needs=gpu_lost.NEEDS,
        reads_events=True,
        sentence="A GPU that the driver lost, or that reported an Xid which says so.",
        source="NVIDIA Xid catalogue, Xid 79; NVML_ERROR_GPU_IS_LOST",
    ),
    Detector(
        name="gpu_xid",
        find=gpu_xid.xid_faults,
        faults=("gpu_xid",),
        needs=gpu_xid.NEEDS,
        reads_events=True,
        sentence="A GPU with an Xid that no reset, reboot or return has cured, or that repeats.",
        source="NVIDIA Xid catalogue, a row per code",
    ),
    Detector(
        name="nvswitch_error",
        find=nvswitch_error.sxid_faults,
        faults=("nvswitch_error",),
        needs=(),
        reads_events=True,
        sentence="A node with an SXid that no boot has cured, or that repeats.",
        source="NVIDIA Fabric Manager guide, a class per SXid",
    ),
    Detector(
        name="gpu_idle_held",
        find=gpu_idle_held.idle_held_gpus,
        faults=("gpu_idle_held",),
        needs=gpu_idle_held.NEEDS,
        reads_events=False,
        sentence="A GPU that was held and computed nothing over the whole idle span.",
        source="job_defense_shield: 0 % at every sample",
    ),
    Detector(
        name="port_down",
        find=port_down.broken_ports,
        faults=("port_down", "port_flapping"),
        needs=port_down.NEEDS,
        reads_events=True,
        sentence="A network port that was seen up and is down, or that goes down again and again.",
        source="gpud: a drop, and three of them a flap",
    ),
    Detector(
        name="driver_silent",
        find=driver_silent.silent_drivers,
        faults=("driver_silent",),
        needs=driver_silent.NEEDS,
        reads_events=True,
        sentence="A node on which no call to the NVIDIA driver comes back.",
        source="the supervisor's clock beside the reader",
    ),
    Detector(
        name="gpu_silent",
        find=gpu_silent.silent_gpus,
        faults=("gpu_silent",),
        needs=gpu_silent.NEEDS,
        reads_events=True,
        sentence="One GPU whose driver calls do not come back, by event and line or for two ticks.",
        source="NVIDIA Xid catalogue, Xid 119",
    ),
    Detector(
        name="node_silent",
        find=node_silent.silent_nodes,
        faults=("node_silent",),
        needs=(),
        reads_events=False,
        sentence="A node that reported before and of which the hub hears nothing any more.",
        source="three ticks without a body",
    ),
)


def questions(detectors: Iterable[Detector]) -> dict[Key, Need]:
    """What to ask the store so that one answer per measurement and span serves all detectors."""
    asked: dict[Key, Need] = {}
    for need in (need for detector in detectors for need in detector.needs):
        key = (need.measurement, need.span)
        before = asked.get(key, Need(measurement=need.measurement, span=need.span))
        asked[key] = Need(
            measurement=need.measurement,
            span=need.span,
            fields=tuple(sorted({*before.fields, *need.fields})),
            aggregates=tuple(sorted({*before.aggregates, *need.aggregates})),
        )
    return asked
