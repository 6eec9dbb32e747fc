"""What a dispatcher takes in hand, puts back and counts, each just below and just above."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from accounting.efficiency.idle_reason import END, FOR_JOBS, Idleness
from alerts.decisions.decide import decide
from alerts.delivery.backlog import IN_HAND_SECONDS
from alerts.delivery.dispatcher import Dispatcher, hand_out
from alerts.delivery.hub_access import GATHER_SECONDS, POLL_SECONDS, Context
from alerts.idle.idle_notice import notice
from alerts.messages.channel import Delivered, Outcome, Pace, Retry
from alerts.messages.message import Message
from alerts.routing.case import ChannelProfile
from alerts.routing.notice import Notice, NoticeState, Verdict
from gpuvigil.clock import ManualClock, from_text
from gpuvigil.config import AlertsSettings
from gpuvigil.log import Log
from gpuvigil.model import Holder, Record, RecordKind, Severity, Transition

from .examples import CHAT, NOON, REAL, SETTINGS, changed, opened, resolved, seconds
from .month.shelf import ShelfHub, Shelves
from .test_idle import OWNERS, a_holder


@dataclass
class Receiver:
    """A channel that does as it is told while it is told something."""

    profile: ChannelProfile = CHAT
    timeout_seconds: float = 10.0
    # Four are in hand: one at once, and three more until the leases are half over.
    pace: Pace = Pace(burst=1, per_second=0.4)  # noqa: RUF009 - it is frozen
    heard: list[Message] = field(default_factory=list)
    says: Outcome = Delivered()  # noqa: RUF009 - it is frozen
    meanwhile: Callable[[], None] = lambda: None

    def deliver(self, message: Message) -> Outcome:
        self.heard.append(message)
        self.meanwhile()
        return self.says

    def close(self) -> None:
        """There is nothing to close."""


class Office:
    """One channel's dispatcher, and a clock that stands still until it is moved."""

    def __init__(self, profile: ChannelProfile = CHAT, settings: AlertsSettings = SETTINGS) -> None:
        self.clock, self.receiver = ManualClock(NOON), Receiver(profile=profile)
        self.hub = ShelfHub(Shelves(), self.clock)
        self.context = Context(
            connect=lambda: self.hub,
            owner="a",
            settings=settings,
            clock=self.clock,
            stop=threading.Event(),
            log=Log("alerts"),
        )
        self.dispatcher = Dispatcher(self.receiver, self.context)

    def writes(self, name: str, severity: Severity = Severity.WARNING) -> Record:
        """A notice that is due now."""
        step = opened(id=name, subject=REAL, severity=severity)
        (made,) = decide(step, [CHAT], [], self.clock.now(), SETTINGS)
        self.hub.write_records([made.to_record()])
        return made.to_record()

    def hand_out(self) -> None:
        hand_out(self.hub, self.context, {CHAT.name: self.dispatcher})

    def work(self) -> None:
        """Deal with all that is in hand."""
        while self.dispatcher.pulse()["waiting"]:
            self.dispatcher.step()

    def kept(self, name: str) -> Notice:
        """The first notice of an incident, as the hub has it."""
        return Notice.from_record(self.hub.records(RecordKind.NOTICE, parent=name)[0])

    def fails(self, after_seconds: float = 100.0) -> None:
        """A first message is not taken: the receiver is left alone."""
        self.receiver.says = Retry(reason="503", after_seconds=after_seconds)
        self.writes("fails", Severity.CRITICAL)
        self.hand_out()
        self.work()
        self.receiver.says = Delivered()

    def before_its_return(self, rest: float) -> None:
        """Move the clock to so many seconds before the receiver is no longer left alone."""
        until = from_text(str(self.dispatcher.pulse()["paused_until"]))
        self.clock.advance((until - self.clock.now()).total_seconds() - rest)


@pytest.fixture
def office() -> Office:
    return Office()


def test_four_are_in_hand_and_four_more_of_what_is_critical(office: Office) -> None:
    for number in range(4):
        assert office.dispatcher.accept(office.writes(f"w{number}"))
    assert not office.dispatcher.accept(office.writes("w4"))
    # What is in hand already needs no room.
    assert office.dispatcher.accept(office.writes("w3"))
    for number in range(4):
        assert office.dispatcher.accept(office.writes(f"c{number}", Severity.CRITICAL))
    assert not office.dispatcher.accept(office.writes("c4", Severity.CRITICAL))
    assert office.dispatcher.pulse()["waiting"] == 8


def test_nothing_is_taken_while_the_receiver_is_left_alone_for_long(office: Office) -> None:
    office.fails()
    one = office.writes("one")
    office.before_its_return(IN_HAND_SECONDS + 0.001)
    assert not office.dispatcher.accept(one)
    office.before_its_return(IN_HAND_SECONDS)
    assert office.dispatcher.accept(one)


def test_a_short_rest_is_waited_for(office: Office) -> None:
    office.fails()
    office.before_its_return(IN_HAND_SECONDS)
    office.writes("one")
    before = office.clock.now()
    office.hub.claim(RecordKind.NOTICE, "a", lease_seconds=60.0)
    office.dispatcher.accept(office.hub.records(RecordKind.NOTICE, parent="one")[0])
    office.dispatcher.step()
    assert office.clock.now() == before + seconds(IN_HAND_SECONDS)
    assert [it.incident for it in office.receiver.heard] == ["fails", "one"]
    assert office.kept("one").state is NoticeState.SENT


def test_what_is_in_hand_when_the_receiver_fails_is_due_when_it_is_back(office: Office) -> None:
    office.receiver.says = Retry(reason="503", after_seconds=100.0)
    office.receiver.pace = Pace(burst=10, per_second=10.0)
    for name in ("first", "second"):
        office.writes(name, Severity.CRITICAL)
    office.hand_out()
    office.work()
    until = from_text(str(office.dispatcher.pulse()["paused_until"]))
    second = office.kept("second")
    assert (second.verdict, second.due_at) == (Verdict.BACKING_OFF, until)
    assert second.reason == "the receiver failed 1 time in a row"
    assert len(office.receiver.heard) == 1


def test_what_there_is_no_room_for_goes_back_until_it_will_have_its_turn(office: Office) -> None:
    for number in range(6):
        office.writes(f"w{number}")
    office.hand_out()
    waiting = [office.kept(f"w{number}") for number in (4, 5)]
    assert [it.verdict for it in waiting] == [Verdict.QUEUED] * 2
    # What is in hand goes first, and each turn takes 2.5 s; in steps of 5 s.
    assert [it.due_at for it in waiting] == [NOON + seconds(10)] * 2
    assert office.clock.now() == NOON + seconds(GATHER_SECONDS)


def test_what_comes_while_the_receiver_is_left_alone_goes_back_until_then(office: Office) -> None:
    office.fails()
    office.writes("one")
    now = office.clock.now()
    office.hand_out()
    one = office.kept("one")
    assert one.verdict is Verdict.BACKING_OFF
    assert one.due_at is not None
    assert seconds(99) < one.due_at - now <= seconds(105)
    office.before_its_return(IN_HAND_SECONDS)
    for number in range(5):
        office.writes(f"w{number}")
    office.hand_out()
    assert office.kept("w4").verdict is Verdict.QUEUED


def test_a_notice_of_no_channel_is_dead_and_one_that_cannot_be_read_stays(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    record = office.writes("gone")
    unread = replace(record, id="unread", parent="unread", body={"channel": "other"})
    office.hub.write_records([unread])
    hand_out(office.hub, office.context, {})
    assert office.kept("gone").verdict is Verdict.CHANNEL_GONE
    assert caplog.text.count("notice cannot be read") == 1
    assert "id=unread" in caplog.text


def test_a_notice_is_on_its_way_for_as_long_as_an_attempt_and_its_record_take(
    office: Office,
) -> None:
    seen: list[Notice] = []
    office.receiver.meanwhile = lambda: seen.append(office.kept("one"))
    office.writes("one")
    office.hand_out()
    now = office.clock.now()
    office.work()
    (one,) = seen
    assert (one.in_flight, one.attempts, one.due_at) == (True, 1, now + seconds(15))
    assert office.kept("one").in_flight is False


def test_a_notice_that_went_on_without_its_claim_is_left_alone(office: Office) -> None:
    record = office.writes("one")
    office.hand_out()
    office.hub.write_records([replace(record, version=2, body={**record.body, "version": 2})])
    office.work()
    assert office.receiver.heard == []


@pytest.mark.parametrize(("step", "messages"), [(changed, 1), (resolved, 0)])
def test_of_what_is_for_other_channels_only_the_end_keeps_a_message_back(
    office: Office, step: Callable[..., Transition], messages: int
) -> None:
    office.writes("one")
    newer = step(2, id="one", subject=REAL, severity=Severity.WARNING)
    made = decide(newer, [replace(CHAT, name="mail")], [], NOON, SETTINGS)
    office.hub.write_records([it.to_record() for it in made])
    office.hand_out()
    office.work()
    assert len(office.receiver.heard) == messages


@pytest.mark.parametrize(
    ("user", "stage", "verdict"),
    [
        ("alice", "first notice", Verdict.OWNER_MAXIMUM),
        ("alice", END, Verdict.FIRST),
        ("bob", "first notice", Verdict.FIRST),
    ],
)
def test_of_what_an_owner_was_told_today_only_notices_count_and_no_end(
    user: str, stage: str, verdict: Verdict
) -> None:
    office = Office(OWNERS, replace(SETTINGS, idle_notices_per_day=1))

    def writes(holder: str, user: str, stage: str) -> Notice:
        held = a_holder(holder=Holder.parse(holder), user=user)
        step = notice(held, stage, FOR_JOBS, Idleness.NOTHING_COMPUTED, NOON)
        (made,) = decide(step, [OWNERS], [], office.clock.now(), office.context.settings)
        office.hub.write_records([made.to_record()])
        hand_out(office.hub, office.context, {OWNERS.name: office.dispatcher})
        office.work()
        return office.kept(made.incident)

    assert writes("job 1", user, stage).state is NoticeState.SENT
    second = writes("job 2", "alice", "first notice")
    assert second.verdict is verdict
    assert (second.state is NoticeState.SENT) == (verdict is Verdict.FIRST)


def test_a_courier_with_nothing_in_hand_soon_looks_whether_it_is_to_stop(office: Office) -> None:
    began = time.monotonic()
    office.dispatcher.step()
    assert time.monotonic() - began < POLL_SECONDS


def test_what_a_channel_did_is_counted_and_told_in_the_log(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gpuvigil.alerts")
    assert office.dispatcher.pulse() == {
        "name": "chat",
        "waiting": 0,
        "failures": 0,
        "refusals": 0,
        "last_error": None,
        "attempts_total": 0,
        "failures_total": 0,
        "seconds_total": 0.0,
        "paused_until": None,
        "last_sent_at": None,
    }
    office.receiver.meanwhile = lambda: office.clock.advance(1.23456)
    office.writes("one")
    office.hand_out()
    office.work()
    pulse = office.dispatcher.pulse()
    assert (pulse["attempts_total"], pulse["failures_total"]) == (1, 0)
    assert pulse["seconds_total"] == 1.235
    assert " sent notice=one:chat:1 kind=fired attempts=1 " in f" {caplog.messages[-1]}"
    # Somebody sets the clock back during an attempt.
    office.receiver.meanwhile = lambda: office.clock.step(-60.0)
    office.fails()
    after = office.dispatcher.pulse()
    assert (after["attempts_total"], after["failures_total"]) == (2, 1)
    assert after["seconds_total"] == 1.235
    assert after["last_sent_at"] == pulse["last_sent_at"] is not None
    assert "not delivered" in caplog.messages[-1]
    assert caplog.messages[-1].endswith("error=503")


def test_a_pause_is_over_at_its_end(office: Office) -> None:
    office.fails()
    assert (
        timedelta(seconds=100)
        <= from_text(str(office.dispatcher.pulse()["paused_until"])) - office.clock.now()
        <= timedelta(seconds=101)
    )
