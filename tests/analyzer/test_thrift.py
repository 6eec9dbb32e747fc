"""Hours are judged once they are over, by a real hub's rows and records."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from analyzer.thrift import Thrift
from gpuvigil.clock import ManualClock, to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.model import RecordKind
from gpuvigil.store.hub import HubStore
from gpuvigil.wasted import HOUR, WasteHour
from tests.dashboard.scene import NOON, allocation, gpu, inventory, node
from tests.servers import HubProcess

pytestmark = pytest.mark.server

FIRST = node("n-1", "prod")
TICK = timedelta(seconds=60)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub") as process:
        yield process


def tell(hub: HubProcess) -> None:
    """A job that fills a tenth of two GPUs from 9 to 12."""
    lines = []
    for place in range(180):
        at = NOON - 3 * HOUR + place * TICK
        for index in range(2):
            fields = {
                "utilization_percent": 95.0,
                "sm_activity_percent": 10.0,
                "memory_used_bytes": 8 * 2**30,
                "memory_total_bytes": 80 * 2**30,
            }
            tags = {"cluster": "prod", "node": "n-1", "uuid": gpu(index, FIRST).gpu or ""}
            lines.append(encode("gpu", {**tags, "model": "H100"}, fields, to_ns(at)) or "")
    HubStore(hub.hub()).write("\n".join(lines).encode())
    held = [
        replace(allocation(gpu(index, FIRST), "job 7"), started_at=NOON - 5 * HOUR)
        for index in range(2)
    ]
    known = inventory(FIRST, 2, tick_seconds=60.0)
    hub.hub().write_records([known.to_record(), *(one.to_record() for one in held)])


def judged(hub: HubProcess) -> list[WasteHour]:
    found = map(WasteHour.from_record, hub.hub().records(RecordKind.WASTE))
    return sorted(found, key=lambda one: one.start)


def test_each_hour_is_judged_once_also_what_was_missed(hub: HubProcess) -> None:
    tell(hub)
    clock = ManualClock(NOON + timedelta(minutes=20))
    thrift = Thrift(hub.hub(), clock, threading.Event())
    for _ in range(30):
        thrift.step()
    found = judged(hub)
    assert [one.start for one in found] == [NOON - n * HOUR for n in (3, 2, 1)]
    for one in found:
        (waste,) = one.wastes
        assert (waste.holder, waste.user, waste.gpus, waste.model) == ("job 7", "ann", 2, "H100")
        assert waste.gpu_hours == pytest.approx(1.8)
    again = Thrift(hub.hub(), clock, threading.Event())
    for _ in range(30):
        again.step()
    assert judged(hub) == found


def test_an_hour_is_not_judged_before_its_rows_had_time_to_arrive(hub: HubProcess) -> None:
    tell(hub)
    thrift = Thrift(hub.hub(), ManualClock(NOON + timedelta(minutes=5)), threading.Event())
    for _ in range(25):  # a day of hours, and a wait
        thrift.step()
    assert [one.start for one in judged(hub)] == [NOON - n * HOUR for n in (3, 2)]
