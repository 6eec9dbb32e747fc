"""What stands beside a notice, older, newer or of another channel, and which of it counts."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounting.efficiency.idle_reason import END, FOR_JOBS, Idleness
from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide, judge, ruled
from alerts.idle.idle_notice import notice
from alerts.messages.channel import Delivered, Retry
from alerts.routing.case import Case, ChannelProfile, Ruling
from alerts.routing.notice import Notice, NoticeState, Verdict
from gpuvigil.model import Impact, Severity, Transition

from .examples import CHAT, NOON, SETTINGS, changed, opened, resolved, returned, seconds, taken
from .test_idle import OWNERS, a_holder

MAIL = replace(CHAT, name="mail")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def one(step: Transition, profile: ChannelProfile = CHAT, *earlier: Notice) -> Notice:
    """What is decided about a step."""
    return decide(step, [profile], earlier, NOON, SETTINGS)[-1]


def sent(step: Transition, now: datetime = NOON) -> Notice:
    return attempt_ended(attempt_started(one(step), now, 15.0), Delivered(), now, 0.5, SETTINGS)[0]


def tried(step: Transition, after_seconds: float) -> Notice:
    """A notice whose receiver asked to wait."""
    retry = Retry(reason="429", after_seconds=after_seconds)
    return attempt_ended(attempt_started(one(step), NOON, 15.0), retry, NOON, 0.0, SETTINGS)[0]


def ruling(about: Notice, *beside: Notice, now: datetime = NOON) -> Ruling:
    """Of a notice, beside those of its channel and of others."""
    siblings = tuple(it for it in beside if it.channel == about.channel)
    others = tuple(it for it in beside if it.channel != about.channel)
    case = Case(
        notice=about, profile=CHAT, siblings=siblings, others=others, now=now, settings=SETTINGS
    )
    return judge(case)


def test_what_is_over_on_other_channels_need_not_begin_here() -> None:
    late, over, back = one(opened(1)), one(resolved(2), MAIL), one(returned(3), MAIL)
    assert ruling(late, over).verdict is Verdict.SUPERSEDED
    assert ruling(late, over, back).verdict is Verdict.FIRST
    assert ruling(late, one(changed(2), MAIL)).verdict is Verdict.FIRST
    earlier = [one(resolved(2), MAIL)]
    assert one(opened(1), CHAT, *earlier).verdict is Verdict.SUPERSEDED


def test_the_newest_says_what_became_of_what_it_replaces() -> None:
    over, back = one(resolved(2)), one(returned(3))
    assert ruling(one(opened(1)), over).reason.startswith("it resolved before this could be sent")
    assert ruling(one(opened(1)), over, back).reason == ""
    assert ruling(one(opened(1)), one(changed(2))).reason == ""
    assert ruling(one(resolved(2)), one(resolved(4))).reason == ""


def test_an_incident_that_was_taken_needs_no_reminder_and_is_told_all_the_same() -> None:
    first = one(opened(1))
    reminder = replace(sent(opened(1)), repeat=1, state=NoticeState.DUE, sent_at=None)
    by_somebody, change = one(taken(2)), replace(one(changed(2)), verdict=Verdict.SUSPECT)
    assert ruling(reminder, sent(opened(1)), by_somebody).verdict is Verdict.TAKEN
    assert ruling(reminder, sent(opened(1)), change).verdict is not Verdict.TAKEN
    assert ruling(first, by_somebody).verdict is Verdict.FIRST


@pytest.mark.parametrize("waits", [(60.0, 90.0), (90.0, 60.0)])
def test_after_two_that_were_asked_to_wait_the_next_follows_the_later(
    waits: tuple[float, float],
) -> None:
    older = [tried(opened(1), waits[0]), tried(changed(2), waits[1])]
    found = ruling(replace(one(changed(3)), verdict=Verdict.FIRST), *older)
    assert found.verdict is Verdict.BACKING_OFF
    assert found.due_at == NOON + seconds(90.001)


def test_of_two_on_their_way_the_one_that_takes_longer_counts() -> None:
    ways = [replace(attempt_started(one(opened(1)), NOON, 0.0), due_at=NOON)]
    ways.append(replace(attempt_started(one(changed(2)), NOON, 0.0), due_at=NOON + seconds(6)))
    found = ruling(one(changed(3)), *ways, now=NOON + seconds(10))
    assert (found.verdict, found.due_at) == (Verdict.WAITS, NOON + seconds(20))


def test_what_may_have_been_received_stays_so_whatever_is_decided() -> None:
    waits = Ruling(verdict=Verdict.SILENCED, due_at=NOON + HOUR)
    going = attempt_started(one(opened()), NOON, 15.0)
    assert ruled(going, waits, NOON).perhaps_told
    assert ruled(replace(going, in_flight=False, perhaps_told=True), waits, NOON).perhaps_told
    assert not ruled(replace(going, in_flight=False), waits, NOON).perhaps_told


def test_it_is_back_for_whom_an_earlier_spell_was_told_and_no_other() -> None:
    told, over = sent(opened(1)), one(resolved(2))
    assert ruling(one(changed(4)), told, over, one(returned(3))).verdict is not Verdict.FIRST
    held = replace(one(opened(1)), state=NoticeState.NOT_SENT)
    back = replace(one(returned(3)), state=NoticeState.NOT_SENT)
    assert ruling(
        one(changed(4)), held, replace(over, state=NoticeState.NOT_SENT), back
    ).verdict is (Verdict.FIRST)
    # An end that may have been received counts as heard.
    end = replace(over, perhaps_told=True, state=NoticeState.DEAD)
    assert ruling(one(changed(4)), held, end, back).verdict is Verdict.RETURNED


def test_why_nobody_was_told_is_the_last_reason_of_the_spell() -> None:
    def reason(*older: Notice) -> str:
        found = ruling(one(resolved(5)), *older)
        assert found.verdict is Verdict.NEVER_TOLD
        return found.reason

    held = replace(one(opened(1)), state=NoticeState.NOT_SENT, verdict=Verdict.NOT_ROUTED)
    silenced = replace(one(changed(2)), state=NoticeState.SUPERSEDED, verdict=Verdict.SILENCED)
    replaced = replace(silenced, verdict=Verdict.SUPERSEDED)
    by_somebody = replace(one(taken(3)), state=NoticeState.NOT_SENT, verdict=Verdict.TAKEN)
    assert reason(held, by_somebody).endswith(Verdict.NOT_ROUTED.value)
    assert reason(held, silenced).endswith(Verdict.SILENCED.value)
    assert reason(held, replaced).endswith(Verdict.NOT_ROUTED.value)
    assert reason(replaced) == ""


def test_what_was_perhaps_told_and_never_ended_is_not_back() -> None:
    unclear = Retry(reason="no answer", perhaps_received=True)
    (tried_once,) = attempt_ended(
        attempt_started(one(opened(1)), NOON, 15.0), unclear, NOON, 0.5, SETTINGS
    )
    dropped = replace(tried_once, state=NoticeState.SUPERSEDED, due_at=None)
    assert ruling(one(changed(2)), dropped).verdict is Verdict.FIRST


def test_a_step_that_is_decided_again_takes_nothing_back() -> None:
    waiting = replace(one(opened(1)), due_at=NOON + HOUR)
    again = decide(opened(1), [CHAT], [waiting], NOON, SETTINGS)
    assert [(it.id, it.state) for it in again] == [(waiting.id, NoticeState.DUE)]


def test_a_message_from_a_clock_that_was_ahead_was_sent_just_now() -> None:
    found = ruling(one(changed(2)), sent(opened(1), NOON + seconds(60)))
    assert found.verdict is Verdict.TOLD_RECENTLY
    assert found.reason.startswith("last update 0 s ago")


REMINDED = seconds(SETTINGS.repeat_seconds)


@pytest.mark.parametrize(
    ("before", "now", "after", "verdict"),
    [
        ({}, {}, REMINDED - timedelta(microseconds=1), Verdict.CHANGED),
        ({}, {}, REMINDED, Verdict.STILL_STANDING),
        ({"severity": Severity.WARNING}, {}, REMINDED, Verdict.WORSE),
        ({}, {"impact": Impact(gpus=9)}, REMINDED, Verdict.GREW),
        ({}, {"title": "a cable is loose"}, REMINDED, Verdict.EXPLAINED),
    ],
)
def test_when_a_reminder_is_due_a_change_is_told_as_one_unless_it_says_more(
    before: dict[str, Any], now: dict[str, Any], after: timedelta, verdict: Verdict
) -> None:
    told = sent(opened(1, **before))
    assert ruling(one(changed(2, **now)), told, now=NOON + after).verdict is verdict


@pytest.mark.parametrize(
    ("newer", "verdict"),
    [(Verdict.LATE, Verdict.UNREMARKABLE), (Verdict.TAKEN, Verdict.TAKEN)],
)
def test_a_minor_change_of_what_somebody_took_since_is_theirs(
    newer: Verdict, verdict: Verdict
) -> None:
    hook, mild = replace(CHAT, every_change=False), {"severity": Severity.WARNING}
    beside = (sent(opened(1, **mild)), replace(one(changed(3, **mild)), verdict=newer))
    minor = one(changed(2, **mild))
    case = Case(notice=minor, profile=hook, siblings=beside, now=NOON + HOUR, settings=SETTINGS)
    assert judge(case).verdict is verdict


# --- owners of many idle jobs ---------------------------------------------------------------------


def of_owner(most: int, *hours: float, stage: str = "first notice") -> Ruling:
    """Of a notice to an owner who was told others so many hours ago."""
    step = notice(a_holder(), stage, FOR_JOBS, Idleness.NOTHING_COMPUTED, NOON)
    settings = replace(SETTINGS, idle_notices_per_day=most)
    (made,) = decide(step, [OWNERS], [], NOON, settings)
    told = tuple(NOON - timedelta(hours=it) for it in hours)
    return judge(
        Case(
            notice=made,
            profile=OWNERS,
            siblings=(),
            now=NOON,
            settings=settings,
            sent_to_owner=told,
        )
    )


@pytest.mark.parametrize(
    ("most", "hours", "due_in"),
    [
        (2, (1,), None),
        (2, (6, 1, 5, 2), 22),
        (1, (3,), 21),
        (1, (23.99,), 0.01),
        (1, (24,), None),
        (0, (1, 2), None),
    ],
)
def test_an_owner_hears_of_so_many_idle_jobs_within_a_day(
    most: int, hours: tuple[float, ...], due_in: float | None
) -> None:
    found = of_owner(most, *hours)
    if due_in is None:
        assert found.verdict is Verdict.FIRST
    else:
        assert found.verdict is Verdict.OWNER_MAXIMUM
        assert found.due_at == NOON + timedelta(hours=24 - hours[0] if len(hours) == 1 else due_in)


def test_that_a_job_was_ended_is_always_told() -> None:
    assert of_owner(1, 1.0, stage=END).verdict is Verdict.FIRST
