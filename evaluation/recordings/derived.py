"""Columns of a recording computed from its other columns, where it lacks them."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.clock import micros
from gpuvigil.metrics import GPU, PORT
from gpuvigil.model import Subject
from gpuvigil.store.schema import latest_schema

from ..tables import Numbers

# The bit of each time counter: nvml.h, nvmlClocksEventReason...
_REASONS: Mapping[str, int] = {
    "power_cap_seconds": 0x4,  # SwPowerCap
    "software_thermal_slowdown_seconds": 0x20,  # SwThermalSlowdown
    "hardware_thermal_slowdown_seconds": 0x40,  # HwThermalSlowdown
    "power_brake_seconds": 0x80,  # HwPowerBrakeSlowdown
}
# From this much memory on, a process has a context on a GPU; a GPU that nobody has opened uses next to
# nothing. Ours.
HELD_BYTES = 256 * 1024 * 1024
_LONGEST_TICKS = 2.0  # a reason lasts to the next row, but not over a gap
# A GPU's column from the newest values of its links: the links' field, and how to combine it.
_LINKS: Mapping[str, tuple[str, str]] = {
    "nvlink_links_up": ("up", "sum"),
    "nvlink_links_expected": ("up", "count"),
    "nvlink_crc_errors": ("crc_errors", "sum"),
    "nvlink_replay_errors": ("replay_errors", "sum"),
    "nvlink_recovery_errors": ("recovery_errors", "sum"),
    "nvlink_receive_bytes": ("receive_bytes", "sum"),
    "nvlink_transmit_bytes": ("transmit_bytes", "sum"),
}
# Counters from values per second, as DCGM reports them.
_RATES: Mapping[str, str] = {
    f"nvlink_{way}_bytes": f"nvlink_{way}_bytes_per_second" for way in ("receive", "transmit")
}
# A GPU's highest possible value, where only current values are recorded.
_HIGHEST: Mapping[str, str] = {
    "pcie_width_max": "pcie_width",
    "pcie_generation_max": "pcie_generation",
    "sm_clock_max_hertz": "sm_clock_hertz",
    "memory_clock_max_hertz": "memory_clock_hertz",
}


def gpu(
    table: pa.Table,
    ticks: Mapping[Subject, float],
    links: pa.Table | None = None,
    *,
    names_holders: bool,
) -> pa.Table:
    """Return the rows of GPUs, in the order of subjects and time, with the computed columns.

    Where `names_holders` is false, the recording does not name holders, and a GPU's memory shows whether it is held.
    """
    more: dict[str, pa.Array] = {}
    if "up" not in table.column_names:
        # Each row was read from a GPU, so the GPU was there.
        more["up"] = pa.array([1] * len(table), pa.int64())
    if "clock_event_reasons" in table.column_names:
        more |= _reasons(table, ticks)
    if links is not None:
        more |= _of_links(table, links)
    more = {**_of_rates(table, ticks), **more}
    more |= _processes(table, names_holders)
    for name, of in _HIGHEST.items():
        if of in table.column_names and name not in table.column_names:
            more[name] = _highest(table, of)
    for name, column in more.items():
        if name not in table.column_names:
            table = table.append_column(name, column)
    names = [it.name for it in GPU.metrics if it.name in table.column_names]
    schema = latest_schema(GPU, names)
    return table.select(schema.names).cast(schema)


def port(table: pa.Table) -> pa.Table:
    """Return the rows of ports, in the order of subjects and time, with a count of how often each went down."""
    if "up" not in table.column_names or "link_downed" in table.column_names:
        return table
    keys = [table[tag].to_pylist() for tag in ("cluster", "node", "device", "port")]
    counts: dict[tuple[str, ...], int] = {}
    was_up: set[tuple[str, ...]] = set()
    found: list[int] = []
    for *key, up in zip(*keys, table["up"].to_pylist(), strict=True):
        subject = tuple(key)
        counts.setdefault(subject, 0)
        if up == 0 and subject in was_up:
            counts[subject] += 1
            was_up.remove(subject)
        elif up == 1:
            was_up.add(subject)
        found.append(counts[subject])
    table = table.append_column("link_downed", pa.array(found, pa.int64()))
    names = [it.name for it in PORT.metrics if it.name in table.column_names]
    schema = latest_schema(PORT, names)
    return table.select(schema.names).cast(schema)


def _processes(table: pa.Table, names_holders: bool) -> dict[str, pa.Array]:
    """Return 1 where the memory in use shows a context, else 0; nothing where holders are named."""
    if names_holders or "memory_used_bytes" not in table.column_names:
        return {}
    held = pc.greater_equal(table["memory_used_bytes"], HELD_BYTES)
    return {"compute_processes": pc.cast(held, pa.int64())}


def _highest(table: pa.Table, name: str) -> pa.Array:
    """Return each GPU's highest value in the whole recording: what it reached once, it can reach."""
    values = table[name].to_pylist()
    found: list[float | None] = [None] * len(table)
    for rows in _rows_of(table).values():
        most = max((it for place, _ in rows if (it := values[place]) is not None), default=None)
        for place, _ in rows:
            found[place] = most
    return pa.array(found, table.schema.field(name).type)


def _reasons(table: pa.Table, ticks: Mapping[Subject, float]) -> dict[str, pa.Array]:
    """Return how long each reason has held the clocks down since the first row of each GPU, in seconds."""
    known = pc.is_valid(table["clock_event_reasons"]).to_numpy()
    bits = pc.fill_null(table["clock_event_reasons"], 0).to_numpy()
    rates = np.stack([np.where(bits & bit, 1.0, 0.0) for bit in _REASONS.values()])
    totals = _added_up(table, ticks, rates)
    return {name: pa.array(own, mask=~known) for name, own in zip(_REASONS, totals, strict=True)}


def _of_rates(table: pa.Table, ticks: Mapping[Subject, float]) -> dict[str, pa.Array]:
    """Return counters computed from values that are only recorded per second."""
    wanted = {
        name: rate
        for name, rate in _RATES.items()
        if rate in table.column_names and name not in table.column_names
    }
    found = {}
    for name, rate in wanted.items():
        per_second: Numbers = table[rate].cast(pa.float64()).to_numpy()
        (total,) = _added_up(table, ticks, np.nan_to_num(per_second)[np.newaxis])
        found[name] = pa.array(np.round(total), mask=np.isnan(per_second))
    return found


def _added_up(table: pa.Table, ticks: Mapping[Subject, float], rates: Numbers) -> Numbers:
    """Return the running total of each of several rates since the first row of each GPU."""
    at = table["at"].cast(pa.int64()).to_numpy() / 1e6
    names = zip(*(table[tag].to_pylist() for tag in ("cluster", "node", "uuid")), strict=True)
    subjects = list(names)
    tick = np.array([ticks[Subject(cluster=it[0], node=it[1])] for it in subjects])
    same = np.array([*(it == other for it, other in pairwise(subjects)), False])
    lasted = np.where(same, np.append(np.diff(at), 0.0), 0.0)
    lasted = np.minimum(lasted, _LONGEST_TICKS * tick)
    # A row's value counts for the time after it.
    total = np.cumsum(rates * lasted, axis=1)
    total = np.concatenate([np.zeros((len(rates), 1)), total[:, :-1]], axis=1)
    first = np.append(True, ~same[:-1])
    begins = np.maximum.accumulate(np.where(first, total, 0.0), axis=1)
    return np.asarray(total - begins, dtype=np.float64)


def _of_links(table: pa.Table, links: pa.Table) -> dict[str, pa.Array]:
    """Return sums over the links of each GPU, with each link's newest value at the time of a row."""
    wanted = {
        name: how
        for name, how in _LINKS.items()
        if how[0] in links.column_names and name not in table.column_names
    }
    told: dict[tuple[str, str, str], list[tuple[int, str, dict[str, float | None]]]] = {}
    fields = sorted({field for field, _ in wanted.values()})
    for row in links.sort_by("at").to_pylist():
        key = (row["cluster"], row["node"], row["uuid"])
        values = {field: row[field] for field in fields}
        told.setdefault(key, []).append((micros(row["at"]), row["link"], values))
    found: dict[str, list[float | None]] = {name: [None] * len(table) for name in wanted}
    for key, rows in _rows_of(table).items():
        known: dict[str, dict[str, float | None]] = {}
        coming = iter(told.get(key, ()))
        following = next(coming, None)
        for place, at in rows:
            while following is not None and following[0] <= at:
                known[following[1]] = following[2]
                following = next(coming, None)
            for name, (field, how) in wanted.items():
                those = [it for one in known.values() if (it := one[field]) is not None]
                if those:
                    found[name][place] = len(those) if how == "count" else sum(those)
    return {name: pa.array(column, pa.float64()) for name, column in found.items()}


def _rows_of(table: pa.Table) -> dict[tuple[str, str, str], list[tuple[int, int]]]:
    """Return the places and times of each GPU's rows, in the order of time."""
    columns = [table[tag].to_pylist() for tag in ("cluster", "node", "uuid")]
    times: Numbers = table["at"].cast(pa.int64()).to_numpy()
    found: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for place, (*key, at) in enumerate(zip(*columns, times.tolist(), strict=True)):
        cluster, node, uuid = key
        found.setdefault((cluster, node, uuid), []).append((place, at))
    return found
