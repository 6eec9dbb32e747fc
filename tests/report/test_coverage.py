from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from accounting.usage import BUCKET, Seconds
from report.formats.shared_sentences import coverage_words
from report.sections.build import build
from report.sections.coverage import coverage
from tests.report.weeks import END, START, WEEK, bucket, facts, nothing, share, usage

BEFORE = usage([share()], start=START - WEEK, end=START)


def test_a_quarter_that_was_not_counted_stands_for_the_gpus_before_it() -> None:
    gap = (START + timedelta(days=1), START + timedelta(days=1, hours=42))
    found = coverage(usage([share()], without=[gap]), BEFORE)
    assert found.quarters == 672
    assert found.quarters_missing == 168
    assert found.percent == pytest.approx(75.0)


def test_a_span_in_which_counting_began_is_taken_from_then_on() -> None:
    began = END - timedelta(hours=12)
    late = usage([share()], without=[(START, began)])
    found = coverage(late, nothing())
    assert found.counted_since == began
    assert (found.quarters, found.quarters_missing, found.percent) == (48, 0, 100.0)
    report = build(facts(late))
    assert any("Counting began at Fri 20 Nov 12:00" in note for note in report.method.notes)
    assert (report.counted_from, report.grain) == (began, "quarter of an hour")
    assert (len(report.points), report.hours) == (48, ())


def test_quarters_that_are_not_whole_count_for_what_was_counted_of_them() -> None:
    """Started at 22:09 and asked at 22:18: nine minutes, and not two quarters."""
    quarter = datetime(2026, 11, 20, 22, tzinfo=timezone.utc)
    now = quarter + timedelta(minutes=18)
    buckets = tuple(
        replace(
            bucket(quarter + number * BUCKET),
            seconds=Seconds(installed=8 * minutes * 60.0, free=8 * minutes * 60.0),
            counted_at=now,
        )
        for number, minutes in enumerate((6, 3))
    )
    young = replace(nothing(start=now - WEEK, end=now), buckets=buckets)
    found = build(facts(young))
    assert found.method.counted_since == quarter + timedelta(minutes=9)
    assert found.verdict[0].text == "Too little was counted to judge this span: 9 min of 7 d."
    hour = build(facts(replace(young, start=quarter - 3 * BUCKET)))
    assert hour.verdict[0].text.startswith("Too little was counted to judge this span: 9 min of ")


def test_what_is_missing_at_the_start_counts_as_missing_once_counting_had_begun_before() -> None:
    half = usage([share()], without=[(START, START + timedelta(hours=84))])
    assert coverage(half, BEFORE).percent == pytest.approx(50.0)


def test_shares_become_ranges_when_less_than_95_percent_is_known() -> None:
    report = build(facts(usage([share(gpus=4, used=0.5)], unknown=0.8), BEFORE))
    allocated = report.figure("allocated_percent")
    # 4 of 8 GPUs are held, 0.8 are unknown: at least 50 %, at most 60 %.
    assert (allocated.low, allocated.high) == (50, 60)
    used = report.figure("used_of_allocated_percent")
    # 2 of 4.8 if the unknown ones were held and did nothing, 2.8 of 4.8 if they did all they can.
    assert (used.low, used.high) == (42, 58)
    assert allocated.change is None
    assert any("ranges" in note for note in report.method.notes)


def test_shares_are_single_numbers_when_95_percent_is_known() -> None:
    report = build(facts(usage([share()], unknown=0.4)))
    assert report.figure("allocated_percent").low is None
    assert report.method.coverage_percent == 95.0


def test_a_span_is_compared_with_the_one_before() -> None:
    before = usage([share(gpus=2, used=0.9)], start=START - WEEK, end=START)
    report = build(facts(usage([share(gpus=4, used=0.8)]), before))
    assert report.figure("allocated_percent").change == 25
    assert report.figure("used_of_allocated_percent").change == -10
    assert report.comparison == "Changes are against the 7 d before."


@pytest.mark.parametrize("known", ["nothing", "half"])
def test_a_span_before_that_is_not_known_is_not_compared_with(known: str) -> None:
    half = [(START - WEEK, START - WEEK / 2)]
    before = (
        nothing(start=START - WEEK, end=START)
        if known == "nothing"
        else usage([share()], start=START - WEEK, end=START, without=half)
    )
    report = build(facts(usage([share()]), before))
    assert all(one.change is None for one in report.figures)
    assert report.comparison.startswith("No comparison")


def test_a_gap_is_absent_from_the_chart_and_not_zero() -> None:
    gap = (START + timedelta(days=1), START + timedelta(days=1, hours=5))
    report = build(facts(usage([share()], without=[gap])))
    times = {point.at for point in report.points}
    assert len(times) == 7 * 24 - 5
    assert not any(gap[0] <= at < gap[1] for at in times)
    hours = [cell.used_percent for cell in report.hours]
    assert hours.count(None) == 5
    assert 0 not in hours


def test_an_hour_of_which_less_than_half_is_known_is_a_gap() -> None:
    assert build(facts(usage([share(gpus=2)], unknown=5))).points == ()
    assert len(build(facts(usage([share(gpus=2)], unknown=3))).points) == 168


@pytest.mark.medium
@pytest.mark.parametrize(
    ("span", "grain", "points"),
    [
        (timedelta(hours=6), "quarter of an hour", 24),
        (timedelta(days=2), "hour", 48),
        (timedelta(days=40), "day", 40),
    ],
)
def test_the_grain_of_the_chart_follows_the_span(span: timedelta, grain: str, points: int) -> None:
    report = build(facts(usage([share()], start=END - span)))
    assert (report.grain, len(report.points)) == (grain, points)


def test_the_map_of_the_week_wants_three_days() -> None:
    assert build(facts(usage([share()], start=END - timedelta(days=2)))).hours == ()
    assert len(build(facts(usage([share()], start=END - timedelta(days=3)))).hours) == 168


def test_one_quarter_is_a_report_too() -> None:
    report = build(facts(usage([share()], start=END - BUCKET)))
    assert report.installed_gpu_hours == 2.0
    assert report.digits == 2


def test_a_span_without_holes_says_so_and_one_with_a_hole_counts_it() -> None:
    whole = build(facts(usage()))
    missing = replace(whole.method, quarters_missing=1)
    assert coverage_words(whole)[0].endswith("is known; no quarter of an hour is missing.")
    assert coverage_words(replace(whole, method=missing))[0].endswith(
        "15 min of 7 d were not counted at all."
    )


@pytest.mark.parametrize("set_to", [1.0, 5.0])
def test_the_idle_rule_s_words_say_the_limit_that_hours_are_counted_by(set_to: float) -> None:
    report = build(replace(facts(), idle_below_percent=set_to))
    said = dict(report.method.definitions)["Allocated but idle"]
    assert said.startswith("allocated and under 1 % at every sample for at least 30 min")
    assert ("Incidents use another limit, 5 %." in said) == (set_to != 1.0)
