"""Choose the curves that show an incident: those that moved most at its onset, against peers; pure.

No table assigns curves to faults. A curve is shown if it departs from its own past and from its peers at
the onset, so a new fault needs no change here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.faults import FAULTS
from gpuvigil.metrics import NODE, Kind
from gpuvigil.model import SWITCH_DEVICE, Incident, Subject
from gpuvigil.numbers_in_words import title

from ..device import curves
from ..device.curves import Chart, Curve, Measure
from ..device.grid import Floats, Grid, median, rates
from ..device.hub_queries import OFFSETS, Numbers
from ..device.ports import ERRORS
from ..device.window import Window

BEFORE, AFTER = timedelta(minutes=30), timedelta(hours=1)
MOST_SHOWN = 2
# A window that goes on moves its end in steps, so that one answer serves all sessions.
_STEP_SECONDS = 30
# A curve that moved by less than this share of its scale is not shown as evidence.
_LEAST_MOVE = 0.05
_GBIT = 8e-9
# Factor, unit and digits of a node's metrics, by the ending of their names; others are counts.
_UNITS = {
    "_bytes": (2.0**-30, "GiB", 1),
    "_seconds": (1.0, "s", 1),
    "_share": (100.0, "%", 0),
    "_average": (1.0, "tasks", 1),
}
# Metrics of the collector itself, which are evidence only for faults that lose data.
_OF_COLLECTOR = ("spool_", "sweep_", "reader_", "dropped_")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNumbers:
    """The numbers of a node, or of some of a rack's nodes, and of the nodes that they are held against."""

    own: Sequence[Numbers]
    peers: Sequence[Numbers] = ()
    own_name: str = "this node"
    peers_name: str = "the other nodes"


# What is read of each node's GPUs for that.
OF_NODES = curves.MEASURES[:3]
GPU_FIELDS = tuple(next(iter(measure.lines)) for measure in OF_NODES)


def window(incident: Incident, now: datetime) -> Window:
    """Return the window from half an hour before the onset to at most an hour after it."""
    ended = incident.resolved_at or now
    stepped = now - timedelta(seconds=now.timestamp() % _STEP_SECONDS)
    end = min(max(ended + BEFORE / 2, incident.since + BEFORE), incident.since + AFTER, stepped)
    start = incident.since - BEFORE
    return Window(start=start, end=max(end, start + timedelta(minutes=1)), live=False)


def unseen(subject: Subject) -> str:
    """Return why there can be no curve; empty if there can."""
    if subject.device == SWITCH_DEVICE:
        return "No chart: gpuvigil keeps only states and totals of switches."
    return ""


def loses_data(incident: Incident) -> bool:
    """Return whether the incident's fault is that the collector loses data."""
    row = FAULTS.get(incident.fault)
    return row is not None and row.loses_data


def charts(
    numbers: Numbers, subject: Subject, onset: datetime, *, of_collector: bool = False
) -> tuple[Chart, ...]:
    """Return the few charts that show it best, clearest first; empty if nothing was measured."""
    if subject.gpu is None and subject.device is None:
        nodes = NodeNumbers(own=(numbers,))
        return charts_of_nodes(nodes, onset, of_collector=of_collector)
    return _clearest(_candidates(numbers, subject), numbers.grid, onset, _score)


def charts_of_nodes(
    nodes: NodeNumbers, onset: datetime, *, of_collector: bool = False
) -> tuple[Chart, ...]:
    """Return the few charts that show best what happened to nodes; empty if nothing was measured."""
    found = _of_nodes(nodes, of_collector=of_collector)
    return _clearest(found, nodes.own[0].grid, onset, _score_of_nodes) if nodes.own else ()


def _clearest(
    found: Sequence[Chart], grid: Grid, onset: datetime, score: Callable[[Chart, int], float]
) -> tuple[Chart, ...]:
    place = sum(at <= onset for at in grid.times)
    scored = [(score(chart, place), -order, chart) for order, chart in enumerate(found)]
    clear = sorted((it for it in scored if it[0] >= _LEAST_MOVE), key=lambda it: it[:2])
    if clear:
        return tuple(chart for *_, chart in clear[::-1][:MOST_SHOWN])
    return tuple(chart for chart in found if chart.measured)[:MOST_SHOWN]


def _candidates(numbers: Numbers, subject: Subject) -> list[Chart]:
    if subject.device is not None:
        return _of_port(numbers, (subject.device, subject.port or ""))
    uuid = subject.gpu or ""
    wrong = curves.errors(lambda name: numbers.of(uuid, name), curves.ERRORS, numbers)
    shown = [wrong.chart] if wrong.chart else []
    return [*shown, *curves.charts(numbers, uuid), _of_rank(numbers, uuid)]


def _of_rank(numbers: Numbers, uuid: str) -> Chart:
    """Return a chart of the rank's own work in a step; without peers, as other GPUs may run other jobs."""
    own = Curve(name="this rank", values=numbers.of(uuid, "step_own_seconds"))
    return Chart(key="step", title="Own work in a step", unit="s", curves=(own,), digits=2)


def _of_port(numbers: Numbers, port: tuple[str, str]) -> list[Chart]:
    """Return charts of a port's errors, and of its traffic against the node's other ports of its kind."""
    own = numbers.ports.get(port, {})
    kind = numbers.kinds.get(port)
    peers = [
        fields
        for name, fields in numbers.ports.items()
        if name != port and numbers.kinds.get(name) == kind
    ]

    def read(name: str) -> Floats:
        return own.get(name, numbers.nothing)

    wrong = curves.errors(read, ERRORS, numbers)
    shown = [wrong.chart] if wrong.chart else []
    for key, name in (("receive_bytes", "Received"), ("transmit_bytes", "Sent")):
        lines = [_traffic(fields, key, numbers) for fields in peers]
        middle = median(lines, numbers.grid.count)
        parts = [Curve(name="median of the other ports", values=middle, look="peers")]
        mine = Curve(name="this port", values=_traffic(own, key, numbers))
        shown.append(
            Chart(
                key=key,
                title=name,
                unit="Gbit/s",
                curves=(*(parts if lines else []), mine),
                digits=1,
            )
        )
    return shown


def _traffic(fields: Mapping[str, Floats], key: str, numbers: Numbers) -> Floats:
    nothing = numbers.nothing
    per_second = rates(fields.get(key, nothing), fields.get(OFFSETS, nothing), numbers.grid)
    return per_second * _GBIT


def _of_nodes(nodes: NodeNumbers, *, of_collector: bool) -> list[Chart]:
    """Return charts of the nodes' GPUs together, and of the nodes' own metrics."""
    found = [_of_gpus(nodes, measure) for measure in OF_NODES]
    for metric in NODE.metrics:
        if metric.kind is Kind.COUNTER or not any(metric.name in one.node for one in nodes.own):
            continue
        if metric.name.startswith(_OF_COLLECTOR) and not of_collector:
            continue
        factor, unit, digits = _unit(metric.name)
        own = Curve(name=nodes.own_name, values=_of_metric(nodes.own, metric.name) * factor)
        beside = _beside(nodes, _of_metric(nodes.peers, metric.name) * factor)
        shown = (*beside, own)
        found.append(
            Chart(key=metric.name, title=title(metric), unit=unit, curves=shown, digits=digits)
        )
    return found


def _of_gpus(nodes: NodeNumbers, measure: Measure) -> Chart:
    own = Curve(name="median of its GPUs", values=_middle_of_gpus(nodes.own, measure))
    return Chart(
        key=measure.key,
        title=f"{measure.title} of its GPUs",
        unit=measure.unit,
        curves=(*_beside(nodes, _middle_of_gpus(nodes.peers, measure)), own),
        most=measure.most,
        digits=measure.digits,
    )


def _middle_of_gpus(nodes: Sequence[Numbers], measure: Measure) -> Floats:
    name = next(iter(measure.lines))
    lines = [curves.value(one, uuid, name, measure) for one in nodes for uuid in one.gpus]
    return median(lines, nodes[0].grid.count) if nodes else np.array([])


def _of_metric(nodes: Sequence[Numbers], name: str) -> Floats:
    lines = [one.node[name] for one in nodes if name in one.node]
    return median(lines, nodes[0].grid.count) if nodes else np.array([])


def _beside(nodes: NodeNumbers, values: Floats) -> tuple[Curve, ...]:
    """Return the peers' curve; none if none of them was measured."""
    if not np.isfinite(values).any():
        return ()
    return (Curve(name=f"median of {nodes.peers_name}", values=values, look="peers"),)


def _unit(name: str) -> tuple[float, str, int]:
    """Return factor, unit and number of decimals of a node's metric."""
    return next((it for ending, it in _UNITS.items() if name.endswith(ending)), (1.0, "", 0))


def _score(chart: Chart, place: int, *, apart: bool = True) -> float:
    """Return how much a curve moved at the onset, as a share of its scale; 1.0 if it fell silent.

    `apart`: how far it is from its peers counts, too.
    """
    own = next((curve.values for curve in reversed(chart.curves) if curve.look == "own"), None)
    if own is None:
        return 0.0
    peers = next((curve.values for curve in chart.curves if curve.look == "peers"), None)
    scale = max((_highest(curve.values) for curve in chart.curves), default=0.0)
    was, now = _middle(own[:place]), _middle(own[place:])
    if was is not None and now is None and len(own) > place:
        return 1.0
    if scale <= 0 or now is None:
        return 0.0
    before, after = (
        (None, None) if peers is None else (_middle(peers[:place]), _middle(peers[place:]))
    )
    drift = 0.0 if before is None or after is None else after - before
    moved = 0.0 if was is None else abs(now - was - drift)
    away = abs(now - after) if apart and after is not None else 0.0
    return max(moved, away) / scale


def _score_of_nodes(chart: Chart, place: int) -> float:
    """Return how much a curve moved by itself and against its peers, whichever is less.

    Nodes run different jobs: that they differ shows nothing, nor that others moved while this one did not.
    """
    alone = [curve for curve in chart.curves if curve.look == "own"]
    return min(
        _score(chart, place, apart=False), _score(replace(chart, curves=tuple(alone)), place)
    )


def _middle(values: Floats) -> float | None:
    measured = values[np.isfinite(values)]
    return float(np.median(measured)) if len(measured) else None


def _highest(values: Floats) -> float:
    measured = values[np.isfinite(values)]
    return float(np.abs(measured).max()) if len(measured) else 0.0


def summary_lines(found: Sequence[Chart], grid: Grid, onset: datetime) -> list[str]:
    """Return a line for each chart: its median before and after the onset, and the peers' after it."""
    place = sum(at <= onset for at in grid.times)
    lines = []
    for chart in found:
        own = next((it.values for it in reversed(chart.curves) if it.look == "own"), None)
        if own is None:
            continue
        was, now = _middle(own[:place]), _middle(own[place:])
        peers = next((it.values for it in chart.curves if it.look == "peers"), None)
        beside = None if peers is None else _middle(peers[place:])
        lines.append(
            f"{chart.title}: {_number(was, chart)} → {_number(now, chart)}"
            + (f", peers {_number(beside, chart)}" if beside is not None else "")
        )
    return lines


def _number(value: float | None, chart: Chart) -> str:
    return "not measured" if value is None else f"{value:,.{chart.digits}f} {chart.unit}".rstrip()
