"""What is kept from quarter to quarter changes nothing of what is counted."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.usage.count import Roster
from accounting.usage.ownership import AllocationTable
from accounting.usage.slices import SLICE_FIELDS
from tests.accounting.usage.quarter import BUSY, FREE, START, Minute, counted, held, inventory

_TAGS = ("cluster", "node", "uuid", "mig", "profile")
_SCHEMA = pa.schema(
    [*((tag, pa.string()) for tag in _TAGS), ("at", pa.timestamp("us", "UTC"))]
    + [(name, pa.float64()) for name in SLICE_FIELDS]
)
_INVENTORIES = (
    inventory(3, START - timedelta(hours=5)),
    inventory(2, START + timedelta(minutes=4), node="n2"),
)
_ALLOCATIONS = (
    held(-40, 7),
    held(3, None, "job 2", gpu=1),
    held(5, 9, "job 3", "ben", gpu=1),
    held(0, 15, gpu=9),  # of which nobody ever heard
)
_CELL = st.builds(
    Minute,
    number=st.integers(0, 14),
    fields=st.sampled_from([BUSY, FREE]),
    gpu=st.integers(0, 3),
    node=st.sampled_from(["n1", "n2"]),
)
_DEVICE = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 14), st.integers(0, 3))
_QUARTER = st.fixed_dictionaries(
    {
        "cells": st.lists(_CELL, max_size=12),
        "devices": st.lists(_DEVICE, max_size=6),
        "sent": st.frozensets(
            st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["GPU-0", "GPU-1", "GPU-7"]))
        ),
        "nodes_sent": st.frozensets(st.sampled_from(["n1", "n2"])),
        "last_seen": st.dictionaries(st.sampled_from(["n1", "n2"]), st.just(START)),
    }
)


def _slices(devices: Sequence[tuple[str, int, int]]) -> pa.Table:
    rows = [
        {
            "cluster": "c",
            "node": "n1",
            "uuid": f"GPU-{gpu}",
            "mig": f"MIG-{gpu}-{name}",
            "profile": "3g.40gb",
            "at": START + timedelta(minutes=at),
            **dict.fromkeys(SLICE_FIELDS, 50.0),
        }
        for name, at, gpu in devices
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


@pytest.mark.medium
@given(st.lists(_QUARTER, min_size=1, max_size=4), st.data())
@settings(max_examples=20, deadline=None)
def test_a_quarter_is_the_same_after_any_others(quarters: list[Any], data: st.DataObject) -> None:
    roster, book = Roster.of(_INVENTORIES), AllocationTable.of(_ALLOCATIONS)
    for quarter in [*quarters, *data.draw(st.permutations(quarters))]:
        more = {key: quarter[key] for key in ("sent", "nodes_sent", "last_seen")}
        more["slices"] = _slices(quarter["devices"])
        kept = counted(quarter["cells"], inventories=roster, allocations=book, **more)
        fresh = counted(quarter["cells"], _ALLOCATIONS, inventories=_INVENTORIES, **more)
        assert kept == fresh
