"""Whatever happens in whatever order, a receiver ends up with the newest state, in order."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.decisions.attempts import attempt_ended, attempt_started, orphaned
from alerts.decisions.decide import decide, judge, replaced, ruled
from alerts.delivery.channels_added import decided_last, due_again, left_behind, newcomers
from alerts.messages.channel import Delivered, Outcome, Retry
from alerts.routing.case import Case, ChannelProfile
from alerts.routing.notice import Kind, Notice, NoticeState, Verdict
from alerts.routing.situation import NO_SITUATION, Situation
from gpuvigil.config import AlertsSettings, InhibitSettings, RouteSettings, TimesSettings
from gpuvigil.lifecycle import ACTIVE, TRANSITIONS, Signal, State
from gpuvigil.model import Severity, Silence, Transition

from .examples import NOON, a_transition, an_incident, seconds

pytestmark = pytest.mark.slow

SETTINGS = AlertsSettings(update_seconds=300.0, repeat_seconds=14_400.0, give_up_seconds=1e9)
PATIENCE_SECONDS = 15.0

# What can become of an attempt: does the message arrive, and what does the sender get to know?
ARRIVES = {"taken": True, "lost": False, "unclear, arrived": True, "unclear, lost": False}
CRASHES = {"killed after it arrived": True, "killed before": False}
ATTEMPTS = {**ARRIVES, **CRASHES}


def outcome_of(attempt: str) -> Outcome:
    if attempt == "taken":
        return Delivered()
    return Retry(reason=attempt, perhaps_received="unclear" in attempt)


@dataclass
class World:
    """A hub, two senders and a receiver, as far as one incident and channel go.

    Several attempts may be under way at once, as with two alerts processes; an attempt that is
    killed is never recorded.
    """

    profile: ChannelProfile
    settings: AlertsSettings = SETTINGS
    situation: Situation = NO_SITUATION
    now: datetime = NOON
    there: bool = True  # the channel is configured
    claimed: list[Transition] = field(default_factory=list)
    decided: dict[int, Transition] = field(default_factory=dict)
    notices: dict[str, Notice] = field(default_factory=dict)
    under_way: list[Notice] = field(default_factory=list)
    received: list[Notice] = field(default_factory=list)
    unclear: dict[str, int] = field(default_factory=dict)

    def keep(self, notices: list[Notice]) -> None:
        """As the hub does: a higher version replaces a lower, the same changes nothing."""
        for notice in notices:
            known = self.notices.get(notice.id)
            if known is None or known.version < notice.version:
                self.notices[notice.id] = notice

    def decide(self, place: int) -> None:
        """Decide about one of the claimed transitions; two processes may do so out of turn."""
        if not self.claimed:
            return
        transition = self.claimed.pop(place % len(self.claimed))
        self.decided[transition.number] = transition
        routes = [self.profile] if self.there else []
        self._decide(transition, routes)

    def _decide(self, transition: Transition, routes: list[ChannelProfile]) -> None:
        earlier = list(self.notices.values())
        decided = decide(transition, routes, earlier, self.now, self.settings, self.situation)
        self.keep(decided)

    def restart(self, stands: bool) -> None:
        """With the channel in the configuration; the incident stands, or is over."""
        self.there, notices = True, list(self.notices.values())
        if stands:
            self.keep(due_again(notices, [self.profile], self.now))
        find = newcomers if stands else left_behind
        if new := find(notices, [self.profile]):
            self._decide(self.decided[decided_last(notices) or 0], new)

    def claim(self, place: int) -> bool:
        """Judge one of the due notices, and begin to send it if nothing speaks against it."""
        due = sorted(
            (n for n in self.notices.values() if n.due_at is not None and n.due_at <= self.now),
            key=lambda n: (n.due_at, n.order),
        )
        due = [n for n in due if n.state is NoticeState.DUE]
        if not due:
            return False
        notice = due[place % len(due)]
        if not self.there:
            self.keep([orphaned(notice)])
            return True
        siblings = tuple(
            one
            for one in self.notices.values()
            if one.id != notice.id and one.channel == notice.channel
        )
        ruling = judge(
            Case(
                notice=notice,
                profile=self.profile,
                siblings=siblings,
                now=self.now,
                settings=self.settings,
                situation=self.situation,
            )
        )
        if not ruling.send_now:
            self.keep([ruled(notice, ruling, self.now)])
            return True
        going = attempt_started(ruled(notice, ruling, self.now), self.now, PATIENCE_SECONDS)
        self.keep([going, *replaced(going, siblings, self.now)])
        self.under_way.append(going)
        return True

    def end(self, attempt: str, place: int = 0) -> None:
        """One of the attempts under way ends so; 0 is the oldest."""
        if not self.under_way:
            return
        notice = self.under_way.pop(place % len(self.under_way))
        if ATTEMPTS[attempt]:
            self.received.append(notice)
        if attempt not in {"taken", "lost"}:
            self.unclear[notice.id] = self.unclear.get(notice.id, 0) + 1
        if attempt not in CRASHES:
            self.keep(attempt_ended(notice, outcome_of(attempt), self.now, 0.5, self.settings))

    def wait(self, span: float, attempt: str) -> None:
        """Time passes; no attempt outlives its patience."""
        self.now += timedelta(seconds=span)
        while self.under_way and (self.under_way[0].due_at or NOON) <= self.now:
            self.end(attempt)

    def settle(self) -> None:
        """The receiver is well again: let everything go out that is due within the next hour."""
        while self.claimed:
            self.decide(0)
        while self.under_way:
            self.end("taken")
        until = self.now + timedelta(hours=1)
        while self.now < until:
            while self.claim(0):
                while self.under_way:
                    self.end("taken")
            self.wait(20.0, "taken")


@dataclass(frozen=True)
class Round:
    """What happens next, in this order; None: not in this round."""

    signal: int | None  # which of those that the incident's state allows
    severity: Severity
    decided: int | None  # which of the claimed transitions
    claimed: int | None  # which of the due notices
    attempt: str | None  # how an attempt under way ends
    ended: int  # which of those under way
    wait_seconds: float
    left: str  # how attempts end that outlive their patience meanwhile


def sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(strategy, strategy, st.none())


STORIES = st.lists(
    st.builds(
        Round,
        signal=sometimes(st.integers(0, 3)),
        severity=st.sampled_from(Severity),
        decided=sometimes(st.integers(0, 3)),
        claimed=sometimes(st.integers(0, 3)),
        attempt=sometimes(st.sampled_from(sorted(ATTEMPTS))),
        ended=st.integers(0, 1),
        wait_seconds=st.sampled_from([0.001, 0.001, 0.5, 3.0, 14.0, 20.0, 100.0, 301.0, 20_000.0]),
        left=st.sampled_from(sorted(ATTEMPTS)),
    ),
    max_size=12,
)


def play(world: World, story: list[Round], before: Sequence[Transition] = ()) -> list[Transition]:
    """Let everything in `story` happen; the transitions in it, and those before."""
    heard = list(before)
    state = State(heard[-1].to_state) if heard else State.SUSPECT
    for step in story:
        signals = [signal for before, signal in TRANSITIONS if before is state]
        if step.signal is not None and signals:
            signal = signals[step.signal % len(signals)]
            heard.append(_next(state, signal, heard, step.severity, world.now))
            world.claimed.append(heard[-1])
            state = State(heard[-1].to_state)
        if step.decided is not None:
            world.decide(step.decided)
        if step.claimed is not None:
            world.claim(step.claimed)
        if step.attempt is not None:
            world.end(step.attempt, step.ended)
        world.wait(step.wait_seconds, step.left)
    return heard


def _next(
    state: State, signal: Signal, heard: list[Transition], severity: Severity, now: datetime
) -> Transition:
    if signal is Signal.ACKNOWLEDGED:  # a person takes it; the fault stays as it is
        severity = Severity(heard[-1].snapshot["body"]["severity"])
    to_state = TRANSITIONS[state, signal]
    number = len(heard) + 1
    return a_transition(number, signal, to_state, state, at=now, severity=severity)


@given(story=STORIES)
def test_the_last_thing_a_receiver_hears_is_the_newest_state(
    story: list[Round],
) -> None:
    world = World(profile=ChannelProfile(name="chat", minimum_severity=Severity.INFO))
    heard = play(world, story)
    world.settle()
    last = world.received[-1] if world.received else None
    if heard and State(heard[-1].to_state) in ACTIVE:
        telling = [one for one in heard if one.signal != Signal.ACKNOWLEDGED.value]
        assert last is not None
        assert last.kind is not Kind.RESOLVED
        assert last.number == telling[-1].number
    else:
        assert last is None or last.kind is Kind.RESOLVED


@given(story=STORIES)
def test_nobody_is_left_with_an_incident_that_is_over_whatever_its_severity_was(
    story: list[Round],
) -> None:
    world = World(profile=ChannelProfile(name="chat", minimum_severity=Severity.CRITICAL))
    heard = play(world, story)
    world.settle()
    last = world.received[-1] if world.received else None
    if not heard or State(heard[-1].to_state) not in ACTIVE:
        assert last is None or last.kind is Kind.RESOLVED
    elif Severity(heard[-1].snapshot["body"]["severity"]) is Severity.CRITICAL:
        assert last is not None
        assert last.kind is not Kind.RESOLVED


@given(story=STORIES)
def test_an_older_state_never_follows_a_newer_one_and_nothing_is_told_twice_without_need(
    story: list[Round],
) -> None:
    world = World(profile=ChannelProfile(name="chat", minimum_severity=Severity.INFO))
    play(world, story)
    world.settle()
    orders = [one.order for one in world.received]
    assert orders == sorted(orders)
    for id_ in {one.id for one in world.received}:
        times = sum(one.id == id_ for one in world.received)
        assert times <= 1 + world.unclear.get(id_, 0)


@given(story=STORIES, every_change=st.booleans())
def test_who_was_told_of_what_is_critical_and_stands_is_told_again_unless_somebody_has_it(
    story: list[Round], every_change: bool
) -> None:
    profile = ChannelProfile(name="chat", minimum_severity=Severity.INFO, every_change=every_change)
    world = World(profile=profile)
    heard = play(world, story)
    world.settle()
    due = [one for one in world.notices.values() if one.state is NoticeState.DUE]
    assert all(one.repeat or one.verdict is Verdict.UNREMARKABLE for one in due)
    unattended = heard and State(heard[-1].to_state) in {State.OPEN, State.FLAPPING}
    if unattended and Severity(heard[-1].snapshot["body"]["severity"]) is Severity.CRITICAL:
        assert len(due) == 1
    elif not heard or State(heard[-1].to_state) not in ACTIVE:
        assert not due


@given(story=STORIES)
def test_every_transition_leaves_a_decision_and_nothing_stays_due_but_reminders(
    story: list[Round],
) -> None:
    world = World(profile=ChannelProfile(name="chat", minimum_severity=Severity.INFO))
    heard = play(world, story)
    world.settle()
    decided = {one.number for one in world.notices.values()}
    assert decided == {one.number for one in heard}
    due = [one for one in world.notices.values() if one.state is NoticeState.DUE]
    assert all(one.repeat for one in due)
    assert all(one.due_at is not None and one.due_at > NOON + seconds(0) for one in due)


def held_back(number: int) -> World:
    """A world in which one of all that keeps messages back holds for the next ten minutes or so."""
    way = RouteSettings(receivers=("chat",))
    silence = Silence(
        id="s",
        matchers=('cluster="simulated"',),
        by="ada",
        reason="",
        at=NOON,
        starts_at=NOON,
        ends_at=NOON + seconds(600),
    )
    hours = TimesSettings(name="now", begin="12:00", end="12:10")
    other = an_incident(id="i-other", fault="switch_down")
    rule = InhibitSettings(by=('fault="switch_down"',), of=('fault="gpu_lost"',))
    worlds: list[tuple[dict[str, Any], Situation]] = [
        ({}, Situation(silences=(silence,))),
        ({"routes": (replace(way, quiet_times=("now",)),), "times": (hours,)}, NO_SITUATION),
        ({"routes": (replace(way, receivers=("x",), escalate_to=("chat",)),)}, NO_SITUATION),
        ({"routes": (replace(way, wait_seconds=60.0),)}, NO_SITUATION),
        ({"inhibit": (rule,)}, Situation(active=(other,))),
        ({"routes": (replace(way, match=('severity!="info"',)),)}, NO_SITUATION),
    ]
    more, situation = worlds[number]
    return World(
        profile=ChannelProfile(name="chat", minimum_severity=Severity.INFO),
        settings=replace(SETTINGS, **more),
        situation=situation,
    )


@given(story=STORIES, number=st.integers(0, 5))
def test_whatever_keeps_messages_back_nobody_is_left_with_what_is_over_and_nothing_overtakes(
    story: list[Round], number: int
) -> None:
    world = held_back(number)
    heard = play(world, story)
    world.situation = replace(world.situation, active=())
    world.settle()
    orders = [one.order for one in world.received]
    assert orders == sorted(orders)
    last = world.received[-1] if world.received else None
    if not heard or State(heard[-1].to_state) not in ACTIVE:
        assert last is None or last.kind is Kind.RESOLVED
    assert {one.number for one in world.notices.values()} == {one.number for one in heard}
    due = [one for one in world.notices.values() if one.state is NoticeState.DUE]
    assert all(one.repeat for one in due)


@given(story=STORIES, number=st.sampled_from([0, 1, 3, 4]))
def test_what_was_kept_back_for_a_while_is_told_in_the_end_if_it_still_stands(
    story: list[Round], number: int
) -> None:
    world = held_back(number)
    heard = play(world, story)
    world.situation = replace(world.situation, active=())
    world.settle()
    if heard and State(heard[-1].to_state) in ACTIVE:
        telling = [one for one in heard if one.signal != Signal.ACKNOWLEDGED.value]
        assert world.received
        assert world.received[-1].kind is not Kind.RESOLVED
        assert world.received[-1].number == telling[-1].number


@given(before=STORIES, away=STORIES, late=st.integers(0, 3))
def test_a_channel_that_comes_or_comes_back_ends_up_with_what_stands_and_nothing_else(
    before: list[Round], away: list[Round], late: int
) -> None:
    world = World(profile=ChannelProfile(name="chat", minimum_severity=Severity.INFO))
    heard = play(world, before)
    while world.under_way:  # who stops waits for what is on its way
        world.end("taken")
    world.there = False
    heard = play(world, away, heard)
    for _ in range(late):  # some of it is decided after the restart
        world.decide(0)
    stands = bool(heard) and State(heard[-1].to_state) in ACTIVE
    world.restart(stands)
    told = len(world.received)
    world.settle()
    orders = [one.order for one in world.received]
    assert orders == sorted(orders)
    telling = [one for one in heard if one.signal != Signal.ACKNOWLEDGED.value]
    fresh = world.received[told:]
    if stands and heard[-1].signal != Signal.ACKNOWLEDGED.value:
        assert world.received[-1].number == telling[-1].number
        assert world.received[-1].kind is not Kind.RESOLVED
    elif not stands:
        assert all(one.kind is Kind.RESOLVED for one in fresh)
