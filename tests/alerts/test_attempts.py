"""What an attempt makes of a notice."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.decisions.attempts import (
    LONGEST_PAUSE_SECONDS,
    LONGEST_RETRY_AFTER_SECONDS,
    Pause,
    attempt_ended,
    attempt_started,
    orphaned,
    pause_seconds,
    put_back,
    reminded_after,
)
from alerts.decisions.decide import decide
from alerts.messages.channel import Delivered, Refused, Retry
from alerts.messages.self_monitoring import DIGEST
from alerts.routing.notice import IDLE_NOTICE, Kind, Notice, NoticeState, Verdict

from .examples import CHAT, NOON, SETTINGS, opened, seconds

CHANCES = st.floats(0, 0.999)


def going() -> Notice:
    (notice,) = decide(opened(), [CHAT], [], NOON, SETTINGS)
    return attempt_started(notice, NOON, 15.0)


def test_a_notice_on_its_way_comes_due_by_itself_if_its_sender_dies() -> None:
    notice = going()
    assert notice.in_flight
    assert notice.attempts == 1
    assert notice.to_record().due_at == NOON + seconds(15)


def test_a_delivered_notice_is_sent_and_no_longer_due() -> None:
    notice = attempt_ended(going(), Delivered(), NOON, 0.5, SETTINGS)[0]
    assert (notice.state, notice.sent_at, notice.due_at) == (NoticeState.SENT, NOON, None)


def test_a_refused_notice_is_dead_and_says_why() -> None:
    (notice,) = attempt_ended(going(), Refused(reason="host answered 400"), NOON, 0.5, SETTINGS)
    assert (notice.state, notice.verdict) == (NoticeState.DEAD, Verdict.REFUSED)
    assert "host answered 400" in notice.reason


def test_a_failed_attempt_is_due_again_and_says_when() -> None:
    (notice,) = attempt_ended(going(), Retry(reason="host answered 500"), NOON, 0.5, SETTINGS)
    assert notice.state is NoticeState.DUE
    assert notice.due_at == NOON + seconds(1)
    assert notice.last_error == "host answered 500"
    assert "next at 12:00:01 UTC" in notice.reason


def test_a_notice_that_fails_for_too_long_is_dead() -> None:
    end = NOON + timedelta(seconds=SETTINGS.give_up_seconds)
    (notice,) = attempt_ended(going(), Retry(reason="host answered 500"), end, 0.5, SETTINGS)
    assert (notice.state, notice.verdict) == (NoticeState.DEAD, Verdict.GAVE_UP)


def test_what_perhaps_arrived_stays_so_over_later_attempts() -> None:
    unclear = Retry(reason="no answer", perhaps_received=True)
    (tried,) = attempt_ended(going(), unclear, NOON, 0.5, SETTINGS)
    again = attempt_started(tried, NOON, 15.0)
    (notice,) = attempt_ended(again, Retry(reason="refused"), NOON, 0.5, SETTINGS)
    assert notice.perhaps_told


@given(
    asked=st.floats(0, LONGEST_RETRY_AFTER_SECONDS), failures=st.integers(1, 100), chance=CHANCES
)
def test_a_receiver_gets_at_least_the_rest_it_asked_for(
    asked: float, failures: int, chance: float
) -> None:
    assert asked <= pause_seconds(failures, asked, chance) <= asked + 1


@given(failures=st.integers(1, 10_000), chance=CHANCES)
def test_pauses_grow_and_are_bounded(failures: int, chance: float) -> None:
    pause = pause_seconds(failures, None, chance)
    assert 0.75 <= pause <= LONGEST_PAUSE_SECONDS * 1.25
    assert pause_seconds(failures + 2, None, chance) >= min(pause, LONGEST_PAUSE_SECONDS * 0.75)


def test_no_receiver_can_silence_us_for_more_than_an_hour() -> None:
    assert pause_seconds(1, 1e9, 0.0) == LONGEST_RETRY_AFTER_SECONDS


def test_a_failing_receiver_is_left_alone_and_an_answering_one_is_not() -> None:
    failing = Pause().after(Retry(reason="500"), NOON, 0.5).after(Retry(reason="500"), NOON, 0.5)
    assert failing.failures == 2
    assert failing.holds(NOON + seconds(1.9))
    assert not failing.holds(NOON + seconds(2))
    assert not failing.after(Refused(reason="400"), NOON, 0.5).holds(NOON)
    assert not failing.after(Delivered(), NOON, 0.5).holds(NOON)


def test_refusals_are_counted_until_something_is_taken() -> None:
    refused, nobody = Refused(reason="400"), Refused(reason="no such owner", for_nobody=True)
    pause = Pause()
    for outcome in (refused, nobody, Retry(reason="500"), refused):
        pause = pause.after(outcome, NOON, 0.5)
    assert (pause.refusals, pause.failures) == (2, 0)
    assert pause.after(Delivered(), NOON, 0.5) == Pause()


def test_a_notice_waits_until_its_receiver_is_tried_again() -> None:
    (notice,) = decide(opened(), [CHAT], [], NOON, SETTINGS)
    pause = Pause().after(Retry(reason="429", after_seconds=30.0), NOON, 0.0)
    assert pause.left(NOON + seconds(10)) == seconds(20)
    waiting = put_back(notice, pause, NOON + seconds(30))
    assert (waiting.due_at, waiting.verdict) == (NOON + seconds(30), Verdict.BACKING_OFF)
    assert waiting.attempts == 0


@pytest.mark.parametrize("error", [None, "host answered 500"])
def test_a_notice_without_its_channel_is_dead(error: str | None) -> None:
    (notice,) = decide(opened(), [CHAT], [], NOON, SETTINGS)
    assert orphaned(notice).verdict is Verdict.CHANNEL_GONE
    assert orphaned(notice).to_record().due_at is None


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Retry(reason="host answered 500"), NoticeState.DUE),
        (Refused(reason="no"), NoticeState.DEAD),
    ],
)
def test_a_reminder_keeps_its_time_only_when_the_notice_in_its_place_is_dead(
    outcome: Retry | Refused, state: NoticeState
) -> None:
    reminder_from = NOON - seconds(600)
    first, *rest = attempt_ended(going(), outcome, NOON, 0.5, SETTINGS, reminder_from=reminder_from)
    assert first.state is state
    due = [one.due_at for one in rest]
    assert due == ([reminder_from + seconds(14_400)] if state is NoticeState.DEAD else [])
    # One that took no reminder's place leaves none.
    assert len(attempt_ended(going(), outcome, NOON, 0.5, SETTINGS)) == 1


@pytest.mark.parametrize(
    ("usual", "asked", "after"),
    [
        (0.0, 0.0, None),
        (-1.0, 0.0, None),
        (0.5, 0.0, 0.5),
        (600.0, 0.0, 600.0),
        (600.0, 0.5, 0.5),
        (600.0, 90_000.0, 90_000.0),  # as seldom as was asked for, also beyond the longest pause
    ],
)
def test_a_critical_that_nobody_took_is_told_again_as_often_as_is_asked(
    usual: float, asked: float, after: float | None
) -> None:
    settings = replace(SETTINGS, repeat_seconds=usual)
    assert settings.repeat_at_most_seconds < 90_000.0
    expected = None if after is None else seconds(after)
    assert reminded_after(going(), settings, asked) == expected
    shown = going().snapshot
    others: tuple[dict[str, Any], ...] = (
        {"to_state": "acknowledged"},
        {"to_state": "resolved"},
        {"kind": Kind.RESOLVED},
        {"incident": f"{IDLE_NOTICE}1"},
        {"snapshot": {**shown, "body": {**shown["body"], "fault": DIGEST}}},
    )
    for changed in others:
        assert reminded_after(replace(going(), **changed), settings, asked) is None
