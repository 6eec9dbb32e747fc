"""Decides who is told what, and why not: pure rules, each with a named reason.

`decide` runs when a transition is claimed, `judge` again just before a message goes out, since
there may be a newer state by then. Both use the same table `RULES`: the first rule that returns a
ruling decides.

An attempt without a clear answer, such as a time-out, may have reached the receiver. For the end of
an incident such a notice counts as sent: one "resolved" too many harms nobody, a "firing" that
stays for ever does.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.config import AlertsSettings
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Severity, Transition

from ..routing.case import Case, ChannelProfile, Ruling
from ..routing.notice import (
    DIGESTED,
    NEUTRAL,
    POSTPONED,
    Kind,
    Notice,
    NoticeState,
    Verdict,
    draft,
    is_idle_notice,
)
from ..routing.situation import NO_SITUATION, Situation
from ..routing.update_policy import news, stops_now
from . import suppression
from .attempts import reminded_after

# The clocks of two alerts processes may differ by this much: another process cannot have a notice
# in hand that is due later than that.
CLOCK_MARGIN = timedelta(seconds=2)
# How soon a message checks again whether the one before it has gone; later, the longer that one
# waits.
WAIT_FOR_EARLIER = timedelta(seconds=1)
LONGEST_WAIT_FOR_EARLIER = timedelta(seconds=15)
# Keeps the order where two notices would be due at the same moment.
JUST_AFTER = timedelta(milliseconds=1)


def _superseded(case: Case) -> Ruling | None:
    if all(one.verdict in NEUTRAL for one in case.newer):
        return None
    return _superseded_by(case.notice, max(case.newer, key=lambda one: one.order))


def _over_before_it_came(case: Case) -> Ruling | None:
    """Supersede the notice if the end was decided before this channel was configured: it gets none."""
    later = [one for one in case.others if one.number > case.notice.number]
    newest = max(later, key=lambda one: one.number, default=None)
    if case.newer or newest is None or State(newest.to_state) is not State.RESOLVED:
        return None
    reason = "it resolved before this could be sent"
    return Ruling(verdict=Verdict.SUPERSEDED, state=NoticeState.SUPERSEDED, reason=reason)


def _superseded_by(notice: Notice, newest: Notice) -> Ruling:
    """Return the ruling for a replaced notice; the reason says if it and its end are not sent."""
    unsaid = newest.kind is Kind.RESOLVED and notice.kind is not Kind.RESOLVED
    reminds = bool(notice.repeat) or notice.verdict is Verdict.UNREMARKABLE
    unsaid = unsaid and not (reminds or notice.perhaps_told or notice.in_flight)
    kept_back = f": {notice.verdict.value}" if notice.verdict in POSTPONED else ""
    error = f"; {notice.last_error}" if notice.last_error else ""
    return Ruling(
        verdict=Verdict.SUPERSEDED,
        state=NoticeState.SUPERSEDED,
        reason=f"it resolved before this could be sent{kept_back}{error}" if unsaid else "",
    )


def _unconfirmed(case: Case) -> Ruling | None:
    verdicts = {State.SUSPECT: Verdict.SUSPECT, State.DISMISSED: Verdict.DISMISSED}
    verdict = verdicts.get(case.to_state)
    return None if verdict is None else Ruling(verdict=verdict, state=NoticeState.NOT_SENT)


def _marked(case: Case) -> Ruling | None:
    """Hold incidents of the self-test: it checks whether faults are found, and wakes nobody."""
    if not case.notice.to_incident().marked:
        return None
    return Ruling(verdict=Verdict.SELFTEST, state=NoticeState.NOT_SENT)


def _simulated(case: Case) -> Ruling | None:
    spared = case.profile.pager or case.profile.owners_only
    if not (spared and case.notice.to_incident().simulated):
        return None
    return Ruling(verdict=Verdict.SIMULATED, state=NoticeState.NOT_SENT)


def _acknowledged(case: Case) -> Ruling | None:
    reminded = case.notice.repeat > 0 and any(o.verdict is Verdict.TAKEN for o in case.newer)
    if reminded or case.notice.signal == Signal.ACKNOWLEDGED.value:
        return Ruling(verdict=Verdict.TAKEN, state=NoticeState.NOT_SENT)
    return None


def _waits(case: Case) -> Ruling | None:
    """Wait for an older message that may be in delivery, so that it is never overtaken."""
    ahead = [one for one in case.older if one.state is NoticeState.DUE]
    if any(not replaceable(one, case.now) for one in ahead):
        waited = max(case.now - (one.due_at or case.now) for one in ahead)
        wait = min(max(waited, WAIT_FOR_EARLIER), LONGEST_WAIT_FOR_EARLIER)
        due_at = case.now + wait
        return Ruling(verdict=Verdict.WAITS, due_at=due_at)
    # A back-off that a receiver asked for one message of an incident holds for the next one, too.
    held_back = [one.due_at for one in ahead if one.attempts and one.due_at is not None]
    if held_back:
        due_at = max(held_back) + JUST_AFTER
        return Ruling(verdict=Verdict.BACKING_OFF, due_at=due_at)
    return None


def _over(case: Case) -> Ruling | None:
    if case.to_state is not State.RESOLVED:
        return None
    if not case.believed_firing:
        return Ruling(
            verdict=Verdict.NEVER_TOLD, state=NoticeState.NOT_SENT, reason=_why_never_sent(case)
        )
    # A notice to an owner has no resolved message: the owner knows what became of the job.
    if not case.profile.send_resolved or is_idle_notice(case.notice.incident):
        return Ruling(verdict=Verdict.RESOLVED_OFF, state=NoticeState.NOT_SENT)
    return Ruling(verdict=Verdict.OVER)


def _why_never_sent(case: Case) -> str:
    """Return why the beginning of the spell was not sent."""
    if case.last_sent_ever is not None:
        return "it fired again and resolved before that could be sent"
    tried = [one for one in case.older if one.attempts]
    if not tried:
        kept_back = _kept_back(case)
        return "" if kept_back is None else f"{Verdict.NEVER_TOLD.value}: {kept_back.value}"
    error = f": {tried[-1].last_error}" if tried[-1].last_error else ""
    return f"it began and ended while {case.profile.name} could not be reached{error}"


def _kept_back(case: Case) -> Verdict | None:
    """Return the last verdict that kept this spell from being sent; None when there was none."""
    for one in reversed(case.older):
        if one.kind is Kind.RESOLVED:
            return None
        not_sent = one.state is NoticeState.NOT_SENT and one.verdict is not Verdict.TAKEN
        if not_sent or one.verdict in POSTPONED:
            return one.verdict
    return None


def _late(case: Case) -> Ruling | None:
    if case.believed_firing or not case.notice.to_incident().late:
        return None
    return Ruling(verdict=Verdict.LATE, state=NoticeState.NOT_SENT)


def _below_minimum(case: Case) -> Ruling | None:
    if case.route is not None and case.route.digest:
        return None  # a digest is where less severe incidents go
    severity, minimum = case.notice.severity, case.profile.minimum_severity
    if case.believed_firing or severity.rank <= minimum.rank:
        return None
    return Ruling(
        verdict=Verdict.BELOW_MINIMUM,
        state=NoticeState.NOT_SENT,
        reason=f"{severity.value}: {case.profile.name} gets {minimum.value} and above",
    )


def _resolved_recently(case: Case) -> Ruling | None:
    """Delay an incident that comes and goes, unless it is critical or flapping."""
    said, notice = case.last_sent_ever, case.notice
    urgent = notice.severity is Severity.CRITICAL or notice.signal == Signal.FLAPPED.value
    # Also a change before the return was told: then it is the return that is told.
    if said is None or urgent or case.last_sent is not None:
        return None
    if said.severity.rank > notice.severity.rank:
        return None
    return _recently(case, said, Kind.FIRED)


def _first(case: Case) -> Ruling | None:
    if case.last_sent is not None:
        return None
    # Whoever heard of an earlier spell hears that it is back; to anybody else it is new.
    ends = [one.order for one in case.older if one.kind is Kind.RESOLVED]
    if case.notice.from_state == State.RESOLVED.value:
        ends.append(case.notice.order)
    heard = [one for one in case.older if one.sent_at is not None or one.perhaps_told]
    if any(one.order <= end for one in heard for end in ends):
        return Ruling(verdict=Verdict.RETURNED, kind=Kind.FIRED)
    escalates = case.route is not None and case.route.escalate_seconds is not None
    return Ruling(verdict=Verdict.ESCALATED if escalates else Verdict.FIRST, kind=Kind.FIRED)


def _unremarkable(case: Case) -> Ruling | None:
    """Leave a minor change to the reminder, where a sent message cannot be edited."""
    if not _is_unremarkable(case):
        return None
    if any(one.verdict is Verdict.TAKEN for one in case.newer):
        return Ruling(verdict=Verdict.TAKEN, state=NoticeState.NOT_SENT)
    due_at = _reminder_at(case)
    if due_at is None:
        return Ruling(verdict=Verdict.UNREMARKABLE, state=NoticeState.NOT_SENT)
    if due_at <= case.now:
        return None
    return Ruling(
        verdict=Verdict.UNREMARKABLE,
        kind=Kind.UPDATED,
        due_at=due_at,
        reason=f"{Verdict.UNREMARKABLE.value}; it is in the reminder at {moment(due_at)}",
    )


def _is_unremarkable(case: Case) -> bool:
    if case.profile.every_change or case.last_sent is None or case.notice.repeat:
        return False
    if case.incident.out_of_service is not None or case.was_out_of_service:
        return False  # it is out of service, or in service again
    return not _is_worse(case) and news(case) is None


def _reminder_at(case: Case) -> datetime | None:
    """Return when the reminder to all readers is due; None when there is none."""
    after = reminded_after(case.notice, case.settings, case.repeat_seconds, case.reminders_after())
    reminder_from = case.reminded_from
    return None if after is None or reminder_from is None else reminder_from + after


def _reminder(case: Case) -> Ruling | None:
    # What made no message of its own is looked at again only when a reminder is due.
    if not (case.notice.repeat or _is_unremarkable(case) or _is_due_to_all(case)):
        return None
    return Ruling(verdict=Verdict.STILL_STANDING, kind=Kind.UPDATED)


def _is_due_to_all(case: Case) -> bool:
    """Return whether a reminder to all is due that may cover what only one, or nobody, would get."""
    if _is_worse(case) or news(case) not in {None, Verdict.NEWLY_HIT}:
        return False
    due_at = _reminder_at(case)
    return due_at is not None and due_at <= case.now


def _is_worse(case: Case) -> bool:
    sent = case.last_sent_to_all
    return sent is not None and case.notice.severity.rank < sent.severity.rank


def _resumed(case: Case) -> Ruling | None:
    """Report that the node is back: readers notified before it left believe that it was seen to."""
    if case.last_sent is None or not case.was_out_of_service:
        return None
    return Ruling(verdict=Verdict.RESUMED, kind=Kind.UPDATED)


def _worse(case: Case) -> Ruling | None:
    return Ruling(verdict=Verdict.WORSE, kind=Kind.UPDATED) if _is_worse(case) else None


def _stops_now(case: Case) -> Ruling | None:
    """Report at once that a bad link is lost, without waiting until the next update is due."""
    if not (stops_now(case.notice) and news(case) is Verdict.EXPLAINED):
        return None
    return Ruling(verdict=Verdict.EXPLAINED, kind=Kind.UPDATED)


def _sent_recently(case: Case) -> Ruling | None:
    if case.last_sent is None:
        return None
    for_one = news(case) is Verdict.NEWLY_HIT
    sent = case.last_sent if for_one else case.last_sent_to_all
    return None if sent is None else _recently(case, sent, Kind.UPDATED)


def _recently(case: Case, sent: Notice, kind: Kind) -> Ruling | None:
    """Wait until the update interval since `sent` is over."""
    if sent.sent_at is None:
        return None
    due_at = sent.sent_at + timedelta(seconds=case.update_seconds)
    if due_at <= case.now:
        return None
    seconds = max((case.now - sent.sent_at).total_seconds(), 0.0)
    return Ruling(
        verdict=Verdict.TOLD_RECENTLY,
        kind=kind,
        due_at=due_at,
        reason=f"last update {seconds:.0f} s ago; the next is due at {moment(due_at)}",
    )


def _changed(case: Case) -> Ruling:
    return Ruling(verdict=news(case) or Verdict.CHANGED, kind=Kind.UPDATED)


# The first that returns a ruling decides; where none does, `_changed` does.
RULES: tuple[Callable[[Case], Ruling | None], ...] = (
    _superseded,
    _over_before_it_came,
    _unconfirmed,
    _marked,
    _simulated,
    _acknowledged,
    _waits,
    _over,
    _late,
    suppression.about_gpuvigil,
    suppression.of_idle_gpus,
    suppression.not_routed,
    suppression.no_owner,
    _below_minimum,
    _unremarkable,
    *suppression.RULES,
    _resolved_recently,
    _first,
    _resumed,
    _reminder,
    _worse,
    _stops_now,
    _sent_recently,
)


def judge(case: Case) -> Ruling:
    """Return what becomes of the notice now."""
    for rule in RULES:
        ruling = rule(case)
        if ruling is not None:
            return ruling
    return _changed(case)


def decide(
    transition: Transition,
    profiles: Sequence[ChannelProfile],
    earlier: Sequence[Notice],
    now: datetime,
    settings: AlertsSettings,
    situation: Situation = NO_SITUATION,
) -> list[Notice]:
    """Return a notice about `transition` for every channel, and new versions of those it replaces.

    `earlier` are the incident's notices so far, of all channels. Without a channel there is one
    notice that says so.
    """
    if not profiles:
        none = draft(transition, None, now)
        return [_ruled(none, Ruling(verdict=Verdict.NO_CHANNEL, state=NoticeState.NOT_SENT))]
    decided: list[Notice] = []
    for profile in profiles:
        notice = draft(transition, profile.name, now)
        siblings = tuple(one for one in earlier if one.channel == profile.name)
        case = Case(
            notice=notice,
            profile=profile,
            siblings=siblings,
            now=now,
            settings=settings,
            situation=situation,
            others=tuple(one for one in earlier if one.channel != profile.name),
        )
        fresh = _ruled(notice, judge(case))
        if fresh.verdict is Verdict.WAITS:
            # The one before it has usually gone by the time this one is delivered.
            fresh = replace(fresh, due_at=now)
        decided += [*replaced(fresh, siblings, now), fresh]
    return decided


def ruled(notice: Notice, ruling: Ruling, now: datetime) -> Notice:
    """Return the notice's next version, after `ruling` at `now`."""
    # Dated when it was decided, and not when it began to wait: each digest covers one day.
    at = now if ruling.verdict in DIGESTED else notice.at
    return replace(_ruled(notice, ruling), at=at).next()


def replaceable(notice: Notice, now: datetime) -> bool:
    """Return whether a notice is due and surely not being delivered at this moment."""
    later = notice.due_at is not None and notice.due_at > now + CLOCK_MARGIN
    return notice.state is NoticeState.DUE and not notice.in_flight and later


def replaced(newest: Notice, siblings: Sequence[Notice], now: datetime) -> list[Notice]:
    """Return the next versions of waiting notices that need not go out, since `newest` says more."""
    waiting = [o for o in siblings if o.order < newest.order and replaceable(o, now)]
    if newest.verdict not in NEUTRAL:
        return [ruled(one, _superseded_by(one, newest), now) for one in waiting]
    # A person who acknowledged needs no reminder; what was never told is still told.
    taken = Ruling(verdict=Verdict.TAKEN, state=NoticeState.NOT_SENT)
    if newest.verdict is not Verdict.TAKEN:
        return []
    reminders = [o for o in waiting if o.repeat or o.verdict is Verdict.UNREMARKABLE]
    return [ruled(one, taken, now) for one in reminders]


def _ruled(notice: Notice, ruling: Ruling) -> Notice:
    due_at = None if ruling.state is not NoticeState.DUE else ruling.due_at or notice.due_at
    postponed = ruling.verdict in POSTPONED
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
