"""Who is one holder in `gpuvigil top` and `gpuvigil idle`, and since when their GPUs are idle."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from cli.tables import who
from dashboard.lists import holders
from dashboard.lists.fleet_now import FleetNow, moment_of
from dashboard.lists.table import Grid, text
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import gpu_table
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Allocation, Incident, Severity
from tests.dashboard.scene import (
    NOON,
    allocation,
    gpu,
    heard,
    incident,
    inventory,
    node,
    pulses,
    row,
)

NODE = node("n-1", "prod")
HOUR = timedelta(hours=1)


def idle_node(held: Sequence[Allocation], *incidents: Incident) -> FleetNow:
    """A node of which every GPU is at 0 %."""
    return moment_of(
        Facts(
            now=NOON,
            gpus=gpu_table(row(gpu(i, NODE), i, utilization_percent=0) for i in range(4)),
            last_seen=heard([NODE]),
            inventories=(inventory(NODE, 4),),
            allocations=tuple(held),
            incidents=incidents,
            pulses=pulses(),
        ),
        AnalyzerSettings(),
    )


def column(grid: Grid, key: str) -> list[object]:
    place = [one.key for one in grid.columns].index(key)
    return [row[place] for row in grid.rows]


def test_each_pod_is_a_holder_of_its_own_and_only_processes_are_one() -> None:
    pods = [allocation(gpu(i, NODE), f"pod team/train-{i}") for i in (0, 1)]
    found = idle_node([*pods, *(allocation(gpu(i, NODE), f"pid {i}") for i in (2, 3))])
    for grid in (holders.top(found), holders.idle(found, {})):
        told = dict(zip(column(grid, "holder"), column(grid, "gpus"), strict=True))
        assert told == {"processes": 2, "pod team/train-0": 1, "pod team/train-1": 1}


def test_of_two_incidents_the_first_says_since_when_a_gpu_is_idle() -> None:
    whole = incident("gpu_idle_held", gpu(0, NODE), Severity.WARNING, since=NOON - 2 * HOUR)
    later = incident("gpu_idle_held", NODE, Severity.WARNING, since=NOON - HOUR)
    later = replace(later, members=(gpu(0, NODE).key,))
    late = replace(later, id="late", since=NOON - 9 * HOUR, late=True)
    held = replace(allocation(gpu(0, NODE), "job 7"), started_at=NOON - 10 * HOUR)
    for told in ((whole, later, late), (late, later, whole)):
        grid = holders.idle(idle_node([held], *told), {})
        assert column(grid, "idle_for_seconds")[0] == 2 * HOUR


def test_a_hold_of_before_the_first_look_is_at_least_so_long() -> None:
    seen = replace(allocation(gpu(0, NODE), "pid 1"), started_at=NOON - HOUR)
    later = replace(allocation(gpu(1, NODE), "pid 1"), started_at=NOON - HOUR / 2)
    for one, before in ((seen, False), (replace(seen, began_before=True), True)):
        found = idle_node([one, later])
        for grid in (holders.top(found), holders.idle(found, {}), who.grid(found, "n-1")):
            assert column(grid, "held_for_seconds")[0] == HOUR
            assert column(grid, "began_before")[0] is before
            assert ("≥ 1 h" in text(grid, 100)) is before
    # Of several GPUs the first to be seen is no begin where another one's is not known.
    found = idle_node([seen, replace(later, began_before=True)])
    assert column(holders.top(found), "began_before")[0] is True
