"""Who serves inference: by what it is known, what they do now, and what cannot be said of them."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from dashboard.inference.drawing import page
from dashboard.inference.hub_queries import Tables
from dashboard.lists import inference, serving
from dashboard.lists.fleet_now import FleetNow, moment_of
from dashboard.lists.table import Grid
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Allocation, Holder
from tests.dashboard.scene import NOON, busy_fleet, gpu, heard, node

VLLM = "vllm serve <b>llama"


def held(index: int, command: str, job: str, user: str) -> Allocation:
    return Allocation(
        subject=gpu(index, node("n-1", "prod")),
        holder=Holder.parse(job),
        user=user,
        command=command,
        started_at=NOON,
    )


@pytest.fixture(name="moment")
def moment_fixture() -> FleetNow:
    allocations = (
        held(0, VLLM, "job 1", "ann"),
        held(1, VLLM, "job 1", "ann"),
        held(2, "torchrun train.py", "job 2", "bob"),
        held(3, "my-own-thing", "job 3", "eve"),
    )
    facts = replace(busy_fleet([node("n-1", "prod")]), allocations=allocations)
    return moment_of(facts, AnalyzerSettings())


def drawn(found: Grid, models: Grid | None = None) -> str:
    nothing = Grid(columns=inference.COLUMNS, rows=[], empty="No server was asked.")
    tables = Tables(now=NOON, serving=found, models=models or nothing)
    return json.dumps(page(tables), ensure_ascii=False)


def test_a_server_is_known_by_its_command_and_what_nobody_measures_is_said(
    moment: FleetNow,
) -> None:
    found = serving.grid(moment, frozenset())
    ((row,), columns) = found.rows, [column.key for column in found.columns]
    shown = dict(zip(columns, row, strict=True))
    assert (shown["user"], shown["holder"], shown["known_by"]) == ("ann", "job 1", "command")
    assert (shown["gpus"], shown["idle_gpus"]) == (2, 0)
    said = drawn(found)
    assert "1 inference server on 2 GPUs, none at 0 % now. Requests are measured for none." in said
    assert "unknown for 1 of 1: their servers are not scraped" in said
    assert f'"{VLLM}"' in said  # as text
    assert "No server was asked." in said


def test_a_server_that_answers_is_found_by_any_name(moment: FleetNow) -> None:
    found = serving.grid(moment, {gpu(3, node("n-1", "prod")).key})
    by = {row[1]: row[2] for row in found.rows}
    assert by == {"job 1": "command", "job 3": serving.ANSWERS}
    said = drawn(found)
    assert (
        "2 inference servers on 3 GPUs, none at 0 % now. Requests are measured for 1 of 2." in said
    )
    assert "unknown for 1 of 2" in said
    every = serving.grid(moment, {gpu(i, node("n-1", "prod")).key for i in (0, 1, 3)})
    assert "Requests are measured for all." in drawn(every)
    assert "unknown for" not in drawn(every)


def test_where_nobody_serves_it_is_said(moment: FleetNow) -> None:
    alone = replace(moment, allocations={})
    said = drawn(serving.grid(alone, frozenset()))
    assert "No inference server is known, by its command or from Kubernetes." in said
    assert "at 0 % now" not in said


def test_gpus_of_a_silent_node_are_not_measured_and_none_of_them_is_counted_as_busy() -> None:
    near, silent = node("n-1", "prod"), node("n-2", "prod")
    serves = [
        replace(held(index, VLLM, job, "ann"), subject=gpu(index, at))
        for at, job, count in ((near, "job 1", 2), (silent, "job 2", 4))
        for index in range(count)
    ]
    facts = replace(busy_fleet([near, silent]), allocations=tuple(serves))
    quiet = {**heard([near]), **heard([silent], NOON - timedelta(minutes=10))}
    found = serving.grid(
        moment_of(replace(facts, last_seen=quiet), AnalyzerSettings()), frozenset()
    )
    columns = [column.key for column in found.columns]
    shown = {row[1]: dict(zip(columns, row, strict=True)) for row in found.rows}
    assert (shown["job 1"]["idle_gpus"], shown["job 1"]["unmeasured_gpus"]) == (0, 0)
    assert (shown["job 2"]["idle_gpus"], shown["job 2"]["unmeasured_gpus"]) == (None, 4)
    said = drawn(found)
    assert "2 inference servers on 6 GPUs, none at 0 % now, 4 not measured." in said
    assert said.count('"not measured"') == 1
    away = replace(facts, last_seen=heard([near, silent], NOON - timedelta(minutes=10)))
    told = drawn(serving.grid(moment_of(away, AnalyzerSettings()), frozenset()))
    assert "2 inference servers on 6 GPUs, none of them measured now." in told
