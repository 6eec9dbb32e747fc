"""The count of a quarter, which works on columns, is what a count second by second gives."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
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
from gpuvigil.model import Allocation
from gpuvigil.schedulers.out_of_service import LostTo
from tests.accounting.usage.plainly import AMOUNTS, Devices, Gpu, Told, counted, means
from tests.accounting.usage.quarter import START, Minute, held, inventory, table

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
        "graphics_activity_percent": st.sampled_from([0.0, 30.0, 100.0, None]),
        "sm_activity_percent": st.sampled_from([0.0, 50.0, None]),
        "compute_processes": st.sampled_from([0.0, 1.0, 1.0, None]),
    }
)
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "odd")
MINUTES = st.integers(-2, 16)


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
def holder(draw: st.DrawFn) -> Allocation:
    """An allocation to the second; of the GPU, of devices of it, or a time slice."""
    gpu = draw(st.sampled_from(UUIDS))
    seconds = draw(st.sampled_from([0, 60, 90, 150, 890, 899, 900, -1, -600]))
    length = draw(st.none() | st.sampled_from([1, 30, 60, 240, 900, 1500]))
    one = held(
        seconds / 60,
        None if length is None else (seconds + length) / 60,
        draw(st.sampled_from(["job 1", "job 2", "pid 7", "pid 8"])),
        draw(st.sampled_from(["ann", "ben", None])),
        gpu,
        command=draw(st.sampled_from(["train", "notebook", None])),
    )
    part = draw(
        st.sampled_from([None, None, "shared", f"MIG-{gpu}-1", f"MIG-{gpu}-2,MIG-{gpu}-3,shared"])
    )
    return replace(one, part=part)


GPUS = st.tuples(st.sampled_from(NODES), st.sampled_from([f"GPU-{n}" for n in (*UUIDS, 9)]))
OUT = st.dictionaries(
    st.tuples(st.sampled_from(NODES), st.sampled_from(["", "GPU-0"])), st.sampled_from(LostTo)
)


def moments(*minutes: float) -> st.SearchStrategy[Any]:
    """Times of the quarter, among them its edges."""
    return st.sampled_from([START + timedelta(minutes=number) for number in minutes])


@st.composite
def facts(draw: st.DrawFn) -> tuple[Facts, list[Minute], list[dict[str, Any]]]:
    """Any cluster of two nodes around a quarter."""
    rows, slices = draw(cells()), draw(st.just([]) | devices())
    some = st.dictionaries(
        st.sampled_from(NODES), moments(-2000, -10, -0.5, 0, 3.5, 5, 14.9, 15, 20), max_size=2
    )
    invented = {node: draw(moments(-900, -1, 0, 3, 6.5, 14.5, 15, 16)) for node in NODES}
    given_ = Facts(
        cluster=draw(st.sampled_from(["c", "c", "simulated"])),
        start=START,
        now=draw(moments(17, 17, 17, 15.25, 15.2, 15, 9.5, 4, 0.25)),
        rows=table(rows),
        sent=draw(st.frozensets(GPUS, max_size=4)),
        nodes_sent=draw(st.frozensets(st.sampled_from(NODES))),
        heard=draw(some),
        retired=draw(st.just({}) | some),
        listening_since=draw(st.none() | moments(-30, 0, 3.5)),
        out=draw(st.none() | OUT),
        inventories=[
            inventory(draw(st.integers(0, 3)), at, node)
            for node, at in invented.items()
            if draw(st.booleans())
        ],
        allocations=draw(st.lists(holder(), max_size=6)),
        slices=pa.Table.from_pylist(slices, schema=_SCHEMA) if slices else None,
        watched_since=draw(st.none() | moments(-60, 0, 4, 14.5)),
    )
    return given_, rows, slices


def told(given_: Facts, cells_: list[Minute], slices: list[dict[str, Any]]) -> Told:
    """Rows of one minute as their means, in words."""
    end = min(timedelta(minutes=15), given_.now - given_.start)
    rows: dict[tuple[Gpu, int], list[Mapping[str, Any]]] = defaultdict(list)
    for cell in cells_:
        if timedelta() <= timedelta(minutes=cell.number) < end:
            rows[(cell.node, f"GPU-{cell.gpu}"), cell.number].append(cell.fields)
    parts: dict[Any, dict[Any, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in slices:
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


@given(facts())
def test_a_quarter_is_what_a_count_second_by_second_gives(given_: Any) -> None:
    bucket, plain = count(given_[0]), told(*given_)
    if bucket is None:
        assert not plain.present
        return
    assert bucket.gpus == len(plain.present)
    assert bucket.nodes == len({node for node, _ in plain.present})
    assert (bucket.cluster, bucket.start, bucket.settled) == (given_[0].cluster, START, False)
    _same_amounts(bucket.seconds, plain.seconds)
    places: dict[str, Seconds] = defaultdict(Seconds)
    for place in bucket.places:
        places[place.node] += place.seconds
    assert places.keys() == {node for node, _ in plain.present}
    for node, seconds in places.items():
        _same_amounts(seconds, plain.places[node])
    assert [(one.node, one.model) for one in bucket.places] == sorted(
        (one.node, one.model) for one in bucket.places
    )
    _same_holders(bucket, plain)


def _same_amounts(found: Seconds, plain: Mapping[str, float]) -> None:
    for each in fields(Seconds):
        assert getattr(found, each.name) == near(plain.get(each.name, 0.0)), each.name


def _same_holders(bucket: Bucket, plain: Told) -> None:
    of: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for share in bucket.shares:
        of[share.key].append(share)
    assert {key for key, one in plain.holders.items() if one["allocated"] > 1e-9} == of.keys()
    for key, them in of.items():
        for name in AMOUNTS:
            assert sum(getattr(one, name) for one in them) == near(plain.holders[key][name]), name
        assert sum(one.gpus for one in them) == len(plain.gpus[key])
        if len(them) == 1:
            commands = plain.commands[key]
            most = max(commands.values())
            assert commands[them[0].command or ""] == near(most)
    amounts = [share.allocated for share in bucket.shares]
    assert all(one >= other - 1e-6 for one, other in pairwise(amounts))
