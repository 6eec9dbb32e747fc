"""The count of a quarter, which works on columns, is what a count second by second gives."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.usage import Bucket, Seconds
from accounting.usage.count import Facts, count
from accounting.usage.grid import FIELDS
from accounting.usage.slices import SLICE_FIELDS
from gpuvigil.model import Allocation, Inventory
from tests.accounting.usage.plainly import AMOUNTS, Devices, Gpu, Told, counted, means, model_of
from tests.accounting.usage.quarter import (
    BUSY,
    START,
    Minute,
    held,
    inventory,
    parts_of_quarter,
    table,
)

NODES, UUIDS = ("n1", "n2"), (0, 1, 2)
_TAGS = ("cluster", "node", "uuid", "mig", "profile")
_SCHEMA = pa.schema(
    [*((tag, pa.string()) for tag in _TAGS), ("at", pa.timestamp("us", "UTC"))]
    + [(name, pa.float64()) for name in SLICE_FIELDS]
)
# What GPUs mostly say; the rest of what may come is rare.
ROW = st.fixed_dictionaries(
    {
        "up": st.sampled_from([1.0, 1.0, 1.0, 1.0, 0.5, 0.0, None]),
        "utilization_percent": st.sampled_from([0.0, 0.0, 40.0, 100.0, 130.0, None]),
        "compute_processes": st.sampled_from([0.0, 0.0, 1.0, None]),
        "power_watts": st.sampled_from([None, 0.0, 70.0, 700.0, math.inf, -1.0]),
        "unmeasured_reason": st.sampled_from([None, None, 3.0, 4.0, 7.0]),
    }
)
DEVICE = st.fixed_dictionaries(
    {
        "graphics_activity_percent": st.sampled_from([0.0, 30.0, 140.0, None]),
        "sm_activity_percent": st.sampled_from([0.0, 50.0, None]),
        "compute_processes": st.sampled_from([0.0, 1.0, 1.0, None]),
    }
)
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "odd")
MINUTES = st.integers(-2, 16)


@dataclass(frozen=True, slots=True)
class Case:
    """The facts of a quarter, and the rows that they were made of; told by what is short."""

    facts: Facts
    cells: list[Minute]
    slices: list[dict[str, Any]]

    def __repr__(self) -> str:
        empty = None if self.facts.slices is None else "some"
        facts = replace(self.facts, rows=len(self.cells), slices=empty)
        cells = {(one.node, one.gpu, one.number): dict(one.fields) for one in self.cells}
        return f"{facts!r}, {cells!r}, {self.slices!r}"[:20_000]


@st.composite
def cells(draw: st.DrawFn) -> list[Minute]:
    """Rows in spans of minutes, so that a GPU mostly has some that follow each other."""
    spans = draw(
        st.lists(
            st.tuples(st.sampled_from(NODES), st.sampled_from(UUIDS), MINUTES, MINUTES, ROW),
            max_size=6,
        )
    )
    return [
        Minute(number=number, fields=row, gpu=gpu, node=node)
        for node, gpu, first, last, row in spans
        for number in range(first, last + 1)
    ]


@st.composite
def devices(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of MIG devices, some at the same time as others; one device has one profile."""
    spans = draw(
        st.lists(
            st.tuples(st.sampled_from(UUIDS[:2]), st.integers(0, 4), MINUTES, MINUTES, DEVICE),
            max_size=5,
        )
    )
    return [
        {
            "cluster": "c",
            "node": "n1",
            "uuid": f"GPU-{gpu}",
            "mig": f"MIG-{gpu}-{which}",
            "profile": PROFILES[which],
            "at": START + timedelta(minutes=number),
            **row,
        }
        for gpu, which, first, last, row in spans
        for number in range(first, last + 1)
    ]


@st.composite
def holder(draw: st.DrawFn, gpus: Sequence[int] = UUIDS) -> Allocation:
    """An allocation to the second; of the GPU, of devices of it, or a time slice."""
    gpu = draw(st.sampled_from(gpus))
    seconds = draw(st.sampled_from([0, 60, 90, 150, 890, 899, 900, -1, -600]))
    length = draw(st.none() | st.sampled_from([1, 30, 60, 240, 600, 900, 1500]))
    one = held(
        seconds / 60,
        None if length is None else (seconds + length) / 60,
        draw(st.sampled_from(["job 1", "job 2", "pid 7", "pid 8"])),
        draw(st.sampled_from(["ann", "ben", None])),
        gpu,
        command=draw(st.sampled_from(["train", "notebook", None])),
    )
    part = draw(
        st.sampled_from(
            [None, None, "shared", "MIG-0-0", f"MIG-{gpu}-1", f"MIG-{gpu}-2,MIG-{gpu}-3,shared"]
        )
    )
    return replace(one, part=part)


GPUS = st.tuples(st.sampled_from(NODES), st.sampled_from([f"GPU-{n}" for n in (*UUIDS, 9)]))
OUT = st.dictionaries(
    st.tuples(st.sampled_from(NODES), st.sampled_from(["", "GPU-0"])), parts_of_quarter()
)


def moments(*minutes: float) -> st.SearchStrategy[Any]:
    """Times of the quarter, among them its edges."""
    return st.sampled_from([START + timedelta(minutes=number) for number in minutes])


def _named(rows: pa.Table) -> pa.Table:
    """Each GPU of its own model."""
    models = pa.array([model_of(uuid) for uuid in rows["uuid"].to_pylist()], pa.string())
    return rows.set_column(rows.column_names.index("model"), "model", models)


def _owned(gpus: int, at: datetime, node: str) -> Inventory:
    one = inventory(gpus, at, node)
    return replace(one, gpus=tuple(replace(gpu, model=model_of(gpu.uuid)) for gpu in one.gpus))


@st.composite
def facts(draw: st.DrawFn) -> Case:
    """Any cluster of two nodes around a quarter."""
    rows, slices = draw(cells()), draw(st.just([]) | devices())
    some = st.dictionaries(
        st.sampled_from(NODES), moments(-2000, -10, -0.5, 0, 3.5, 5, 14.9, 15, 20), max_size=2
    )
    invented = {node: draw(moments(-900, -1, 0, 3, 6.5, 14.5, 15, 16)) for node in NODES}
    given_ = Facts(
        cluster=draw(st.sampled_from(["c", "c", "simulated"])),
        start=START,
        now=draw(moments(17, 17, 17, 15.25, 15.2, 15, 9.5, 4, 0.25, 0.01)),
        rows=_named(table(rows)),
        sent=draw(st.frozensets(GPUS, max_size=4)),
        nodes_sent=draw(st.frozensets(st.sampled_from(NODES))),
        last_seen=draw(some),
        retired=draw(st.just({}) | some),
        listening_since=draw(st.none() | moments(-30, 0, 3.5)),
        out=draw(st.none() | OUT),
        inventories=[
            _owned(draw(st.integers(0, 3)), at, node)
            for node, at in invented.items()
            if draw(st.booleans())
        ],
        allocations=draw(st.lists(holder(), max_size=6)),
        slices=pa.Table.from_pylist(slices, schema=_SCHEMA) if slices else None,
        watched_since=draw(st.none() | moments(-60, 0, 4, 14.5)),
    )
    return Case(given_, rows, slices)


# Devices that are there for most of a quarter, and held by name or as a part of their GPU.
_SPAN = st.tuples(st.integers(0, 2), st.integers(9, 15))


@st.composite
def cut(draw: st.DrawFn) -> Case:
    """Two GPUs that answer and are cut."""
    rows = [
        Minute(number=n, fields={**BUSY, "power_watts": 300.0}, gpu=gpu)
        for gpu in UUIDS[:2]
        for n in range(15)
    ]
    spans = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), _SPAN, DEVICE)))
    slices = [
        {
            "cluster": "c",
            "node": "n1",
            "uuid": f"GPU-{gpu}",
            "mig": f"MIG-{gpu}-{which}",
            "profile": PROFILES[which],
            "at": START + timedelta(minutes=number),
            **row,
        }
        for gpu, which, span, row in spans
        for number in range(*span)
    ]
    given_ = Facts(
        cluster="c",
        start=START,
        now=draw(moments(17, 17, 7)),
        rows=_named(table(rows)),
        sent={("n1", f"GPU-{gpu}") for gpu in UUIDS[:2]},
        allocations=draw(st.lists(holder(UUIDS[:2]), max_size=8)),
        slices=pa.Table.from_pylist(slices, schema=_SCHEMA) if slices else None,
    )
    return Case(given_, rows, slices)


def told(case: Case) -> Told:
    """Rows of one minute as their means, in words."""
    given_ = case.facts
    end = min(timedelta(minutes=15), given_.now - given_.start)
    rows: dict[tuple[Gpu, int], list[Mapping[str, Any]]] = defaultdict(list)
    for cell in case.cells:
        if timedelta() <= timedelta(minutes=cell.number) < end:
            rows[(cell.node, f"GPU-{cell.gpu}"), cell.number].append(cell.fields)
    parts: dict[Any, dict[Any, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in case.slices:
        if timedelta() <= row["at"] - START < end:
            minute = (row["at"] - START) // timedelta(minutes=1)
            key = (row["node"], row["uuid"]), minute
            parts[key][row["mig"], row["profile"]].append(row)
    sent: Devices = {
        key: {of: means(them, SLICE_FIELDS) for of, them in some.items()}
        for key, some in parts.items()
    }
    return counted(given_, {key: means(them, FIELDS) for key, them in rows.items()}, sent)


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-6)


@given(facts() | cut())
def test_a_quarter_is_what_a_count_second_by_second_gives(case: Case) -> None:
    bucket, plain = count(case.facts), told(case)
    if bucket is None:
        assert not plain.present
        return
    assert bucket.gpus == len(plain.present)
    assert bucket.nodes == len({node for node, _ in plain.present})
    assert (bucket.cluster, bucket.start, bucket.settled) == (case.facts.cluster, START, False)
    _same_amounts(bucket.seconds, plain.seconds)
    assert [(one.node, one.model) for one in bucket.places] == sorted(plain.places)
    for place in bucket.places:
        _same_amounts(place.seconds, plain.places[place.node, place.model])
    assert bucket.models == Counter(model for model in plain.present.values() if model)
    _same_holders(bucket, plain)


def _same_amounts(found: Seconds, plain: Mapping[str, float]) -> None:
    for each in fields(Seconds):
        assert getattr(found, each.name) == near(plain.get(each.name, 0.0)), each.name


def _same_holders(bucket: Bucket, plain: Told) -> None:
    of = {(*share.key, share.model or ""): share for share in bucket.shares}
    assert len(of) == len(bucket.shares)
    assert {key for key, one in plain.holders.items() if one["allocated"] > 1e-9} == of.keys()
    for key, share in of.items():
        for name in AMOUNTS:
            assert getattr(share, name) == near(plain.holders[key][name]), name
        assert share.gpus == len(plain.gpus[key])
        commands = plain.commands[key]
        assert commands[share.command or ""] == near(max(commands.values()))
    amounts = [share.allocated for share in bucket.shares]
    assert all(one >= other - 1e-6 for one, other in pairwise(amounts))
