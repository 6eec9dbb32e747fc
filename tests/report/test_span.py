from datetime import datetime, timedelta, timezone

import pytest

from gpuvigil.errors import ConfigError
from gpuvigil.typed_times import length
from report.span import span_of

NOW = datetime(2026, 11, 21, 10, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", timedelta(minutes=15)),
        ("6h", timedelta(hours=6)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(days=14)),
    ],
)
def test_a_length_is_a_number_and_a_letter(text: str, expected: timedelta) -> None:
    assert length(text, "--last") == expected


def test_without_a_word_the_last_seven_days_are_meant() -> None:
    assert span_of(None, None, None, NOW) == (NOW - timedelta(days=7), NOW)


def test_days_and_times_are_read_in_utc() -> None:
    start, end = span_of(None, "2026-11-14", "2026-11-20T06:00:00Z", NOW)
    assert start == datetime(2026, 11, 14, tzinfo=timezone.utc)
    assert end == datetime(2026, 11, 20, 6, tzinfo=timezone.utc)


def test_a_length_before_an_end_reaches_back_from_there() -> None:
    start, end = span_of("2d", None, "2026-11-14", NOW)
    assert (start.day, end.day) == (12, 14)


def test_an_end_in_the_future_is_now() -> None:
    assert span_of(None, "2026-11-20", "2026-12-24", NOW)[1] == NOW


@pytest.mark.parametrize(
    ("last", "start", "end", "said"),
    [
        ("7", None, None, "write 15m, 6h, 7d or 2w"),
        ("0d", None, None, "is no length"),
        ("-3d", None, None, "is no length"),
        ("7d", "2026-11-14", None, "not both"),
        (None, "yesterday", None, "--from 'yesterday' is no time"),
        (None, None, "2026-13-01", "--to '2026-13-01' is no time"),
        (None, "2026-12-01", None, "not in the past"),
        (None, "2026-11-20", "2026-11-19", "--to 2026-11-19 is not after --from 2026-11-20"),
        ("5m", None, None, "shorter than 15 minutes"),
        ("900d", None, None, "longer than 400 days"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused_in_one_line(
    last: str | None, start: str | None, end: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        span_of(last, start, end, NOW)
    assert "\n" not in str(refused.value)
