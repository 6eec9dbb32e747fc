"""What happens on a node that somebody took out wakes nobody, and everybody when it is back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide, judge
from alerts.messages.channel import Delivered
from alerts.messages.message import message
from alerts.routing.case import Case, ChannelProfile
from alerts.routing.notice import Kind, Notice, NoticeState, Verdict
from gpuvigil.config import AlertsSettings, RouteSettings
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Severity, Transition

from .examples import NOON, a_transition, changed, opened, resolved

PAGER = ChannelProfile(name="pager", minimum_severity=Severity.WARNING)
BOSS = ChannelProfile(name="boss", minimum_severity=Severity.WARNING)
DRAINED = "drained: fan [alice@2026-01-31T11:00:00]"
HOUR = timedelta(hours=1)
PLAIN = AlertsSettings()
ESCALATES = AlertsSettings(
    routes=(RouteSettings(receivers=("pager",), escalate_to=("boss",), escalate_seconds=900.0),)
)


def told(
    step: Transition, earlier: Sequence[Notice] = (), settings: AlertsSettings = PLAIN
) -> Notice:
    """The newest notice for the pager; replaced ones are left out."""
    *_, newest = decide(step, [PAGER], list(earlier), step.at, settings)
    return newest


def sent(notice: Notice, at: datetime) -> Notice:
    return attempt_ended(attempt_started(notice, at, 15.0), Delivered(), at, 0.5, PLAIN, 0.0)[0]


def test_it_is_held_with_the_schedulers_reason_and_told_with_the_step_that_it_is_back() -> None:
    held = told(opened(held=DRAINED))
    assert (held.verdict, held.state) == (Verdict.OUT_OF_SERVICE, NoticeState.HELD)
    assert DRAINED in held.reason
    back = told(changed(2, at=NOON + HOUR), [held])
    assert (back.verdict, back.kind, back.due_at) == (Verdict.FIRST, Kind.FIRED, NOON + HOUR)


def test_who_was_told_before_is_told_again_at_once_and_hears_nothing_between() -> None:
    first = sent(told(opened()), NOON)
    second = NOON + timedelta(seconds=30)
    held = told(changed(2, at=second, held=DRAINED), [first])
    worse = told(changed(3, at=second, held=DRAINED, severity=Severity.CRITICAL), [first, held])
    assert {held.verdict, worse.verdict} == {Verdict.OUT_OF_SERVICE}
    # Within the update interval all the same.
    back = told(changed(4, at=NOON + timedelta(seconds=60)), [first, held, worse])
    assert (back.verdict, back.kind) == (Verdict.RESUMED, Kind.UPDATED)
    said = message(back, NOON + HOUR, "https://g.example.org")
    assert said.loud
    assert "In service again and not cured: " in said.summary
    after = told(changed(5, at=NOON + HOUR), [first, held, worse, sent(back, NOON + HOUR / 2)])
    assert after.verdict is Verdict.CHANGED


def test_that_it_is_over_is_told_to_whoever_was_told_that_it_began() -> None:
    first = sent(told(opened()), NOON)
    held = told(changed(2, held=DRAINED), [first])
    assert told(resolved(3, held=DRAINED), [first, held]).verdict is Verdict.OVER
    unsaid = told(opened(held=DRAINED))
    assert told(resolved(2, held=DRAINED), [unsaid]).verdict is Verdict.NEVER_TOLD


def test_the_second_receiver_has_the_same_time_from_when_the_node_is_back() -> None:
    both = [PAGER, BOSS]
    earlier = decide(opened(held=DRAINED), both, [], NOON, ESCALATES)
    assert {one.verdict for one in earlier} == {Verdict.OUT_OF_SERVICE}
    back = changed(2, at=NOON + HOUR)
    decided = decide(back, both, earlier, back.at, ESCALATES)
    by_channel = {one.channel: one for one in decided}
    assert by_channel["pager"].verdict is Verdict.FIRST
    boss = by_channel["boss"]
    assert (boss.verdict, boss.due_at) == (
        Verdict.ESCALATES,
        NOON + HOUR + timedelta(seconds=900),
    )
    case = Case(
        notice=boss,
        profile=BOSS,
        siblings=tuple(one for one in earlier if one.channel == "boss"),
        others=(*(one for one in earlier if one.channel == "pager"), by_channel["pager"]),
        now=NOON + HOUR + timedelta(seconds=901),
        settings=ESCALATES,
    )
    assert judge(case).verdict is Verdict.ESCALATED


steps = st.lists(st.sampled_from(["", DRAINED]), min_size=1, max_size=8)


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(steps, st.booleans())
def test_nothing_is_said_while_it_is_held_and_once_it_is_not_all_is_said(
    story: list[str], delivered: bool
) -> None:
    notices: list[Notice] = []
    for number, why in enumerate(story, 1):
        at = NOON + number * timedelta(seconds=20)
        step = a_transition(
            number,
            Signal.CONFIRMED if number == 1 else Signal.CHANGED,
            State.OPEN,
            State.SUSPECT if number == 1 else State.OPEN,
            at,
            held=why,
        )
        was_held = any(one.verdict is Verdict.OUT_OF_SERVICE for one in notices[-1:])
        newest = told(step, notices)
        if why:
            assert newest.state is NoticeState.HELD
        elif was_held or number == 1:
            assert newest.due_at == at
            assert newest.verdict in {Verdict.FIRST, Verdict.RESUMED}
        if newest.due_at == at and delivered:
            newest = sent(newest, at)
        elif newest.state is NoticeState.DUE:
            newest = replace(newest, state=NoticeState.SUPERSEDED, due_at=None)
        notices.append(newest)
