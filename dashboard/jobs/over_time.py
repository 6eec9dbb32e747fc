"""What bounded a job over a window, and the lines of its charts, from some of its nodes' series; pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from accounting.jobs.bound import Bound
from accounting.jobs.measured import (
    ASKED,
    ASKED_OF_HOSTS,
    ASKED_OF_PORTS,
    LEAST_STEPS,
    OWN_READ,
    OWN_WRITTEN,
    READ,
    WRITTEN,
    Rank,
    activity,
    hosts_of,
    ports_of,
    rank,
)
from gpuvigil.model import Incident, Subject
from gpuvigil.store import Function

from ..device.curves import A_WEEK_AGO, Chart, Curve
from ..device.grid import Floats, Grid, laid, rates
from ..device.hub_queries import OFFSETS
from ..device.marks import Mark
from ..device.ports import unit_of
from ..lists.jobs import JobNow, decided

GPU_FIELDS = tuple(dict.fromkeys(one.field for one in ASKED))
PORT_FIELDS = tuple(dict.fromkeys(one.field for one in ASKED_OF_PORTS))
HOST_FIELDS = tuple(dict.fromkeys(one.field for one in ASKED_OF_HOSTS))
# The most lines of single GPUs beside the median: more cannot be told apart.
_MOST_LINES = 64
_COUNTED_OVER = timedelta(minutes=5)
HELD_UP = "held up by an incident"
Fields = Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A span in which one thing bounded the job; `said` is why, at its start."""

    start: datetime
    end: datetime
    bound: Bound | None  # None: an incident held the job up
    text: str
    held_by: Incident | None = None

    @property
    def word(self) -> str:
        """The name of the bound on pages."""
        return HELD_UP if self.bound is None else self.bound.value


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """A job's GPUs, ports and hosts on a grid, by key; `nodes` are those that were read."""

    grid: Grid
    nodes: Sequence[str]
    gpus: Mapping[str, Fields]
    ports: Mapping[str, Fields]
    hosts: Mapping[str, Fields]
    tags: Mapping[str, Mapping[str, Any]]  # by the key of a GPU, port or host


def over_time(
    onto: Grid,
    nodes: Sequence[str],
    gpus: Sequence[pa.Table],
    ports: Sequence[pa.Table],
    hosts: Sequence[pa.Table],
) -> OverTime:
    """Return the store's series of these nodes on the grid."""
    tags: dict[str, Mapping[str, Any]] = {}
    return OverTime(
        grid=onto,
        nodes=nodes,
        gpus={
            key: fields
            for table in gpus
            for key, fields in _laid(table, GPU_FIELDS, onto, tags, ("uuid", "model"))
        },
        ports={
            key: fields
            for table in ports
            for key, fields in _laid(table, PORT_FIELDS, onto, tags, ("device", "port", "role"))
        },
        hosts={
            key: fields
            for table in hosts
            for key, fields in _laid(table, HOST_FIELDS, onto, tags, ())
        },
        tags=tags,
    )


def _laid(
    table: pa.Table,
    fields: Sequence[str],
    onto: Grid,
    tags: dict[str, Mapping[str, Any]],
    names: Sequence[str],
) -> Iterator[tuple[str, Fields]]:
    at = table["at"].cast(pa.int64()).to_numpy()
    columns = {name: table[name].to_numpy().astype(np.float64) for name in (*fields, OFFSETS)}
    all_names = ("cluster", "node", *names)
    rows: dict[tuple[str, ...], list[int]] = {}
    for place, found in enumerate(zip(*(table[it].to_pylist() for it in all_names), strict=True)):
        rows.setdefault(found, []).append(place)
    for found, places in rows.items():
        told = dict(zip(all_names, found, strict=True))
        subject = Subject(
            cluster=told["cluster"],
            node=told["node"],
            gpu=told.get("uuid"),
            device=told.get("device"),
            port=told.get("port"),
        )
        tags[subject.key] = told
        mine = np.array(places)
        yield (
            subject.key,
            {name: laid(at[mine], values[mine], onto) for name, values in columns.items()},
        )


def runs(found: OverTime, job: JobNow) -> Sequence[Run]:
    """Return what bounded the job, from its measured GPUs; there are gaps where nothing was measured."""
    gathered: list[Run] = []
    keys = [it.key for it in job.gpus if it.key in found.gpus]
    times = found.grid.times
    begin = next((place for place, at in enumerate(times) if at >= job.started_at), len(times))
    for place in range(begin, len(times)):
        at, end = times[place], times[place] + found.grid.step
        ranks = [it for key in keys if (it := _rank(found, key, place, begin)) is not None]
        if not ranks:
            continue
        ports = ports_of(_rows(found, found.ports, ASKED_OF_PORTS, place))
        hosts = hosts_of(_rows(found, found.hosts, ASKED_OF_HOSTS, place))
        nodes, with_others = (
            [(job.cluster, node) for node in names] for names in (found.nodes, job.with_others)
        )
        did = activity(ranks, nodes, ports, hosts, with_others)
        decision = decided(job, did, (at, end))
        last = gathered[-1] if gathered else None
        if last is not None and (last.bound, last.end) == (decision.bound, at):
            gathered[-1] = Run(start=last.start, end=end, bound=last.bound, text=last.text)
        else:
            gathered.append(Run(start=at, end=end, bound=decision.bound, text=decision.text))
    return gathered


def _rank(found: OverTime, key: str, place: int, begin: int) -> Rank | None:
    row = _row(found, key, found.gpus[key], ASKED, place)
    if row is None:
        return None
    # Each step of the grid counts as one sample.
    span, tick = found.grid.step, found.grid.step.total_seconds()
    of_steps = rank(key, {**row, **_counted(found, found.gpus[key], place, begin)}, span, tick)
    return replace(
        rank(key, row, span, tick),
        steps_made=of_steps.steps_made,
        outside_share=of_steps.outside_share,
    )


def _counted(found: OverTime, fields: Fields, place: int, begin: int) -> Mapping[str, Any]:
    """Count the job's steps back over as many points as needed to have some, five minutes at most."""
    step, told = fields["step"], {}
    for earlier in range(place - 1, max(begin, place - _COUNTED_OVER // found.grid.step) - 1, -1):
        made = step[place] - step[earlier]
        if not made >= 0.0:  # not measured, or the program was restarted
            continue
        since = earlier * found.grid.step + timedelta(seconds=float(fields[OFFSETS][earlier]))
        told = {"first_at": found.grid.start + since, "step_increase": float(made)}
        if made >= LEAST_STEPS:
            break
    return told


def _rows(
    found: OverTime, of: Mapping[str, Fields], asked: Sequence[Any], place: int
) -> Iterator[Mapping[str, Any]]:
    for key, fields in of.items():
        row = _row(found, key, fields, asked, place)
        if row is not None:
            yield row


def _row(
    found: OverTime, key: str, fields: Fields, asked: Sequence[Any], place: int
) -> Mapping[str, Any] | None:
    """Return one step of the grid as a store's row for a window; None if nothing was measured in it."""
    if not np.isfinite(fields[OFFSETS][place]):
        return None
    at = found.grid.start + place * found.grid.step
    until = at + timedelta(seconds=float(fields[OFFSETS][place]))
    # A counter's increase is from the previous step.
    before = fields[OFFSETS][place - 1] if place else np.nan
    known = bool(np.isfinite(before))
    since = at - found.grid.step + timedelta(seconds=float(before)) if known else until
    row: dict[str, Any] = {**found.tags[key], "first_at": since, "last_at": until, "samples": 1}
    for one in asked:
        values = fields[one.field]
        value = _known(values[place])
        if one.function is Function.COUNT:
            value = 0.0 if value is None else 1.0
        elif one.function is Function.INCREASE:
            earlier = _known(values[place - 1]) if known else None
            more = None if value is None or earlier is None else value - earlier
            value = more if more is not None and more >= 0.0 else None
        row[one.column] = value
    return row


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def charts(
    found: OverTime,
    keys: Sequence[str],
    before: OverTime | None = None,
    with_others: Collection[str] = (),
) -> Sequence[Chart]:
    """Return charts of the step time, the GPUs' activity, the nodes' network traffic, and storage.

    `before` has the same GPUs and ports a week ago, drawn faint; without measurements there is no such line.
    On nodes that it has with others, only what the job itself reads and writes counts.
    """
    now = _charts(found, keys, with_others)
    if before is None:
        return now
    then = _charts(before, keys, with_others)
    return [_with_before(one, was) for one, was in zip(now, then, strict=True)]


def _charts(found: OverTime, keys: Sequence[str], with_others: Collection[str]) -> Sequence[Chart]:
    mine = {key: found.gpus[key] for key in keys if key in found.gpus}
    gpus = list(mine.values())
    return [
        _steps(found, gpus),
        _activity(found, gpus),
        _network(found),
        _storage(found, mine, with_others),
    ]


def _with_before(chart: Chart, was: Chart) -> Chart:
    """Add the line of a week ago for the chart's last line, which is the strongest."""
    then = was.curves[-1].values
    if not np.isfinite(then).any():
        return chart
    before = Curve(name=A_WEEK_AGO, values=then, look="before")
    return replace(chart, curves=(before, *chart.curves))


def _steps(found: OverTime, mine: Sequence[Fields]) -> Chart:
    own = _over(found, mine, "step_own_seconds", np.nanmax)
    curves = [
        Curve(name="slowest rank's own work", values=own, look="second"),
        Curve(
            name="step, median of ranks", values=_over(found, mine, "step_seconds", np.nanmedian)
        ),
    ]
    shown = [one for one in curves if np.isfinite(one.values).any()]
    return Chart(
        key="step", title="Step time", unit="s", curves=tuple(shown or curves[1:]), digits=2
    )


def _activity(found: OverTime, mine: Sequence[Fields]) -> Chart:
    lines = [
        Curve(name="a GPU", values=fields["sm_activity_percent"], look="other")
        for fields in mine[:_MOST_LINES]
    ]
    sm = _over(found, mine, "sm_activity_percent", np.nanmedian)
    used = _over(found, mine, "utilization_percent", np.nanmedian)
    main = [Curve(name="utilisation", values=used, look="second")]
    main += [Curve(name="SM activity, median", values=sm)] if np.isfinite(sm).any() else []
    return Chart(key="activity", title="GPU activity", unit="%", curves=(*lines, *main), most=100.0)


def _network(found: OverTime) -> Chart:
    """Return what a node sends and receives on average, by fabric ports, or by all ports without any."""
    fabric = [f for key, f in found.ports.items() if found.tags[key]["role"] == "fabric"]
    ports = fabric or list(found.ports.values())
    moved = {
        name: [_rate(found, fields, name) for fields in ports]
        for name in ("receive_bytes", "transmit_bytes")
    }
    per_node = {
        name: _of_all(found, them, np.nansum) / max(len(found.nodes), 1)
        for name, them in moved.items()
    }
    measured = [them[np.isfinite(them)] for them in per_node.values()]
    factor, unit = unit_of(max((float(them.max(initial=0.0)) for them in measured), default=0.0))
    return Chart(
        key="network",
        title="Network, a node",
        unit=unit,
        curves=(
            Curve(name="sent", values=per_node["transmit_bytes"] / factor, look="second"),
            Curve(name="received", values=per_node["receive_bytes"] / factor),
        ),
        digits=2,
    )


def _storage(found: OverTime, mine: Mapping[str, Fields], with_others: Collection[str]) -> Chart:
    """Return what is read and written on its nodes, in all: a checkpoint shows where no step tells of it."""
    read, written = (
        _of_all(
            found,
            [
                _own_rate(found, mine, node, own)
                if (node := found.tags[key]["node"]) in with_others
                else _of_all(found, [_rate(found, fields, name) for name in names], np.nansum)
                for key, fields in found.hosts.items()
            ],
            np.nansum,
        )
        for names, own in ((READ, OWN_READ), (WRITTEN, OWN_WRITTEN))
    )
    most = max((float(it[np.isfinite(it)].max(initial=0.0)) for it in (read, written)), default=0.0)
    factor, unit = unit_of(most)
    return Chart(
        key="storage",
        title="Storage",
        unit=unit,
        curves=(
            Curve(name="read", values=read / factor, look="second"),
            Curve(name="written", values=written / factor),
        ),
        digits=2,
    )


def _own_rate(found: OverTime, mine: Mapping[str, Fields], node: str, name: str) -> Floats:
    """Return what the job itself moves on a node, which each of its GPUs there says."""
    here = [fields for key, fields in mine.items() if found.tags[key]["node"] == node]
    return _of_all(found, [_rate(found, fields, name) for fields in here], np.nanmax)


def _rate(found: OverTime, fields: Fields, name: str) -> Floats:
    return rates(fields[name], fields[OFFSETS], found.grid)


def _over(found: OverTime, mine: Sequence[Fields], name: str, how: Any) -> Floats:
    return _of_all(found, [fields[name] for fields in mine], how)


def _of_all(found: OverTime, lines: Sequence[Floats], how: Any) -> Floats:
    """Combine the values that were measured in each step; NaN where none was."""
    values = np.full(found.grid.count, np.nan)
    if lines:
        stacked = np.stack(lines)
        some = np.isfinite(stacked).any(axis=0)
        values[some] = how(stacked[:, some], axis=0)
    return values


def checkpoints(found: OverTime, keys: Sequence[str]) -> Sequence[datetime]:
    """Return when the job wrote checkpoints in the window: where the age of the last one falls."""
    mine = [found.gpus[key] for key in keys if key in found.gpus]
    age = _over(found, mine, "checkpoint_age_seconds", np.nanmin)
    falls = set((np.flatnonzero(np.diff(age) < 0.0) + 1).tolist())
    times, middle = found.grid.times, found.grid.step / 2
    # If a checkpoint is written within a step, its mean age is mixed, so the step after it is used.
    return [
        times[place] + middle - timedelta(seconds=float(age[place]))
        for place in sorted(falls)
        if place + 1 not in falls
    ]


def marks(written: Sequence[datetime]) -> tuple[Mark, ...]:
    """Return a line for each checkpoint; only the first has a label."""
    return tuple(
        Mark(at=at, label="" if place else "checkpoint", good=True)
        for place, at in enumerate(written)
    )
