"""The day's chart: gaps stay gaps, and a young installation says from when on it counts."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from accounting.usage import BUCKET, Bucket, Seconds, Usage
from dashboard.data import trend
from dashboard.data.annotations import Note
from dashboard.layout.colours import colours
from gpuvigil.clock import to_text
from gpuvigil.model import Severity

from .scene import NOON, gpu, incident

HOUR = timedelta(hours=1)
GPUS = 10


def bucket(number: int, *, held: float = 8, used: float = 6, known: float = GPUS) -> Bucket:
    """The quarter that began so many quarters before noon; amounts are GPUs."""
    one = BUCKET.total_seconds()
    return Bucket(
        cluster="c",
        start=NOON - number * BUCKET,
        gpus=GPUS,
        nodes=1,
        counted_at=NOON,
        seconds=Seconds(
            installed=GPUS * one,
            unknown=(GPUS - known) * one,
            allocated=held * one,
            measured=held * one,
            used=used * one,
            idle=2 * one,
            unavailable=1 * one,
            powered=GPUS * one,
            energy_joules=GPUS * one * 400,
        ),
    )


def day(numbers: Iterable[int]) -> Usage:
    buckets = tuple(sorted((bucket(n) for n in numbers), key=lambda one: one.start))
    return Usage(cluster="c", start=NOON - trend.SPAN, end=NOON, buckets=buckets)


def test_shares_are_of_what_is_known_and_used_is_within_allocated() -> None:
    usage = replace(day(()), buckets=(bucket(1, held=4, used=2, known=5),))
    first, *_ = trend.points(usage, NOON)
    assert (first.allocated, first.used) == (80.0, 40.0)


def test_a_quarter_that_nobody_counted_is_a_gap_and_never_zero() -> None:
    points = trend.points(day((8, 7, 3, 2, 1)), NOON)
    absent = [one.at for one in points if one.allocated is None]
    assert absent == [NOON - 6 * BUCKET + timedelta(seconds=1), NOON + timedelta(seconds=1)]
    assert 0 not in {one.allocated for one in points}


def test_a_quarter_between_two_of_which_nothing_is_known_keeps_its_width() -> None:
    dark = {number: bucket(number, known=0) for number in (3, 1)}
    usage = replace(day(()), buckets=(dark[3], bucket(2), dark[1]))
    known = [one.at for one in trend.points(usage, NOON) if one.allocated is not None]
    assert known == [NOON - 2 * BUCKET, NOON - BUCKET]


def test_a_quarter_in_which_nothing_was_measured_has_no_used() -> None:
    blind = bucket(1)
    blind = replace(blind, seconds=replace(blind.seconds, measured=0, used=0))
    first, *_ = trend.points(replace(day(()), buckets=(blind,)), NOON)
    assert (first.allocated, first.used) == (80.0, None)


def test_a_young_installation_says_from_when_on_it_counts() -> None:
    young = day((3, 2, 1))
    assert trend.is_young(young)
    assert trend.since(young) == NOON - 3 * BUCKET
    assert not trend.is_young(day(range(1, 97)))
    assert trend.since(day(())) is None
    assert "Since 11:15:00 UTC on 31 Jan, 80 % of GPU-hours were allocated, of which 75 %" in (
        trend.sentence(young, ())
    )
    assert trend.sentence(day(()), ()) == "Nothing was counted yet."


def test_the_chart_has_two_areas_and_a_line_per_incident_that_matters() -> None:
    grave = incident("gpu_lost", gpu(1), Severity.CRITICAL, since=NOON - HOUR)
    slight = incident("gpu_idle", gpu(2), Severity.INFO, since=NOON - HOUR)
    doubt = incident("gpu_lost", gpu(3), Severity.CRITICAL, state="dismissed")
    marks = trend.marked(one.to_record() for one in (grave, slight, doubt))
    assert marks == (grave,)
    chart = trend.chart(day(range(1, 97)), marks, NOON, colours("light"))
    allocated, used = chart["series"]
    assert (allocated["name"], used["name"]) == ("allocated", "used")
    (line,) = allocated["markLine"]["data"]
    assert line["xAxis"] == "2026-01-31T11:00:00.000000Z"
    assert line["lineStyle"]["color"] == colours("light")["failed"]


def test_what_was_done_is_a_line_with_its_words_over_the_chart() -> None:
    done = [
        Note(at=NOON - trend.SPAN - timedelta(seconds=1), label="before", text="before"),
        Note(at=NOON - 4 * HOUR, label="Driver 555", text="Driver: 550 → 555, on 2 nodes"),
        Note(at=NOON - 3 * HOUR, label="near", text="near"),
    ]
    drawn = trend.chart(day(range(1, 97)), (), NOON, colours("dark"), done=done)
    first, second = drawn["series"][0]["markLine"]["data"]
    assert first["xAxis"] == to_text(NOON - 4 * HOUR)
    assert (first["label"]["show"], first["label"]["formatter"]) == (True, "Driver 555")
    assert not second["label"]["show"]


def test_a_week_ago_is_drawn_over_the_same_hours_and_not_where_nobody_counted() -> None:
    week = trend.WEEK // BUCKET
    then = replace(
        day((week + 8, week + 7, week + 2)),
        start=NOON - trend.SPAN - trend.WEEK,
        end=NOON - trend.WEEK,
    )
    plain = trend.chart(day(range(1, 96)), (), NOON, colours("dark"))
    drawn = trend.chart(day(range(1, 96)), (), NOON, colours("dark"), before=then)
    assert [one["name"] for one in plain["series"]] == ["allocated", "used"]
    assert drawn["series"][:2] == plain["series"]
    allocated, used = drawn["series"][2:]
    assert (allocated["name"], used["name"]) == ("allocated a week ago", "used a week ago")
    assert "areaStyle" not in allocated
    counted = [at for at, value in allocated["data"] if value is not None]
    assert counted[0] == to_text(NOON - 8 * BUCKET)
    assert next(value for _, value in used["data"] if value is not None) == 60.0
    gaps = [at for at, value in allocated["data"] if value is None]
    assert gaps[0] == to_text(NOON - 6 * BUCKET + timedelta(seconds=1))


def test_the_strip_knows_what_was_an_hour_ago_and_nothing_that_nobody_counted() -> None:
    was = trend.before(day((4, 5)), NOON, HOUR, "1 h ago")
    assert was is not None
    assert (was.idle, was.held_percent, was.used_percent) == (2, 80, 75)
    assert was.power_watts == 4000
    assert trend.before(day((4, 5)), NOON, 24 * HOUR, "yesterday") is None
    dark = bucket(4)
    dark = replace(dark, seconds=replace(dark.seconds, powered=0, energy_joules=0))
    was = trend.before(replace(day(()), buckets=(dark,)), NOON, HOUR, "1 h ago")
    assert was is not None
    assert was.power_watts is None


def test_a_first_quarter_is_drawn_from_when_it_was_counted() -> None:
    """Started nine minutes ago, three of them in the running quarter."""
    usage, now = day((1, 0)), NOON + timedelta(minutes=3)
    first, last = (
        replace(one, seconds=Seconds(installed=GPUS * minutes * 60), counted_at=now)
        for one, minutes in zip(usage.buckets, (6, 3), strict=True)
    )
    young = replace(usage, buckets=(first, last), end=now)
    assert trend.since(young) == NOON - timedelta(minutes=6)
    assert trend.points(young, now)[0].at == NOON - timedelta(minutes=6)


def test_what_was_lost_is_said_by_reason_and_nothing_where_none_was_or_nobody_knows() -> None:
    def said(**seconds: float) -> str:
        hour = Seconds(installed=36_000.0, active=36_000.0, **seconds)
        one = bucket(1)
        return trend.lost_sentence(
            Usage(cluster="c", start=NOON, end=NOON, buckets=(replace(one, seconds=hour),))
        )

    assert said(judged=36_000.0, lost_fault=3_600.0, lost_unknown=1_800.0) == (
        "85.0 % of all GPU-hours were in service; GPU-hours lost: 1.0 to faults, 0.5 to unknown causes"
    )
    assert said(judged=36_000.0, lost_fault=179.0) == ""  # less than is written
    assert said(judged=36_000.0, lost_fault=181.0) != ""
    assert said(judged=36_000.0) == said() == ""
