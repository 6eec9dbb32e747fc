"""Weeks, months and quarters: how they are typed, called and compared, also where the clocks change."""

import argparse
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from gpuvigil.config import ReportSettings
from gpuvigil.errors import ConfigError
from report.formats.timeline import over_time
from report.model import formatting
from report.model.calendar import Calendar, days_before, midnight, recognized, written
from report.model.content import Report
from report.scheduled.schedule import covered
from report.sections.build import build
from report.span import add_options, asked
from tests.report.weeks import QUARTER, facts, nothing, share, usage

NOW = datetime(2026, 11, 28, 10, 5, tzinfo=timezone.utc)
BERLIN, UTC = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")
Span = tuple[datetime, datetime]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def typed(*words: str) -> tuple[Span, Calendar]:
    commands = argparse.ArgumentParser(exit_on_error=False)
    add_options(commands)
    return asked(commands.parse_args(words), NOW)


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (["--week", "2026-W47"], "Week 47 of 2026: 16 Nov 2026 to 22 Nov 2026 (UTC)"),
        (["--week", "2020-W53"], "Week 53 of 2020: 28 Dec 2020 to 3 Jan 2021 (UTC)"),
        (["--month", "2026-10"], "October 2026: 1 Oct 2026 to 31 Oct 2026 (UTC)"),
        (["--quarter", "2026-Q3"], "Q3 2026: 1 Jul 2026 to 30 Sep 2026 (UTC)"),
        (["--last", "week"], "Week 47 of 2026: 16 Nov 2026 to 22 Nov 2026 (UTC)"),
        (["--last", "month"], "October 2026: 1 Oct 2026 to 31 Oct 2026 (UTC)"),
        (["--last", "quarter"], "Q3 2026: 1 Jul 2026 to 30 Sep 2026 (UTC)"),
        (
            ["--from", "2026-10-01", "--to", "2026-11-01"],
            "October 2026: 1 Oct 2026 to 31 Oct 2026 (UTC)",
        ),
        (["--from", "2026-10-01", "--to", "2026-10-31"], "1 Oct 2026 to 30 Oct 2026 (UTC, 30 d)"),
        (
            ["--month", "2026-11"],
            "November 2026 so far: 1 Nov 2026 to Sat 28 Nov 10:05 2026 (UTC, 27 d 10 h)",
        ),
        (
            ["--month", "2026-10", "--time-zone", "Europe/Berlin"],
            "October 2026: 1 Oct 2026 to 31 Oct 2026 (Europe/Berlin)",
        ),
        (["--last", "1d"], "Fri 27 Nov 10:05 to Sat 28 Nov 10:05 2026 (UTC, 1 d)"),
    ],
)
def test_a_span_is_called_what_people_call_it(words: list[str], title: str) -> None:
    span, calendar = typed(*words)
    assert formatting.span(*span, calendar) == title


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--week", "2026-47"], "write 2026-W47"),
        (["--week", "2026-W54"], "'2026-W54' is no week"),
        (["--month", "2026-13"], "is no month: write 2026-10"),
        (["--quarter", "2026-Q5"], "is no quarter: write 2026-Q3"),
        (["--week", "2026-W50"], "not in the past"),
        (["--week", "2026-W47", "--month", "2026-10"], "name one of"),
        (["--week", "2026-W47", "--to", "2026-11-20"], "name one of"),
        (["--last", "month", "--from", "2026-11-20"], "name one of"),
        (["--week", "2026-W47", "--time-zone", "Mars/Base"], "'Mars/Base' is no time zone"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        typed(*words)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "text", "hours"),
    [
        ("week", "2026-W13", 167),  # summer time begins on 29 March 2026
        ("week", "2026-W12", 168),
        ("week", "2026-W43", 169),  # and ends on 25 October
        ("month", "2026-03", 31 * 24 - 1),
        ("month", "2026-10", 31 * 24 + 1),
    ],
)
def test_where_the_clocks_change_a_week_has_the_hours_that_it_had(
    kind: str, text: str, hours: int
) -> None:
    start, end = written(kind, text, BERLIN)
    assert end - start == timedelta(hours=hours)
    assert recognized((start, end), BERLIN).covers == kind
    assert recognized((start, end), UTC).covers == ""


@pytest.mark.parametrize(
    ("kind", "text", "before", "called"),
    [
        ("week", "2026-W43", "2026-W42", "Week 42 of 2026"),
        ("week", "2021-W01", "2020-W53", "Week 53 of 2020"),
        ("month", "2026-03", "2026-02", "February 2026"),
        ("quarter", "2026-Q1", "2025-Q4", "Q4 2025"),
    ],
)
def test_the_span_before_is_the_one_before_of_its_kind(
    kind: str, text: str, before: str, called: str
) -> None:
    calendar = Calendar(covers=kind, zone=BERLIN)
    span = written(kind, text, BERLIN)
    assert calendar.before(span) == written(kind, before, BERLIN)
    assert calendar.name_before(span) == called
    assert calendar.starts_before(span, 2)[0] == calendar.before(span)[0]


def test_what_is_not_over_is_held_against_as_much_of_the_one_before() -> None:
    calendar = Calendar(covers="month")
    span = at("2026-11-01"), at("2026-11-08")
    assert calendar.before(span) == (at("2026-10-01"), at("2026-10-08"))
    assert calendar.name_before(span) == "the first 7 d of October 2026"
    # February has no 30th: no more than all of it.
    assert calendar.before((at("2026-03-01"), at("2026-03-31"))) == (
        at("2026-02-01"),
        at("2026-03-01"),
    )


def test_a_schedule_covers_whole_days_or_spans_by_its_own_clock() -> None:
    monday = at("2026-10-26T06:00")  # 7:00 in Berlin, the day after the clocks went back
    settings = ReportSettings(name="w", time_zone="Europe/Berlin")
    (start, end), calendar = covered(settings, monday)
    assert (start, end) == (at("2026-10-18T22:00"), at("2026-10-25T23:00"))
    assert calendar.covers == "week"
    assert days_before(end, 1, BERLIN) == at("2026-10-24T22:00")
    monthly = ReportSettings(name="m", covers="month", time_zone="Europe/Berlin")
    assert covered(monthly, monday)[0] == (at("2026-08-31T22:00"), at("2026-09-30T22:00"))
    quarterly = ReportSettings(name="q", covers="quarter")
    assert covered(quarterly, monday)[0] == (at("2026-07-01"), at("2026-10-01"))
    assert [key for key, _ in ReportSettings(covers="year").wrong()] == ["covers"]
    assert list(monthly.wrong()) == []


def of(kind: str, text: str, *, zone: ZoneInfo = UTC) -> Report:
    """One GPU held all the time in this span and in the one before, and always as much idle."""
    calendar = Calendar(covers=kind, zone=zone)
    start, end = span = written(kind, text, zone)
    since, until = calendar.before(span)
    held = [share(gpus=4, quiet=0.5), share("job 2", "bob", 2, account="b", quiet=0.25)]
    now, before = usage(held, start=start, end=end), usage(held, start=since, end=until)
    return build(facts(now, before, calendar=calendar))


@pytest.mark.medium
def test_months_of_different_lengths_are_held_against_each_other_for_as_long_a_time() -> None:
    report = of("month", "2026-03")
    assert report.comparison == (
        "Changes are against February 2026. It had 28 d and this span 31 d, so its sums are taken"
        " for as long a time."
    )
    idle = report.figure("idle_held_gpu_hours")
    assert idle.value == 31 * 24 * 2.5
    assert idle.change == 0
    assert report.figure("energy_kwh").change == pytest.approx(0, abs=0.02 * 2381)
    users = report.sheet("users")
    assert users is not None
    assert [one.label for one in users.columns if one.key == "wasted_change"] == [
        "Wasted, vs February 2026"
    ]
    changes = [dict(zip((c.key for c in users.columns), row, strict=True)) for row in users.rows]
    assert {one["wasted_change"] for one in changes} == {0.0}
    losses = report.sheet("losses")
    assert losses is not None
    assert {row[-1] for row in losses.rows if row[-1] is not None} == {0.0}


def test_weeks_of_one_length_are_held_against_each_other_as_they_are() -> None:
    report = of("week", "2026-W47")
    assert report.comparison == "Changes are against Week 46 of 2026."
    assert report.figure("idle_held_gpu_hours").change == 0
    assert (report.covers, report.time_zone) == ("week", "UTC")


@pytest.mark.medium
def test_days_are_those_of_the_zone_and_the_long_one_has_25_hours() -> None:
    report = of("week", "2026-W43", zone=BERLIN)
    assert [one.day for one in report.days] == [f"2026-10-{day}" for day in range(19, 26)]
    hours = [one.allocated_gpu_hours for one in report.days]
    assert hours == [6 * 24.0] * 6 + [6 * 25.0]
    assert len(report.hours) == 168
    assert QUARTER == 900


@pytest.mark.medium
@pytest.mark.parametrize("zone", [BERLIN, UTC])
def test_the_chart_by_day_has_the_days_of_the_zone_also_where_the_clocks_change(
    zone: ZoneInfo,
) -> None:
    start, end = midnight(date(2026, 10, 1), zone), midnight(date(2026, 11, 5), zone)
    held = [share(gpus=4, quiet=0.5)]
    now, before = usage(held, start=start, end=end), nothing(start=start, end=start)
    report = build(facts(now, before, calendar=Calendar(zone=zone)))
    assert report.grain == "day"
    local = [one.at.astimezone(zone) for one in report.points]
    assert {(one.hour, one.minute) for one in local} == {(0, 0)}
    assert [f"{one:%Y-%m-%d}" for one in local] == [one.day for one in report.days]
    # The day of 25 hours is no gap.
    assert "no data" not in str(over_time(report, "c"))
    gone = replace(report, points=(*report.points[:20], *report.points[23:]))
    assert "no data" in str(over_time(gone, "c"))
