"""What a count does at the very edges: of times, of limits, of what is kept from quarter to quarter."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.usage.count import Roster
from accounting.usage.grid import runs
from accounting.usage.memory import Memory
from accounting.usage.ownership import AllocationTable
from accounting.usage.slices import weight
from gpuvigil.model import GpuState
from gpuvigil.schedulers.out_of_service import LostTo
from tests.accounting.usage.quarter import (
    ALL,
    BUSY,
    END,
    FREE,
    START,
    Minute,
    bucket,
    counted,
    held,
    inventory,
    minutes,
    table,
)

QUARTER, SECOND = 900.0, timedelta(seconds=1)


# --- who is there ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "first"), [(START - SECOND, 0), (START, 3)])
def test_a_gpu_that_was_named_before_the_quarter_counts_from_its_begin(at: Any, first: int) -> None:
    found = bucket(minutes(BUSY, range(3, 15)), sent=(), inventories=[inventory(1, at)])
    assert found.seconds.installed == 60.0 * (15 - first)


@pytest.mark.parametrize(
    ("heard", "absent"),
    [
        (START - SECOND, True),
        (START, False),
        (END - SECOND, False),
        (END, True),  # that may be of the next quarter
    ],
)
def test_a_node_that_was_heard_within_the_quarter_is_not_absent(heard: Any, absent: bool) -> None:
    own = [inventory(1, START - timedelta(days=9), "n2")]
    seconds = bucket(minutes(), inventories=own, last_seen={"n2": heard}).seconds
    assert seconds.lost_unknown == (QUARTER if absent else 0.0)


def test_a_gpu_that_nobody_names_has_no_model() -> None:
    found = bucket(minutes(), sent={("n1", "GPU-0"), ("n3", "GPU-7")})
    assert found.models == {"H100": 1}
    assert [(one.node, one.model) for one in found.places] == [("n1", "H100"), ("n3", "")]


def test_a_model_of_which_no_gpu_is_there_is_not_counted() -> None:
    """One of the young inventory is named, and not there yet."""
    young = inventory(2, END - SECOND, "n2")
    young = replace(young, gpus=tuple(replace(gpu, model="A30") for gpu in young.gpus))
    found = bucket(minutes(), inventories=[young], last_seen={"n2": END})
    assert (found.gpus, found.models) == (1, {"H100": 1})


# --- what a minute was ----------------------------------------------------------------------------


@pytest.mark.parametrize(("up", "state"), [(0.5, GpuState.ACTIVE), (0.49, GpuState.UNAVAILABLE)])
def test_a_gpu_that_answered_for_half_of_a_minute_answered(up: float, state: GpuState) -> None:
    seconds = bucket(minutes({**BUSY, "up": up})).seconds
    assert seconds.of(state) == seconds.installed


@pytest.mark.parametrize("other", [None, math.nan, math.inf, -math.inf])
def test_of_several_rows_of_a_minute_only_what_was_measured_has_a_mean(other: Any) -> None:
    cells = [*minutes(BUSY, [0]), *minutes({**BUSY, "utilization_percent": other}, [0])]
    assert bucket(cells, now=START + timedelta(seconds=61)).seconds.used == 0.8 * 60.0
    cells += minutes({**BUSY, "utilization_percent": 40.0}, [0])
    assert bucket(cells, now=START + timedelta(seconds=61)).seconds.used == pytest.approx(36.0)
    alone = bucket(minutes({**BUSY, "utilization_percent": other})).seconds
    assert (alone.unknown, alone.used) == (QUARTER, 0.0)


# Joules from one minute to the next: none, the most that is believed, more, and set back.
GROWN = st.sampled_from([0.0, 30.0, 6000.0, 5000.0 * 60, 5000.0 * 60 + 30, -60.0, None])
POWER = st.sampled_from([None, 0.0, 0.5, 250.0])


def _watts(energy: Sequence[float | None], power: Sequence[float | None]) -> list[float | None]:
    """Of each minute: by the counter where the minutes beside it have one that can be believed."""
    found: list[float | None] = []
    for number, sampled in enumerate(power):
        beside = [n for n in (number - 1, number, number + 1) if 0 <= n < len(energy)]
        known = [value for n in beside if (value := energy[n]) is not None]
        grown = [b - a for a, b in pairwise(known)]
        good = len(known) == len(beside) and all(0 <= one <= 5000.0 * 60 for one in grown)
        rate = sum(grown) / 60.0 / len(grown) if good else 0.0
        found.append(rate if good and (rate > 0 or not sampled) else sampled)
    return found


@given(
    st.lists(GROWN, min_size=15, max_size=15),
    st.lists(POWER, min_size=15, max_size=15),
)
def test_energy_is_by_the_counter_where_it_can_be_believed(
    grown: list[float | None], power: list[float | None]
) -> None:
    at, energy = 1e6, list[float | None]()
    for one in grown:
        at += one or 0.0
        energy.append(None if one is None else at)
    cells = [
        Minute(number=n, fields={**BUSY, "power_watts": power[n], "energy_joules": energy[n]})
        for n in range(15)
    ]
    seconds = bucket(cells).seconds
    watts = [one for one in _watts(energy, power) if one is not None]
    assert seconds.powered == 60.0 * len(watts)
    assert seconds.energy_joules == pytest.approx(60.0 * sum(watts))


def test_a_gpu_without_a_counter_beside_one_that_has_it_has_its_sampled_power() -> None:
    cells = [
        Minute(number=n, fields={**BUSY, "energy_joules": 5e9 + 300.0 * 60.0 * n})
        for n in range(15)
    ]
    found = bucket([*cells, *minutes(BUSY, gpu=1)]).seconds
    assert found.energy_joules == pytest.approx(QUARTER * (300.0 + 500.0))


# --- what was lost --------------------------------------------------------------------------------


@pytest.mark.parametrize("to", list(LostTo))
def test_what_its_node_is_out_for_comes_before_what_the_gpu_is_out_for(to: LostTo) -> None:
    both = {("n1", ""): ALL[to], ("n1", "GPU-0"): ALL[LostTo.REPAIR]}
    for row in ({"unmeasured_reason": 7.0}, {"up": 0.0}, {}):
        seconds = bucket(minutes(row), out=both).seconds
        assert seconds.lost(to) == seconds.unavailable == QUARTER


# --- who held it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end"), [(-5, 0), (15, 20), (7, 7), (7, 6), (-5, -1), (15.5, 20)]
)
def test_who_held_it_for_no_second_of_the_quarter_is_no_holder_and_marks_nothing(
    begin: float, end: float
) -> None:
    other = replace(held(begin, end, "job 2", "ben"), part="shared")
    (share,) = bucket(minutes(), held(0, None), other).shares
    assert (share.holder, share.allocated, share.shared) == ("job 1", QUARTER, 0.0)


def test_names_are_cut_to_a_line() -> None:
    long = "x" * 300
    one = replace(
        held(0, None, f"job {long}", long, command=long), partition=long, account=long, array="1_2"
    )
    (share,) = bucket(minutes(), one).shares
    assert share.command == "x" * 200
    for name in (share.user, share.partition, share.account, share.project):
        assert name == "x" * 120
    assert (len(share.holder), share.holder[:5]) == (120, "job x")


def test_of_commands_that_had_the_same_the_last_by_name_speaks_whatever_came_first() -> None:
    them = [
        replace(held(0, 15, f"pid {n}", command="train"), account=account)
        for n, account in enumerate(("a", "b", "c"))
    ]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        (share,) = bucket(minutes(), *(them[n] for n in order)).shares
        assert (share.command, share.account, share.allocated) == ("train", "c", QUARTER)


@pytest.mark.parametrize(("holders", "rest"), [(1000, 0), (1001, 1), (1002, 1)])
def test_so_many_holders_have_their_names(holders: int, rest: int) -> None:
    cells = [cell for gpu in range(holders) for cell in minutes(BUSY, [0], gpu=gpu)]
    them = [held(0, (n + 1) / holders, f"job {n}", "ann", n) for n in range(holders)]
    quiet = [replace(one, fields={**BUSY, "compute_processes": 0.0}) for one in cells]
    found = bucket(quiet, *them, now=START + timedelta(minutes=1)).shares
    assert [one.is_rest for one in found] == [False] * 1000 + [True] * rest
    assert sum(one.gpus for one in found) == holders
    assert found[0].holder == f"job {holders - 1}"


@pytest.mark.parametrize(
    ("profile", "model", "part"),
    [("7g.80gb", "NVIDIA A30", 1.0), ("4c.7g.80gb", "H100", 4 / 7), ("8g.x", "H100", 1.0)],
)
def test_no_device_is_more_than_its_gpu(profile: str, model: str, part: float) -> None:
    assert weight(profile, model) == pytest.approx(part)


# --- what is kept from quarter to quarter ---------------------------------------------------------


def _heads(cells: Sequence[Minute]) -> pa.Table:
    return runs(table(cells), ("node", "uuid", "model"))[0]


def test_what_was_worked_out_of_the_same_names_is_kept_and_of_others_is_not() -> None:
    memory = Memory({}, [])
    one, other = (_heads(minutes(gpu=n)) for n in (0, 1))
    sending = memory.sending(one)
    assert memory.sending(_heads(minutes(FREE))) is sending
    gpus = memory.gpus(sending, [("n1", "GPU-8")])
    assert memory.gpus(sending, [("n1", "GPU-8")]) is gpus
    assert memory.gpus(sending, [("n1", "GPU-9")]).keys[-1] == ("n1", "GPU-9")
    again = memory.sending(other)
    assert again.keys == (("n1", "GPU-1"),)
    assert memory.gpus(again, [("n1", "GPU-9")]).keys[0] == ("n1", "GPU-1")


def _cut(uuid: str) -> pa.Table:
    row = {"node": "n1", "uuid": uuid, "mig": "MIG-1", "profile": "3g.40gb"}
    return pa.Table.from_pylist([row])


def test_devices_are_kept_for_the_same_gpus_and_rows() -> None:
    memory = Memory({}, [])
    sending = memory.sending(_heads([*minutes(), *minutes(gpu=1)]))
    gpus = memory.gpus(sending, [])
    devices = memory.devices((_cut("GPU-0"), gpus))
    assert memory.devices((_cut("GPU-0"), gpus)) is devices
    assert memory.devices((_cut("GPU-1"), gpus)).parent.tolist() == [1]
    more = memory.gpus(sending, [("n0", "GPU-0")])
    assert memory.devices((_cut("GPU-1"), more)).number["n1", "MIG-1"] == 3


def test_a_book_gives_the_same_pieces_for_other_numbers_of_the_gpus() -> None:
    book = AllocationTable.of([held(0, 5), held(5, 15, "job 2", gpu=1)])
    gpus = ("n1", "GPU-0"), ("n1", "GPU-1")
    for numbers in ({gpus[0]: 0, gpus[1]: 1}, {gpus[0]: 1, gpus[1]: 0}, {gpus[1]: 0}):
        for _ in range(2):
            pieces = book.pieces(numbers, START, END)
            found = {
                (gpu, book.owners[owner].holder)
                for gpu, owner in zip(pieces.gpu.tolist(), pieces.owner.tolist(), strict=True)
            }
            expected = {gpus[0]: "job 1", gpus[1]: "job 2"}
            assert found == {(number, expected[gpu]) for gpu, number in numbers.items()}


def test_other_gpus_of_the_hour_before_are_seen_although_the_rows_name_the_same() -> None:
    roster = Roster.of([inventory(1, START - timedelta(days=1))])
    for silent in (("n3", "GPU-7"), ("n3", "GPU-8"), ("n4", "GPU-7")):
        found = counted(minutes(), sent={("n1", "GPU-0"), silent}, inventories=roster)
        assert found is not None
        assert {one.node for one in found.places} == {"n1", silent[0]}


def test_rows_in_chunks_are_the_same_rows() -> None:
    cells = [*minutes(), *minutes(FREE, node="n2")]
    rows = table(cells)
    parts = pa.concat_tables([rows.slice(n, 7) for n in range(0, len(rows), 7)])
    assert parts["node"].num_chunks > 1
    assert bucket(cells, rows=parts) == bucket(cells)
