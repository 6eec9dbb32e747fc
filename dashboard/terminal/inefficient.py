"""`gpuvigil inefficient`: who is busy and gets little out of their GPUs, and what they could do."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import duration
from gpuvigil.efficiency import COVERAGE, Work, judge, scattered
from gpuvigil.hub import Hub
from gpuvigil.model import Allocation, Subject
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.beside import store_of

from ..queued import rooms
from .fleet import Moment
from .grid import Column, Grid, Value, percents, tenths, whole
from .reasons import faulty_of, is_faulty

COLUMNS = (
    Column(key="wasted_gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    Column(key="gpus", title="GPUS", show=whole, right=True),
    Column(key="user", title="USER", flexible=True),
    Column(key="holder", title="HOLDER", flexible=True),
    Column(key="advice", title="ADVICE", flexible=True),
    Column(key="said", title="BECAUSE IT", flexible=True),
    Column(key="sm_activity_percent", title="SM", show=percents, right=True),
    Column(key="tensor_activity_percent", title="TENSOR", show=percents, right=True),
    Column(key="dram_activity_percent", title="DRAM", show=percents, right=True),
    Column(key="partition", title="PARTITION", flexible=True),
    Column(key="account", title="ACCOUNT", flexible=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 6
_MEAN, _MAX = Function.MEAN, Function.MAX
_ASKED = tuple(
    Aggregate(function=function, field=field)
    for function, field in (
        (_MEAN, "utilization_percent"),
        (_MAX, "utilization_percent"),
        (_MEAN, "sm_activity_percent"),
        (_MEAN, "tensor_activity_percent"),
        (_MEAN, "dram_activity_percent"),
        (_MAX, "memory_used_bytes"),
        (_MAX, "memory_total_bytes"),
        (Function.COUNT, "utilization_percent"),
    )
)
_SAMPLES = _ASKED[-1].column
_Row = Mapping[str, Any]
_Holder = tuple[str, str, str | None]  # cluster, holder, user


def look(hub: Hub, moment: Moment, span: tuple[datetime, datetime]) -> Grid:
    """HubUnavailable, HubRefused or StoreError when the hub does not answer."""
    found = store_of(hub).window("gpu", _ASKED, *span)
    rows = {
        Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]).key: row
        for row in found.to_pylist()
    }
    return grid(moment, rows, span)


def grid(moment: Moment, rows: Mapping[str, _Row], span: tuple[datetime, datetime]) -> Grid:
    """A row per holder that had all its GPUs alone over the whole span, the largest waste first."""
    works = _works(moment, rows, span)
    hours = (span[1] - span[0]) / timedelta(hours=1)
    found = [
        row
        for holder, held in _alone(moment).items()
        if (row := _judged(holder, held, works, span[0], hours)) is not None
    ]
    found.sort(key=lambda row: (-_number(row[0]), str(row[3])))
    return Grid(
        columns=COLUMNS,
        rows=found,
        for_people=_FOR_PEOPLE,
        head=_scattered(moment),
        notes=[
            f"Of the last {duration(span[1] - span[0])}, of holders that had their GPUs all the while"
            " and alone, none of them broken or hardly measured. GPU-HOURS: what was not filled, by"
            " the multiprocessors' activity."
        ],
        empty="Nobody who is busy gets plainly little out of their GPUs.",
    )


def _alone(moment: Moment) -> Mapping[_Holder, Sequence[Allocation]]:
    """The GPUs of each holder; of those that share one with others it cannot be said who does what."""
    found: defaultdict[_Holder, list[Allocation]] = defaultdict(list)
    shared: set[_Holder] = set()
    for cluster in moment.clusters:
        for cell in cluster.cells:
            held = moment.of(cell.subject)
            keys = {(cluster.name, one.holder, one.user) for one in held}
            if len(keys) > 1 or any(one.part for one in held):
                shared |= keys
            for key in keys:
                found[key].append(held[0])
    return {key: held for key, held in found.items() if key not in shared}


def _judged(
    holder: _Holder,
    held: Sequence[Allocation],
    of_gpus: Mapping[str, Work],
    start: datetime,
    hours: float,
) -> tuple[Value, ...] | None:
    if any(one.started_at > start or one.subject.key not in of_gpus for one in held):
        return None
    works = [of_gpus[one.subject.key] for one in held]
    judged = judge(works)
    if judged is None:
        return None
    return (
        judged.gpus * hours * judged.wasted_share,
        judged.gpus,
        holder[2],
        holder[1],
        judged.advice.value,
        judged.said,
        _mean([one.sm_percent for one in works]),
        _mean([one.tensor_percent for one in works]),
        _mean([one.dram_percent for one in works]),
        held[0].partition,
        held[0].account,
        holder[0],
    )


def _works(
    moment: Moment, rows: Mapping[str, _Row], span: tuple[datetime, datetime]
) -> Mapping[str, Work]:
    """What each GPU did, by its key, with how much of it was measured and whether it is broken."""
    faulty = faulty_of(moment)
    length = (span[1] - span[0]).total_seconds()
    found: dict[str, Work] = {}
    for one in moment.inventories:
        expected = max(length / one.tick_seconds, 1.0)
        for gpu in one.gpus:
            key = replace(one.subject, gpu=gpu.uuid).key
            if key in rows:
                row = rows[key]
                late = row["first_at"] > span[0] + (1.0 - COVERAGE) * (span[1] - span[0])
                coverage = 0.0 if late else (row[_SAMPLES] or 0) / expected
                found[key] = replace(_work(row), coverage=coverage, faulty=is_faulty(key, faulty))
    return found


def _work(row: _Row) -> Work:
    names = [one.column for one in _ASKED]
    return Work(
        utilization_percent=row[names[0]],
        utilization_most_percent=row[names[1]],
        sm_percent=row[names[2]],
        tensor_percent=row[names[3]],
        dram_percent=row[names[4]],
        memory_most_bytes=row[names[5]],
        memory_total_bytes=row[names[6]],
    )


def _scattered(moment: Moment) -> Sequence[str]:
    """Where free GPUs lie scattered on nodes that are partly held."""
    said = []
    for cluster in moment.clusters:
        found = scattered([(room.free, room.gpus) for room in rooms(cluster, ()).values()])
        if found is not None:
            said.append(
                f"{cluster.name}: {found.gpus:,} free GPUs lie on {found.nodes:,} nodes that are partly"
                f" held; together they would be {found.whole:,} whole."
            )
    return said


def _mean(values: Sequence[float | None]) -> float | None:
    seen = [value for value in values if value is not None]
    return sum(seen) / len(seen) if seen else None


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
