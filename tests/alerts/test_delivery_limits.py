"""The times of delivery, each just below and just above, and what a notice carries from one attempt to the next."""

from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.decisions.attempts import (
    Pause,
    attempt_ended,
    attempt_started,
    orphaned,
    pause_seconds,
    put_back,
    queued,
    reminded_after,
    requeued,
)
from alerts.decisions.decide import CLOCK_MARGIN, decide, judge, replaceable
from alerts.messages.channel import Delivered, Refused, Retry
from alerts.routing.case import Case
from alerts.routing.notice import Kind, Notice, NoticeState, Verdict
from gpuvigil.lifecycle import State
from gpuvigil.model import Severity

from .examples import CHAT, NOON, SETTINGS, changed, opened, resolved, seconds

MICROSECOND = timedelta(microseconds=1)


def due() -> Notice:
    (notice,) = decide(opened(), [CHAT], [], NOON, SETTINGS)
    return notice


def going() -> Notice:
    return attempt_started(due(), NOON, 15.0)


@pytest.mark.parametrize(
    ("failures", "pause"), [(1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (10_000, 300)]
)
def test_a_pause_doubles_up_to_five_minutes_and_chance_moves_it_by_a_quarter(
    failures: int, pause: float
) -> None:
    assert pause_seconds(failures, None, 0.0) == 0.75 * pause
    assert pause_seconds(failures, None, 0.5) == pause


@pytest.mark.parametrize(("asked", "pause"), [(0.0, 0.25), (3599.0, 3599.25), (3601.0, 3600.25)])
def test_a_receiver_may_ask_for_an_hour_and_no_more(asked: float, pause: float) -> None:
    assert pause_seconds(7, asked, 0.25) == pause


def test_a_pause_holds_until_its_end_and_nothing_is_left_after_it() -> None:
    pause = Pause().after(Retry(reason="500"), NOON, 0.5)
    assert (pause.failures, pause.refusals, pause.until) == (1, 0, NOON + seconds(1))
    assert pause.holds(NOON + seconds(1) - MICROSECOND)
    assert not pause.holds(NOON + seconds(1))
    assert pause.left(NOON + seconds(3)) == timedelta()
    assert Pause().left(NOON) == timedelta()
    assert not Pause().holds(NOON)


def test_a_notice_is_given_up_at_the_end_of_its_time_and_not_before() -> None:
    end = NOON + seconds(SETTINGS.give_up_seconds)
    (tried,) = attempt_ended(going(), Retry(reason="500"), end - MICROSECOND, 0.5, SETTINGS)
    assert (tried.state, tried.in_flight) == (NoticeState.DUE, False)
    (dead,) = attempt_ended(going(), Retry(reason="500"), end, 0.5, SETTINGS)
    assert (dead.state, dead.in_flight, dead.due_at) == (NoticeState.DEAD, False, None)
    assert dead.reason == f"{Verdict.GAVE_UP.value}: 500"
    # Of one that waited first, the time counts from when it was to be sent.
    waited = replace(going(), first_due_at=NOON + seconds(10))
    (tried,) = attempt_ended(waited, Retry(reason="500"), end + seconds(9), 0.5, SETTINGS)
    assert tried.state is NoticeState.DUE
    (dead,) = attempt_ended(waited, Retry(reason="500"), end + seconds(10), 0.5, SETTINGS)
    assert dead.state is NoticeState.DEAD


def test_an_attempt_leaves_of_a_notice_what_is_true_after_it() -> None:
    failed = replace(going(), last_error="500")
    told, reminder = attempt_ended(
        failed, Delivered(receipt="r1"), NOON + seconds(2), 0.5, SETTINGS
    )
    assert (told.state, told.in_flight, told.perhaps_told) == (NoticeState.SENT, False, True)
    assert (told.sent_at, told.at, told.receipt) == (NOON + seconds(2), failed.at, "r1")
    assert told.last_error is None
    assert (reminder.repeat, reminder.version, reminder.attempts) == (1, 1, 0)
    assert (reminder.kind, reminder.verdict) == (Kind.UPDATED, Verdict.REMINDER)
    assert (reminder.perhaps_told, reminder.sent_at, reminder.receipt) == (False, None, None)
    assert reminder.due_at == reminder.first_due_at == NOON + seconds(2 + 14_400)
    (refused,) = attempt_ended(going(), Refused(reason="400"), NOON, 0.5, SETTINGS)
    assert (refused.in_flight, refused.last_error) == (False, "400")


def test_what_is_on_its_way_when_it_has_to_wait_may_have_been_received() -> None:
    for waits in (put_back(going(), Pause(failures=3), NOON), queued(going(), NOON)):
        assert (waits.in_flight, waits.perhaps_told) == (False, True)
    for waits in (put_back(due(), Pause(), NOON), queued(due(), NOON)):
        assert (waits.in_flight, waits.perhaps_told) == (False, False)
    tried = put_back(going(), Pause(failures=3), NOON)
    assert tried.reason == "the receiver failed 3 times in a row"
    assert queued(tried, NOON).perhaps_told
    gone = orphaned(going())
    assert (gone.state, gone.in_flight, gone.reason) == (
        NoticeState.DEAD,
        False,
        Verdict.CHANNEL_GONE.value,
    )


def test_what_a_person_asks_for_again_begins_anew() -> None:
    dead = orphaned(attempt_started(going(), NOON, 15.0))
    again = requeued(dead, NOON + seconds(9))
    assert (again.state, again.attempts) == (NoticeState.DUE, 0)
    assert (again.due_at, again.first_due_at) == (NOON + seconds(9), NOON + seconds(9))


@pytest.mark.parametrize(
    ("reminders", "hours"), [(0, 1), (1, 2), (2, 4), (3, 6), (4, 6), (10_000, 6)]
)
def test_each_reminder_doubles_the_time_to_the_next_up_to_a_longest(
    reminders: int, hours: float
) -> None:
    rare = replace(SETTINGS, repeat_seconds=3600.0, repeat_at_most_seconds=6 * 3600.0)
    assert reminded_after(due(), rare, 0.0, reminders) == timedelta(hours=hours)


def test_who_is_reminded() -> None:
    settings = replace(SETTINGS, repeat_seconds=3600.0, repeat_at_most_seconds=60.0)
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    # The longest is never shorter than what was asked for.
    assert reminded_after(due(), settings, 0.0) == hour
    assert reminded_after(due(), settings, 60.0) == minute
    (warning,) = decide(opened(severity=Severity.WARNING), [CHAT], [], NOON, SETTINGS)
    assert reminded_after(warning, settings, 0.0) is None
    assert reminded_after(warning, settings, 60.0) == minute
    for state, after in ((State.FLAPPING, hour), (State.ACKNOWLEDGED, None)):
        assert reminded_after(replace(due(), to_state=state.value), settings, 0.0) == after
    (over,) = decide(resolved(), [CHAT], [], NOON, SETTINGS)
    assert reminded_after(over, settings, 60.0) is None
    assert reminded_after(due(), replace(SETTINGS, repeat_seconds=0.0), 0.0) is None


def test_a_notice_may_be_replaced_while_it_is_surely_in_nobodys_hands() -> None:
    waits = replace(due(), due_at=NOON + CLOCK_MARGIN + MICROSECOND)
    assert seconds(2) == CLOCK_MARGIN
    assert replaceable(waits, NOON)
    assert not replaceable(waits, NOON + MICROSECOND)
    assert not replaceable(replace(waits, in_flight=True), NOON)
    assert not replaceable(replace(waits, state=NoticeState.SENT), NOON)
    assert not replaceable(replace(waits, due_at=None), NOON)


@pytest.mark.parametrize(
    ("waited", "until"), [(0, 1), (1, 2), (14, 28), (15, 30), (16, 31), (100, 115)]
)
def test_the_longer_an_older_message_takes_the_later_the_next_is_looked_at(
    waited: float, until: float
) -> None:
    """As long as it took so far: a second at least, fifteen at most."""
    older = replace(going(), due_at=NOON)
    newer = decide(changed(), [CHAT], [older], NOON, SETTINGS)[-1]
    now = NOON + seconds(waited)
    case = Case(notice=newer, profile=CHAT, siblings=(older,), now=now, settings=SETTINGS)
    ruling = judge(case)
    assert (ruling.verdict, ruling.due_at) == (Verdict.WAITS, NOON + seconds(until))


def test_a_notice_of_which_nothing_was_said_waits_as_long_as_the_one_before_it() -> None:
    tried = attempt_ended(going(), Retry(reason="429", after_seconds=60.0), NOON, 0.0, SETTINGS)[0]
    (old, newest) = decide(changed(), [CHAT], [tried], NOON, SETTINGS)
    assert (newest.verdict, old.state) == (Verdict.BACKING_OFF, NoticeState.SUPERSEDED)
    assert newest.due_at is not None
    assert seconds(60) < newest.due_at - NOON <= seconds(61)
