"""The past of a cluster, asked of a hub at hand: what is recorded, what is counted on the spot, and what is neither."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounting.usage import BUCKET, Share
from accounting.usage.ledger import DAY, HOUR, SIX_HOURS, Ledger
from accounting.usage.ledger_query import Shape, answer, floor_of
from accounting.usage.model import floor
from accounting.usage.query import clusters, usage
from accounting.usage.rollup import rolled
from tests.accounting.usage.at_hand import MINUTE, NOON, HubAtHand, Site

QUARTER = BUCKET.total_seconds()
KEPT = timedelta(hours=48)
PLAYED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def one_hub(tmp_path_factory: pytest.TempPathFactory) -> HubAtHand:
    return HubAtHand(Path(tmp_path_factory.mktemp("hub")))


@pytest.fixture
def hub(one_hub: HubAtHand) -> HubAtHand:
    one_hub.begin()
    return one_hub


@pytest.fixture
def site(hub: HubAtHand) -> Site:
    return Site(hub=hub)


# --- the buckets of a span ------------------------------------------------------------------------


def _expected(
    states: list[str], now: datetime, span: tuple[datetime, datetime], listening: datetime
) -> dict[datetime, float]:
    """By quarter, the GPU-seconds that were installed; the last state is that of the running quarter."""
    found = {}
    running = floor(now)
    for ago, state in enumerate(reversed(states)):
        start = running - ago * BUCKET
        if not floor(span[0]) <= start < min(span[1], now):
            continue
        if "recorded" in state:
            found[start] = 1800.0
        elif "sends" in state:
            found[start] = 2 * (min(start + BUCKET, now) - start).total_seconds()
        else:
            # Unknown, from the first whole minute on in which somebody listened.
            minutes = [
                at
                for at in (start + number * MINUTE for number in range(15))
                if at >= listening and at + MINUTE <= now - timedelta(seconds=15)
            ]
            found[start] = 2 * 60.0 * len(minutes)
    return {start: seconds for start, seconds in found.items() if seconds}


@pytest.mark.medium
@PLAYED
@given(
    st.lists(
        st.sampled_from(["silent", "sends", "recorded", "recorded and sends"]),
        min_size=14,
        max_size=14,
    ),
    st.sampled_from([0, 15, 74, 225, 900]),
    st.tuples(st.integers(-230, 15), st.integers(-30, 300)),
    st.integers(-240, 10),
)
def test_a_span_has_what_is_recorded_and_else_what_was_sent_or_could_have_been_heard(
    one_hub: HubAtHand, states: list[str], seconds: int, asked: tuple[int, int], listening: int
) -> None:
    one_hub.begin()
    site, now = Site(hub=one_hub), NOON + timedelta(seconds=seconds)
    states = ["silent"] * 5 + states
    site.owns()
    one_hub.started_at = NOON + listening * MINUTE
    for ago, state in enumerate(reversed(states)):
        start = floor(now) - ago * BUCKET
        if "sends" in state:
            site.sends(start, [n for n in range(15) if start + n * MINUTE < now])
        if "recorded" in state:
            site.recorded(start, used=777.0)
    since = NOON + asked[0] * MINUTE
    span = since, since + asked[1] * MINUTE
    found = usage(one_hub, site.cluster, *span, now)
    assert found.start == floor(span[0])
    ceiling = floor(span[1] + BUCKET - timedelta(microseconds=1))
    assert found.end == max(min(ceiling, now), found.start)
    expected = _expected(states, now, (span[0], ceiling), one_hub.started_at)
    assert {one.start: one.seconds.installed for one in found.buckets} == pytest.approx(expected)
    assert [one.start for one in found.buckets] == sorted(expected)
    of = {floor(now) - ago * BUCKET: state for ago, state in enumerate(reversed(states))}
    for one in found.buckets:
        assert (one.seconds.used == 777.0) is ("recorded" in of.get(one.start, ""))
        assert not one.places or "recorded" not in of.get(one.start, "")


def test_what_telemetry_has_forgotten_is_counted_no_more(site: Site) -> None:
    now = NOON + MINUTE
    site.hub.started_at = NOON
    for start in (NOON - KEPT - BUCKET, NOON - KEPT):
        site.sends(start)
    found = usage(site.hub, site.cluster, NOON - KEPT - HOUR, NOON, now)
    assert [one.start for one in found.buckets] == [NOON - KEPT]
    ledger = answer(site.hub, site.cluster, NOON - KEPT - HOUR, NOON - KEPT + HOUR, now).ledger
    assert ledger.seconds.installed == 1800.0
    assert ledger.quarters == 1


def test_the_work_of_a_question_ends_with_so_many_rows(site: Site) -> None:
    site.owns()
    for number in range(1, 5):
        site.sends(NOON - number * BUCKET)
    for most, counted in ((1, 1), (30, 1), (31, 2), (60, 2), (61, 3)):
        found = usage(site.hub, site.cluster, NOON - HOUR, NOON, NOON, most_rows=most)
        assert [one.start for one in found.buckets] == [
            NOON - number * BUCKET for number in range(counted, 0, -1)
        ]


def test_clusters_are_those_with_usage_or_gpus_and_the_simulated_one_is_last(
    hub: HubAtHand,
) -> None:
    names = ("x-usage", "simulated", "a-gpus", "b-none", "selftest", "z-some")
    hub.heard = [(name, "n1", NOON) for name in names]
    Site(hub=hub, cluster="x-usage").recorded(NOON - 9 * DAY)
    for name in ("simulated", "a-gpus", "selftest", "z-some"):
        Site(hub=hub, cluster=name).owns()
    for name in ("b-none", "z-some"):
        Site(hub=hub, cluster=name).owns(gpus=0, node="n2")
    assert clusters(hub) == ("a-gpus", "x-usage", "z-some", "simulated")


# --- hours, days and what they are made of --------------------------------------------------------

LENGTHS = (BUCKET, HOUR, SIX_HOURS, DAY)


MIDNIGHT = floor_of(NOON, DAY)
# A day and a bit, in quarters.
PLACES = st.tuples(st.sampled_from(LENGTHS), st.integers(-20, 120))


def _kept(site: Site, start: datetime, length: timedelta, quarters: int, used: float) -> None:
    """A span that was counted."""
    bucket = site.bucket(start, used)
    if length == BUCKET:
        site.hub.write_records([bucket.to_record()])
    else:
        ledger = replace(Ledger.of(bucket), length=length, quarters=quarters)
        site.hub.write_records([ledger.to_record()])


def _chosen(
    kept: set[tuple[timedelta, datetime]], start: datetime, until: datetime
) -> set[tuple[timedelta, datetime]]:
    """Of each quarter the longest span that it is in and that lies between the two."""
    found = set()
    at = start
    while at < until:
        for length in reversed(LENGTHS):
            one = length, floor_of(at, length)
            inside = one[1] >= start and (one[1] + length <= until or length == BUCKET)
            if one in kept and inside:
                found.add(one)
                break
        at += BUCKET
    return found


@pytest.mark.medium
@PLAYED
@given(
    st.lists(PLACES, max_size=8),
    st.lists(st.integers(-20, 120), max_size=3),
    st.tuples(st.integers(-25, 110), st.integers(0, 130), st.sampled_from([0, 0, 7])),
    st.lists(st.integers(-20, 120), max_size=2, unique=True),
    st.data(),
)
def test_an_answer_has_each_quarter_once_by_the_longest_that_is_recorded(
    one_hub: HubAtHand,
    places: list[tuple[timedelta, int]],
    sent: list[int],
    asked: tuple[int, int, int],
    cuts: list[int],
    data: st.DataObject,
) -> None:
    one_hub.begin()
    site, now = Site(hub=one_hub), MIDNIGHT + timedelta(hours=31)
    one_hub.started_at = now + DAY  # what it never heard is absent
    kept = {(length, floor_of(MIDNIGHT + n * BUCKET, length)) for length, n in places}
    used = {one: 2.0**n for n, one in enumerate(sorted(kept))}
    quarters = {
        one: 1 if one[0] == BUCKET else data.draw(st.integers(1, one[0] // BUCKET))
        for one in sorted(kept)
    }
    for (length, at), amount in used.items():
        _kept(site, at, length, quarters[length, at], amount)
    for number in set(sent):
        site.sends(MIDNIGHT + number * BUCKET)
    start = MIDNIGHT + asked[0] * BUCKET
    end = start + asked[1] * BUCKET - asked[2] * MINUTE
    until = max(min(floor(end + BUCKET - MINUTE), now), start)
    cut_at = {MIDNIGHT + n * BUCKET for n in cuts} | {at for _, at in sorted(kept)[:1]}
    found = answer(
        one_hub,
        site.cluster,
        start + asked[2] * MINUTE,
        end,
        now,
        Shape(cuts=sorted(cut_at)),
    )
    chosen = _chosen(kept, start, until)
    covered = {at + n * BUCKET for length, at in chosen for n in range(length // BUCKET)}
    spot = {MIDNIGHT + n * BUCKET for n in sent} - covered
    spot = {at for at in spot if start <= at < until}
    parts = [(one[1], used[one], quarters[one]) for one in chosen] + [(at, 900.0, 1) for at in spot]
    assert found.ledger.seconds.used == sum(amount for _, amount, _ in parts)
    assert found.ledger.quarters == sum(number for *_, number in parts)
    assert (found.ledger.start, found.ledger.length) == (start, until - start)
    edges = sorted({start, until, *cut_at})
    edges = [at for at in edges if start <= at <= until]
    for (since, to), part in zip(pairwise(edges), found.parts, strict=False):
        assert (part.start, part.end) == (since, to)
        assert part.seconds.used == sum(amount for at, amount, _ in parts if since <= at < to)
    assert len(found.parts) == max(len(edges) - 1, 1)
    assert found.missing == _missing(parts, {one[1]: one[0] for one in chosen}, until)


def _missing(
    parts: list[tuple[datetime, float, int]], lengths: dict[datetime, timedelta], until: datetime
) -> int:
    whole = [it for it in parts if it[0] + lengths.get(it[0], BUCKET) <= until]
    if not whole:
        return 0
    first, _, quarters = min(whole)
    asked = (until - first) // BUCKET - (lengths.get(first, BUCKET) // BUCKET - quarters)
    return asked - sum(number for *_, number in whole)


def test_records_of_other_times_or_clusters_are_in_no_answer(site: Site) -> None:
    other = Site(hub=site.hub, cluster=f"{site.cluster}/n1")
    for where, shift in ((other, timedelta()), (site, 5 * MINUTE)):
        _kept(where, NOON - DAY + shift, BUCKET, 1, 1.0)
        _kept(where, NOON - DAY + HOUR + shift, HOUR, 4, 2.0)
    assert answer(site.hub, site.cluster, NOON - DAY, NOON, NOON).ledger.quarters == 0
    assert not usage(site.hub, site.cluster, NOON - DAY, NOON, NOON).buckets


def test_what_is_not_asked_for_is_not_read(site: Site) -> None:
    bucket = site.bucket(NOON - HOUR, 5.0)
    share = Share(
        holder="job 1",
        user="ann",
        command=None,
        gpus=2,
        allocated=900.0,
        measured=900.0,
        used=5.0,
        idle=0.0,
    )
    site.hub.write_records([replace(bucket, shares=(share,)).to_record()])

    def asked(shape: Shape | None) -> Ledger:
        span = NOON - HOUR, NOON
        if shape is None:
            return answer(site.hub, site.cluster, *span, NOON).ledger
        return answer(site.hub, site.cluster, *span, NOON, shape).ledger

    for shape, node, holders in (
        (None, "n1", 1),
        (Shape(), "n1", 1),
        (Shape(places=False), "", 1),
        (Shape(holders=False), "n1", 0),
    ):
        found = asked(shape)
        assert found.places["node"].to_pylist() == [node]
        assert found.holders.num_rows == holders
        assert found.seconds == bucket.seconds


# How many GPUs the last record has, how long ago it ended, where the question begins, and whether the
# quarters behind it are counted on the spot.
LARGE = [
    (4000, BUCKET, 6 * HOUR, True),  # 60,000 minutes of GPUs
    (4001, BUCKET, 6 * HOUR, False),
    (4001, BUCKET, 6 * HOUR - BUCKET, True),  # a short question ends now, whatever it costs
    (2069, 29 * MINUTE, 6 * HOUR, False),  # 60,001
    (173, 6 * HOUR - BUCKET, 6 * HOUR, True),
    (174, 6 * HOUR - BUCKET, 6 * HOUR, False),
]


@pytest.mark.parametrize(("gpus", "ago", "span", "spot"), LARGE)
def test_of_a_large_fleet_a_long_span_ends_with_what_was_counted(
    site: Site, gpus: int, ago: timedelta, span: timedelta, spot: bool
) -> None:
    now = NOON if ago // BUCKET * BUCKET == ago else NOON + 14 * MINUTE
    last = now - ago
    site.recorded(last - BUCKET, gpus=gpus)
    site.sends(last)
    begin = floor(now) - span
    found = answer(site.hub, site.cluster, begin, now, now)
    assert found.until == (now if spot else last)
    assert found.asked_until == now
    assert found.ledger.end == found.until
    assert found.ledger.quarters == (2 if spot else 1)


@pytest.mark.medium
@pytest.mark.parametrize(("gpus", "spot"), [(2000, 2), (2001, 1), (1333, 3), (1334, 2)])
def test_of_gaps_the_last_is_counted_and_others_while_they_are_little(
    site: Site, gpus: int, spot: int
) -> None:
    """Of 1,333 GPUs three quarters are 59,985 minutes."""
    gaps = [NOON - n * BUCKET for n in (1, 4, 7)]
    for number in range(1, 10):
        at = NOON - number * BUCKET
        if at in gaps:
            site.sends(at)
        else:
            site.recorded(at, gpus=gpus)
    found = answer(site.hub, site.cluster, NOON - 9 * BUCKET, NOON, NOON)
    assert found.ledger.quarters == 6 + spot
    assert found.missing == 3 - spot
    assert found.ledger.seconds.used == 600.0 + 900.0 * spot


# --- hours, six hours and days are made of quarters -----------------------------------------------


@pytest.mark.medium
@PLAYED
@given(
    st.lists(st.tuples(st.integers(0, 95), st.booleans()), min_size=1, max_size=4),
    st.lists(st.integers(0, 99), min_size=4, max_size=4),
)
def test_what_a_quarter_is_a_part_of_is_written_with_it_once_it_is_over(
    one_hub: HubAtHand, told: list[tuple[int, bool]], later: list[int]
) -> None:
    one_hub.begin()
    site = Site(hub=one_hub)
    day = MIDNIGHT - 9 * DAY
    amounts: dict[int, float] = {}
    now = day
    for (number, before), more in zip(told, later, strict=False):
        bucket = site.bucket(day + number * BUCKET, 2.0 ** len(amounts))
        amounts[number] = bucket.seconds.used
        now = max(now + MINUTE, bucket.start + BUCKET + more * BUCKET)
        bucket = replace(bucket, counted_at=now)
        if before:
            one_hub.write_records([bucket.to_record()])
        found = rolled(one_hub, bucket, now)
        over = [
            length
            for length in (HOUR, SIX_HOURS, DAY)
            if floor_of(bucket.start, length) + length + HOUR <= now
        ]
        assert [one.length for one in found] == over
        for one in found:
            inside = [n for n in amounts if one.start <= day + n * BUCKET < one.end]
            assert one.counted_at == now
            assert (one.start, one.quarters) == (floor_of(bucket.start, one.length), len(inside))
            assert one.seconds.used == sum(amounts[n] for n in inside)
        one_hub.write_records([bucket.to_record(), *(one.to_record() for one in found)])


def test_an_hour_and_a_day_are_written_an_hour_after_their_end_and_not_before(site: Site) -> None:
    last = site.bucket(MIDNIGHT - BUCKET, 1.0)
    found = rolled(site.hub, last, MIDNIGHT + HOUR)
    assert [it.length for it in found] == [HOUR, SIX_HOURS, DAY]
    assert rolled(site.hub, last, MIDNIGHT + HOUR - timedelta(microseconds=1)) == []
