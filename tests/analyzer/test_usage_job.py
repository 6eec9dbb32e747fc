"""Quarters of an hour are counted once they are over, and again an hour later."""

import signal
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from accounting.usage import BUCKET, Bucket
from accounting.usage.inputs import Reader
from accounting.usage.ledger import HOUR, Ledger
from accounting.usage.ledger_query import answer, floor_of
from accounting.usage.model import floor
from accounting.usage.rollup import SETTLE
from analyzer.jobs.usage_job import (
    GRACE,
    Known,
    UsageCounter,
    due_again,
    due_when_empty,
    next_quarter,
)
from gpuvigil.clock import ManualClock
from gpuvigil.model import RecordKind, Retirement, ScheduledNode, Scheduler, Subject
from tests.accounting.usage.told import GPUS, own, quarters, tell
from tests.polling import wait_until
from tests.servers import HubProcess, QuickHub

from .process import Analyzer

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
KEPT = timedelta(hours=48)
QUARTER = BUCKET.total_seconds()
FIRST = Known(counted=True, due_at=NOON + timedelta(minutes=1))
SETTLED = Known(counted=True, due_at=None)


# --- which quarter is next ------------------------------------------------------------------------


def test_a_quarter_is_due_two_minutes_after_its_end() -> None:
    oldest = NOON - BUCKET
    assert next_quarter({}, NOON + GRACE - timedelta(seconds=1), oldest) is None
    assert next_quarter({}, NOON + GRACE, oldest) == NOON - BUCKET


def test_what_was_never_counted_comes_first_and_the_newest_of_it() -> None:
    starts = quarters(NOON - 4 * BUCKET, 4)
    known = {starts[3]: FIRST, starts[2]: SETTLED}
    now = NOON + GRACE
    assert next_quarter(known, now, starts[0]) == starts[1]
    known[starts[1]] = known[starts[0]] = SETTLED
    assert next_quarter(known, now, starts[0]) == starts[3]
    known[starts[3]] = SETTLED
    assert next_quarter(known, now, starts[0]) is None


def test_what_the_store_has_forgotten_is_not_due() -> None:
    assert next_quarter({}, NOON + GRACE, NOON) is None


# --- with a real hub ------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with QuickHub(tmp_path / "hub") as process:
        yield process


def buckets(hub: HubProcess) -> list[Bucket]:
    records = hub.hub().records(RecordKind.USAGE)
    return sorted(map(Bucket.from_record, records), key=lambda bucket: bucket.start)


def a_counter(hub: HubProcess, at: datetime, kept: timedelta = KEPT) -> UsageCounter:
    return UsageCounter(hub.hub(), ManualClock(at), threading.Event(), kept)


def steps(counter: UsageCounter, count: int = 10) -> None:
    for _ in range(count):
        counter.step()


SHORT = timedelta(hours=3)


@pytest.mark.server
def test_a_quarter_is_counted_and_an_hour_later_settled_with_what_came_late(
    hub: HubProcess,
) -> None:
    end = floor(datetime.now(timezone.utc))
    start = end - BUCKET
    own(hub.hub(), start - timedelta(days=1))
    tell(hub.hub(), start, start + BUCKET / 3)
    clock = ManualClock(end + GRACE)
    counter = UsageCounter(hub.hub(), clock, threading.Event(), SHORT)
    steps(counter, 2)
    (first,) = buckets(hub)
    assert (first.start, first.settled, first.seconds.installed) == (start, False, 2 * QUARTER / 3)
    tell(hub.hub(), start + BUCKET / 3, end)
    clock.advance((SETTLE - GRACE).total_seconds())
    steps(counter, 2)
    second = next(one for one in buckets(hub) if one.start == start)
    assert not second.settled
    clock.advance(2 * GRACE.total_seconds())
    steps(counter, 4)
    third = next(one for one in buckets(hub) if one.start == start)
    assert (third.settled, third.seconds.installed, third.seconds.unknown) == (True, 1800.0, 0.0)


def said(hub: HubProcess, at: datetime, *nodes: ScheduledNode, why: str = "") -> None:
    told = Scheduler(
        told_by=Subject(cluster="c", node="slurm"), at=at, why=why, nodes=None if why else nodes
    )
    hub.hub().write_records([told.to_record()])


@pytest.mark.server
def test_what_was_out_of_service_is_written_down_and_stands_when_it_is_counted_again(
    hub: HubProcess,
) -> None:
    end = floor(datetime.now(timezone.utc))
    start = end - BUCKET
    own(hub.hub(), start - timedelta(days=1))
    tell(hub.hub(), start, end)
    drained = ScheduledNode(name="n1", states=("MIXED", "DRAIN"), reason="RMA 1 [ann@2026]")
    said(hub, end + timedelta(minutes=1), drained)
    clock = ManualClock(end + GRACE)
    counter = UsageCounter(hub.hub(), clock, threading.Event(), SHORT)
    counter.step()
    first = next(one for one in buckets(hub) if one.start == start).seconds
    # The first GPU of the two goes on with its job.
    assert (first.active, first.free, first.unavailable) == (QUARTER, 0.0, QUARTER)
    assert (first.judged, first.lost_repair) == (2 * QUARTER, QUARTER)
    assert first.in_service_percent == 50.0
    clock.advance((SETTLE + GRACE).total_seconds())
    said(hub, clock.now())  # it is back
    steps(counter)
    again = next(one for one in buckets(hub) if one.start == start)
    assert (again.settled, again.seconds) == (True, first)


@pytest.mark.server
def test_a_quarter_of_which_no_scheduler_spoke_has_no_gpus_in_service_and_none_out(
    hub: HubProcess,
) -> None:
    end = floor(datetime.now(timezone.utc))
    own(hub.hub(), end - timedelta(days=1))
    tell(hub.hub(), end - BUCKET, end)
    said(hub, end + timedelta(minutes=1), why="slurmctld is down")
    counter = UsageCounter(hub.hub(), ManualClock(end + GRACE), threading.Event(), SHORT)
    counter.step()
    (found,) = buckets(hub)
    assert (found.out, found.seconds.judged, found.seconds.in_service_percent) == (None, 0.0, None)


@pytest.mark.server
def test_a_node_that_is_gone_for_days_is_owned_until_it_is_retired(hub: HubProcess) -> None:
    now = datetime.now(timezone.utc)
    end = floor(now)
    own(hub.hub(), end - timedelta(days=1))
    tell(hub.hub(), end - BUCKET, end)
    later = end + timedelta(days=3)
    reader = Reader(hub=hub.hub(), cluster="c", oldest=later, now=later + BUCKET + GRACE)
    gone = reader.count(later, end)
    assert gone is not None
    assert (gone.gpus, gone.seconds.lost_unknown) == (GPUS, GPUS * QUARTER)
    assert (gone.seconds.free, gone.seconds.in_service_percent) == (0.0, 0.0)
    node = Subject(cluster="c", node="n1")
    retired = Retirement(node=node, by="ann", note="sold", at=now + timedelta(minutes=1))
    hub.hub().write_records([retired.to_record()])
    after = Reader(hub=hub.hub(), cluster="c", oldest=later, now=later + BUCKET + GRACE)
    assert after.count(later, end) is None


@pytest.mark.server
def test_a_scheduler_that_fails_for_a_moment_frees_no_drained_gpu(hub: HubProcess) -> None:
    end = floor(datetime.now(timezone.utc))
    own(hub.hub(), end - timedelta(days=1))
    tell(hub.hub(), end - 2 * BUCKET, end)
    drained = ScheduledNode(name="n1", states=("MIXED", "DRAIN"), reason="RMA 1 [ann@2026]")
    said(hub, end - BUCKET, drained)
    clock = ManualClock(end - BUCKET + GRACE)
    counter = UsageCounter(hub.hub(), clock, threading.Event(), SHORT)
    counter.step()
    silent = Scheduler(
        told_by=Subject(cluster="c", node="slurm"), at=end, why="away", answered_at=end - BUCKET
    )
    hub.hub().write_records([silent.to_record()])
    clock.advance(BUCKET.total_seconds())
    steps(counter, 3)
    last = next(one for one in buckets(hub) if one.start == end - BUCKET)
    assert (last.seconds.free, last.seconds.lost_repair) == (0.0, QUARTER)


@pytest.mark.server
def test_an_hour_is_its_quarters_also_after_late_data_and_another_run(hub: HubProcess) -> None:
    end = floor_of(datetime.now(timezone.utc), HOUR)
    start = end - HOUR
    own(hub.hub(), start - timedelta(days=1))
    tell(hub.hub(), start, end - BUCKET)
    late = end + SETTLE + GRACE

    def asked() -> Ledger:
        return answer(hub.hub(), "c", start, end, late).ledger

    def spans() -> list[Ledger]:
        kind = RecordKind.USAGE_SPAN
        found = [Ledger.from_record(one) for one in hub.hub().records(kind, states=["hour"])]
        return [one for one in found if one.start == start]

    steps(UsageCounter(hub.hub(), ManualClock(late), threading.Event(), KEPT), 50)
    (first,) = spans()
    assert (first.quarters, first.seconds.active) == (3, 3 * QUARTER)
    tell(hub.hub(), end - BUCKET, end)
    for _ in range(2):  # another run changes nothing
        clock = ManualClock(late + SETTLE + timedelta(minutes=1))
        steps(UsageCounter(hub.hub(), clock, threading.Event(), KEPT), 50)
        (hour,) = spans()
        assert (hour.quarters, hour.seconds.installed) == (4, 8 * QUARTER)
        assert asked().seconds == hour.seconds
    assert sum((one.seconds.active for one in buckets(hub)), 0.0) == asked().seconds.active


def test_a_quarter_with_something_unknown_is_counted_again_for_four_days() -> None:
    ends = NOON + BUCKET
    assert due_again(NOON, ends + SETTLE, 0.0) is None
    seen, at = [], ends + SETTLE
    while (due := due_again(NOON, at, 1.0)) is not None:
        seen.append(due - ends)
        at = due
    assert seen == [timedelta(hours=6), timedelta(hours=24), timedelta(hours=96)]


def test_a_quarter_of_which_nothing_was_said_is_looked_for_ever_more_rarely() -> None:
    now, looks = NOON + timedelta(hours=10), list[float]()
    first = now
    assert due_when_empty(NOON, NOON + timedelta(hours=1), NOON) - NOON == timedelta(minutes=65)
    while now - first < timedelta(days=10):
        now = due_when_empty(NOON, now, first)
        looks.append((now - first) / timedelta(hours=1))
    assert looks[:5] == [1, 2, 4, 8, 16]
    assert len(looks) < 12


@pytest.mark.server
def test_what_an_outage_kept_back_for_half_a_day_is_counted_when_it_comes(hub: HubProcess) -> None:
    end = floor(datetime.now(timezone.utc))
    start = end - 25 * BUCKET
    own(hub.hub(), start - timedelta(days=1))
    tell(hub.hub(), end - BUCKET, end)
    clock = ManualClock(end + GRACE)
    counter = UsageCounter(hub.hub(), clock, threading.Event(), timedelta(hours=13))
    steps(counter, 5)
    clock.advance(2.5 * 3600)
    steps(counter, 15)
    assert start not in {one.start for one in buckets(hub)}
    tell(hub.hub(), start, start + BUCKET)
    clock.advance(3 * 3600)
    steps(counter, 20)
    assert start in {one.start for one in buckets(hub)}


@pytest.mark.server
def test_what_was_missed_is_counted_newest_first_and_gaps_stay_gaps(hub: HubProcess) -> None:
    end = floor(datetime.now(timezone.utc))
    told = [end - 8 * BUCKET, end - 3 * BUCKET, end - 2 * BUCKET]
    own(hub.hub(), end - timedelta(days=1))
    for start in told:
        tell(hub.hub(), start, start + BUCKET)
    counter = a_counter(hub, end + GRACE)
    seen: list[datetime] = []
    for _ in range(12):
        counter.step()
        seen += [one.start for one in buckets(hub) if one.start not in seen]
    assert seen == sorted(told, reverse=True)


@pytest.mark.server
def test_a_past_of_which_there_is_nothing_is_asked_for_by_the_day(hub: HubProcess) -> None:
    """A new hub is not busy for minutes with a fortnight in which nobody sent anything."""
    end = floor(datetime.now(timezone.utc))
    start = end - timedelta(hours=30)
    own(hub.hub(), start)
    tell(hub.hub(), start, start + BUCKET)
    counter = a_counter(hub, end + GRACE, timedelta(days=14))
    steps(counter, 3)  # a day, the rest of the next, and the quarter; one by one it was 120
    assert [one.start for one in buckets(hub)] == [start]


@pytest.mark.server
def test_a_past_that_is_told_later_is_counted_within_minutes(hub: HubProcess) -> None:
    end = floor(datetime.now(timezone.utc))
    clock = ManualClock(end + GRACE)
    counter = UsageCounter(hub.hub(), clock, threading.Event(), SHORT)
    steps(counter)
    own(hub.hub(), end - timedelta(days=1))
    tell(hub.hub(), end - 2 * BUCKET, end)
    clock.advance(300)
    steps(counter)
    assert [one.start for one in buckets(hub)] == [end - 2 * BUCKET, end - BUCKET]


@pytest.mark.server
def test_another_counter_goes_on_where_one_was_killed(hub: HubProcess) -> None:
    end = floor(datetime.now(timezone.utc))
    starts = quarters(end - 6 * BUCKET, 6)
    own(hub.hub(), starts[0])
    tell(hub.hub(), starts[0], end)
    steps(a_counter(hub, end + GRACE, SHORT), 3)
    before = {one.start: one.counted_at for one in buckets(hub)}
    assert sorted(before) == starts[3:]
    steps(a_counter(hub, end + 2 * GRACE, SHORT))
    after = {one.start: one.counted_at for one in buckets(hub)}
    assert sorted(after) == starts
    assert {start: after[start] for start in before} == before


@pytest.mark.server
def test_a_cluster_that_falls_silent_is_unknown_as_long_as_it_is_installed(
    hub: HubProcess,
) -> None:
    end = floor(datetime.now(timezone.utc))
    own(hub.hub(), end - timedelta(days=1))
    tell(hub.hub(), end - BUCKET, end)
    clock = ManualClock(end)
    counter = UsageCounter(hub.hub(), clock, threading.Event(), SHORT)
    # Awake all the while: it would have heard them.
    for _ in range(100):
        counter.step()
    assert clock.now() > end + BUCKET + GRACE
    heard, silent = buckets(hub)[:2]
    assert (heard.seconds.unknown, silent.seconds.unknown) == (0.0, 2 * QUARTER)
    assert silent.start == end


@pytest.mark.server
def test_a_machine_that_slept_counts_nothing_for_the_night(hub: HubProcess) -> None:
    end = floor(datetime.now(timezone.utc))
    own(hub.hub(), end - timedelta(days=1))
    tell(hub.hub(), end - BUCKET, end)
    clock = ManualClock(end + GRACE)
    counter = UsageCounter(hub.hub(), clock, threading.Event(), timedelta(hours=12))
    steps(counter, 3)
    clock.advance(8 * 3600)
    steps(counter, 45)
    assert [one.start for one in buckets(hub)] == [end - BUCKET]


@pytest.mark.server
def test_the_analyzer_counts_beside_its_passes_and_a_kill_leaves_no_hole(hub: HubProcess) -> None:
    end = floor(datetime.now(timezone.utc) - GRACE)
    starts = quarters(end - 8 * BUCKET, 8)
    own(hub.hub(), starts[0])
    tell(hub.hub(), starts[0], end)
    analyzer = Analyzer(hub)
    analyzer.start()
    try:
        wait_until("the first count", lambda: buckets(hub), 40.0)
    finally:
        analyzer.end(signal.SIGKILL)
    analyzer.start()
    try:
        wait_until("all", lambda: set(starts) <= {one.start for one in buckets(hub)}, 40.0)
    finally:
        analyzer.end()
    found = [one for one in buckets(hub) if one.start in starts]
    assert [one.seconds.installed for one in found] == [2 * QUARTER] * 8
    assert hub.hub().records(RecordKind.PULSE)
