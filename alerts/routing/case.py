"""The input of a rule of `decide`, and its answer."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from gpuvigil.config import AlertsSettings
from gpuvigil.faults import trial
from gpuvigil.lifecycle import State
from gpuvigil.matching.matchers import Labels, labels_of
from gpuvigil.model import Incident, Severity

from .notice import POSTPONED, Kind, Notice, NoticeState, Verdict
from .route import ResolvedRoute, resolve_route
from .situation import NO_SITUATION, Situation


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProfile:
    """The messages that a channel wants to receive."""

    name: str
    minimum_severity: Severity
    send_resolved: bool = True
    pager: bool = False  # wakes people: never for simulated incidents
    every_change: bool = True  # else only what is worth a message of its own
    owners: bool = False  # writes to the owners of GPUs
    owners_only: bool = False  # and to nobody else


def writes_to_owners(profiles: Iterable[ChannelProfile]) -> bool:
    """Return whether a channel sends information to owners: else nobody is told of idle GPUs."""
    return any(one.owners and one.minimum_severity is Severity.INFO for one in profiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What becomes of a notice now; `due_at` is set when it is to be judged again then."""

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
    """A notice and the others of its incident: `siblings` of its channel, `others` of the rest."""

    notice: Notice
    profile: ChannelProfile
    siblings: tuple[Notice, ...]
    now: datetime
    settings: AlertsSettings
    situation: Situation = NO_SITUATION
    others: tuple[Notice, ...] = ()
    sent_to_owner: tuple[datetime, ...] = ()  # for a notice to an owner: when they got others

    @property
    def incident(self) -> Incident:
        return self.notice.to_incident()

    @property
    def labels(self) -> Labels:
        return labels_of(self.incident, self.situation.racks)

    @property
    def route(self) -> ResolvedRoute | None:
        """The route by which this channel is notified of such an incident; None when it is not."""
        return resolve_route(self.settings, self.labels, self.profile.name)

    @property
    def feedback(self) -> trial.Feedback:
        """The votes on its fault at this site."""
        return self.situation.feedback.get(self.notice.fault, trial.Feedback())

    @property
    def began_on_trial(self) -> bool:
        """Whether this spell went to the digest as on trial: it stays there until it is over."""
        spell = takewhile(lambda one: one.kind is not Kind.RESOLVED, reversed(self.older))
        return any(one.verdict is Verdict.ON_TRIAL for one in spell)

    @property
    def update_seconds(self) -> float:
        way = self.route
        return (way.update_seconds if way else 0.0) or self.settings.update_seconds

    @property
    def repeat_seconds(self) -> float:
        """The repeat interval of its route; 0 where there is none."""
        way = self.route
        return way.repeat_seconds if way else 0.0

    @property
    def spell_began(self) -> datetime:
        """The time of this channel's first notice about it since the incident was last over."""
        began = self.notice.at
        for one in reversed(self.older):
            if one.kind is Kind.RESOLVED:
                break
            began = min(began, one.at)
        return began

    def first_notified_at(self, receivers: Collection[str]) -> datetime:
        """Return when the first of these channels was notified in this spell, else when one is to
        be.

        A receiver that cannot be reached counts from when it was to be notified; without any notice
        of theirs it is when this channel's spell began.
        """
        ends = [one.number for one in (*self.older, *self.others) if one.kind is Kind.RESOLVED]
        last_end = max((number for number in ends if number < self.notice.number), default=0)
        theirs = [
            one
            for one in self.others
            if one.channel in receivers and one.number > last_end and one.kind is not Kind.RESOLVED
        ]
        sent = [one.sent_at for one in theirs if one.sent_at is not None]
        if sent:
            return min(sent)
        told_from = self.in_service_since
        if told_from is not None:
            return told_from
        held_back = [
            one for one in theirs if one.state is NoticeState.DUE and one.verdict in POSTPONED
        ]
        tried = [
            one
            for one in theirs
            if one not in held_back and (one.attempts or one.state is NoticeState.DUE)
        ]
        if held_back and not tried:
            return min(max(one.due_at or self.now, self.now) for one in held_back)
        return min((one.first_due_at or one.at for one in tried), default=self.spell_began)

    @property
    def to_state(self) -> State:
        return State(self.notice.to_state)

    @property
    def older(self) -> tuple[Notice, ...]:
        """The earlier notices of this channel, oldest first."""
        before = (one for one in self.siblings if one.order < self.notice.order)
        return tuple(sorted(before, key=lambda one: one.order))

    @property
    def newer(self) -> tuple[Notice, ...]:
        return tuple(one for one in self.siblings if one.order > self.notice.order)

    @property
    def believed_firing(self) -> bool:
        """Whether the receiver may believe that the incident stands, from what it was sent before."""
        firing = False
        for one in self.older:
            if one.kind is not Kind.RESOLVED:
                reached = one.perhaps_told or one.in_flight
                firing = firing or reached or one.state is NoticeState.SENT
            elif one.state is NoticeState.SENT or one.verdict is Verdict.RESOLVED_OFF:
                firing = False
        return firing

    @property
    def _out_of_service(self) -> tuple[Notice, ...]:
        """The notices of this spell that were not sent because the nodes were out of service."""
        ends = [one.order for one in self.older if one.kind is Kind.RESOLVED]
        last = max(ends, default=(0, 0))
        out = (one for one in self.older if one.verdict is Verdict.OUT_OF_SERVICE)
        return tuple(one for one in out if one.order > last)

    @property
    def was_out_of_service(self) -> bool:
        """Whether the nodes were out of service, and nothing was sent to all since they are back."""
        sent = self.last_sent_to_all
        return any(sent is None or one.order > sent.order for one in self._out_of_service)

    @property
    def in_service_since(self) -> datetime | None:
        """The time when the nodes were back, for an incident whose nodes were out; None for any other."""
        if not self._out_of_service:
            return None
        last = self._out_of_service[-1].order
        back = (one for one in (*self.older, self.notice) if one.order > last)
        return min((one.at for one in back), default=None)

    @property
    def last_sent_ever(self) -> Notice | None:
        """The notice that was surely sent last, also if it is an end."""
        said = [one for one in self.older if one.sent_at is not None]
        return said[-1] if said else None

    @property
    def sent(self) -> tuple[Notice, ...]:
        """The notices surely sent in this spell, oldest first: since the incident was last over."""
        sent: list[Notice] = []
        for one in self.older:
            if one.kind is Kind.RESOLVED:
                sent = []
            elif one.state is NoticeState.SENT:
                sent.append(one)
        return tuple(sent)

    @property
    def last_sent(self) -> Notice | None:
        """The notice surely sent last in this spell."""
        return self.sent[-1] if self.sent else None

    @property
    def sent_to_all(self) -> tuple[Notice, ...]:
        """`sent` without notices for one newly hit owner only, which the others did not get."""
        return tuple(one for one in self.sent if one.verdict is not Verdict.NEWLY_HIT)

    @property
    def last_sent_to_all(self) -> Notice | None:
        """The notice surely sent last in this spell, and not to one owner only."""
        return self.sent_to_all[-1] if self.sent_to_all else None

    def reminders_after(self, verdict: Verdict | None = None) -> int:
        """Return how many reminders in a row were sent since the last news, counting `verdict`.

        A mere change is no news, and what only one owner gets is none to the others.
        """
        verdicts = [one.verdict for one in self.sent_to_all]
        verdicts += [] if verdict in {None, Verdict.NEWLY_HIT} else [verdict]
        that_count = [one for one in verdicts if one is not Verdict.CHANGED]
        reminders = takewhile(lambda it: it is Verdict.STILL_STANDING, reversed(that_count))
        return len(list(reminders))

    @property
    def reminded_from(self) -> datetime | None:
        """The time from which the next reminder counts; None when nothing was sent to all yet.

        A mere change is not counted: jobs that come and go on a GPU would put each reminder off for
        ever, on a channel that edits its message without a sound.
        """
        sent = [one for one in self.sent_to_all if one.verdict is not Verdict.CHANGED]
        return sent[-1].sent_at if sent else None

    def reminder_from(self, verdict: Verdict) -> datetime | None:
        """Return when the reminder interval began if this message does not restart it; None if it does."""
        return self.reminded_from if verdict in _NOT_COUNTED else None


# Messages after which a waiting reminder keeps its time.
_NOT_COUNTED = frozenset({Verdict.NEWLY_HIT, Verdict.CHANGED})
