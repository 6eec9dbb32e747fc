from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.errors import ConfigError
from report.scheduled.cron import parsed

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)  # a Friday


@pytest.mark.parametrize(
    ("cron", "zone", "last", "following"),
    [
        ("0 7 * * 1", "UTC", "2026-11-23T07:00", "2026-11-30T07:00"),
        ("0 7 * * mon", "Europe/Berlin", "2026-11-23T06:00", "2026-11-30T06:00"),
        ("0 12 * * *", "UTC", "2026-11-27T12:00", "2026-11-28T12:00"),
        ("1 12 * * *", "UTC", "2026-11-26T12:01", "2026-11-27T12:01"),
        ("*/20 * * * *", "UTC", "2026-11-27T12:00", "2026-11-27T12:20"),
        ("30 6-8/2 1 jan,jul *", "UTC", "2026-07-01T08:30", "2027-01-01T06:30"),
        # Where both days are given, either of them counts.
        ("0 0 13 * 5", "UTC", "2026-11-27T00:00", "2026-12-04T00:00"),
        ("0 0 29 2 *", "UTC", "2024-02-29T00:00", "2028-02-29T00:00"),
        ("0 5 * * 7", "UTC", "2026-11-22T05:00", "2026-11-29T05:00"),
        ("0 5 * * 5-7", "UTC", "2026-11-27T05:00", "2026-11-28T05:00"),
    ],
)
def test_the_last_and_the_next_time(cron: str, zone: str, last: str, following: str) -> None:
    found = parsed(cron, zone)
    times = [
        datetime.fromisoformat(text).replace(tzinfo=timezone.utc) for text in (last, following)
    ]
    assert [found.last(NOON), found.next(NOON)] == times


def test_a_time_that_the_clock_leaves_out_or_has_twice_comes_once() -> None:
    """Berlin: 02:30 is not on 29 March 2026, and twice on 25 October."""
    found = parsed("30 2 * * *", "Europe/Berlin")
    for month, number in ((3, 28), (10, 24)):
        at, times = datetime(2026, month, number, 20, tzinfo=timezone.utc), []
        for _ in range(2):
            following = found.next(at)
            assert following is not None
            times.append(at := following)
        assert times[1] - times[0] in {
            timedelta(hours=24),
            timedelta(hours=23),
            timedelta(hours=25),
        }
    assert found.next(datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc)) == datetime(
        2026, 10, 26, 1, 30, tzinfo=timezone.utc
    )


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    weekday=st.integers(0, 6),
    away=st.integers(0, 60 * 24 * 20),
)
def test_no_time_lies_between_the_last_and_the_next(
    minute: int, hour: int, weekday: int, away: int
) -> None:
    found, now = (
        parsed(f"{minute} {hour} * * {weekday}", "America/New_York"),
        NOON + timedelta(minutes=away),
    )
    last, following = found.last(now), found.next(now)
    assert last is not None
    assert following is not None
    assert last <= now < following
    assert found.next(last) == following
    assert found.last(following) == following
    # A week by the clock, of which one in spring is an hour shorter.
    assert abs(following - last - timedelta(days=7)) <= timedelta(hours=1)


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("0 7 * *", "UTC", "has not five fields"),
        ("60 7 * * *", "UTC", "'60' is no minute from 0 to 59"),
        ("59 24 * * *", "UTC", "'24' is no hour"),
        ("0 7 0 * *", "UTC", "'0' is no day of month"),
        ("0 7 * 13 *", "UTC", "'13' is no month"),
        ("0 7 * * 8", "UTC", "'8' is no day of week"),
        ("0 7 * * x", "UTC", "'x' is no day of week"),
        ("0 9-7 * * *", "UTC", "'7' is no hour from 9"),
        ("*/0 7 * * *", "UTC", "'0' is no minute from 1"),
        ("0 7 * * 1", "Mars", "'Mars' is no time zone"),
        ("0 7 * * 1", "../etc", "'../etc' is no time zone"),
    ],
)
def test_what_is_wrong_is_said(cron: str, zone: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("*", r"\*").replace(".", r"\.")):
        parsed(cron, zone)
