"""MIG devices count as the parts of their GPU that they are."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.usage import Bucket, Seconds
from accounting.usage.grid import FIELDS, Grid, runs
from accounting.usage.identities import Gpus
from accounting.usage.ownership import Gpu
from accounting.usage.slices import SLICE_FIELDS, Devices, slices_of, weight
from gpuvigil.model import Allocation, Holder, Subject
from tests.accounting.usage.quarter import (
    BUSY,
    END,
    LOST,
    START,
    Minute,
    bucket,
    held,
    minutes,
    table,
)

QUARTER = 900.0
CUT = {"up": 1.0, "power_watts": 400.0}
_TAGS = ("cluster", "node", "uuid", "mig", "profile")
_SCHEMA = pa.schema(
    [*((tag, pa.string()) for tag in _TAGS), ("at", pa.timestamp("us", "UTC"))]
    + [(name, pa.float64()) for name in SLICE_FIELDS]
)


def devices(
    *them: tuple[str, str, float | None, float | None],
    numbers: Iterable[int] = range(15),
    gpu: int = 0,
) -> list[dict[str, Any]]:
    """Rows of MIG devices: name, profile, activity in percent, processes."""
    return [
        {
            "cluster": "c",
            "node": "n1",
            "uuid": f"GPU-{gpu}",
            "mig": mig,
            "profile": profile,
            "at": START + timedelta(minutes=number),
            "graphics_activity_percent": activity,
            "compute_processes": processes,
        }
        for mig, profile, activity, processes in them
        for number in numbers
    ]


def cut(rows: list[dict[str, Any]], *allocations: Allocation, **more: Any) -> Bucket:
    cells = more.pop("cells", minutes(CUT))
    slices = pa.Table.from_pylist(rows, schema=_SCHEMA)
    return bucket(cells, *allocations, slices=slices, **more)


@pytest.mark.parametrize(
    ("profile", "model", "part"),
    [
        ("1g.10gb", "NVIDIA H100 80GB HBM3", 1 / 7),
        ("7g.80gb", "NVIDIA H100 80GB HBM3", 1.0),
        ("1g.10gb+me", "NVIDIA A100-SXM4-80GB", 1 / 7),
        ("1c.4g.40gb", "NVIDIA A100-SXM4-80GB", 1 / 7),
        ("4g.24gb", "NVIDIA A30", 1.0),
        ("1g.24gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 0.25),
        ("what", "NVIDIA A30", 0.0),
    ],
)
def test_a_device_is_the_part_of_its_gpu_that_its_compute_slices_are(
    profile: str, model: str, part: float
) -> None:
    assert weight(profile, model) == pytest.approx(part)


def test_each_device_is_in_its_own_state_and_what_is_left_is_free() -> None:
    seconds = cut(
        devices(
            ("MIG-1", "3g.40gb", 50.0, 1.0),
            ("MIG-2", "2g.20gb", 0.0, 1.0),
            ("MIG-3", "1g.10gb", 0.0, 0.0),
        )
    ).seconds
    assert seconds.installed == pytest.approx(QUARTER)
    assert seconds.active == pytest.approx(QUARTER * 3 / 7)
    assert seconds.idle == pytest.approx(QUARTER * 2 / 7)
    assert seconds.free == pytest.approx(QUARTER * 2 / 7)
    assert seconds.used == pytest.approx(QUARTER * 3 / 7 * 0.5)
    assert seconds.energy_joules == pytest.approx(QUARTER * 400.0)


def test_a_device_of_which_nothing_was_measured_is_unknown() -> None:
    seconds = cut(devices(("MIG-1", "7g.80gb", None, 1.0))).seconds
    assert seconds.unknown == pytest.approx(QUARTER)


def test_an_allocation_of_a_device_is_a_part_and_one_of_the_gpu_is_of_devices_in_use() -> None:
    rows = devices(("MIG-1", "3g.40gb", 50.0, 1.0), ("MIG-2", "4g.40gb", 0.0, 0.0))
    (share,) = cut(rows, held(0, None)).shares
    assert share.gpus == 1
    assert share.allocated == pytest.approx(QUARTER * 3 / 7)
    named = Allocation(
        subject=Subject(cluster="c", node="n1", gpu="GPU-0"),
        holder=Holder.parse("pod lab/llama-0"),
        user="ben",
        command=None,
        started_at=START,
        pod="lab/llama-0",
        part="MIG-2",
    )
    ben, ann = cut(rows, held(0, None), named).shares
    assert (ben.user, ann.user) == ("ben", "ann")
    assert (ben.holder, ben.project, ben.shared) == ("pod lab/llama-0", "lab", 0.0)
    assert ben.allocated == pytest.approx(QUARTER * 4 / 7)
    assert ann.allocated == pytest.approx(QUARTER * 3 / 7)


def test_what_is_time_sliced_is_shared_also_where_one_holder_is_seen() -> None:
    alone = replace(held(0, None), part="shared")
    (share,) = bucket(minutes(), alone).shares
    assert share.shared == share.allocated == QUARTER
    both = bucket(minutes(), held(0, 5), held(0, 10, "job 2", "ben")).shares
    assert {one.user: one.shared for one in both} == {"ann": 150.0, "ben": 150.0, None: 0.0}


def test_a_reconfiguration_within_a_minute_leaves_one_gpu() -> None:
    before = devices(("MIG-1", "7g.80gb", 90.0, 1.0), numbers=range(8))
    after = devices(
        *((f"MIG-{n}", "1g.10gb", 90.0, 1.0) for n in range(2, 9)), numbers=range(7, 15)
    )
    seconds = cut(before + after).seconds
    assert seconds.installed == pytest.approx(QUARTER)
    assert seconds.active == pytest.approx(QUARTER)


def test_a_lost_gpu_is_whole() -> None:
    seconds = cut(devices(("MIG-1", "3g.40gb", 50.0, 1.0)), cells=minutes(LOST)).seconds
    assert seconds.unavailable == seconds.installed == QUARTER


_DEVICE = st.tuples(
    st.sampled_from(["MIG-1", "MIG-2", "MIG-3", "MIG-4"]),
    st.sampled_from(["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "odd"]),
    st.sampled_from([0.0, 30.0, 100.0, None]),
    st.sampled_from([0.0, 1.0, None]),
)
_CELL = st.builds(
    Minute,
    number=st.integers(0, 14),
    fields=st.sampled_from([CUT, CUT, BUSY, LOST, {}]),
    gpu=st.integers(0, 2),
)


@pytest.mark.medium
@given(
    st.lists(_CELL, max_size=40, unique_by=lambda one: (one.number, one.gpu)),
    st.lists(st.tuples(_DEVICE, st.integers(0, 14), st.integers(0, 2)), max_size=40),
    st.lists(
        st.tuples(st.floats(-5, 14), st.floats(0.1, 20), st.integers(0, 4), st.integers(0, 2)),
        max_size=5,
    ),
)
@settings(max_examples=40, deadline=None)
def test_whatever_is_cut_lost_or_missing_the_states_add_up_to_what_is_installed(
    cells: list[Minute],
    parts: list[tuple[tuple[str, str, float | None, float | None], int, int]],
    jobs: list[tuple[float, float, int, int]],
) -> None:
    rows = [row for one, at, gpu in parts for row in devices(one, numbers=[at], gpu=gpu)]
    them = [held(a, a + n, f"job {job}", f"user {job}", gpu) for a, n, job, gpu in jobs]
    there = {("n1", f"GPU-{n}") for n in range(3)}
    found = cut(rows, *them, cells=cells, sent=there)
    seconds = found.seconds
    assert seconds.installed == pytest.approx(3 * (END - START).total_seconds())
    states = (seconds.active, seconds.idle, seconds.free, seconds.unavailable, seconds.unknown)
    assert min(states) >= 0
    assert sum(states) == pytest.approx(seconds.installed)
    total = sum((one.seconds for one in found.places), Seconds())
    assert total.installed == pytest.approx(seconds.installed)
    assert total.idle == pytest.approx(seconds.idle)
    for name in ("allocated", "measured", "used", "idle"):
        shared = sum(getattr(one, name) for one in found.shares)
        assert shared == pytest.approx(getattr(seconds, name), abs=1e-6)


def _plainly(rows: pa.Table, numbers: dict[Gpu, int], grid: Grid) -> dict[Any, list[float]]:
    """Each device's part of its GPU by minute, row by row."""
    found: dict[Any, list[float]] = {}
    for row in rows.to_pylist():
        gpu = numbers.get((row["node"], row["uuid"]))
        minute = (row["at"] - START) // timedelta(minutes=1)
        if gpu is not None:
            parts = found.setdefault((row["node"], row["mig"], row["profile"], gpu), [0.0] * 15)
            if grid.answering[gpu, minute]:
                parts[minute] = weight(row["profile"], "H100")
    for gpu in numbers.values():
        own = [parts for key, parts in found.items() if key[3] == gpu]
        for minute in range(15):
            total = max(sum(parts[minute] for parts in own), 1.0)
            for parts in own:
                parts[minute] /= total
    return found


@given(
    st.lists(
        st.tuples(_DEVICE, st.integers(0, 14), st.integers(0, 3), st.sampled_from(["n1", "n2"])),
        max_size=40,
    ),
    st.lists(_CELL, max_size=40, unique_by=lambda one: (one.number, one.gpu)),
)
def test_columns_give_the_same_devices_as_row_by_row(
    parts: list[tuple[tuple[str, str, float | None, float | None], int, int, str]],
    cells: list[Minute],
) -> None:
    rows = [
        {**row, "node": node}
        for one, at, gpu, node in parts
        for row in devices(one, numbers=[at], gpu=gpu)
    ]
    slices = pa.Table.from_pylist(rows, schema=_SCHEMA)
    numbers = {("n1", "GPU-0"): 0, ("n1", "GPU-1"): 1, ("n2", "GPU-1"): 2}
    of_row = [numbers.get((cell.node, f"GPU-{cell.gpu}"), 2) for cell in cells]
    grid = Grid.of(table(cells), np.array(of_row, np.int64), START, 3, FIELDS)
    heads, length = runs(slices, ("node", "uuid", "mig", "profile"))
    named = Devices.of((heads, Gpus(keys=tuple(numbers), models=("H100",) * 3)))
    found = slices_of(slices, length, named, grid)
    plainly = _plainly(slices, numbers, grid)
    assert len(found.keys) == len(plainly)
    mine = sorted(zip(found.keys, found.parent.tolist(), found.weight.tolist(), strict=True))
    theirs = sorted(((k[0], k[1]), k[3], parts) for k, parts in plainly.items())
    for (key, gpu, weights), (other, of, expected) in zip(mine, theirs, strict=True):
        assert (key, gpu) == (other, of)
        assert weights == pytest.approx(expected)
