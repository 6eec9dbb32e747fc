"""Who is told what, and why not: pure rules, each with a named reason.

`decide` runs when a transition is claimed, `judge` again just before a message goes out, since
meanwhile a newer state may stand beside it. Both follow the same table `RULES`: the first rule that
speaks decides.

An attempt without a clear answer, a time-out say, may have reached the receiver. Such a notice
counts as told where the end of an incident is concerned: a "resolved" too many harms nobody, a
"firing" that stays for ever does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.config import AlertsSettings
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Severity, Transition

from .notice import NEUTRAL, Kind, Notice, NoticeState, Verdict, draft

# The clocks of two alerts processes may differ by this much: a notice that is due later than that
# cannot be in another one's hands.
CLOCK_MARGIN = timedelta(seconds=2)
# How soon a message looks again whether the one before it has gone.
WAIT_FOR_EARLIER = timedelta(seconds=1)
# Keeps the order where two notices would be due at the same moment.
JUST_AFTER = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a channel wants to hear."""

    name: str
    minimum_severity: Severity
    send_resolved: bool = True
    pager: bool = False  # wakes people: never for simulated incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What becomes of a notice now; `due_at` is set when it is to be looked at again then."""

    verdict: Verdict
    state: NoticeState = NoticeState.DUE
    kind: Kind | None = None  # None: as it was
    reason: str = ""
    due_at: datetime | None = None

    @property
    def send_now(self) -> bool:
        return self.state is NoticeState.DUE and self.due_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A notice, with the notices of the same incident and channel beside it."""

    notice: Notice
    route: Route
    siblings: tuple[Notice, ...]
    now: datetime
    settings: AlertsSettings

    @property
    def to_state(self) -> State:
        return State(self.notice.to_state)

    @property
    def older(self) -> tuple[Notice, ...]:
        """Oldest first."""
        before = (one for one in self.siblings if one.order < self.notice.order)
        return tuple(sorted(before, key=lambda one: one.order))

    @property
    def newer(self) -> tuple[Notice, ...]:
        return tuple(one for one in self.siblings if one.order > self.notice.order)

    @property
    def believed_firing(self) -> bool:
        """The receiver may believe that the incident stands, from what it was told before."""
        firing = False
        for one in self.older:
            if one.kind is not Kind.RESOLVED:
                reached = one.perhaps_told or one.in_flight
                firing = firing or reached or one.state is NoticeState.SENT
            elif one.state is NoticeState.SENT or one.verdict is Verdict.RESOLVED_OFF:
                firing = False
        return firing

    @property
    def last_told(self) -> Notice | None:
        """What was surely told last of this spell: since the incident was last over."""
        told = None
        for one in self.older:
            if one.kind is Kind.RESOLVED:
                told = None
            elif one.state is NoticeState.SENT:
                told = one
        return told


def _superseded(case: Case) -> Ruling | None:
    if all(one.verdict in NEUTRAL for one in case.newer):
        return None
    return Ruling(verdict=Verdict.SUPERSEDED, state=NoticeState.SUPERSEDED)


def _unconfirmed(case: Case) -> Ruling | None:
    verdicts = {State.SUSPECT: Verdict.SUSPECT, State.DISMISSED: Verdict.DISMISSED}
    verdict = verdicts.get(case.to_state)
    return None if verdict is None else Ruling(verdict=verdict, state=NoticeState.HELD)


def _simulated(case: Case) -> Ruling | None:
    if not (case.route.pager and case.notice.to_incident().simulated):
        return None
    return Ruling(verdict=Verdict.SIMULATED, state=NoticeState.HELD)


def _taken(case: Case) -> Ruling | None:
    reminded = case.notice.repeat > 0 and any(o.verdict is Verdict.TAKEN for o in case.newer)
    if reminded or case.notice.signal == Signal.ACKNOWLEDGED.value:
        return Ruling(verdict=Verdict.TAKEN, state=NoticeState.HELD)
    return None


def _waits(case: Case) -> Ruling | None:
    """Never overtake: an older message that may be in somebody's hands ends first."""
    ahead = [one for one in case.older if one.state is NoticeState.DUE]
    if any(not replaceable(one, case.now) for one in ahead):
        due_at = case.now + WAIT_FOR_EARLIER
        return Ruling(verdict=Verdict.WAITS, due_at=due_at)
    # What a receiver asked for one message of an incident holds for the next one, too.
    held_back = [one.due_at for one in ahead if one.attempts and one.due_at is not None]
    if held_back:
        due_at = max(held_back) + JUST_AFTER
        return Ruling(verdict=Verdict.BACKING_OFF, due_at=due_at)
    return None


def _over(case: Case) -> Ruling | None:
    if case.to_state is not State.RESOLVED:
        return None
    verdict = Verdict.OVER
    if not case.believed_firing:
        verdict = Verdict.NEVER_TOLD
    elif not case.route.send_resolved:
        verdict = Verdict.RESOLVED_OFF
    state = NoticeState.DUE if verdict is Verdict.OVER else NoticeState.HELD
    return Ruling(verdict=verdict, state=state)


def _late(case: Case) -> Ruling | None:
    if case.believed_firing or not case.notice.to_incident().late:
        return None
    return Ruling(verdict=Verdict.LATE, state=NoticeState.HELD)


def _below_minimum(case: Case) -> Ruling | None:
    severity, minimum = case.notice.severity, case.route.minimum_severity
    if case.believed_firing or severity.rank <= minimum.rank:
        return None
    return Ruling(
        verdict=Verdict.BELOW_MINIMUM,
        state=NoticeState.HELD,
        reason=f"{severity.value}: {case.route.name} is told from {minimum.value} on",
    )


def _first(case: Case) -> Ruling | None:
    if case.last_told is not None:
        return None
    returned = case.notice.from_state == State.RESOLVED.value
    return Ruling(verdict=Verdict.RETURNED if returned else Verdict.FIRST, kind=Kind.FIRED)


def _reminder(case: Case) -> Ruling | None:
    return Ruling(verdict=Verdict.STILL_STANDING, kind=Kind.UPDATED) if case.notice.repeat else None


def _worse(case: Case) -> Ruling | None:
    told = case.last_told
    if told is None or case.notice.severity.rank >= told.severity.rank:
        return None
    return Ruling(verdict=Verdict.WORSE, kind=Kind.UPDATED)


def _told_recently(case: Case) -> Ruling | None:
    told = case.last_told
    if told is None or told.sent_at is None:
        return None
    due_at = told.sent_at + timedelta(seconds=case.settings.update_seconds)
    if due_at <= case.now:
        return None
    seconds = max((case.now - told.sent_at).total_seconds(), 0.0)
    return Ruling(
        verdict=Verdict.TOLD_RECENTLY,
        kind=Kind.UPDATED,
        due_at=due_at,
        reason=f"told {seconds:.0f} s ago; the newest state follows at {moment(due_at)}",
    )


def _changed(case: Case) -> Ruling:
    return Ruling(verdict=Verdict.CHANGED, kind=Kind.UPDATED)


# The first that speaks decides; the last one always does.
RULES: tuple[Callable[[Case], Ruling | None], ...] = (
    _superseded,
    _unconfirmed,
    _simulated,
    _taken,
    _waits,
    _over,
    _late,
    _below_minimum,
    _first,
    _reminder,
    _worse,
    _told_recently,
)


def judge(case: Case) -> Ruling:
    """What becomes of the notice now."""
    for rule in RULES:
        ruling = rule(case)
        if ruling is not None:
            return ruling
    return _changed(case)


def decide(
    transition: Transition,
    routes: Sequence[Route],
    earlier: Sequence[Notice],
    now: datetime,
    settings: AlertsSettings,
) -> list[Notice]:
    """A notice for every channel about `transition`, and new versions of those it replaces.

    `earlier` are the incident's notices so far, of all channels. Without a channel there is one
    notice that says so.
    """
    if not routes:
        none = draft(transition, None, now)
        return [_ruled(none, Ruling(verdict=Verdict.NO_CHANNEL, state=NoticeState.HELD))]
    decided: list[Notice] = []
    for route in routes:
        notice = draft(transition, route.name, now)
        siblings = tuple(one for one in earlier if one.channel == route.name)
        case = Case(notice=notice, route=route, siblings=siblings, now=now, settings=settings)
        fresh = _ruled(notice, judge(case))
        if fresh.verdict is Verdict.WAITS:
            # The one before it has mostly gone by the time this one is delivered.
            fresh = replace(fresh, due_at=now)
        decided += [*replaced(fresh, siblings, now), fresh]
    return decided


def ruled(notice: Notice, ruling: Ruling) -> Notice:
    """The notice's next version, after `ruling`."""
    return _ruled(notice, ruling).next()


def replaceable(notice: Notice, now: datetime) -> bool:
    """A due notice that surely nobody is delivering at this moment."""
    later = notice.due_at is not None and notice.due_at > now + CLOCK_MARGIN
    return notice.state is NoticeState.DUE and not notice.in_flight and later


def replaced(newest: Notice, siblings: Sequence[Notice], now: datetime) -> list[Notice]:
    """The next versions of waiting notices that need not go out, since `newest` says more."""
    waiting = [o for o in siblings if o.order < newest.order and replaceable(o, now)]
    ruling = Ruling(verdict=Verdict.SUPERSEDED, state=NoticeState.SUPERSEDED)
    if newest.verdict in NEUTRAL:
        # A person who took the incident needs no reminder; what was never said is still said.
        waiting = [o for o in waiting if o.repeat and newest.verdict is Verdict.TAKEN]
        ruling = Ruling(verdict=Verdict.TAKEN, state=NoticeState.HELD)
    return [ruled(one, ruling) for one in waiting]


def _ruled(notice: Notice, ruling: Ruling) -> Notice:
    due_at = None if ruling.state is not NoticeState.DUE else ruling.due_at or notice.due_at
    postponed = ruling.verdict is Verdict.TOLD_RECENTLY
    return replace(
        notice,
        verdict=ruling.verdict,
        state=ruling.state,
        kind=ruling.kind or notice.kind,
        reason=ruling.reason,
        due_at=due_at,
        first_due_at=due_at if postponed else notice.first_due_at,
        in_flight=notice.in_flight and ruling.send_now,
        perhaps_told=notice.perhaps_told or notice.in_flight,
    )
