"""Hosts that hold up their jobs: GPUs are used less since the processors are overloaded, or slowed down by heat.

A job may use its GPUs less for its own reasons, such as an evaluation on the processors. The node
is the cause if its load has risen or heat slows its processors down, and tasks wait for a
processor, several jobs on it lost as much at once, or the job's GPUs on other nodes went on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from accounting.jobs.bound import CPU_PRESSURE_PERCENT
from gpuvigil.clock import EPOCH, micros
from gpuvigil.model import Allocation, Evidence, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, Mask, divided, means_before, seconds
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from . import processor_heat
from .job_pace import held_since, jobs

_USED = Aggregate(function=Function.MEAN, field="utilization_percent")
_LOAD = Aggregate(function=Function.MEAN, field="load_average")
_WAITED = Aggregate(function=Function.INCREASE, field="cpu_pressure_microseconds")
_OF_NODES = (_LOAD, _WAITED, *processor_heat.OF_NODES)
NEEDS = tuple(
    Need(measurement=measurement, span=span, aggregates=asked)
    for measurement, asked, spans in (
        ("gpu", (_USED,), (Span.RECENT, Span.STEADY, Span.TREND)),
        ("node", _OF_NODES, (Span.STEADY, Span.TREND)),
    )
    for span in spans
)

# A GPU that was at work is used for at most this share of what it was, and still does something; so
# are most of the node's GPUs [ours].
_WORKED_PERCENT, _WORKS_PERCENT, _LEFT, _MOST, _COVERAGE = 80.0, 5.0, 0.75, 0.75, 0.8
_FEWEST = 3
# Load has risen if it is this many times what it was, and this many tasks more; tasks wait for a
# processor if they do so twice as long as before [ours].
_TIMES, _TASKS, _TWICE = 1.5, 4.0, 2.0
# Heat slows processors down if it does so for this share of the time, or this often where the kernel counts no time,
# and twice as much as before [ours].
_HOT_SHARE, _HOT_A_MINUTE = 0.05, 1.0

_LOADED = "Look at what runs on the node's processors, and at their clocks: taken by something else, or throttled."
_COOL = "Look at what cools the processors: fans, filters, heatsinks, and the air before the node."


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """A node that its jobs wait for."""

    node: Subject
    gpus: tuple[Subject, ...]
    since: datetime
    evidence: tuple[Evidence, ...]
    by_heat: bool  # heat slows its processors down

    @property
    def title(self) -> str:
        """The title of what is told of it."""
        why = "heat slows its processors" if self.by_heat else "its host is overloaded"
        return f"Node slows its jobs down: {why}"

    @property
    def action(self) -> str:
        """What to do first."""
        return _COOL if self.by_heat else _LOADED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hosts:
    """The load of each node's processors, now and before."""

    rows: Rows
    load: Floats
    load_before: Floats
    waits: Floats  # percent of the time
    waits_before: Floats
    heat: Floats  # share of the time
    heat_before: Floats
    throttles: Floats  # a minute
    throttles_before: Floats

    @property
    def short(self) -> Mask:
        """Whether tasks wait for a processor longer than before."""
        waits: Mask = self.waits >= CPU_PRESSURE_PERCENT
        return waits & ~(self.waits < _TWICE * self.waits_before)

    @property
    def loaded(self) -> Mask:
        """Whether more tasks run, or cannot run, than before."""
        more: Mask = self.load >= _TIMES * self.load_before
        return more & (self.load >= self.load_before + _TASKS)

    @property
    def hot(self) -> Mask:
        """Whether heat slows processors down more than before."""
        long: Mask = (self.heat >= _HOT_SHARE) & ~(self.heat < _TWICE * self.heat_before)
        often: Mask = np.isnan(self.heat) & (self.throttles >= _HOT_A_MINUTE)
        return long | (often & ~(self.throttles < _TWICE * self.throttles_before))


def hosts_waited_for(window: Window) -> list[WaitedFor]:
    """Return the nodes most of whose working GPUs are used less since their processors do more, or are hot."""
    hosts = _hosts(window)
    busy = hosts.short | hosts.loaded | hosts.hot
    if not busy.any():
        return []
    rows = window.get("gpu", Span.STEADY)
    if not len(rows):
        return []
    before = _before(window, rows)
    works = _works(window, rows, before)
    fell = works & _fell(window, rows, before)
    found = (
        _of_node(window, hosts, number, works, fell) for number in np.flatnonzero(busy).tolist()
    )
    return [one for one in found if one is not None]


def came_back(window: Window, gpus: Iterable[Subject], since: datetime) -> bool:
    """Tell whether each GPU that its job still has is used more again by the factor of a fall.

    True also if none has its job any more.
    """
    rows = window.get("gpu", Span.STEADY)
    lately = window.get("gpu", Span.RECENT).beside(rows, _USED.column)
    back = _LEFT * lately >= _before(window, rows)
    theirs = [gpu for gpu in gpus if any(it.started_at <= since for it in window.held(gpu))]
    places = [rows.index.number(gpu) if len(rows) else None for gpu in theirs]
    return all(place is not None and bool(back[place]) for place in places)


def _hosts(window: Window) -> _Hosts:
    rows, long = window.get("node", Span.STEADY), window.get("node", Span.TREND)
    length, before = seconds(rows), seconds(long, rows) - seconds(rows)

    def rates(grown: Aggregate, unit: float) -> tuple[Floats, Floats]:
        """Return how much it grew in a second of the span, and in one before."""
        late, every = rows.values(grown.column), long.beside(rows, grown.column)
        return divided(late, length) * unit, divided(every - late, before) * unit

    waits, heat = rates(_WAITED, 1e-4), rates(processor_heat.THROTTLED, 1e-3)
    throttles = rates(processor_heat.TIMES, 60.0)
    return _Hosts(
        rows=rows,
        load=rows.values(_LOAD.column),
        load_before=means_before(rows, long, (_LOAD.column,))[_LOAD.column],
        waits=waits[0],
        waits_before=waits[1],
        heat=heat[0],
        heat_before=heat[1],
        throttles=throttles[0],
        throttles_before=throttles[1],
    )


def _before(window: Window, rows: Rows) -> Floats:
    """Return each GPU's mean utilisation over the trend span without the steady one, in percent."""
    return means_before(rows, window.get("gpu", Span.TREND), (_USED.column,))[_USED.column]


def _works(window: Window, rows: Rows, before: Floats) -> Mask:
    """Tell for each row whether its GPU was at work for a job that has had it all the time."""
    settings = window.settings
    works: Mask = before >= _WORKED_PERCENT
    works &= seconds(rows) >= _COVERAGE * settings.steady_seconds - window.ticks(rows)
    begun = micros(window.now) - settings.trend_seconds * 1e6
    works &= window.of_allocations(rows, held_since) <= begun
    return works


def _fell(window: Window, rows: Rows, before: Floats) -> Mask:
    """Tell for each row whether its GPU is used less than before, over the span and this minute."""
    lately = window.get("gpu", Span.RECENT).beside(rows, _USED.column)
    fell: Mask = (rows.values(_USED.column) <= _LEFT * before) & (lately <= _LEFT * before)
    fell &= lately >= _WORKS_PERCENT
    return fell


def _of_node(
    window: Window, hosts: _Hosts, number: int, works: Mask, fell: Mask
) -> WaitedFor | None:
    node, rows = hosts.rows.subjects[number], window.get("gpu", Span.STEADY)
    here = np.zeros(len(rows), dtype=bool)
    here[rows.index.of_node(node)] = True
    less = here & fell
    if less.sum() < max(_FEWEST, _MOST * (here & works).sum()) or _has_new_work(window, rows, here):
        return None
    job = jobs(window, rows)
    theirs = np.unique(job[less])
    # The job's other GPUs wait for these in collectives, which counts as use.
    elsewhere = works & ~here & np.isin(job, theirs)
    others_go_on = bool(elsewhere.any()) and not fell[elsewhere].any()
    if not (hosts.short[number] or others_go_on or len(theirs) > 1):
        return None
    used, before = rows.values(_USED.column)[less], _before(window, rows)[less]
    gpus = tuple(sorted(rows.subjects[place] for place in np.flatnonzero(less).tolist()))
    begun = float(hosts.rows.values("first_at")[number])
    return WaitedFor(
        node=node,
        gpus=gpus,
        since=EPOCH + timedelta(microseconds=begun),
        evidence=(
            Evidence(
                name="GPUs",
                value=f"{len(gpus)} of the node used {used.mean():.0f} % of the time",
                peers=f"{before.mean():.0f} % before",
            ),
            *_load_evidence(hosts, number),
        ),
        by_heat=bool(hosts.hot[number]),
    )


def _has_new_work(window: Window, rows: Rows, here: Mask) -> bool:
    """Tell whether an allocation began on these GPUs within the trend span: it brings its own load."""
    begun = micros(window.now) - window.settings.trend_seconds * 1e6
    return bool((window.of_allocations(rows, _newest)[here] > begun).any())


def _newest(_: Subject, allocations: tuple[Allocation, ...] | None) -> float:
    return max((micros(it.started_at) for it in allocations or ()), default=np.nan)


def _load_evidence(hosts: _Hosts, number: int) -> Iterator[Evidence]:
    """Yield evidence of the load of a node's processors, as far as it was measured."""
    waits, load = hosts.waits[number], hosts.load[number]
    if not np.isnan(waits):
        yield Evidence(
            name="tasks wait for a processor",
            value=f"{waits:.0f} % of the time",
            limit=f"under {CPU_PRESSURE_PERCENT:g} %",
        )
    if not np.isnan(load):
        before = hosts.load_before[number]
        yield Evidence(name="load average", value=f"{load:.0f}", peers=f"{before:.0f} before")
    if hosts.hot[number]:
        heat, times = 100.0 * min(hosts.heat[number], 1.0), hosts.throttles[number]
        yield Evidence(
            name="heat slowed its processors down",
            value=f"{times:.0f} times a minute" if np.isnan(heat) else f"{heat:.0f} % of the time",
        )
