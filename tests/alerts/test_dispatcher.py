"""A dispatcher over days: how often what is open is told again, and what a channel for owners is given."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from accounting.cost.money import Prices
from accounting.efficiency.idle_reason import FOR_JOBS, Idleness
from alerts.decisions.decide import decide
from alerts.delivery.dispatcher import Dispatcher, hand_out
from alerts.delivery.hub_access import Context
from alerts.delivery.resend import Resend
from alerts.idle.idle_notice import notice
from alerts.messages.channel import Delivered, Outcome, Pace, Refused
from alerts.messages.message import Message
from alerts.messages.self_monitoring import REFUSALS, channel_trouble
from alerts.routing.case import ChannelProfile
from alerts.routing.notice import Notice, Verdict
from gpuvigil.clock import ManualClock
from gpuvigil.config.pricing import CostSettings, PriceSettings
from gpuvigil.log import Log
from gpuvigil.model import Holder, Impact, Incident, RecordKind, Severity, Transition
from gpuvigil.web.signed_links import Seal

from .examples import CHAT, NOON, REAL, SETTINGS, an_incident, changed, opened, taken
from .month.shelf import ShelfHub, Shelves
from .test_idle import OWNERS, a_holder


@dataclass
class Ear:
    """A channel that writes down what it is given."""

    profile: ChannelProfile
    timeout_seconds: float = 10.0
    pace: Pace = field(default_factory=Pace)
    heard: list[Message] = field(default_factory=list)
    says: Outcome | Exception = field(default_factory=Delivered)

    def deliver(self, message: Message) -> Outcome:
        self.heard.append(message)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    resend_seconds: float = 60.0
    ended_for: timedelta = timedelta(minutes=5)

    def resend(self, messages: Sequence[Message], now: datetime) -> Outcome:
        self.heard += messages
        return Delivered()

    def close(self) -> None:
        """There is nothing to close."""


class Days:
    """One channel's dispatcher, and a clock that stands still until it is moved."""

    def __init__(self, profile: ChannelProfile) -> None:
        self.clock, self.ear = ManualClock(NOON), Ear(profile)
        self._hub = ShelfHub(Shelves(), self.clock)
        self._context = Context(
            connect=lambda: self._hub,
            owner="a",
            settings=SETTINGS,
            clock=self.clock,
            stop=threading.Event(),
            log=Log("alerts"),
            seal=Seal(lambda: "k" * 40),
            prices=Prices(settings=CostSettings(prices=(PriceSettings(per_gpu_hour=4.0),))),
        )
        self._context.models.known = {REAL.key: "NVIDIA H100 80GB HBM3"}
        self._resend = Resend(self.ear, self._context)
        self._courier = Dispatcher(self.ear, self._context)

    def comes(self, step: Transition) -> None:
        """A step of the incident, and what is sent about it at once."""
        found = self._hub.records(RecordKind.NOTICE, parent=step.incident)
        known = [Notice.from_record(one) for one in found]
        for one in decide(step, [self.ear.profile], known, self.clock.now(), SETTINGS):
            self._hub.write_records([one.to_record()])
        self.work()

    def resend(self, incident: Incident) -> None:
        """Say again what is open."""
        self._hub.write_records([incident.to_record()])
        self._resend.step()

    def work(self) -> None:
        """Deal with all that is due now."""
        hand_out(self._hub, self._context, {self.ear.profile.name: self._courier})
        while self._courier.pulse()["waiting"]:
            self._courier.step()

    def until(self, hours: int) -> None:
        """Go on hour by hour."""
        while self.clock.now() < NOON + timedelta(hours=hours):
            self.clock.advance(3600.0)
            self.work()

    def pulse(self) -> dict[str, object]:
        return self._courier.pulse()

    def waiting(self) -> list[Notice]:
        """What is to be told later."""
        found = self._hub.records(RecordKind.NOTICE, states=["due"])
        return [Notice.from_record(one) for one in found]

    def hours(self) -> list[int]:
        """When something was heard, in hours."""
        return [round((one.at - NOON).total_seconds() / 3600) for one in self.ear.heard]


def test_reminders_come_ever_later_until_there_is_one_a_day() -> None:
    days = Days(CHAT)
    days.comes(opened(subject=REAL))
    days.until(125)
    assert days.hours() == [0, 4, 12, 28, 52, 76, 100, 124]
    assert days.ear.heard[2].summary.startswith("Still there after 12 h: ")


def test_what_is_news_makes_reminders_frequent_again_and_other_changes_do_not() -> None:
    days = Days(replace(CHAT, every_change=False))
    days.comes(opened(subject=REAL, severity=Severity.CRITICAL))
    days.until(13)
    days.comes(changed(2, subject=REAL, impact=Impact(gpus=1, users=("bob",))))
    days.until(29)
    assert days.hours() == [0, 4, 12, 28]
    days.comes(changed(3, subject=REAL, title="GPU died for good"))
    days.until(42)
    assert days.hours() == [0, 4, 12, 28, 29, 33, 41]


def test_what_merely_changes_puts_no_reminder_off_where_each_change_is_told() -> None:
    days = Days(CHAT)
    assert CHAT.every_change
    days.comes(opened(subject=REAL))
    for number, hours in enumerate((3, 6, 9, 11), 2):
        days.until(hours)
        days.comes(changed(number, subject=REAL, impact=Impact(gpus=1, users=(f"u{number}",))))
    days.until(13)
    reminders = [one for one in days.ear.heard if one.summary.startswith("Still there")]
    assert [one.summary[:21] for one in reminders] == [
        "Still there after 4 h",
        "Still there after 12 ",
    ]
    assert days.hours() == [0, 3, 4, 6, 9, 11, 12]
    days.until(27)
    days.clock.advance(4000.0)
    days.comes(changed(6, subject=REAL, impact=Impact(gpus=1, users=("eve",))))
    assert days.ear.heard[-1].summary.startswith("Still there after 1 d")


def test_nobody_is_reminded_of_what_somebody_has_taken() -> None:
    days = Days(CHAT)
    days.comes(opened(subject=REAL))
    days.until(5)
    days.comes(taken(2, subject=REAL))
    days.until(60)
    assert days.hours() == [0, 4]


def test_a_receiver_that_refuses_everything_is_trouble_until_it_takes_something() -> None:
    days = Days(CHAT)
    days.ear.says = Refused(reason="host answered 405")
    for number in range(REFUSALS):
        assert channel_trouble(days.pulse()) is None
        days.comes(opened(id=f"i-{number}", subject=REAL))
    found = channel_trouble(days.pulse())
    assert found is not None
    assert found.value == "3 messages in a row rejected: host answered 405"
    assert found.action.endswith("gpuvigil alert retry --channel chat")
    days.ear.says = Delivered()
    days.comes(opened(id="i-last", subject=REAL))
    assert channel_trouble(days.pulse()) is None


@pytest.mark.medium
def test_an_attempt_that_ends_in_an_exception_counts_as_a_failure_and_is_given_up_in_time() -> None:
    days = Days(CHAT)
    days.ear.says = ValueError("the password is secret")
    days.comes(opened(subject=REAL))
    pulse = days.pulse()
    assert pulse["failures"] == 1
    assert str(pulse["last_error"]).startswith("ValueError in test_dispatcher.py, line ")
    (waiting,) = days.waiting()
    assert waiting.perhaps_told
    days.until(26)
    assert not days.waiting()
    days.ear.says = Delivered()
    days.comes(opened(id="i-last", subject=REAL))
    assert days.pulse()["failures"] == 0


def test_what_is_said_again_says_all_that_was_said_at_first() -> None:
    days = Days(CHAT)
    days.comes(opened(subject=REAL, title="GPU is slow"))
    days.clock.advance(3600.0)
    days.comes(changed(2, subject=REAL))
    days.resend(an_incident(subject=REAL))
    _, told, again = days.ear.heard
    assert "costs 4.00 EUR/h" in told.impact
    assert told.answer_link is not None
    assert "sent before as: GPU is slow" in told.evidence
    assert "costs 4.00 EUR/h" in again.impact
    assert again.answer_link is not None
    assert again.evidence == told.evidence
    assert again.notice == told.notice


def test_owners_alone_get_no_link_that_answers_without_a_sign_in() -> None:
    step = opened(subject=REAL, impact=Impact(gpus=1, holders=("job 1",), users=("alice",)))
    links = {}
    for profile in (CHAT, replace(CHAT, owners=True, owners_only=True)):
        days = Days(profile)
        days.comes(step)
        (said,) = days.ear.heard
        assert said.for_owners == ("alice",)
        links[profile.owners_only] = said.answer_link
    assert links[False] is not None
    assert links[True] is None


@pytest.mark.medium
def test_who_has_many_idle_jobs_hears_of_ten_a_day_and_of_the_others_on_the_next() -> None:
    days = Days(OWNERS)
    jobs = [a_holder(holder=Holder.parse(f"job {number}")) for number in range(12)]
    for held in [*jobs, a_holder(holder=Holder.parse("job 99"), user="bob")]:
        why = Idleness.NOTHING_COMPUTED
        days.comes(notice(held, "first notice", FOR_JOBS, why, days.clock.now()))
        days.work()
    heard = [one.for_owners for one in days.ear.heard]
    assert heard == [("alice",)] * 10 + [("bob",)]
    (waiting, _) = days.waiting()
    assert waiting.verdict is Verdict.OWNER_MAXIMUM
    days.until(23)
    assert len(days.ear.heard) == 11
    days.until(25)
    assert [one.for_owners for one in days.ear.heard[11:]] == [("alice",)] * 2
    assert len({one.incident for one in days.ear.heard}) == 13


@pytest.mark.medium
def test_the_limit_of_a_day_holds_for_what_waited_for_days() -> None:
    days = Days(OWNERS)
    for number in range(23):
        held, why = a_holder(holder=Holder.parse(f"job {number}")), Idleness.NOTHING_COMPUTED
        days.comes(notice(held, "first notice", FOR_JOBS, why, days.clock.now()))
    assert len(days.ear.heard) == 10
    days.clock.advance(72 * 3600.0)
    days.work()
    assert len(days.ear.heard) == 20
    assert {one.verdict for one in days.waiting()} == {Verdict.OWNER_MAXIMUM}
