"""The state of a notice after an attempt: sent, due again later, or dead; pure.

Before an attempt the notice is stored as `in_flight`, due again when the attempt must have ended. A
process that is killed in the middle thus loses nothing: the notice comes due by itself, and whoever
claims it knows that the receiver may have it already.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuvigil.clock import moment
from gpuvigil.config import AlertsSettings
from gpuvigil.lifecycle import State
from gpuvigil.model import Severity
from gpuvigil.numbers_in_words import counted

from ..messages.channel import Delivered, Outcome, Refused, Retry
from ..messages.self_monitoring import DIGEST
from ..routing.notice import Kind, Notice, NoticeState, Verdict, is_idle_notice

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0
# A receiver may not silence us for longer than this.
LONGEST_RETRY_AFTER_SECONDS = 3600.0

# States in which the incident stands and nobody has acknowledged it.
_UNATTENDED = frozenset({State.OPEN.value, State.FLAPPING.value})


def attempt_started(notice: Notice, now: datetime, patience_seconds: float) -> Notice:
    """Return the notice as in flight; due again when `patience_seconds` have passed."""
    return notice.next(
        state=NoticeState.DUE,
        in_flight=True,
        attempts=notice.attempts + 1,
        due_at=now + timedelta(seconds=patience_seconds),
    )


def attempt_ended(  # noqa: PLR0913 - each is known to the dispatcher alone
    notice: Notice,
    outcome: Outcome,
    now: datetime,
    chance: float,
    settings: AlertsSettings,
    repeat_seconds: float = 0.0,
    *,
    reminder_from: datetime | None = None,
    reminders: int = 0,
) -> list[Notice]:
    """Return the notice after an attempt, and the reminder that follows; `chance` is in [0, 1).

    With `repeat_seconds`, which a route may ask for, incidents that are not critical are repeated,
    too.
    `reminders`: how many in a row there were, with this notice, since there was news.
    `reminder_from`: what the reminder counts from, if this notice is for one newly hit owner only, or
    tells of a mere change: it took the place of a reminder, which keeps its time, whatever becomes
    of the notice.
    """
    match outcome:
        case Delivered(receipt=receipt):
            # The number that an owner got in a day is queried by this time: a notice may have
            # waited long.
            to_owner = is_idle_notice(notice.incident)
            sent = notice.next(
                at=now if to_owner else notice.at,
                state=NoticeState.SENT,
                in_flight=False,
                perhaps_told=True,
                due_at=None,
                sent_at=now,
                receipt=receipt,
                last_error=None,
            )
            after = reminded_after(sent, settings, repeat_seconds, reminders)
            return [sent, *_reminders(sent, now, reminder_from or now, after)]
        case Refused(reason=reason):
            ended = _dead(notice, Verdict.REFUSED, reason)
        case Retry():
            ended = _again(notice, outcome, now, chance, settings)
    if reminder_from is None or ended.state is not NoticeState.DEAD:
        return [ended]
    after = reminded_after(ended, settings, repeat_seconds, reminders)
    return [ended, *_reminders(ended, now, reminder_from, after)]


def pause_seconds(failures: int, asked_seconds: float | None, chance: float) -> float:
    """Return the back-off in seconds after a receiver's n-th failure in a row.

    Not less than the receiver asked for, up to an hour. `chance` is jitter, which keeps many
    senders from coming back together.
    """
    if asked_seconds is not None:
        return min(asked_seconds, LONGEST_RETRY_AFTER_SECONDS) + chance
    doubled = FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 30)
    return float(min(doubled, LONGEST_PAUSE_SECONDS) * (0.75 + chance / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A receiver's recent failures, and until when it is left alone."""

    failures: int = 0
    refusals: int = 0  # messages that it refused for good, since it last took one
    until: datetime | None = None

    def after(self, outcome: Outcome, now: datetime, chance: float) -> "Pause":
        """Return the pause after an outcome; a receiver that answers is not left alone."""
        if isinstance(outcome, Refused):
            return self if outcome.for_nobody else Pause(refusals=self.refusals + 1)
        if isinstance(outcome, Delivered) or outcome.for_some:
            return Pause()
        failures = self.failures + 1
        wait = pause_seconds(failures, outcome.after_seconds, chance)
        return replace(self, failures=failures, until=now + timedelta(seconds=wait))

    def holds(self, now: datetime) -> bool:
        return self.until is not None and now < self.until

    def left(self, now: datetime) -> timedelta:
        """Return how much of the pause is left; zero when it is over."""
        return timedelta() if self.until is None else max(self.until - now, timedelta())


def put_back(notice: Notice, pause: Pause, due_at: datetime) -> Notice:
    """Return the notice, due later because its receiver is left alone for now."""
    failed = f"the receiver failed {counted(pause.failures, 'time')} in a row"
    return _waiting(notice, Verdict.BACKING_OFF, failed, due_at)


def queued(notice: Notice, due_at: datetime) -> Notice:
    """Return the notice, due later because its receiver cannot take all at once."""
    return _waiting(notice, Verdict.QUEUED, "", due_at)


def _waiting(notice: Notice, verdict: Verdict, reason: str, due_at: datetime) -> Notice:
    return notice.next(
        verdict=verdict,
        reason=reason,
        due_at=due_at,
        in_flight=False,
        perhaps_told=notice.perhaps_told or notice.in_flight,
    )


def orphaned(notice: Notice) -> Notice:
    """Return the notice as dead, because its channel is no longer configured."""
    return _dead(notice, Verdict.CHANNEL_GONE, notice.last_error)


def requeued(notice: Notice, now: datetime) -> Notice:
    """Return a notice that was given up, due again because a person asked for it."""
    return notice.next(
        state=NoticeState.DUE,
        verdict=Verdict.BACKING_OFF,
        reason="tried again because a person asked for it",
        attempts=0,
        due_at=now,
        first_due_at=now,
    )


def _again(
    notice: Notice, outcome: Retry, now: datetime, chance: float, settings: AlertsSettings
) -> Notice:
    perhaps_told = notice.perhaps_told or outcome.perhaps_received
    tried = replace(notice, perhaps_told=perhaps_told)
    since = notice.first_due_at or notice.at
    if now - since >= timedelta(seconds=settings.give_up_seconds):
        return _dead(tried, Verdict.GAVE_UP, outcome.reason)
    wait = pause_seconds(notice.attempts, outcome.after_seconds, chance)
    due_at = now + timedelta(seconds=wait)
    return tried.next(
        in_flight=False,
        verdict=Verdict.BACKING_OFF,
        reason=f"{outcome.reason}; tried {counted(notice.attempts, 'time')}, next at {moment(due_at)}",
        last_error=outcome.reason,
        due_at=due_at,
    )


def _dead(notice: Notice, verdict: Verdict, error: str | None) -> Notice:
    reason = verdict.value if error is None else f"{verdict.value}: {error}"
    return notice.next(
        state=NoticeState.DEAD,
        verdict=verdict,
        reason=reason,
        last_error=error,
        in_flight=False,
        due_at=None,
    )


def reminded_after(
    last_notice: Notice, settings: AlertsSettings, repeat_seconds: float, reminders: int = 0
) -> timedelta | None:
    """Return how long after a notice its reminder is due; None when there is none.

    Each of the `reminders` that were sent in a row doubles it: by then readers know of the
    incident.
    """
    unattended = last_notice.to_state in _UNATTENDED and last_notice.kind is not Kind.RESOLVED
    critical = last_notice.severity is Severity.CRITICAL
    every = repeat_seconds or (settings.repeat_seconds if critical else 0.0)
    # A digest is of one day, and a notice to an owner of its stage: neither is to be acknowledged.
    once = last_notice.fault == DIGEST or is_idle_notice(last_notice.incident)
    if not unattended or every <= 0 or once:
        return None
    longest = max(settings.repeat_at_most_seconds, every)
    return timedelta(seconds=min(every * 2.0 ** min(reminders, 30), longest))


def _reminders(
    sent: Notice, now: datetime, reminder_from: datetime, after: timedelta | None
) -> list[Notice]:
    """Return the reminder of an incident that nobody has acknowledged, if one is due."""
    if after is None:
        return []
    due_at = reminder_from + after
    reminder = replace(
        sent,
        repeat=sent.repeat + 1,
        at=now,
        kind=Kind.UPDATED,
        state=NoticeState.DUE,
        verdict=Verdict.REMINDER,
        reason="",
        due_at=due_at,
        first_due_at=due_at,
        attempts=0,
        perhaps_told=False,
        last_error=None,
        sent_at=None,
        receipt=None,
        version=1,
    )
    return [reminder]
