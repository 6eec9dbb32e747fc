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
from gpuvigil.model import OutOfService, Severity, Transition

from .examples import NOON, a_transition, changed, opened, resolved

PAGER = ChannelProfile(name="pager", minimum_severity=Severity.WARNING)
BOSS = ChannelProfile(name="boss", minimum_severity=Severity.WARNING)
OUT = OutOfService("DRAIN", "drained: fan [alice@2026-01-31T11:00:00]")
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


def test_it_is_not_sent_with_the_schedulers_reason_and_told_with_the_step_that_it_is_back() -> None:
    quiet = told(opened(out_of_service=OUT))
    assert (quiet.verdict, quiet.state) == (Verdict.OUT_OF_SERVICE, NoticeState.NOT_SENT)
    assert OUT.reason in quiet.reason
    back = told(changed(2, at=NOON + HOUR), [quiet])
    assert (back.verdict, back.kind, back.due_at) == (Verdict.FIRST, Kind.FIRED, NOON + HOUR)


def test_who_was_told_before_is_told_again_at_once_and_hears_nothing_between() -> None:
    first = sent(told(opened()), NOON)
    second = NOON + timedelta(seconds=30)
    quiet = told(changed(2, at=second, out_of_service=OUT), [first])
    worse = told(
        changed(3, at=second, out_of_service=OUT, severity=Severity.CRITICAL), [first, quiet]
    )
    assert {quiet.verdict, worse.verdict} == {Verdict.OUT_OF_SERVICE}
    # Within the update interval all the same.
    back = told(changed(4, at=NOON + timedelta(seconds=60)), [first, quiet, worse])
    assert (back.verdict, back.kind) == (Verdict.RESUMED, Kind.UPDATED)
    said = message(back, NOON + HOUR, "https://g.example.org")
    assert said.loud
    assert "Back in service, but not cured: " in said.summary
    after = told(changed(5, at=NOON + HOUR), [first, quiet, worse, sent(back, NOON + HOUR / 2)])
    assert after.verdict is Verdict.CHANGED


def test_that_it_is_over_is_told_to_whoever_was_told_that_it_began() -> None:
    first = sent(told(opened()), NOON)
    quiet = told(changed(2, out_of_service=OUT), [first])
    assert told(resolved(3, out_of_service=OUT), [first, quiet]).verdict is Verdict.OVER
    unsaid = told(opened(out_of_service=OUT))
    assert told(resolved(2, out_of_service=OUT), [unsaid]).verdict is Verdict.NEVER_TOLD


def test_the_second_receiver_has_the_same_time_from_when_the_node_is_back() -> None:
    both = [PAGER, BOSS]
    earlier = decide(opened(out_of_service=OUT), both, [], NOON, ESCALATES)
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


steps = st.lists(st.sampled_from([None, OUT]), min_size=1, max_size=8)


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(steps, st.booleans())
def test_nothing_is_said_while_it_is_out_of_service_and_all_once_it_is_back(
    story: list[OutOfService | None], delivered: bool
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
            out_of_service=why,
        )
        was_out = any(one.verdict is Verdict.OUT_OF_SERVICE for one in notices[-1:])
        newest = told(step, notices)
        if why is not None:
            assert newest.state is NoticeState.NOT_SENT
        elif was_out or number == 1:
            assert newest.due_at == at
            assert newest.verdict in {Verdict.FIRST, Verdict.RESUMED}
        if newest.due_at == at and delivered:
            newest = sent(newest, at)
        elif newest.state is NoticeState.DUE:
            newest = replace(newest, state=NoticeState.SUPERSEDED, due_at=None)
        notices.append(newest)
