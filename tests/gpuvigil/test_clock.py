"""Times and spans are written in one way for people."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import duration, from_text, moment, to_text


def test_a_moment_is_said_in_utc_with_its_day() -> None:
    at = datetime(2026, 11, 1, 7, 15, 15, 829_982, tzinfo=timezone.utc)
    assert moment(at) == "07:15:15 UTC on 1 Nov"
    assert moment(at.astimezone(timezone(timedelta(hours=9)))) == moment(at)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.9, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (3600, "1 h"),
        (11_400, "3 h 10 min"),
        (86_400, "1 d"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_span_is_said_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


@given(st.datetimes(timezones=st.just(timezone.utc), min_value=datetime(1000, 1, 1)))  # noqa: DTZ001 - hypothesis adds the zone
def test_a_time_is_read_as_it_was_written(at: datetime) -> None:
    assert from_text(to_text(at)) == at


@pytest.mark.parametrize(
    "text",
    [
        "2026-W05-6T12:00:00.000000Z",
        "2026-01-31T12:00:00,000000Z",
        "2026-01-31 12:00:00.000000Z",
        "2026-01-31T12:00:00.000000",
        "2026-01-32T12:00:00.000000Z",
        "",
    ],
)
def test_another_form_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_text(text)
