"""A channel that was not there when something began is told that it stands, by the ordinary rules."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.decisions.attempts import attempt_ended, attempt_started, orphaned
from alerts.decisions.decide import decide
from alerts.delivery.channels_added import notify_new_channels
from alerts.delivery.hub_access import Context
from alerts.messages.channel import Delivered
from alerts.messages.self_monitoring import analyzer_trouble, digest
from alerts.messages.self_monitoring import opened as trouble_opened
from alerts.routing.case import ChannelProfile
from alerts.routing.notice import Kind, Notice, NoticeState
from alerts.routing.situation import SituationReader
from gpuvigil.clock import ManualClock
from gpuvigil.config import AlertsSettings, RouteSettings
from gpuvigil.lifecycle import Signal
from gpuvigil.log import Log
from gpuvigil.model import Record, RecordKind, Severity, Silence, Transition
from tests.receiver import Receiver
from tests.servers import QuickHub

from .examples import (
    CHAT,
    NOON,
    REAL,
    SETTINGS,
    changed,
    opened,
    resolved,
    seconds,
    taken,
)
from .month.shelf import ShelfHub, Shelves
from .process import AlertsProcess
from .test_self_monitoring import a_pulse
from .test_service import Story, name, to

MAIL = replace(CHAT, name="mail")
DIGESTING = replace(SETTINGS, routes=(RouteSettings(receivers=("chat",), digest=True),))


class Past:
    """A hub with what was decided so far, and an alerts process that starts there."""

    def __init__(self, settings: AlertsSettings = SETTINGS) -> None:
        self.clock = ManualClock(NOON)
        self.hub = ShelfHub(Shelves(), self.clock)
        self.context = Context(
            connect=lambda: self.hub,
            owner="a",
            settings=settings,
            clock=self.clock,
            stop=threading.Event(),
            log=Log("alerts"),
        )

    def decided(
        self, step: Transition, *routes: ChannelProfile, told: bool = False, incident: bool = True
    ) -> None:
        """It happened while these channels were configured."""
        earlier = list(self.notices())
        notices = decide(step, routes, earlier, self.clock.now(), self.context.settings)
        if told:
            now = self.clock.now()
            ended = (
                attempt_ended(attempt_started(one, now, 15.0), Delivered(), now, 0.5, SETTINGS)
                for one in notices
            )
            notices = [one for each in ended for one in each]
        kept = [replace(step.to_record(), due_at=None)]
        kept += [Record.from_json(step.snapshot)] if incident else []
        self.hub.write_records([*kept, *(one.to_record() for one in notices)])

    def start(self, *routes: ChannelProfile) -> list[str]:
        """What is decided when a process with these channels starts: `mail: first`."""
        before = {one.id: one.version for one in self.notices()}
        notify_new_channels(
            self.hub, self.context, routes, SituationReader(self.hub, self.context.settings)
        )
        fresh = [one for one in self.notices() if before.get(one.id) != one.version]
        return [f"{one.channel}: {one.verdict.name.lower()}" for one in fresh]

    def notices(self) -> Iterator[Notice]:
        return map(Notice.from_record, self.hub.records(RecordKind.NOTICE))


def test_the_first_channel_is_told_what_stands_and_told_once() -> None:
    past = Past()
    past.decided(opened())
    assert past.start() == []
    assert past.start(CHAT, MAIL) == ["chat: first", "mail: first"]
    assert past.start(CHAT, MAIL) == []


def test_a_second_channel_is_told_and_the_one_that_was_told_is_not() -> None:
    past = Past()
    past.decided(opened(), CHAT, told=True)
    assert past.start(CHAT) == []
    assert past.start(CHAT, MAIL) == ["mail: first"]


def test_what_was_cut_off_and_ended_while_its_channel_was_away_is_told_as_over() -> None:
    past = Past()
    past.decided(opened(), CHAT)
    (due,) = past.notices()
    past.hub.write_records([attempt_started(due, past.clock.now(), 15.0).to_record()])  # and killed
    past.decided(resolved())
    past.clock.advance(60.0)
    assert past.start(CHAT) == ["chat: waits"]
    assert [one.kind for one in past.notices()][-1] is Kind.RESOLVED
    assert past.start(CHAT) == []


@pytest.mark.parametrize(
    ("steps", "profile", "said"),
    [
        ([opened(), resolved()], CHAT, []),
        ([opened(severity=Severity.INFO)], CHAT, ["chat: below_minimum"]),
        ([opened()], replace(CHAT, pager=True), ["chat: simulated"]),
        ([opened(), taken()], CHAT, ["chat: taken"]),
        ([opened(), changed()], CHAT, ["chat: first"]),
    ],
)
def test_the_ordinary_rules_decide(
    steps: Sequence[Transition], profile: ChannelProfile, said: list[str]
) -> None:
    past = Past()
    for step in steps:
        past.decided(step)
    assert past.start(profile) == said


def test_a_silence_and_the_routes_hold_for_what_stood_before() -> None:
    silence = Silence(
        id="s",
        matchers=('cluster="simulated"',),
        by="ada",
        reason="",
        at=NOON,
        starts_at=NOON,
        ends_at=NOON + seconds(600),
    )
    past = Past()
    past.decided(opened())
    past.hub.write_records([silence.to_record()])
    assert past.start(CHAT) == ["chat: silenced"]
    routed = Past(replace(SETTINGS, routes=(RouteSettings(receivers=("mail",)),)))
    routed.decided(opened())
    assert routed.start(CHAT, MAIL) == ["chat: not_routed", "mail: first"]


def test_who_was_away_hears_what_changed_meanwhile_and_not_that_it_began() -> None:
    past = Past()
    past.decided(opened(severity=Severity.WARNING), CHAT, told=True)
    past.decided(changed(severity=Severity.CRITICAL), MAIL, told=True)
    assert past.start(CHAT, MAIL) == ["chat: worse"]


def test_what_came_due_while_its_channel_was_away_is_due_again() -> None:
    past = Past()
    past.decided(opened(), CHAT)
    (notice,) = past.notices()
    past.hub.write_records([orphaned(notice).to_record()])
    assert past.start(CHAT) == ["chat: queued"]
    (again,) = past.notices()
    assert (again.state, again.due_at) == (NoticeState.DUE, NOON)
    assert past.start(CHAT) == []


def test_what_nobody_has_decided_yet_is_left_to_whoever_claims_it() -> None:
    past = Past()
    step = opened()
    past.hub.write_records([Record.from_json(step.snapshot), step.to_record()])
    assert past.start(CHAT) == []


def test_the_most_severe_of_what_stands_is_decided_first() -> None:
    past = Past()
    for id_, severity in (("i-1", Severity.WARNING), ("i-2", Severity.CRITICAL)):
        past.decided(opened(id=id_, severity=severity, subject=REAL))
    past.start(CHAT)
    mine = [one for one in past.notices() if one.channel == "chat"]
    assert [one.incident for one in mine] == ["i-2", "i-1"]


def test_a_trouble_of_gpuvigils_own_is_told_too_and_no_old_digest() -> None:
    silent = analyzer_trouble(a_pulse(NOON - seconds(300)), NOON)
    assert silent is not None
    (of_the_day,) = decide(opened(), [CHAT], [], NOON, DIGESTING)
    steps = [
        trouble_opened(silent, None, NOON),
        digest("chat", [of_the_day.to_record()], NOON, NOON + seconds(60)),
    ]
    past = Past()
    for step in steps:
        assert step is not None
        past.decided(step, incident=False)
    assert past.start(CHAT) == ["chat: first"]


@pytest.mark.server
def test_what_stood_when_the_first_channel_came_arrives_there_once(tmp_path: Path) -> None:
    channel = name()
    for folder in ("hub", "without", "with"):
        (tmp_path / folder).mkdir()
    with QuickHub(tmp_path / "hub") as server, Receiver() as receiver:
        story, over = Story(server.hub()), Story(server.hub())
        with AlertsProcess(server, tmp_path / "without") as alerts:
            story.tell(Signal.CONFIRMED)
            over.tell(Signal.CONFIRMED, Signal.CLEARED)
            story.wait_for("held")
            over.wait_for("held", "held")
            assert alerts.stop() == 0
        server.hub().write_records([story.incident(), over.incident()])
        with AlertsProcess(server, tmp_path / "with", **{channel: to(receiver)}) as alerts:
            receiver.wait_for(1)
            story.wait_for("held", "sent")
            assert alerts.stop() == 0
            alerts.start()
            fresh = Story(server.hub())
            fresh.tell(Signal.CONFIRMED)
            keys = [one.headers["Idempotency-Key"] for one in receiver.wait_for(2)]
    assert keys == [f"{one.id}:{channel}:1" for one in (story, fresh)]
