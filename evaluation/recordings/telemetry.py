"""Rows of a telemetry file as a catalogue table: sorted, without duplicates, units checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.metrics import MEASUREMENTS, Kind
from gpuvigil.store.schema import latest_schema

from ..tables import Numbers
from .layout import CLUSTER, NODE, fields
from .problems import Problems
from .units import misfit
from .values import Raw, numbers, texts, times

_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "gpu": {"model": "unknown"},
    "nvlink": {"model": "unknown"},
    "port": {"port": "1", "kind": "infiniband", "role": "fabric"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement's rows, sorted by tags and time, and the PCI addresses of GPUs."""

    table: pa.Table
    addresses: Mapping[tuple[str, str, str], str]  # cluster, node and UUID: PCI address


def measured(
    kind: str, raws: Sequence[Raw], problems: Problems, zone: ZoneInfo | None
) -> Measured | None:
    """Return the rows of all files of a kind; None when there are none."""
    parts: list[pa.Table] = []
    addresses: dict[tuple[str, str, str], str] = {}
    for raw in raws:
        try:
            part = _part(kind, raw, problems, zone)
        except pa.ArrowException as error:  # for example a Parquet column of lists
            problems.error(raw.path, str(error).splitlines()[0])
            continue
        if "pci_address" in part.column_names:
            addresses |= _addresses(part)
            part = part.drop_columns(["pci_address"])
        parts.append(part)
    if problems.errors or not any(map(len, parts)):
        return None
    whole = pa.concat_tables(parts, promote_options="default")
    return Measured(table=_monotone(kind, _once(kind, whole)), addresses=addresses)


def _addresses(part: pa.Table) -> dict[tuple[str, str, str], str]:
    found = part.group_by(["cluster", "node", "uuid"]).aggregate([("pci_address", "max")])
    return {
        (row["cluster"], row["node"], row["uuid"]): row["pci_address_max"]
        for row in found.to_pylist()
        if row["pci_address_max"]
    }


def _part(kind: str, raw: Raw, problems: Problems, zone: ZoneInfo | None) -> pa.Table:
    columns: dict[str, Any] = {"at": times(raw, "at", problems, zone)}
    here = raw.table.column_names
    measurement = MEASUREMENTS[kind]
    for tag in measurement.tags:
        columns[tag] = _tag(kind, tag, raw)
        if (row := pc.index(pc.is_valid(columns[tag]), False).as_py()) >= 0:
            problems.error(raw.path, "every row needs one", raw.line(row), tag)
    if kind == "gpu" and "pci_address" in here:
        columns["pci_address"] = texts(raw.table["pci_address"])
    for name in fields(kind):
        if name in here:
            columns[name] = _field(kind, name, raw, problems)
    return pa.table(columns)


def _tag(kind: str, tag: str, raw: Raw) -> pa.ChunkedArray | pa.Array:
    # A directory of files has one file per node, as for kernel logs.
    node = raw.path.stem if raw.path.parent.name == kind else NODE
    usual = {"cluster": CLUSTER, "node": node, **_DEFAULTS.get(kind, {})}
    if tag in raw.table.column_names:
        column = texts(raw.table[tag])
    elif tag == "uuid":
        column = texts(raw.table["index"])
    else:
        column = pa.chunked_array([pa.nulls(len(raw.table), pa.string())])
    if tag == "uuid" and "index" in raw.table.column_names:
        return pc.coalesce(column, texts(raw.table["index"]))
    return pc.fill_null(column, usual[tag]) if tag in usual else column


def _field(kind: str, name: str, raw: Raw, problems: Problems) -> pa.ChunkedArray:
    metric = MEASUREMENTS[kind].metric(name)
    found = numbers(raw, name, problems, state=metric.kind is Kind.STATE)
    values = found.to_numpy()
    rows = np.flatnonzero(~np.isnan(values))
    if (wrong := misfit(kind, name, values[rows])) is not None:
        problems.error(raw.path, wrong.text, raw.line(int(rows[wrong.position])), name)
    return pc.round(found).cast(pa.int64()) if metric.integer else found


def _once(kind: str, table: pa.Table) -> pa.Table:
    """Return one row for each subject and moment, merged from all its rows; later values win."""
    tags = list(MEASUREMENTS[kind].tags)
    own = [name for name in fields(kind) if name in table.column_names]
    keys = [*[tag for tag in tags if tag != "model"], "at"]
    values = [*own, *(["model"] if "model" in tags else [])]
    if len(table.select(keys).group_by(keys, use_threads=False).aggregate([])) < len(table):
        found = table.group_by(keys, use_threads=False).aggregate([(it, "last") for it in values])
        table = found.rename_columns([name.removesuffix("_last") for name in found.column_names])
    schema = latest_schema(MEASUREMENTS[kind], own)
    ordered = table.select(schema.names).cast(schema)
    return ordered.sort_by([(name, "ascending") for name in keys])


def _monotone(kind: str, table: pa.Table) -> pa.Table:
    """Let counters that restarted at 0 continue from their last value, as the collector does."""
    begins = None
    for number, name in enumerate(table.column_names):
        if name not in fields(kind) or MEASUREMENTS[kind].metric(name).kind is not Kind.COUNTER:
            continue
        begins = _subjects(kind, table) if begins is None else begins
        values = table[name].cast(pa.float64(), safe=False).to_numpy()
        valid = np.flatnonzero(~np.isnan(values))
        added = offsets(values[valid], begins[valid])
        if added.any():
            whole = np.full(len(values), 0.0)
            whole[valid] = added
            more = pa.array(whole).cast(table[name].type)
            table = table.set_column(number, name, pc.add(table[name], pa.chunked_array([more])))
    return table


def offsets(values: Numbers, subjects: Numbers) -> Numbers:
    """Return what to add to each counter reading; readings are in the order of subjects and time."""
    fell = np.append(False, (values[1:] < values[:-1]) & (subjects[1:] == subjects[:-1]))
    lost = np.where(fell, np.append(0.0, values[:-1]), 0.0)
    total = np.cumsum(lost)
    first = np.append(True, subjects[1:] != subjects[:-1])[: len(values)]
    before = np.where(first, total - lost, -np.inf)
    return np.asarray(total - np.maximum.accumulate(before), dtype=np.float64)


def _subjects(kind: str, table: pa.Table) -> Numbers:
    """Return a number for each row's subject."""
    tags = [tag for tag in MEASUREMENTS[kind].tags if tag != "model"]
    changed = np.zeros(len(table), bool)
    for tag in tags:
        codes = (
            table[tag].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        )
        changed |= np.append(False, codes[1:] != codes[:-1])
    return np.cumsum(changed)
