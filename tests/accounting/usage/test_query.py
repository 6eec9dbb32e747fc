"""The one question about usage, asked of a real hub."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from accounting.usage import BUCKET, Bucket, Place, Seconds, Usage
from accounting.usage.ledger import DAY
from accounting.usage.ledger_query import Shape, answer, floor_of
from accounting.usage.model import floor
from accounting.usage.query import clusters, usage
from gpuvigil.model import Allocation, Holder, Record, RecordKind
from tests.accounting.usage.told import gpu, own, quarters, tell
from tests.servers import HubProcess

pytestmark = pytest.mark.server

QUARTER = BUCKET.total_seconds()


def now() -> datetime:
    return datetime.now(timezone.utc)


def recorded(cluster: str, start: datetime, used: float = 100.0) -> Bucket:
    seconds = Seconds(
        installed=1800.0, active=900.0, idle=900.0, allocated=900.0, measured=900.0, used=used
    )
    return Bucket(
        cluster=cluster,
        start=start,
        gpus=2,
        nodes=1,
        seconds=seconds,
        places=(Place(node="n1", model="H100", seconds=seconds),),
        counted_at=start + BUCKET,
    )


def asked(hub: HubProcess, cluster: str, start: datetime, end: datetime) -> Usage:
    return usage(hub.hub(), cluster, start, end, now())


def test_quarters_that_nobody_recorded_yet_are_counted_from_the_store(
    hub: HubProcess, cluster: str
) -> None:
    start = floor(now()) - 3 * BUCKET
    own(hub.hub(), start, cluster)
    tell(hub.hub(), start, start + 2 * BUCKET, cluster)
    found = asked(hub, cluster, start, start + 2 * BUCKET)
    assert [bucket.start for bucket in found.buckets] == quarters(start, 2)
    assert (found.gpus, found.nodes, found.seconds.installed) == (2, 1, 4 * QUARTER)
    assert (found.allocated_percent, found.used_percent) == (50.0, 50.0)
    assert found.seconds.known == found.seconds.installed
    (share,) = found.shares
    assert (share.holder, share.user, share.allocated) == ("job 1", "ann", 2 * QUARTER)


def test_an_answer_says_since_when_was_counted(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - 3 * BUCKET
    own(hub.hub(), start, cluster)
    tell(hub.hub(), start, start + 2 * BUCKET, cluster)
    for since, until, began in (
        (start - 4 * BUCKET, start + 2 * BUCKET, start),
        (start - 4 * BUCKET, start, None),
    ):
        assert answer(hub.hub(), cluster, since, until, now()).counted_since == began


def test_what_is_recorded_is_not_counted_again(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - 3 * BUCKET
    tell(hub.hub(), start, start + 2 * BUCKET, cluster)
    hub.hub().write_records([recorded(cluster, start, used=123.0).to_record()])
    first, second = asked(hub, cluster, start, start + 2 * BUCKET).buckets
    assert first.seconds.used == 123.0
    assert second.seconds.used == pytest.approx(QUARTER / 2)


def test_a_span_is_cut_to_quarters_and_the_running_one_ends_now(
    hub: HubProcess, cluster: str
) -> None:
    start = floor(now()) - BUCKET
    tell(hub.hub(), start, now(), cluster)
    at = now()
    found = usage(hub.hub(), cluster, start + timedelta(minutes=7), at + timedelta(hours=5), at)
    assert (found.start, found.end) == (start, at)
    running = (at - floor(at)).total_seconds()
    assert found.seconds.installed == pytest.approx(2 * (QUARTER + running), abs=121.0)
    assert found.seconds.unknown == 0.0


def test_what_nobody_heard_of_is_absent(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - 8 * BUCKET
    own(hub.hub(), start, cluster)
    tell(hub.hub(), start, start + BUCKET, cluster)
    tell(hub.hub(), start + 6 * BUCKET, start + 7 * BUCKET, cluster)
    found = asked(hub, cluster, start, start + 8 * BUCKET)
    assert [bucket.start for bucket in found.buckets] == [start, start + 6 * BUCKET]


def test_a_past_span_has_only_its_own_buckets(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - timedelta(days=30)
    hub.hub().write_records([recorded(cluster, at).to_record() for at in quarters(start, 12)])
    found = asked(hub, cluster, start + 4 * BUCKET, start + 8 * BUCKET)
    assert [bucket.start for bucket in found.buckets] == quarters(start, 12)[4:8]


def test_records_that_cannot_be_read_are_left_out(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - timedelta(days=30)
    good = recorded(cluster, start + 3 * BUCKET).to_record()
    bodies = [{}, {"gpus": "many"}, {**good.body, "holders": [7]}, {**good.body, "seconds": []}]
    torn = [replace(good, id=f"torn {n}", at=start, body=body) for n, body in enumerate(bodies)]
    newer = {**good.body, "seconds": {**good.body["seconds"], "throttled": 7.0}, "more": 1}
    hub.hub().write_records([*torn, replace(good, body=newer)])
    found = asked(hub, cluster, start, start + 4 * BUCKET)
    assert [bucket.start for bucket in found.buckets] == [start + 3 * BUCKET]
    assert found.seconds.installed == 1800.0


def test_other_clusters_are_never_in_it(empty_hub: HubProcess) -> None:
    start = floor(now()) - 2 * BUCKET
    for name in ("c", "c2", "simulated"):
        own(empty_hub.hub(), start, name)
        tell(empty_hub.hub(), start, start + BUCKET, name)
    assert clusters(empty_hub.hub()) == ("c", "c2", "simulated")
    for name in clusters(empty_hub.hub()):
        found = usage(empty_hub.hub(), name, start, start + BUCKET, now())
        assert (found.gpus, found.seconds.installed) == (2, 2 * QUARTER)
        assert found.simulated is (name == "simulated")


def test_a_machine_without_gpus_has_no_usage(empty_hub: HubProcess) -> None:
    client = empty_hub.hub()
    headers = {
        "Gpuvigil-Cluster": "local",
        "Gpuvigil-Node": "laptop",
        "Gpuvigil-Boot": "b",
        "Gpuvigil-Lane": "live",
        "Gpuvigil-Sequence": "1",
    }
    client.request("POST", "/api/v2/write", b"node,cluster=local,node=laptop x=1", headers)
    assert clusters(client) == ()


def test_any_number_of_ended_allocations_is_read(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - 2 * BUCKET
    tell(hub.hub(), start, start + BUCKET, cluster)
    ended = [
        Allocation(
            subject=gpu(0, cluster),
            holder=Holder.parse(f"job {n}"),
            user="ann",
            command=None,
            started_at=start + timedelta(seconds=0.2 * n),
            ended_at=start + timedelta(seconds=0.2 * (n + 1)),
        )
        for n in range(4000)
    ]
    hub.hub().write_records([one.to_record() for one in ended])
    (bucket,) = asked(hub, cluster, start, start + BUCKET).buckets
    named = sum(share.allocated for share in bucket.shares if share.holder != "unknown")
    assert named == pytest.approx(800.0)


def test_a_stranger_record_of_an_allocation_does_no_harm(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - 2 * BUCKET
    own(hub.hub(), start, cluster)
    tell(hub.hub(), start, start + BUCKET, cluster)
    for kind in (RecordKind.ALLOCATION, RecordKind.INVENTORY):
        odd = Record(
            kind=kind, id="odd", at=start, subject=f"{cluster}/n1/gpu/GPU-0", body={"gpus": 7}
        )
        hub.hub().write_records([odd])
    assert asked(hub, cluster, start, start + BUCKET).allocated_percent == 50.0


def test_a_gap_between_what_is_recorded_is_counted_or_said(hub: HubProcess, cluster: str) -> None:
    start = floor(now()) - 12 * BUCKET
    own(hub.hub(), start, cluster)
    tell(hub.hub(), start + BUCKET, start + 2 * BUCKET, cluster)
    for number in (0, 4, 5):
        hub.hub().write_records([recorded(cluster, start + number * BUCKET).to_record()])
    found = answer(hub.hub(), cluster, start, start + 6 * BUCKET, now())
    assert found.ledger.quarters == 4
    assert found.missing == 2
    assert found.ledger.seconds.installed == 4 * 1800.0


def test_an_answer_is_cut_where_it_is_asked_to_be(hub: HubProcess, cluster: str) -> None:
    start = floor_of(now(), DAY) - BUCKET * 4
    for number in range(8):
        hub.hub().write_records([recorded(cluster, start + number * BUCKET).to_record()])
    found = answer(
        hub.hub(), cluster, start, start + 8 * BUCKET, now() + DAY, Shape(cuts=[start + 4 * BUCKET])
    )
    assert [one.start for one in found.parts] == [start, start + 4 * BUCKET]
    assert [one.quarters for one in found.parts] == [4, 4]
    assert found.ledger.quarters == 8
    assert found.missing == 0
