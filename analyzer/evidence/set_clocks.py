"""Whether clocks that are lower than their job's others' may be somebody's setting, which is made for all of a node.

As of clocks that do not rise (`detectors/gpu_clocks.py`): what all GPUs of a node do together, and neither heat nor a
brake says why, no GPU does by itself.
"""

from collections.abc import Sequence

import numpy as np

from gpuvigil.model import Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import models, nodes, together
from ..window.holdings import holder_key
from ..window.window import Need, Span, Window

# What holds a clock down for a good reason, in seconds of it.
HEAT_OR_BRAKE = tuple(
    Aggregate(function=Function.INCREASE, field=name)
    for name in (
        "software_thermal_slowdown_seconds",
        "hardware_thermal_slowdown_seconds",
        "power_brake_seconds",
    )
)
_BUSY = "utilization_percent"
_CLOCK = Aggregate(function=Function.MEAN, field="sm_clock_hertz")
# Of the samples the one with the highest bits: one that rests between kernels hides no setting.
REASONS = Aggregate(function=Function.MAX, field="clock_event_reasons")
NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=(_CLOCK.field, _BUSY)),
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_CLOCK,)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(*HEAT_OR_BRAKE, REASONS)),
)

# How it is told of a node, and what to do then.
CONDITION = "node_clocks"
TITLE = "Job waits for a node whose GPUs all run at lower clocks"
ACTION = (
    "See whether somebody set them: `nvidia-smi -q -d CLOCK,PERFORMANCE` shows clocks and what holds them,"
    " `nvidia-smi -rgc` resets them. If nobody did, look at the node's power supplies and firmware."
)

# nvml.h: nvmlClocksEventReasonApplicationsClocksSetting, somebody set the clocks.
SOMEBODY_SET = 0x2
# Of the job's GPUs on the node, as where clocks are lowered on many nodes; and of the span, as there [ours].
_SHARE, _EXPLAINED = 0.75, 0.1
# Of a GPU that is its job's only one there: so near are the clocks of the node's others at work, half of what is told
# as a lower one [ours].
_NEAR, _BUSY_PERCENT = 1.02, 10.0


def may_be_set(window: Window, lower: Sequence[Subject]) -> bool:
    """Whether the lower clocks of these GPUs, of one job and node, may be a setting of the node's."""
    node, held = lower[0].of_node(), window.held(lower[0])
    if not held or any(_is_held(window, it) for it in lower):
        return False
    theirs = [gpu for gpu in window.holdings[holder_key(held[0])].gpus if gpu.of_node() == node]
    if len(theirs) == 1:
        return _may_be_of_the_node(window, lower[0])
    return len(lower) >= _SHARE * len(theirs)


def _may_be_of_the_node(window: Window, gpu: Subject) -> bool:
    """Whether the driver says so of one, or the node's others at work run as low; where there are none, whether the driver
    tells no reasons.
    """
    rows, steady = window.get("gpu", Span.NOW), window.get("gpu", Span.STEADY)
    place = rows.index.number(gpu)
    if place is None:
        return False
    reasons = steady.beside(rows, REASONS.column)[place]
    if int(np.nan_to_num(reasons)) & SOMEBODY_SET:
        return True
    alike = together(nodes(rows), models(window, rows))
    clock = rows.values(_CLOCK.field)
    others = (alike == alike[place]) & (rows.values(_BUSY) >= _BUSY_PERCENT) & ~np.isnan(clock)
    others[place] = False
    if not others.any():
        return bool(np.isnan(reasons))
    own = window.get("gpu", Span.RECENT).beside(rows, _CLOCK.column)[place]
    return bool((clock[others] <= _NEAR * own).all())


def _is_held(window: Window, gpu: Subject) -> bool:
    """Whether heat or a brake held its clock for a tenth of the span; what is not read did not."""
    row = window.get("gpu", Span.STEADY).get(gpu)
    seconds = 0.0 if row is None else sum(row.get(it.column) or 0.0 for it in HEAT_OR_BRAKE)
    return bool(seconds >= _EXPLAINED * window.settings.steady_seconds)
