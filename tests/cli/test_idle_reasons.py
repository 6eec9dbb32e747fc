"""Why GPUs are idle, asked of a real hub."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from accounting.efficiency.idle_reason import Idleness
from dashboard.lists.fleet_now import moment_of
from dashboard.lists.idle_reasons import reasons
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import gpu_table
from gpuvigil.clock import to_ns
from gpuvigil.config import AnalyzerSettings
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Severity
from gpuvigil.store.hub import HubStore
from tests.dashboard.scene import NOON, allocation, gpu, heard, incident, inventory, node, row
from tests.servers import QuickHub

NODE = node("n-1", "prod")
TICK, MINUTE, DAY = timedelta(seconds=10), timedelta(minutes=1), timedelta(days=1)


def half_an_hour_of_nothing(gpus: int) -> bytes:
    """Lines of GPUs that ran a process and computed nothing."""
    still = {
        "utilization_percent": 0.0,
        "compute_processes": 1,
        "power_watts": 90.0,
        "power_limit_watts": 700.0,
    }
    lines = [
        encode("gpu", {**tags, "model": "H100"}, still, to_ns(NOON - place * TICK)) or ""
        for index in range(gpus)
        for tags in [{"cluster": "prod", "node": "n-1", "uuid": gpu(index, NODE).gpu or ""}]
        for place in range(1, 180)
    ]
    return "\n".join(lines).encode()


@pytest.mark.server
def test_a_fault_that_stood_for_weeks_and_has_just_ended_excuses_its_holder(tmp_path: Path) -> None:
    seen = Facts(
        now=NOON,
        gpus=gpu_table(row(gpu(i, NODE), i, utilization_percent=0) for i in range(2)),
        last_seen=heard([NODE]),
        inventories=(inventory(NODE, 2, tick_seconds=10.0),),
        allocations=tuple(
            replace(allocation(gpu(i, NODE), f"job {i}"), started_at=NOON - DAY) for i in range(2)
        ),
    )
    over = replace(
        incident("gpu_lost", gpu(0, NODE), Severity.CRITICAL, since=NOON - 20 * DAY),
        state="resolved",
        resolved_at=NOON - 9 * MINUTE,
    )
    with QuickHub(tmp_path / "hub") as process:
        hub = process.hub()
        HubStore(hub).write(half_an_hour_of_nothing(2))
        hub.write_records([over.to_record()])
        settings = AnalyzerSettings()
        found = reasons(hub, settings, moment_of(seen, settings))
    assert found == {
        gpu(0, NODE).key: Idleness.FAULTY,
        gpu(1, NODE).key: Idleness.NOTHING_COMPUTED,
    }
