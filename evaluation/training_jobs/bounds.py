"""The bound that gpuvigil finds for each job of a block, beside the true one."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.jobs.bound import Activity, Bound, decide
from accounting.jobs.measured import (
    ASKED,
    ASKED_OF_HOSTS,
    ASKED_OF_PORTS,
    Node,
    Row,
    activity,
    hosts_of,
    ports_of,
    rank,
)
from gpuvigil.model import SIMULATED_CLUSTER
from gpuvigil.store import Aggregate, Function
from simulator.fleet import Block, Fleet
from simulator.fleet.jobs import Job
from simulator.fleet.steps import report_level

_TICK_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """One job in one block."""

    job: int
    workload: str
    truth: str
    said: str
    tells: str
    why: str
    measured: bool  # whether the SM activity of most of its GPUs is known

    @property
    def right(self) -> bool:
        return self.said == self.truth


def hours(fleet: Fleet, block: Block, sick: Mapping[int, list[tuple[float, float]]]) -> Iterator[Hour]:  # fmt: skip
    """Yield the jobs that ran for the whole block, have a known bound, and had no fault then."""
    origin, topology = fleet.settings.start, fleet.plan.topology
    start, end = ((at - origin).total_seconds() for at in (block.start, block.end))
    jobs = [
        job
        for job in fleet.plan.jobs
        if job.workload.bound
        and job.start + job.workload.startup_seconds <= start
        and job.end >= end
        and not any(first < end and last > start for first, last in sick.get(job.number, ()))
    ]
    if not jobs:
        return
    gpus = {row["uuid"]: row for row in window(block.tables["gpu"], ASKED, ("cluster", "node", "uuid", "model"))}  # fmt: skip
    ports = ports_of(window(block.tables["port"], ASKED_OF_PORTS, ("cluster", "node", "device", "port", "role")))  # fmt: skip
    hosts = hosts_of(window(block.tables["node"], ASKED_OF_HOSTS, ("cluster", "node")))
    held = Counter(
        node
        for job in fleet.plan.jobs
        if job.start < end and job.end > start
        for node in _nodes(job, topology)
    )
    shared = [node for node, count in held.items() if count > 1]
    for job in jobs:
        nodes = _nodes(job, topology)
        uuids = [topology.uuids[gpu] for gpu in job.gpus]
        ranks = [rank(it, gpus.get(it), block.end - block.start, _TICK_SECONDS) for it in uuids]
        yield _hour(job, activity(ranks, nodes, ports, hosts, shared))


def _nodes(job: Job, topology: Any) -> list[Node]:
    names = {topology.places[int(topology.gpu_node[gpu])].name for gpu in job.gpus}
    return [(SIMULATED_CLUSTER, name) for name in sorted(names)]


def _hour(job: Job, found: Activity) -> Hour:
    decision = decide(found)
    return Hour(
        job=job.number,
        workload=job.workload.key,
        truth=Bound(job.workload.bound).value,
        said=decision.bound.value,
        tells=report_level(job).name.lower(),
        why=decision.text,
        measured=found.sm_percent is not None,
    )


def window(table: pa.Table, aggregates: Sequence[Aggregate], tags: Sequence[str]) -> list[Row]:
    """Return one row for each subject, as a store's `window` does."""
    plain = [table[name].cast(pa.string()) for name in tags]
    subject = pc.binary_join_element_wise(*plain, "\x1f")
    order = pc.sort_indices(pa.table({"s": subject, "at": table["at"]}), sort_keys=[("s", "ascending"), ("at", "ascending")])  # fmt: skip
    table, subject = table.take(order), subject.take(order)
    names = np.asarray(subject.to_numpy(zero_copy_only=False))
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    spans = list(zip(first.tolist(), [*first[1:].tolist(), len(names)], strict=True))
    columns = {it.field: _numbers(table, it.field) for it in aggregates}
    at = table["at"].to_pylist()
    return [
        {
            **dict(zip(tags, str(names[begin]).split("\x1f"), strict=True)),
            "first_at": at[begin],
            "last_at": at[end - 1],
            "samples": end - begin,
            **{it.column: _of(it.function, columns[it.field][begin:end]) for it in aggregates},
        }
        for begin, end in spans
    ]


def _numbers(table: pa.Table, name: str) -> Any:
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    return table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)


def _of(function: Function, values: Any) -> float | None:
    seen = values[~np.isnan(values)]
    if function is Function.COUNT:
        return float(len(seen))
    if not len(seen):
        return None
    if function is Function.INCREASE:
        if len(seen) < 2:
            return None
        steps = np.diff(seen)
        # A counter that restarts has gained the value it shows.
        return float(np.where(steps < 0.0, seen[1:], steps).sum())
    return {
        Function.MEAN: lambda: float(seen.mean()), Function.MAX: lambda: float(seen.max()),
        Function.MIN: lambda: float(seen.min()), Function.LAST: lambda: float(seen[-1]),
    }[function]()  # fmt: skip
