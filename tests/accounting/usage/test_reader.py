"""What the count is given of a hub: who sent before, who was there, what is out of service, who held what."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.usage import BUCKET, Bucket
from accounting.usage.allocations import MOST_RECORDS, held_since
from accounting.usage.count import SENT_WITHIN
from accounting.usage.inputs import Reader
from gpuvigil.hub_client import Hub
from gpuvigil.model import (
    Allocation,
    Holder,
    Incident,
    Record,
    RecordKind,
    Retirement,
    Rma,
    RmaState,
    ScheduledNode,
    Scheduler,
    Severity,
    Subject,
)
from gpuvigil.schedulers.out_of_service import LostTo
from tests.accounting.usage.at_hand import LONG_AGO, MINUTE, NOON, SECOND, HubAtHand, Site
from tests.accounting.usage.quarter import ALL

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@pytest.fixture(scope="module")
def one_hub(tmp_path_factory: pytest.TempPathFactory) -> HubAtHand:
    return HubAtHand(tmp_path_factory.mktemp("hub"))


@pytest.fixture
def site(one_hub: HubAtHand) -> Site:
    one_hub.begin()
    return Site(hub=one_hub)


def reader(site: Site, now: datetime = NOON + HOUR) -> Reader:
    return Reader(hub=site.hub, cluster=site.cluster, oldest=NOON - DAY, now=now)


def quarter(
    site: Site, start: datetime = NOON, watched: datetime | None = LONG_AGO, **more: Any
) -> Bucket:
    found = reader(site).count(start, watched, **more)
    assert found is not None
    return found


# --- who sent -------------------------------------------------------------------------------------

# Of quarters around noon, which GPUs sent in which minute.
SENT = st.lists(st.tuples(st.integers(-9, 8), st.integers(0, 14), st.integers(1, 3)), max_size=8)


@pytest.mark.medium
@given(SENT, st.tuples(st.integers(-4, 2), st.integers(1, 6)), st.integers(-4, 6))
def test_one_look_at_a_range_tells_the_same_of_its_quarters_as_asking_for_each(
    one_hub: HubAtHand, sent: list[tuple[int, int, int]], span: tuple[int, int], of: int
) -> None:
    one_hub.begin()
    site = Site(hub=one_hub)
    for number, minute, gpus in sent:
        site.sends(NOON + number * BUCKET, [minute], gpus)
    first, last = NOON + span[0] * BUCKET, NOON + (span[0] + span[1]) * BUCKET
    looked, at = reader(site, NOON + 9 * HOUR), NOON + of * BUCKET
    assert looked.quarters_with_rows(first, last) == {
        start for number, *_ in sent if first <= (start := NOON + number * BUCKET) < last
    }
    asked = reader(site, NOON + 9 * HOUR)
    assert looked.count(at, LONG_AGO) == asked.count(at, LONG_AGO)
    before = {
        gpu
        for number, _, gpus in sent
        for gpu in range(gpus)
        if at - SENT_WITHIN <= NOON + number * BUCKET <= at
    }
    found = looked.count(at, LONG_AGO)
    assert (0 if found is None else found.gpus) == len(before)


@pytest.mark.parametrize(("ago", "there"), [(HOUR, 3), (HOUR + SECOND, 2)])
def test_a_gpu_without_an_inventory_is_there_for_the_hour_after_its_last_row(
    site: Site, ago: timedelta, there: int
) -> None:
    site.sends(NOON - ago, [0], gpus=3)
    site.sends(NOON, range(15), gpus=2)
    assert quarter(site).gpus == there


@pytest.mark.parametrize(
    ("cluster", "ago"), [("", timedelta(hours=24)), ("simulated", timedelta(minutes=10))]
)
def test_a_node_with_a_young_inventory_was_there_if_it_sent_shortly_before(
    site: Site, cluster: str, ago: timedelta
) -> None:
    site.cluster = cluster or site.cluster
    for early, there in ((SECOND, False), (timedelta(), True)):
        site.hub.begin()
        site.owns(NOON + 16 * MINUTE, gpus=4)
        site.says(NOON - ago - early)
        site.sends(NOON, gpus=1, node="n2")
        site.hub.heard = [(site.cluster, "n1", NOON + 16 * MINUTE)]
        assert quarter(site).gpus == (5 if there else 1)


def test_a_node_that_was_counted_before_is_counted_again(site: Site) -> None:
    site.owns(NOON + 20 * MINUTE, gpus=4)
    site.sends(NOON, gpus=1, node="n2")
    assert quarter(site).gpus == 1
    assert quarter(site, before=site.bucket(NOON, 1.0)).gpus == 5


def test_where_nothing_was_sent_and_nobody_listened_there_is_nothing(site: Site) -> None:
    site.owns()
    end = NOON + BUCKET
    for watched in (None, end, end + SECOND):
        assert reader(site).count(NOON, watched) is None
    assert quarter(site, watched=end - MINUTE).seconds.unknown == 120.0


def test_a_row_of_the_next_quarter_is_not_of_this_one(site: Site) -> None:
    site.sends(NOON, [14])
    site.sends(NOON + BUCKET, [0])
    found = quarter(site, watched=None)
    assert found.seconds.installed == 120.0


# --- what the hub's status and records say --------------------------------------------------------


def test_a_node_is_heard_by_any_of_its_ways_and_other_clusters_nodes_are_others(
    site: Site,
) -> None:
    """It is absent where it was last heard before the quarter; the newest word counts."""
    site.owns()
    here, other = site.cluster, f"{site.cluster}-other"
    old, new = NOON - DAY, NOON + MINUTE
    for heard, absent in (
        ([(here, "n1", new)], False),
        ([(here, "n1", old), (here, "n1", new)], False),
        ([(here, "n1", new), (here, "n1", old)], False),
        ([(here, "n1", old)], True),
        ([(here, "n1", old), (other, "n1", new)], True),
    ):
        site.hub.heard = heard
        assert quarter(site).seconds.lost_unknown == (1800.0 if absent else 0.0)


def test_a_node_that_is_retired_is_counted_no_more(site: Site) -> None:
    site.owns()
    site.owns(node="n2", gpus=1)
    node = Subject(cluster=site.cluster, node="n1")
    site.hub.write_records([Retirement(node=node, at=NOON, by="ann", note="").to_record()])
    assert quarter(site).gpus == 1


def incident(site: Site, **changed: Any) -> Incident:
    given_: dict[str, Any] = {
        "id": f"i-{site.cluster}",
        "fingerprint": "f",
        "fault": "driver_silent",
        "state": "open",
        "title": "",
        "severity": Severity.CRITICAL,
        "since": NOON - HOUR,
        "updated_at": NOON,
        "subject": Subject(cluster=site.cluster, node="n1"),
        **changed,
    }
    return Incident(**given_)


def test_what_stands_or_stood_then_is_out_of_service(site: Site) -> None:
    site.owns()
    site.sends(NOON)
    assert quarter(site).out == {}
    site.hub.write_records([incident(site).to_record()])
    assert quarter(site).out == {("n1", ""): ALL[LostTo.FAULT]}


@pytest.mark.parametrize(("late", "known"), [(timedelta(), True), (-SECOND, False)])
def test_an_incident_that_is_over_counts_if_it_began_a_day_before_the_oldest_quarter(
    site: Site, late: timedelta, known: bool
) -> None:
    site.owns()
    site.sends(NOON)
    over = incident(site, state="resolved", since=NOON - 2 * DAY + late, resolved_at=NOON + BUCKET)
    site.hub.write_records([over.to_record()])
    assert bool(quarter(site).out) is known


def test_a_gpu_in_repair_and_a_drained_node_are_out_of_service(site: Site) -> None:
    site.owns()
    site.sends(NOON)
    gpu = Subject(cluster=site.cluster, node="n1", gpu="GPU-1")
    case = Rma(incident="i", subject=gpu, state=RmaState.OPEN, by="ann", at=NOON - HOUR)
    site.hub.write_records([case.to_record()])
    assert quarter(site).out == {("n1", "GPU-1"): ALL[LostTo.REPAIR]}
    node = ScheduledNode(name="n1", states=("IDLE", "DRAIN"), reason="dust [ann@2026]")
    slurm = Subject(cluster=site.cluster, node="slurm")
    said = Scheduler(told_by=slurm, at=NOON + BUCKET, why="", nodes=(node,))
    site.hub.write_records([said.to_record()])
    out = quarter(site).out
    assert out is not None
    assert ("n1", "") in out
    # Counted again it stays as it was.
    assert quarter(site, before=site.bucket(NOON, 1.0)).out is None


@pytest.mark.parametrize(("minutes", "known"), [(20, True), (20.1, False)])
def test_a_running_quarter_ends_now_also_for_what_schedulers_say(
    site: Site, minutes: float, known: bool
) -> None:
    site.owns()
    site.sends(NOON, range(5))
    slurm = Subject(cluster=site.cluster, node="slurm")
    at = NOON + minutes * MINUTE
    site.hub.write_records([Scheduler(told_by=slurm, at=at, why="", nodes=()).to_record()])
    found = reader(site, NOON + 5 * MINUTE).count(NOON, LONG_AGO)
    assert found is not None
    assert (found.out is not None) is known


def test_a_node_that_was_only_heard_is_judged_as_well(site: Site) -> None:
    site.sends(NOON)
    site.hub.heard = [(site.cluster, "n1", NOON + BUCKET)]
    site.hub.write_records([incident(site).to_record()])
    assert quarter(site).out == {("n1", ""): ALL[LostTo.FAULT]}


# --- who held what --------------------------------------------------------------------------------


class Shelf(Hub):
    """Allocations in the order in which they were committed, and how many were asked for at a time."""

    def __init__(self, held: list[Record], ended: list[Record]) -> None:
        super().__init__("http://127.0.0.1:1", str)
        self._shelf = {"held": held, "ended": ended}
        self.asked: list[int] = []

    def records(self, kind: RecordKind, **asked: Any) -> tuple[Record, ...]:
        (state,) = asked["states"]
        if state == "ended":
            self.asked.append(asked["limit"])
        return tuple(self._shelf[state][-asked["limit"] :])


def allocation(number: int, ended_at: datetime | None) -> Record:
    return Allocation(
        subject=Subject(cluster="c", node="n1", gpu="GPU-0"),
        holder=Holder.parse(f"job {number}"),
        user="ann",
        command=None,
        started_at=LONG_AGO,
        ended_at=ended_at,
    ).to_record()


HELD = allocation(0, None)
OLD, EDGE, NEW = (
    allocation(n + 1, NOON + shift) for n, shift in enumerate((-SECOND, timedelta(), SECOND))
)


@pytest.mark.parametrize(
    ("ended", "asked"),
    [
        ([NEW] * 999, [1000]),  # these are all
        ([OLD] * 9 + [OLD] * 250 + [NEW] * 750, [1000]),
        ([OLD] * 9 + [OLD] * 249 + [NEW] * 751, [1000, 10_000]),
        ([OLD] * 9 + [OLD] * 249 + [EDGE] * 751, [1000, 10_000]),
        ([OLD] * 9 + [OLD] * 200 + [NEW] + [OLD] * 49 + [NEW] * 750, [1000, 10_000]),
        ([OLD] * 8000 + [NEW] * 1500, [1000, 10_000]),
        ([NEW] * 1000, [1000, 10_000]),
    ],
)
def test_what_ended_is_read_until_a_quarter_of_it_is_older_than_what_is_asked_for(
    ended: list[Record], asked: list[int]
) -> None:
    hub = Shelf([HELD], ended)
    found = held_since(hub, "c", NOON)
    assert hub.asked == asked
    assert found == [HELD, *ended[-asked[-1] :]]


def test_no_more_is_read_than_a_hub_gives_at_once() -> None:
    hub = Shelf([], [NEW] * (MOST_RECORDS + 1))
    assert len(held_since(hub, "c", NOON)) == MOST_RECORDS == 100_000
    assert hub.asked == [1000, 10_000, 100_000]


def test_who_held_it_is_found_through_the_hub(site: Site) -> None:
    site.sends(NOON)
    one = Allocation(
        subject=Subject(cluster=site.cluster, node="n1", gpu="GPU-0"),
        holder=Holder.parse("job 7"),
        user="ann",
        command="train",
        started_at=NOON - DAY,
        ended_at=NOON + 5 * MINUTE,
    )
    site.hub.write_records([one.to_record()])
    found: Mapping[str, float] = {it.holder: it.allocated for it in quarter(site).shares}
    assert found == {"job 7": 300.0, "unknown": 1500.0}
