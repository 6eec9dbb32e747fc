"""A notice: what is told, or not told, through one channel about one transition.

The hub keeps it as a record whose id is `<incident>:<channel>:<n>`. `n` is the transition's number,
with `.1`, `.2` ... for reminders, so that two alerts processes that decide out of turn still agree
on which state is newer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from accounting.efficiency.idle_reason import END
from gpuvigil.clock import from_text, to_text
from gpuvigil.lifecycle import State
from gpuvigil.model import (
    CoveredBy,
    Incident,
    Record,
    RecordKind,
    Severity,
    Transition,
    cause_from_json,
    cause_in_words,
    cause_to_json,
)

# Prefix of the ids of incidents that are notices to the holders of idle GPUs.
IDLE_NOTICE = "idle-"


def is_idle_notice(incident: str) -> bool:
    """Return whether an incident is a notice to a holder of idle GPUs, by its id."""
    return incident.startswith(IDLE_NOTICE)


def is_idle_end(incident: str) -> bool:
    """Return whether an incident is the notice that a job was ended, by its id."""
    return is_idle_notice(incident) and incident.endswith(f"-{END}")


class NoticeState(str, Enum):
    """The state of a notice; only a due one is still going to be delivered."""

    DUE = "due"
    SENT = "sent"
    NOT_SENT = "held"  # decided not to be sent
    SUPERSEDED = "superseded"  # a newer state of the incident is told instead
    DEAD = "dead"  # refused, or tried for too long


class Kind(str, Enum):
    """What a message says about its incident."""

    FIRED = "fired"
    UPDATED = "updated"
    RESOLVED = "resolved"


class Verdict(Enum):
    """Why a notice is sent, is sent later, or is not sent."""

    FIRST = "first message to this channel"
    RETURNED = "firing again after it was resolved"
    CHANGED = "it has changed"
    EXPLAINED = "its cause is now known, or has changed"
    GREW = "it has at least doubled"
    NEWLY_HIT = "it affects users who were not notified"
    WORSE = "severity increased"
    STILL_STANDING = "still firing after the repeat interval"
    OVER = "resolved"
    ESCALATED = "not acknowledged in time"
    RESUMED = "its node is back in service and it still fires"

    UNREMARKABLE = "minor change"
    TOLD_RECENTLY = "last update sent less than the update interval ago"
    WAITS = "an earlier message is still being sent"
    BACKING_OFF = "the receiver failed or asked to wait"
    QUEUED = "rate limit of the receiver reached"
    REMINDER = "reminder due after the repeat interval"
    SILENCED = "silenced"
    INHIBITED = "inhibited by a larger incident"
    WAITS_FOR_CAUSE = "waiting for a possible cause"
    ESCALATES = "escalates unless acknowledged"
    OUT_OF_HOURS = "outside the route's hours"
    OWNER_MAXIMUM = "its owner has reached the daily limit of idle notices"

    NO_CHANNEL = "no channel is configured"
    SUSPECT = "seen once, not confirmed yet"
    DISMISSED = "not seen again"
    OWN_CHANNEL = "it is about this channel"
    NOT_ROUTED = "no route to this channel"
    OUT_OF_SERVICE = "its nodes are out of service on purpose; sent when they return"
    DIGEST = "sent in the daily digest"
    ON_TRIAL = "on trial here; sent in the daily digest"
    BELOW_MINIMUM = "below the channel's minimum severity"
    LATE = "based on late data, which never pages"
    SELFTEST = "self-test; never sent"
    NO_OWNER = "nobody holds it, and this channel notifies owners only"
    FOR_OWNER = "sent to its owner only"
    IDLE_POLICY = "owners get idle notices instead"
    SIMULATED = "simulated; never sent to pagers or owners"
    TAKEN = "acknowledged"
    NEVER_TOLD = "no alert was sent, so no resolved message is sent"
    RESOLVED_OFF = "this channel gets no resolved messages"
    SUPERSEDED = "replaced by a newer update"
    CHANNEL_GONE = "the channel was removed"
    REFUSED = "rejected by the receiver"
    GAVE_UP = "gave up: could not be delivered"
    UNREADABLE = "written by a newer version"


# These say nothing about the incident's state, so an older message stays worth telling.
NEUTRAL = frozenset(
    {Verdict.SUSPECT, Verdict.TAKEN, Verdict.LATE, Verdict.SIMULATED, Verdict.SELFTEST}
)

# Verdicts that put a notice into the digest of the day on which it was decided.
DIGESTED = frozenset({Verdict.DIGEST, Verdict.ON_TRIAL})

# Verdicts that put a notice off until a set time; only from then on is it late.
POSTPONED = frozenset(
    {
        *(Verdict.TOLD_RECENTLY, Verdict.UNREMARKABLE, Verdict.SILENCED, Verdict.INHIBITED),
        *(Verdict.WAITS_FOR_CAUSE, Verdict.ESCALATES, Verdict.OUT_OF_HOURS),
        Verdict.OWNER_MAXIMUM,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One message to one channel, or the reason why there is none."""

    incident: str
    channel: str | None  # None: no channel is configured
    number: int  # of the transition
    repeat: int = 0  # 1, 2 ... for reminders of the same state
    subject: str
    at: datetime
    from_state: str
    to_state: str
    signal: str
    cause: str = ""  # the transition's own reason, for people
    covered_by: CoveredBy | None = None  # what ended it, where that explains it
    snapshot: Mapping[str, Any]  # the incident's record, as the transition carries it
    kind: Kind = Kind.FIRED
    state: NoticeState = NoticeState.DUE
    verdict: Verdict = Verdict.FIRST
    reason: str = ""
    due_at: datetime | None = None
    first_due_at: datetime | None = None
    attempts: int = 0  # begun, whether or not they ended
    in_flight: bool = False  # an attempt began and its end was not recorded yet
    perhaps_told: bool = False  # an attempt may have reached the receiver all the same
    last_error: str | None = None
    sent_at: datetime | None = None
    receipt: str | None = None  # the receiver's name for the message about the incident
    version: int = 1

    @property
    def id(self) -> str:
        tail = f".{self.repeat}" if self.repeat else ""
        return f"{self.incident}:{self.channel or '-'}:{self.number}{tail}"

    @property
    def order(self) -> tuple[int, int]:
        """Newer states of an incident have a higher order."""
        return self.number, self.repeat

    @property
    def severity(self) -> Severity:
        return Severity(self.snapshot["body"]["severity"])

    @property
    def fault(self) -> str:
        return str(self.snapshot["body"]["fault"])

    def to_incident(self) -> Incident:
        """Return the incident as it was at the transition."""
        return Incident.from_record(Record.from_json(self.snapshot))

    def next(self, **changes: Any) -> "Notice":
        """Return the notice's next version, with `changes`."""
        return replace(self, version=self.version + 1, **changes)

    def to_record(self) -> Record:
        """Return the record, of kind `notice`; due only while it is going to be delivered."""
        body: dict[str, Any] = {
            "state": self.state.value,
            "verdict": self.verdict.name.lower(),
            "reason": self.reason or self.verdict.value,
            "channel": self.channel,
            "kind": self.kind.value,
            "number": self.number,
            "repeat": self.repeat,
            "from_state": self.from_state,
            "to_state": self.to_state,
            "signal": self.signal,
            "cause": self.cause,
            "covered_by": cause_to_json(self.covered_by),
            "attempts": self.attempts,
            "in_flight": self.in_flight,
            "perhaps_told": self.perhaps_told,
            "last_error": self.last_error,
            "first_due_at": _text(self.first_due_at),
            "sent_at": _text(self.sent_at),
            "receipt": self.receipt,
            "snapshot": dict(self.snapshot),
        }
        return Record(
            kind=RecordKind.NOTICE,
            id=self.id,
            at=self.at,
            subject=self.subject,
            parent=self.incident,
            due_at=self.due_at if self.state is NoticeState.DUE else None,
            version=self.version,
            body=body,
        )

    @classmethod
    def from_record(cls, record: Record) -> "Notice":
        """Return the notice that `to_record` wrote; ValueError or KeyError for any other record."""
        body = record.body
        return cls(
            incident=str(record.parent),
            channel=body["channel"],
            number=int(body["number"]),
            repeat=int(body["repeat"]),
            subject=record.subject,
            at=record.at,
            from_state=str(body["from_state"]),
            to_state=str(body["to_state"]),
            signal=str(body["signal"]),
            cause=str(body.get("cause", "")),
            covered_by=_covered_by(body),
            snapshot=body["snapshot"],
            kind=Kind(body["kind"]),
            state=NoticeState(body["state"]),
            verdict=_verdict(str(body["verdict"])),
            reason=str(body["reason"]),
            due_at=record.due_at,
            first_due_at=_time(body["first_due_at"]),
            attempts=int(body["attempts"]),
            in_flight=bool(body["in_flight"]),
            perhaps_told=bool(body["perhaps_told"]),
            last_error=body["last_error"],
            sent_at=_time(body["sent_at"]),
            receipt=body.get("receipt"),
            version=record.version,
        )


def draft(transition: Transition, channel: str | None, now: datetime) -> Notice:
    """Return a notice about `transition` that nobody has judged yet; due now."""
    over = transition.to_state in {State.RESOLVED.value, State.DISMISSED.value}
    return Notice(
        kind=Kind.RESOLVED if over else Kind.FIRED,
        incident=transition.incident,
        channel=channel,
        number=transition.number,
        subject=transition.subject.key,
        at=now,
        from_state=transition.from_state,
        to_state=transition.to_state,
        signal=transition.signal,
        cause=transition.reason,
        covered_by=transition.cause if isinstance(transition.cause, CoveredBy) else None,
        snapshot=transition.snapshot,
        due_at=now,
        first_due_at=now,
    )


def receipt_of(notice: Notice, siblings: Iterable[Notice]) -> str | None:
    """Return the receiver's name for its last message in this spell; None when there is none."""
    if notice.kind is Kind.FIRED:
        return None
    named = [one for one in siblings if one.order < notice.order and one.receipt]
    return max(named, key=lambda one: one.order).receipt if named else None


def _verdict(name: str) -> Verdict:
    """Return the verdict with a name; UNREADABLE for one that only a newer version knows."""
    return Verdict.__members__.get(name.upper(), Verdict.UNREADABLE)


def _covered_by(body: Mapping[str, Any]) -> CoveredBy | None:
    if "covered_by" in body:
        cause = cause_from_json(body["covered_by"])
    else:
        cause = cause_in_words(str(body.get("cause", "")))
    return cause if isinstance(cause, CoveredBy) else None


def _text(at: datetime | None) -> str | None:
    return None if at is None else to_text(at)


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)
