"""Hours are judged once they are over, by a real hub's rows and records."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from accounting.efficiency.inefficient_hours import HOUR, WasteHour
from analyzer.jobs.efficiency_job import EfficiencyJob, hours_due, missing_until
from gpuvigil.clock import ManualClock, to_ns
from gpuvigil.hub_client import Hub
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Record, RecordKind, Severity
from gpuvigil.store.hub import HubStore
from tests.dashboard.scene import NOON, allocation, gpu, incident, inventory, node
from tests.servers import HubProcess, QuickHub

pytestmark = pytest.mark.server

FIRST = node("n-1", "prod")
TICK = timedelta(seconds=60)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
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


def steps(job: EfficiencyJob) -> None:
    """All hours that are due, and a wait."""
    for _ in range(2):
        job.step()


def test_each_hour_is_judged_also_what_was_missed_and_a_restart_changes_nothing(
    hub: HubProcess,
) -> None:
    tell(hub)
    clock = ManualClock(NOON + timedelta(minutes=20))
    steps(EfficiencyJob(hub.hub(), clock, threading.Event()))
    found = judged(hub)
    assert [one.start for one in found] == [NOON - n * HOUR for n in (3, 2, 1)]
    for one in found:
        (waste,) = one.wastes
        assert (waste.holder, waste.user, waste.gpus, waste.model) == ("job 7", "ann", 2, "H100")
        assert waste.gpu_hours == pytest.approx(1.8)
    steps(EfficiencyJob(hub.hub(), clock, threading.Event()))
    assert judged(hub) == found


def test_no_hour_is_held_against_who_had_a_gpu_that_was_broken_for_months(hub: HubProcess) -> None:
    tell(hub)
    stands = incident("gpu_xid", gpu(0, FIRST), Severity.CRITICAL, since=NOON - timedelta(days=60))
    fixed = replace(stands, id="fixed", state="resolved", resolved_at=NOON - 2 * HOUR)
    hub.hub().write_records([fixed.to_record()])
    steps(EfficiencyJob(hub.hub(), ManualClock(NOON + timedelta(minutes=20)), threading.Event()))
    assert [len(one.wastes) for one in judged(hub)] == [0, 1, 1]
    hub.hub().write_records([stands.to_record()])
    steps(EfficiencyJob(hub.hub(), ManualClock(NOON + timedelta(minutes=140)), threading.Event()))
    assert [len(one.wastes) for one in judged(hub)] == [0, 0, 0]


def test_what_an_outage_left_late_is_judged_when_it_has_come(hub: HubProcess) -> None:
    clock = ManualClock(NOON + timedelta(minutes=20))
    job = EfficiencyJob(hub.hub(), clock, threading.Event())
    steps(job)
    tell(hub)
    steps(job)
    assert judged(hub) == []
    clock.advance(7200.0)
    steps(job)
    # The first of them had been looked at twice, and is looked at again eight hours after its end.
    assert [(one.start, len(one.wastes)) for one in judged(hub)] == [
        (NOON - 2 * HOUR, 1),
        (NOON - HOUR, 1),
    ]
    clock.advance(4 * 3600.0)
    steps(job)
    assert [len(one.wastes) for one in judged(hub)] == [1, 1, 1]


def test_an_hour_is_due_after_its_end_and_twice_again() -> None:
    start = NOON - HOUR
    known = {NOON - n * HOUR: 3 for n in range(2, 40)}
    for minutes, times in ((9, 0), (11, 1), (129, 1), (131, 2), (489, 2), (491, 3)):
        now = NOON + timedelta(minutes=minutes)
        later = {NOON + n * HOUR: 3 for n in range(9)}
        for done in range(3):
            judged_by = {**known, **later, start: done}
            assert (hours_due(judged_by, now) == [start]) is (done < times), (minutes, done)
            assert min(judged_by) >= now - timedelta(hours=27)


class Counting(Hub):
    """A client that counts its questions for records."""

    def __init__(self, process: HubProcess) -> None:
        super().__init__(process.url, lambda: process.service_token_file.read_text().strip())
        self.asked: Counter[RecordKind] = Counter()

    def records(self, kind: RecordKind, **filters: Any) -> tuple[Record, ...]:
        """See `Hub.records`."""
        self.asked[kind] += 1
        return super().records(kind, **filters)


def test_the_records_are_read_once_for_all_hours_that_are_due(hub: HubProcess) -> None:
    tell(hub)
    counting = Counting(hub)
    EfficiencyJob(counting, ManualClock(NOON + timedelta(minutes=20)), threading.Event()).step()
    counting.close()
    assert len(judged(hub)) == 3
    assert counting.asked[RecordKind.INVENTORY] == 1
    assert counting.asked[RecordKind.ALLOCATION] == counting.asked[RecordKind.INCIDENT] == 2


def test_where_an_answer_is_full_the_hours_before_its_oldest_ends_are_not_whole() -> None:
    ends = [NOON + n * timedelta(minutes=1) for n in range(-60, 0)]
    held = [replace(allocation(gpu(0, FIRST)), ended_at=at) for at in ends]
    assert missing_until(held) == ends[6]
    late = replace(held[0], ended_at=NOON - timedelta(days=1))  # told after an outage
    assert missing_until([late, *held]) == ends[5]
    assert missing_until([]) is None
