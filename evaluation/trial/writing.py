"""Write what was gathered as a recording: the files that `gpuvigil replay` reads.

A GPU's holder is taken from dcgm-exporter's labels (`hpc_job`, or a pod). Where no label names one, memory shows
whether the GPU is held: a program on a GPU has a context there, and a GPU that nobody has opened uses next to nothing
(`evaluation.recordings.derived.HELD_BYTES`).
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from gpuvigil.clock import EPOCH, to_text
from gpuvigil.metrics import GPU, NODE
from gpuvigil.store.exporter_names import Labels, holder_of
from gpuvigil.store.promql import Tags

from ..recordings.derived import HELD_BYTES
from ..tables import Numbers
from .asking import Span
from .gathering import CollectedMetrics, TargetValues, holder_codes
from .questions import REMAPPED, XID_FIELD

# NVIDIA's Xid for a row that was remapped (docs.nvidia.com/deploy/xid-errors).
_ROW_REMAPPED = 63
_SAME_EVENT = timedelta(minutes=10)
_GPUS_OF_A_FILE = 64
_PROCESSES = "compute_processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Facts about a recording that its tables do not show."""

    named: int  # GPUs for which some label ever named a holder
    gpus: int
    by_memory: bool  # whether memory is used to tell if a GPU is held


def write(found: CollectedMetrics, directory: Path) -> Written:
    """Write a recording of everything that was gathered."""
    jobs: list[Mapping[str, Any]] = []
    events: list[Mapping[str, Any]] = []
    named = gpus = number = 0
    by_memory = False
    for told in found.targets:
        if told.exporter.measurement is not GPU:
            number = _plain(told, found, directory, number)
            continue
        holding = {node for (_, node, *_), runs in told.holders.items() if _named(runs)}
        subjects = sorted(told.rows)
        gpus += len(subjects)
        for group in _groups(subjects):
            tables = []
            for tags in group:
                own = list(_jobs(tags, told, found.fast))
                named += bool(own)
                jobs += own
                events += _events(tags, told, found.slow)
                tables.append(_gpu(tags, told, found, tags[1] in holding))
                by_memory |= _PROCESSES in tables[-1].column_names
            number += 1
            _save(tables, directory / f"gpu-{number}.parquet")
    _csv(directory / "jobs.csv", jobs)
    _csv(directory / "events.csv", events)
    return Written(named=named, gpus=gpus, by_memory=by_memory)


def _groups(subjects: Sequence[Tags]) -> Iterator[Sequence[Tags]]:
    for first in range(0, len(subjects), _GPUS_OF_A_FILE):
        yield subjects[first : first + _GPUS_OF_A_FILE]


def _named(runs: Sequence[tuple[int, int, Labels]]) -> bool:
    return any(holder_of(labels) is not None for *_, labels in runs)


def _gpu(tags: Tags, told: TargetValues, found: CollectedMetrics, has_labels: bool) -> pa.Table:
    rows = np.flatnonzero(told.rows[tags])
    cluster, node, uuid, model = tags
    columns: dict[str, Any] = {
        **_where(cluster, node, len(rows)),
        "at": _times(found.fast, rows),
        "uuid": [uuid] * len(rows),
        "model": [model or None] * len(rows),
    }
    index = told.labels[tags].get("gpu", "")
    if index.isascii() and index.isdigit():
        columns["index"] = [int(index)] * len(rows)
    for name, grid in told.values[tags].items():
        if name not in (XID_FIELD, _PROCESSES):
            columns[name] = _field(name, _spread(grid, found)[rows])
    processes = _processes(tags, told, found, has_labels)
    if processes is not None:
        columns[_PROCESSES] = _field(_PROCESSES, processes[rows])
    return pa.table(columns)


def _processes(
    tags: Tags, told: TargetValues, found: CollectedMetrics, has_labels: bool
) -> Numbers | None:
    """Return 1 where memory shows a program, and 0 where memory or labels show that there is none."""
    used = told.values[tags].get("memory_used_bytes")
    if used is None:
        return np.zeros(found.fast.count) if has_labels else None
    held = np.where(used >= HELD_BYTES, 1.0, 0.0)
    return np.asarray(np.where(np.isnan(used), 0.0 if has_labels else np.nan, held))


def _spread(grid: Numbers, found: CollectedMetrics) -> Numbers:
    """Repeat values that were asked rarely until the next one."""
    if len(grid) == found.fast.count:
        return grid
    times = found.slow.step // found.fast.step
    wide = np.repeat(grid, times)[: found.fast.count]
    return np.pad(wide, (0, found.fast.count - len(wide)), constant_values=np.nan)


def _plain(told: TargetValues, found: CollectedMetrics, directory: Path, number: int) -> int:
    """Write the rows of nodes or ports, and return the number of the last file."""
    measurement = told.exporter.measurement
    tables = []
    for tags in sorted(told.rows):
        rows = np.flatnonzero(told.rows[tags])
        columns: dict[str, Any] = {
            **_where(tags[0], tags[1], len(rows)),
            "at": _times(found.slow, rows),
        }
        columns |= {
            name: [value] * len(rows)
            for name, value in zip(measurement.tags[2:], tags[2:], strict=True)
        }
        for name, grid in told.values[tags].items():
            integer = measurement.metric(name).integer
            columns[name] = _numbers(grid[rows], integer)
        tables.append(pa.table(columns))
    number += 1
    _save(tables, directory / f"{'node' if measurement is NODE else 'port'}-{number}.parquet")
    return number


def _where(cluster: str, node: str, rows: int) -> dict[str, Any]:
    return {"cluster": [cluster] * rows, "node": [node] * rows}


def _times(span: Span, rows: Numbers) -> pa.Array:
    return pa.array(
        (span.start + rows.astype(np.int64) * span.step) * 1_000_000, pa.timestamp("us", "UTC")
    )


def _field(name: str, values: Numbers) -> pa.Array:
    return _numbers(values, GPU.metric(name).integer)


def _numbers(values: Numbers, integer: bool) -> pa.Array:
    absent = ~np.isfinite(values)
    if integer:
        absent |= np.abs(values) >= 2.0**63
        return pa.array(np.where(absent, 0, np.round(values)).astype(np.int64), mask=absent)
    return pa.array(values, mask=absent)


def _jobs(tags: Tags, told: TargetValues, span: Span) -> Iterator[Mapping[str, Any]]:
    """Yield who held a GPU, from the moment before the first report to the last one."""
    codes, labels = holder_codes(told.holders[tags], span.count)
    edges = np.flatnonzero(np.diff(codes, prepend=-2))
    for first, last in zip(edges, [*(edges[1:] - 1), span.count - 1], strict=True):
        holder = holder_of(labels[codes[first]]) if codes[first] >= 0 else None
        if holder is None:
            continue
        who, pod = holder
        yield {
            "cluster": tags[0],
            "node": tags[1],
            "gpu": tags[2],
            "holder": str(who),
            "started_at": _text(span, int(first) - 1),
            "ended_at": "" if last == span.count - 1 else _text(span, int(last)),
            "account": pod.partition("/")[0] if pod else "",
            "pod": pod or "",
            "began_before": int(first == 0),
        }


def _events(tags: Tags, told: TargetValues, span: Span) -> Iterator[Mapping[str, Any]]:
    """Yield an Xid event whenever the last code changes, and where more rows are remapped than before."""
    seen: list[tuple[int, int]] = []
    for moment, code in _changes(told.values[tags].get(XID_FIELD)):
        seen.append((moment, int(code)))
        yield _event(tags, span, moment, int(code), f"{XID_FIELD} {int(code)}, as DCGM tells it")
    for moment, count in _changes(told.values[tags].get(REMAPPED)):
        near = _SAME_EVENT.total_seconds() / span.step
        if not any(code == _ROW_REMAPPED and abs(at - moment) <= near for at, code in seen):
            yield _event(tags, span, moment, _ROW_REMAPPED, f"{count:.0f} rows are replaced now")


def _event(tags: Tags, span: Span, moment: int, xid: int, message: str) -> Mapping[str, Any]:
    return {
        "cluster": tags[0],
        "node": tags[1],
        "gpu": tags[2],
        "at": _text(span, moment),
        "event": "xid",
        "xid": xid,
        "message": message,
    }


def _changes(grid: Numbers | None) -> Iterator[tuple[int, float]]:
    """Yield the moments at which a new value other than 0 came, and the value; the first is no change."""
    if grid is None:
        return
    known = np.flatnonzero(~np.isnan(grid))
    for before, moment in pairwise(known):
        if grid[moment] not in (0, grid[before]):
            yield int(moment), float(grid[moment])


def _text(span: Span, moment: int) -> str:
    return to_text(EPOCH + timedelta(seconds=span.start + moment * span.step))


def _save(tables: Sequence[pa.Table], file: Path) -> None:
    if tables:
        whole = pa.concat_tables(tables, promote_options="permissive")
        pyarrow.parquet.write_table(whole, file)


def _csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
