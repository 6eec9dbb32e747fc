"""The window of an address, and the windows that can be gone to from it."""

from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.device.window import (
    LONGEST,
    MOST_STEPS,
    SHORTEST,
    TICKS_PER_STEP,
    Window,
    address,
    asked,
    choices,
    cut,
    moves,
    sentence,
    step,
)
from gpuvigil.web import page_links

from .scene import NOON

KEPT = timedelta(hours=48)
HOUR = timedelta(hours=1)
spans = st.integers(60, 31 * 86_400).map(lambda seconds: timedelta(seconds=seconds))


def test_without_a_window_the_page_is_live_and_shows_the_last_hour() -> None:
    found = asked({}, NOON, KEPT)
    assert found.window == Window(start=NOON - HOUR, end=NOON, live=True)
    assert found.wrong == ""
    assert found.window.query == {"last": "3600"}


def test_a_young_installation_shows_less_until_there_is_more() -> None:
    found = asked({}, NOON, KEPT, timedelta(minutes=15))
    assert found.window.query == {"last": "900"}
    assert "the last 15 min" in asked({"last": "x"}, NOON, KEPT, timedelta(minutes=15)).wrong


def test_a_fixed_window_is_the_same_whenever_it_is_opened() -> None:
    query = page_links.window(NOON - HOUR, NOON)
    today, tomorrow = asked(query, NOON, KEPT), asked(query, NOON + timedelta(days=1), KEPT)
    assert today == tomorrow
    assert today.window.query == query
    assert not today.window.live


def test_a_live_window_slides_with_the_clock() -> None:
    later = NOON + timedelta(minutes=7)
    found = asked({"last": "900"}, later, KEPT).window
    assert (found.start, found.end) == (later - timedelta(minutes=15), later)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"from": "yesterday", "to": "now"}, "cannot be read"),
        ({"from": "2026-01-31T11:00:00Z"}, "must both be times"),
        ({"from": "2026-01-31T11:00:00Z", "to": "2026-01-31T10:00:00Z"}, "ends before it begins"),
        ({"from": "2026-01-31T11:00:00Z", "to": "2026-01-31T11:00:00Z"}, "ends before it begins"),
        ({"from": "2026-01-31T13:00:00Z", "to": "2026-01-31T14:00:00Z"}, "lies in the future"),
        ({"from": "2025-01-31T13:00:00Z", "to": "2026-01-31T14:00:00Z"}, "longer than 31 d"),
        ({"from": "0001-01-01T00:00:00Z", "to": "0001-01-01T01:00:00Z"}, "nothing is that old"),
        ({"last": "-5"}, "must be a number of seconds"),
        ({"last": "1h"}, "must be a number of seconds"),
        ({"last": "5"}, "must be from 60 s to 31 d"),
        ({"last": "9" * 400}, "must be a number of seconds"),
        ({"last": "²"}, "must be a number of seconds"),
    ],
)
def test_a_window_that_cannot_be_shown_is_one_clear_line_and_the_last_hour(
    query: dict[str, str], said: str
) -> None:
    found = asked(query, NOON, KEPT)
    assert said in found.wrong
    assert found.wrong.endswith("This is the last hour.")
    assert found.window == asked({}, NOON, KEPT).window


def test_a_window_from_before_what_is_kept_is_shown_and_says_so() -> None:
    query = page_links.window(NOON - timedelta(days=4), NOON - timedelta(days=3))
    found = asked(query, NOON, KEPT)
    assert found.window.query == query
    assert found.wrong == "Numbers are kept for 2 d: this is older."


def test_a_link_of_a_message_may_reach_into_the_future() -> None:
    found = asked(page_links.window(NOON - HOUR, NOON + HOUR / 2), NOON, KEPT)
    assert found.wrong == ""
    assert sentence(found.window, NOON).endswith("ends in 30 min")


@given(spans, st.sampled_from([1.0, 2.0, 10.0, 60.0]))
def test_a_line_never_has_more_points_than_it_may_and_no_step_is_shorter_than_two_ticks(
    span: timedelta, tick: float
) -> None:
    apart = step(span, timedelta(seconds=tick))
    assert span / apart <= MOST_STEPS
    assert apart >= TICKS_PER_STEP * timedelta(seconds=tick)


@given(st.integers(0, 10**9), st.integers(1, 7200))
def test_a_time_is_cut_to_the_step_that_it_is_in(after: int, seconds: int) -> None:
    at, by = NOON + timedelta(milliseconds=after), timedelta(seconds=seconds)
    assert cut(at, by) <= at < cut(at, by) + by
    assert cut(cut(at, by), by) == cut(at, by)


@given(spans, st.integers(0, 40 * 86_400), st.booleans())
def test_every_window_that_can_be_gone_to_can_be_shown(
    span: timedelta, ago: int, live: bool
) -> None:
    end = NOON if live else NOON - timedelta(seconds=ago)
    window = Window(start=end - span, end=end, live=live)
    for choice in (*choices(window, NOON), *moves(window, NOON)):
        if choice.query is not None:
            found = asked(choice.query, NOON, timedelta(days=400))
            assert found.wrong == ""
            assert found.window.end <= NOON
            assert SHORTEST <= found.window.span <= LONGEST


def test_a_fixed_window_keeps_its_middle_when_it_gets_longer_and_does_not_enter_the_future() -> (
    None
):
    end = NOON - timedelta(days=1)
    fixed = Window(start=end - HOUR, end=end, live=False)
    six = next(one for one in choices(fixed, NOON) if one.name == "6 h")
    assert six.query == page_links.window(end - 3.5 * HOUR, end + 2.5 * HOUR)
    near = Window(start=NOON - HOUR, end=NOON, live=False)
    day = next(one for one in choices(near, NOON) if one.name == "24 h")
    assert day.query == page_links.window(NOON - 24 * HOUR, NOON)


def test_from_live_there_is_no_later_and_earlier_is_fixed() -> None:
    earlier, later, live = moves(asked({}, NOON, KEPT).window, NOON)
    assert later.query is None
    assert earlier.query == page_links.window(NOON - 1.5 * HOUR, NOON - HOUR / 2)
    assert live.chosen
    assert live.query == {"last": "3600"}


def test_a_window_says_whether_it_slides_and_how_long_ago_it_ended() -> None:
    live = asked({}, NOON, KEPT).window
    assert sentence(live, NOON) == "Live: the last 1 h, to 12:00:00 UTC"
    fixed = Window(start=NOON - 3 * HOUR, end=NOON - 2 * HOUR, live=False)
    said = "Fixed window: 09:00:00 to 10:00:00 UTC on 31 Jan, 1 h, ended 2 h ago"
    assert sentence(fixed, NOON) == said


def test_an_address_carries_the_place_and_the_window() -> None:
    place = {"cluster": "a b", "node": "n&1"}
    query = dict(parse_qsl(urlsplit(address(page_links.NODE, place, {"last": "900"})).query))
    assert query == {**place, "last": "900"}
