"""Whether clocks that are lower than their job's others' may be somebody's setting, which is made for all of a node.

As of clocks that do not rise (`detectors/gpu_clocks.py`): what all GPUs of a node do together, and neither heat nor a
brake says why, no GPU does by itself.
"""

from collections.abc import Sequence

from gpuvigil.model import Subject
from gpuvigil.store import Aggregate, Function

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
NEEDS = (Need(measurement="gpu", span=Span.STEADY, aggregates=HEAT_OR_BRAKE),)

# Of the job's GPUs on the node, as where clocks are lowered on many nodes; and of the span, as there [ours].
_SHARE, _EXPLAINED = 0.75, 0.1


def may_be_set(window: Window, lower: Sequence[Subject]) -> bool:
    """Whether the lower clocks of these GPUs, of one job and node, may be a setting of the node's."""
    node, held = lower[0].of_node(), window.held(lower[0])
    if len(lower) < 2 or not held:
        return False
    theirs = [gpu for gpu in window.holdings[holder_key(held[0])].gpus if gpu.of_node() == node]
    return len(lower) >= _SHARE * len(theirs) and not any(_is_held(window, it) for it in lower)


def _is_held(window: Window, gpu: Subject) -> bool:
    """Whether heat or a brake held its clock for a tenth of the span; what is not read did not."""
    row = window.get("gpu", Span.STEADY).get(gpu)
    seconds = 0.0 if row is None else sum(row.get(it.column) or 0.0 for it in HEAT_OR_BRAKE)
    return bool(seconds >= _EXPLAINED * window.settings.steady_seconds)
