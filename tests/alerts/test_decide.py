"""Every yes and every no has its named reason."""

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import RULES, decide, judge
from alerts.messages.channel import Delivered, Outcome, Refused, Retry
from alerts.routing.case import Case, ChannelProfile
from alerts.routing.notice import Kind, Notice, NoticeState, Verdict
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Severity, Transition

from .examples import (
    CHAT,
    MARKED,
    NOON,
    REAL,
    SETTINGS,
    a_transition,
    changed,
    opened,
    resolved,
    returned,
    seconds,
    taken,
)


def flapped(**changes: Any) -> Transition:
    return a_transition(3, Signal.FLAPPED, State.FLAPPING, State.RESOLVED, **changes)


PAGER = ChannelProfile(name="chat", minimum_severity=Severity.WARNING, pager=True)
QUIET = ChannelProfile(name="chat", minimum_severity=Severity.WARNING, send_resolved=False)
UNREACHED = Retry(reason="refused the connection")
UNCLEAR = Retry(reason="no answer within 10 s", perhaps_received=True)


def the_notice(
    transition: Transition,
    earlier: list[Notice] | None = None,
    now: datetime = NOON,
    profile: ChannelProfile = CHAT,
) -> Notice:
    """The newest of what is decided."""
    return decide(transition, [profile], earlier or [], now, SETTINGS)[-1]


def after(transition: Transition, outcome: Outcome, now: datetime = NOON) -> Notice:
    """A first notice about `transition`, after one attempt."""
    return attempt_ended(
        attempt_started(the_notice(transition), now, 15.0), outcome, now, 0.5, SETTINGS
    )[0]


def sent(transition: Transition, now: datetime = NOON) -> Notice:
    return after(transition, Delivered(), now)


def dropped(transition: Transition, outcome: Outcome) -> Notice:
    """A notice that was tried once and then superseded."""
    tried = after(transition, outcome)
    return replace(tried, state=NoticeState.SUPERSEDED, verdict=Verdict.SUPERSEDED, due_at=None)


SUSPECT = a_transition(1, to_state=State.SUSPECT)
DISMISSED = a_transition(2, Signal.CLEARED, State.DISMISSED)
WARNING = Severity.WARNING
INFO = Severity.INFO
LATER = NOON + seconds(60)
MUCH_LATER = NOON + seconds(301)


@pytest.mark.parametrize(
    ("transition", "earlier", "now", "profile", "verdict", "kind", "state"),
    [
        (opened(), [], NOON, CHAT, "FIRST", "fired", "due"),
        (opened(), [], NOON, PAGER, "SIMULATED", "fired", "held"),
        (opened(subject=REAL), [], NOON, PAGER, "FIRST", "fired", "due"),
        (opened(subject=MARKED), [], NOON, PAGER, "SELFTEST", "fired", "held"),
        (opened(subject=MARKED), [], NOON, CHAT, "SELFTEST", "fired", "held"),
        (resolved(subject=MARKED), [], LATER, CHAT, "SELFTEST", "resolved", "held"),
        (SUSPECT, [], NOON, CHAT, "SUSPECT", "fired", "held"),
        (DISMISSED, [the_notice(SUSPECT)], NOON, CHAT, "DISMISSED", "resolved", "held"),
        (opened(severity=INFO), [], NOON, CHAT, "BELOW_MINIMUM", "fired", "held"),
        (opened(severity=WARNING), [], NOON, CHAT, "FIRST", "fired", "due"),
        (opened(late=True), [], NOON, CHAT, "LATE", "fired", "held"),
        (resolved(late=True), [], NOON, CHAT, "NEVER_TOLD", "resolved", "held"),
        (changed(), [sent(opened())], LATER, CHAT, "TOLD_RECENTLY", "updated", "due"),
        (changed(), [sent(opened())], MUCH_LATER, CHAT, "CHANGED", "updated", "due"),
        (changed(), [sent(opened(severity=WARNING))], LATER, CHAT, "WORSE", "updated", "due"),
        (
            changed(severity=INFO),
            [sent(opened())],
            MUCH_LATER,
            CHAT,
            "CHANGED",
            "updated",
            "due",
        ),
        (changed(late=True), [sent(opened())], MUCH_LATER, CHAT, "CHANGED", "updated", "due"),
        (taken(), [sent(opened())], LATER, CHAT, "TAKEN", "fired", "held"),
        (resolved(), [sent(opened())], LATER, CHAT, "OVER", "resolved", "due"),
        (resolved(), [sent(opened())], LATER, QUIET, "RESOLVED_OFF", "resolved", "held"),
        (resolved(), [], LATER, CHAT, "NEVER_TOLD", "resolved", "held"),
        (
            resolved(severity=INFO),
            [the_notice(opened(severity=INFO))],
            LATER,
            CHAT,
            "NEVER_TOLD",
            "resolved",
            "held",
        ),
        (
            resolved(),
            [after(opened(), Refused(reason="400"))],
            LATER,
            CHAT,
            "NEVER_TOLD",
            "resolved",
            "held",
        ),
        (resolved(), [dropped(opened(), UNREACHED)], LATER, CHAT, "NEVER_TOLD", "resolved", "held"),
        (resolved(), [dropped(opened(), UNCLEAR)], LATER, CHAT, "OVER", "resolved", "due"),
        (returned(), [sent(opened()), sent(resolved())], LATER, CHAT, "RETURNED", "fired", "due"),
        # It is not back for whom it never was there: a silence, or the night, kept it back.
        (returned(), [], LATER, CHAT, "FIRST", "fired", "due"),
        (returned(), [dropped(opened(), UNREACHED)], LATER, CHAT, "FIRST", "fired", "due"),
        (returned(), [dropped(opened(), UNCLEAR)], LATER, CHAT, "RETURNED", "fired", "due"),
        (
            returned(severity=WARNING),
            [sent(opened(severity=WARNING)), sent(resolved(severity=WARNING), LATER)],
            LATER,
            CHAT,
            "TOLD_RECENTLY",
            "fired",
            "due",
        ),
        (
            returned(severity=WARNING),
            [sent(opened(severity=WARNING)), sent(resolved(severity=WARNING))],
            MUCH_LATER,
            CHAT,
            "RETURNED",
            "fired",
            "due",
        ),
        (
            flapped(severity=WARNING),
            [sent(opened(severity=WARNING)), sent(resolved(severity=WARNING), LATER)],
            LATER,
            CHAT,
            "RETURNED",
            "fired",
            "due",
        ),
        (resolved(), [the_notice(opened())], NOON, CHAT, "WAITS", "resolved", "due"),
        (opened(), [the_notice(resolved())], NOON, CHAT, "SUPERSEDED", "fired", "superseded"),
    ],
)
def test_every_decision_has_its_named_reason(
    transition: Transition,
    earlier: list[Notice],
    now: datetime,
    profile: ChannelProfile,
    verdict: str,
    kind: str,
    state: str,
) -> None:
    notice = the_notice(transition, earlier, now, profile)
    assert (notice.verdict.name, notice.kind.value, notice.state.value) == (verdict, kind, state)
    assert notice.to_record().body["reason"]


def test_without_a_channel_the_decision_is_kept_and_says_so() -> None:
    (notice,) = decide(opened(), [], [], NOON, SETTINGS)
    assert notice.verdict is Verdict.NO_CHANNEL
    assert notice.to_record().due_at is None


def test_every_channel_is_decided_for_by_itself() -> None:
    strict = ChannelProfile(name="strict", minimum_severity=Severity.CRITICAL)
    notices = decide(opened(severity=WARNING), [CHAT, strict], [], NOON, SETTINGS)
    assert [one.verdict for one in notices] == [Verdict.FIRST, Verdict.BELOW_MINIMUM]
    assert len({one.id for one in notices}) == 2


def test_an_update_inside_the_interval_is_due_when_the_interval_ends() -> None:
    notice = the_notice(changed(), [sent(opened())], LATER)
    assert notice.due_at == NOON + seconds(300)
    assert "last update 60 s ago" in notice.reason


def test_a_waiting_update_is_replaced_by_the_newer_one() -> None:
    first = sent(opened())
    waiting = the_notice(changed(2), [first], LATER)
    old, new = decide(changed(3), [CHAT], [first, waiting], LATER, SETTINGS)
    assert (old.id, old.state, old.due_at) == (waiting.id, NoticeState.SUPERSEDED, None)
    assert old.version == waiting.version + 1
    assert (new.verdict, new.due_at) == (Verdict.TOLD_RECENTLY, NOON + seconds(300))


def test_a_message_on_its_way_is_waited_for_and_not_replaced() -> None:
    going = attempt_started(the_notice(opened()), NOON, 15.0)
    (notice,) = decide(resolved(), [CHAT], [going], NOON + seconds(1), SETTINGS)
    assert notice.verdict is Verdict.WAITS


def test_the_end_waits_as_long_as_the_receiver_asked() -> None:
    asked = after(opened(), Retry(reason="429", after_seconds=120.0))
    old, new = decide(resolved(), [CHAT], [asked], LATER, SETTINGS)
    assert old.state is NoticeState.SUPERSEDED
    assert new.verdict is Verdict.BACKING_OFF
    assert asked.due_at is not None
    assert new.due_at is not None
    assert new.due_at > asked.due_at


def test_what_comes_back_and_goes_inside_the_interval_is_not_told() -> None:
    told = [sent(opened(severity=WARNING)), sent(resolved(severity=WARNING), LATER)]
    back = the_notice(returned(severity=WARNING), told, LATER + seconds(2))
    assert back.due_at == LATER + seconds(300)
    old, new = decide(
        resolved(4, severity=WARNING), [CHAT], [*told, back], LATER + seconds(4), SETTINGS
    )
    assert (old.id, old.state) == (back.id, NoticeState.SUPERSEDED)
    kept_back = "last update sent less than the update interval ago"
    assert old.reason == f"it resolved before this could be sent: {kept_back}"
    assert (new.verdict, new.state) == (Verdict.NEVER_TOLD, NoticeState.NOT_SENT)
    assert new.reason == "it fired again and resolved before that could be sent"


def test_what_changes_before_its_return_was_told_waits_as_the_return_does() -> None:
    told = [sent(opened(severity=WARNING)), sent(resolved(severity=WARNING), LATER)]
    back = the_notice(returned(severity=WARNING), told, LATER + seconds(2))
    _, new = decide(
        changed(4, severity=WARNING), [CHAT], [*told, back], LATER + seconds(4), SETTINGS
    )
    assert (new.verdict, new.due_at) == (Verdict.TOLD_RECENTLY, LATER + seconds(300))
    assert new.due_at is not None
    case = Case(notice=new, profile=CHAT, siblings=tuple(told), now=new.due_at, settings=SETTINGS)
    assert judge(case).verdict is Verdict.RETURNED


def test_what_came_back_and_stays_is_told_when_the_interval_ends() -> None:
    told = (sent(opened(severity=WARNING)), sent(resolved(severity=WARNING), LATER))
    back = the_notice(returned(severity=WARNING), list(told), LATER)
    assert back.due_at is not None
    case = Case(notice=back, profile=CHAT, siblings=told, now=back.due_at, settings=SETTINGS)
    ruling = judge(case)
    assert (ruling.verdict, ruling.kind, ruling.send_now) == (Verdict.RETURNED, Kind.FIRED, True)


def test_what_began_and_ended_while_the_receiver_was_away_says_so() -> None:
    tried = after(opened(), UNREACHED)
    assert tried.due_at is not None
    waiting = replace(tried, due_at=LATER + seconds(60))
    old, end = decide(resolved(), [CHAT], [waiting], LATER, SETTINGS)
    assert old.reason == "it resolved before this could be sent; refused the connection"
    case = Case(
        notice=end, profile=CHAT, siblings=(old,), now=LATER + seconds(61), settings=SETTINGS
    )
    ruling = judge(case)
    assert ruling.verdict is Verdict.NEVER_TOLD
    assert ruling.reason == (
        "it began and ended while chat could not be reached: refused the connection"
    )


def test_who_was_not_told_that_it_began_can_see_why_not_when_it_is_over() -> None:
    quiet = the_notice(opened(severity=INFO))
    over = the_notice(resolved(severity=INFO), [quiet], LATER)
    assert over.reason == (
        "no alert was sent, so no resolved message is sent: below the channel's minimum severity"
    )


def reminder_of(transition: Transition) -> tuple[Notice, Notice]:
    going = attempt_started(the_notice(transition), NOON, 15.0)
    told, reminder = attempt_ended(going, Delivered(), NOON, 0.5, SETTINGS)
    return told, reminder


def test_a_critical_incident_that_stands_is_told_again() -> None:
    told, reminder = reminder_of(opened())
    assert reminder.due_at == NOON + seconds(14_400)
    case = Case(
        notice=reminder,
        profile=CHAT,
        siblings=(told,),
        now=NOON + seconds(14_400),
        settings=SETTINGS,
    )
    ruling = judge(case)
    assert ruling.send_now
    assert ruling.verdict is Verdict.STILL_STANDING


@pytest.mark.parametrize(
    ("transition", "state", "verdict"),
    [
        (resolved(), NoticeState.SUPERSEDED, Verdict.SUPERSEDED),
        (taken(), NoticeState.NOT_SENT, Verdict.TAKEN),
    ],
)
def test_a_reminder_ends_when_the_incident_is_over_or_taken(
    transition: Transition, state: NoticeState, verdict: Verdict
) -> None:
    told, reminder = reminder_of(opened())
    ended, _ = decide(transition, [CHAT], [told, reminder], LATER, SETTINGS)
    assert "before this could be sent" not in ended.reason
    assert (ended.id, ended.state, ended.verdict) == (reminder.id, state, verdict)


def test_a_warning_is_not_told_again() -> None:
    going = attempt_started(the_notice(opened(severity=WARNING)), NOON, 15.0)
    assert len(attempt_ended(going, Delivered(), NOON, 0.5, SETTINGS)) == 1


def test_the_last_rule_always_speaks_and_no_rule_is_listed_twice() -> None:
    assert len(set(RULES)) == len(RULES)
    told = sent(opened())
    case = Case(
        notice=the_notice(changed()),
        profile=CHAT,
        siblings=(told,),
        now=MUCH_LATER,
        settings=SETTINGS,
    )
    assert judge(case).verdict is Verdict.CHANGED


@pytest.mark.parametrize(
    "notice",
    [
        the_notice(opened()),
        sent(opened()),
        reminder_of(opened())[1],
        the_notice(changed(), [sent(opened())], LATER),
        replace(the_notice(opened()), kind=Kind.UPDATED, last_error="timed out", attempts=3),
    ],
)
def test_a_notice_survives_its_record(notice: Notice) -> None:
    back = Notice.from_record(notice.to_record())
    assert replace(back, reason="") == replace(notice, reason="")
    assert back.reason == (notice.reason or notice.verdict.value)


def test_a_verdict_of_a_newer_version_is_read_as_unreadable() -> None:
    record = the_notice(opened()).to_record()
    newer = replace(record, body={**record.body, "verdict": "moon_is_full"})
    assert Notice.from_record(newer).verdict is Verdict.UNREADABLE


def test_every_reason_is_documented_in_its_words_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs/alerts.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([a-z_]+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert documented == {one.name.lower(): one.value for one in Verdict}
