"""Nodes whose GPUs all run at lower clocks than half an hour ago, unlike their job's on other nodes.

A setting for a whole node is no fault of its GPUs, and harmless if the node works for itself; but a
job over several nodes waits for it. If three nodes fell, one finding covers them all
(`detectors/clocks_lowered.py`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from gpuvigil.clock import micros
from gpuvigil.model import Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, Mask, combined_codes, means_before, models, nodes, seconds
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from .job_pace import held_since, jobs
from .set_clocks import HEAT_OR_BRAKE

_CLOCK, _HIGHEST = (
    Aggregate(function=Function.MAX, field=name)
    for name in ("sm_clock_hertz", "sm_clock_max_hertz")
)
_BUSY, _WATTS = (
    Aggregate(function=Function.MEAN, field=name) for name in ("utilization_percent", "power_watts")
)
_CAP = Aggregate(function=Function.INCREASE, field="power_cap_seconds")
NEEDS = (
    Need(
        measurement="gpu",
        span=Span.STEADY,
        aggregates=(_CLOCK, _HIGHEST, _BUSY, _WATTS, _CAP, *HEAT_OR_BRAKE),
    ),
    Need(measurement="gpu", span=Span.TREND, aggregates=(_CLOCK, _WATTS)),
)

# The limits are those for clocks lowered on many nodes; from `_NODES` nodes on, that detector tells
# it.
_LOW, _HIGHER, _BUSY_PERCENT, _COVERAGE, _EXPLAINED, _SHARE = 0.9, 1.08, 50.0, 0.8, 0.1, 0.75
_NODES = 3
# At least this many of the job's GPUs on other nodes give its usual clock [ours].
_OTHERS = 3
# If it is not read whether the power limit holds a clock down: a GPU at its limit draws as much as
# before, and one with a set clock draws less [ours].
_DRAWS = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBelow:
    """A node, its GPUs with lower clocks, and the highest clock that these reach."""

    node: Subject
    gpus: tuple[Subject, ...]
    row: int  # of the GPU with the highest clock among them
    hertz: float
    before: float | None  # None if the fall is too long ago
    usual: float  # the median of the job's GPUs on other nodes
    others: int


def nodes_below_their_jobs(window: Window, known: Collection[Subject]) -> list[NodeBelow]:
    """Return the nodes with lower clocks than their jobs' other nodes, sorted.

    A node in `known` stays as long as it is lower, whatever its clocks were half an hour ago.
    """
    rows = window.get("gpu", Span.STEADY)
    at_work = _is_comparable(window, rows)
    low = at_work & (rows.values(_CLOCK.column) < _LOW * rows.values(_HIGHEST.column))
    if not low.any():
        return []
    lower = low & (_fell(window, rows) | _of(rows, known))
    job = combined_codes(jobs(window, rows), models(window, rows))
    told = [
        one
        for number in np.unique(job[lower & (jobs(window, rows) != 0)]).tolist()
        for one in _of_job(window, rows, at_work & (job == number), lower)
    ]
    return sorted(told, key=lambda one: one.node)


def _is_comparable(window: Window, rows: Rows) -> Mask:
    """Tell for each row whether it works for a job that has had it for the whole trend span.

    Neither heat, nor a brake, nor the power limit may hold its clock down, as far as that is read.
    """
    held: Floats = np.sum(
        [np.nan_to_num(rows.values(it.column)) for it in (_CAP, *HEAT_OR_BRAKE)], axis=0
    )
    tells: Mask = rows.values(_BUSY.column) >= _BUSY_PERCENT
    tells &= held < _EXPLAINED * window.settings.steady_seconds
    tells &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    begin = micros(window.now) - window.settings.trend_seconds * 1e6
    tells &= window.of_allocations(rows, held_since) <= begin
    return tells


def _fell(window: Window, rows: Rows) -> Mask:
    """Tell for each row whether its clock was higher within the half hour.

    If it is not read whether power holds the clock down, the GPU must draw less, too.
    """
    long = window.get("gpu", Span.TREND)
    fell: Mask = rows.values(_CLOCK.column) * _HIGHER <= long.beside(rows, _CLOCK.column)
    drew = means_before(rows, long, (_WATTS.column,))[_WATTS.column]
    read = ~np.isnan(rows.values(_CAP.column))
    fell &= read | (rows.values(_WATTS.column) <= _DRAWS * drew)
    return fell


def _of(rows: Rows, known: Collection[Subject]) -> Mask:
    found: Mask = np.zeros(len(rows), np.bool_)
    for node in known:
        found[rows.index.of_node(node)] = True
    return found


def _of_job(window: Window, rows: Rows, of_job: Mask, lower: Mask) -> Iterator[NodeBelow]:
    """Yield a job's nodes most of whose GPUs are lower, if those of its other nodes are not."""
    node, clock = nodes(rows), rows.values(_CLOCK.column)
    below = {
        one: np.flatnonzero(of_job & lower & (node == one))
        for one in np.unique(node[of_job & lower]).tolist()
        if (of_job & lower & (node == one)).sum() >= _SHARE * (of_job & (node == one)).sum()
    }
    others = clock[of_job & ~np.isin(node, list(below))]
    if len(others) < _OTHERS or len(below) >= _NODES:
        return
    usual = float(np.median(others))
    before = window.get("gpu", Span.TREND).beside(rows, _CLOCK.column)
    for places in below.values():
        row = int(places[np.argmax(clock[places])])
        if usual < _HIGHER * clock[row]:
            continue
        gpus = tuple(sorted(rows.subjects[place] for place in places.tolist()))
        yield NodeBelow(
            node=gpus[0].of_node(),
            gpus=gpus,
            row=row,
            hertz=float(clock[row]),
            before=float(before[row]) if before[row] >= _HIGHER * clock[row] else None,
            usual=usual,
            others=len(others),
        )
