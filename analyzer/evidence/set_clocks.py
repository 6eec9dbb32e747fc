"""Whether lower clocks than a job's others may be somebody's setting, which is made for a whole node.

As with clocks that do not rise (`detectors/gpu_clocks.py`): what all GPUs of a node do together,
without heat or a brake as the reason, is no fault of one GPU.
"""

from collections.abc import Sequence

import numpy as np

from gpuvigil.model import Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import combined_codes, models, nodes
from ..window.holdings import holder_key
from ..window.window import Need, Span, Window

# Seconds for which a clock was held down for a good reason.
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
# The highest value of the samples: a GPU that rests between kernels does not hide a setting.
REASONS = Aggregate(function=Function.MAX, field="clock_event_reasons")
NEEDS = (
    Need(measurement="gpu", span=Span.NOW, fields=(_CLOCK.field, _BUSY)),
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_CLOCK,)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(*HEAT_OR_BRAKE, REASONS)),
)

# The condition, title and action for a node.
CONDITION = "node_clocks"
TITLE = "Job waits for a node whose GPUs all run at lower clocks"
ACTION = (
    "See whether somebody set them: `nvidia-smi -q -d CLOCK,PERFORMANCE` shows clocks and what holds them,"
    " `nvidia-smi -rgc` resets them. If nobody did, look at the node's power supplies and firmware."
)

# nvml.h: nvmlClocksEventReasonApplicationsClocksSetting, somebody set the clocks.
SOMEBODY_SET = 0x2
# The share of the job's GPUs on the node, and of the span, as for clocks lowered on many nodes
# [ours].
_SHARE, _EXPLAINED = 0.75, 0.1
# For a GPU that is its job's only one there: the clocks of the node's other working GPUs are this
# near, half of what counts as a lower clock [ours].
_NEAR, _BUSY_PERCENT = 1.02, 10.0


def may_be_set(window: Window, lower: Sequence[Subject]) -> bool:
    """Tell whether the lower clocks of these GPUs, of one job and node, may be set for the node."""
    node, held = lower[0].of_node(), window.held(lower[0])
    if not held or any(_is_held(window, it) for it in lower):
        return False
    theirs = [gpu for gpu in window.holdings[holder_key(held[0])].gpus if gpu.of_node() == node]
    if len(theirs) == 1:
        return _may_be_of_the_node(window, lower[0])
    return len(lower) >= _SHARE * len(theirs)


def _may_be_of_the_node(window: Window, gpu: Subject) -> bool:
    """Tell whether the driver reports a setting, or the node's other working GPUs run as low.

    Without other GPUs at work, tell whether the driver reports no reasons at all.
    """
    rows, steady = window.get("gpu", Span.NOW), window.get("gpu", Span.STEADY)
    place = rows.index.number(gpu)
    if place is None:
        return False
    reasons = steady.beside(rows, REASONS.column)[place]
    if int(np.nan_to_num(reasons)) & SOMEBODY_SET:
        return True
    alike = combined_codes(nodes(rows), models(window, rows))
    clock = rows.values(_CLOCK.field)
    others = (alike == alike[place]) & (rows.values(_BUSY) >= _BUSY_PERCENT) & ~np.isnan(clock)
    others[place] = False
    if not others.any():
        return bool(np.isnan(reasons))
    own = window.get("gpu", Span.RECENT).beside(rows, _CLOCK.column)[place]
    return bool((clock[others] <= _NEAR * own).all())


def _is_held(window: Window, gpu: Subject) -> bool:
    """Tell whether heat or a brake held a clock down for a tenth of the span, as far as read."""
    row = window.get("gpu", Span.STEADY).get(gpu)
    seconds = 0.0 if row is None else sum(row.get(it.column) or 0.0 for it in HEAT_OR_BRAKE)
    return bool(seconds >= _EXPLAINED * window.settings.steady_seconds)
