"""Delivery: due notices are claimed and handed to one worker per channel.

Delivery is at least once, the newest state last. A receiver that hangs holds up its own worker
only.
"""

import contextlib
import itertools
import queue
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta

from gpuvigil.clock import to_text
from gpuvigil.hub_client import Hub
from gpuvigil.model import UNREADABLE, Record, RecordKind, Severity, readable

from ..decisions.attempts import Pause, attempt_ended, attempt_started, orphaned, put_back, queued
from ..decisions.decide import judge, replaced, ruled
from ..messages.channel import Bucket, Channel, Delivered, Outcome, tried
from ..messages.cost import cost_words
from ..messages.message import Message, message
from ..routing.case import Case
from ..routing.notice import Notice, NoticeState, is_idle_end, is_idle_notice, receipt_of
from ..routing.situation import SituationReader
from ..routing.update_policy import notified_owners, title
from .backlog import IN_HAND_SECONDS, Backlog, most_in_hand
from .hub_access import CLAIM_LIMIT, LEASE_SECONDS, POLL_SECONDS, Context

# How long after a channel's time-out an attempt's outcome may still be on its way to the hub.
RECORDING_SECONDS = 5.0
_MOST_NOTICES = 100_000


class Dispatcher:
    """One channel's worker: notices in hand are delivered one by one, the most severe first."""

    def __init__(self, channel: Channel, context: Context) -> None:
        self.channel = channel
        self._context = context
        self._hub = context.connect()
        self._situations = SituationReader(self._hub, context.settings)
        self._in_hand: dict[str, Record] = {}  # the newest claimed version of each
        self._backlog = Backlog.empty(channel.pace, _RANKS)
        self._lock = threading.Lock()
        # The most severe first, then as claimed: a receiver's limit may make the others wait.
        self._queue: queue.PriorityQueue[tuple[int, int, str]] = queue.PriorityQueue()
        self._claimed = itertools.count()
        self._pause = Pause()
        self._last_sent_at: datetime | None = None
        self._last_error = ""
        self._attempts = self._failures = 0
        self._seconds = 0.0
        self._bucket = Bucket.full(channel.pace, context.clock.monotonic())

    def accept(self, record: Record) -> bool:
        """Take a claimed notice in hand, if there is room; one that already is stays in the queue.

        Its newer version counts then: nobody would deal with its claim otherwise. Critical notices
        have twice the room: they go out before what came earlier.
        """
        rank = _rank(record)
        room = most_in_hand(self.channel.pace) * (2 if rank == 0 else 1)
        with self._lock:
            if record.id in self._in_hand:
                if self._in_hand[record.id].version < record.version:
                    self._in_hand[record.id] = record
                return True
            if len(self._in_hand) >= room or self._rests_seconds() > IN_HAND_SECONDS:
                return False
            self._in_hand[record.id] = record
        self._queue.put((rank, next(self._claimed), record.id))
        return True

    def later(self, notice: Notice) -> Notice:
        """Return the notice, due when its turn comes; called by one thread only."""
        now = self._context.clock.monotonic()
        rank = notice.severity.rank
        self._backlog, seconds = self._backlog.give(rank, now, now + self._rests_seconds())
        due_at = self._context.clock.now() + timedelta(seconds=seconds)
        pause = self._pause
        if pause.until is not None and self._rests_seconds() > IN_HAND_SECONDS:
            return put_back(notice, pause, due_at)
        return queued(notice, due_at)

    def step(self) -> None:
        """Deal with the next notice in hand, or wait a little for one.

        The receiver's pace is kept before a notice is read, so that the newest state goes out; a
        short back-off of the receiver is waited for with everything in hand.
        """
        clock = self._context.clock
        if clock.wait(self._context.stop, self._bucket.wait_seconds(clock.monotonic())):
            return
        rest = self._rests_seconds()
        if rest <= IN_HAND_SECONDS and clock.wait(self._context.stop, rest):
            return
        try:
            *_, id_ = self._queue.get(timeout=POLL_SECONDS / 4)
        except queue.Empty:
            return
        with self._lock:
            record = self._in_hand.pop(id_)
        self._deal(record)

    def _rests_seconds(self) -> float:
        """Return how long the receiver is left alone from now on."""
        return self._pause.left(self._context.clock.now()).total_seconds()

    def pulse(self) -> dict[str, object]:
        """Return how the channel does, for people."""
        pause, sent_at = self._pause, self._last_sent_at
        return {
            "name": self.channel.profile.name,
            "waiting": self._queue.qsize(),
            "failures": pause.failures,
            "refusals": pause.refusals,
            "last_error": self._last_error if pause.failures or pause.refusals else None,
            "attempts_total": self._attempts,
            "failures_total": self._failures,
            "seconds_total": round(self._seconds, 3),
            "paused_until": None if pause.until is None else to_text(pause.until),
            "last_sent_at": None if sent_at is None else to_text(sent_at),
        }

    def _deal(self, record: Record) -> None:
        notice = Notice.from_record(record)
        everything = notices_of(self._hub, notice.incident)
        current = everything.get(notice.id)
        if current is None or current.version != notice.version:
            return  # it went on without this claim
        siblings = tuple(
            one
            for one in everything.values()
            if one.channel == notice.channel and one.id != notice.id
        )
        now = self._context.clock.now()
        case = Case(
            notice=notice,
            profile=self.channel.profile,
            siblings=siblings,
            now=now,
            settings=self._context.settings,
            situation=self._situations.read(self._context.clock.monotonic()),
            others=tuple(one for one in everything.values() if one.channel != notice.channel),
            sent_to_owner=self._sent_to_owner(notice, now),
        )
        ruling = judge(case)
        if not ruling.send_now:
            self._context.finish(self._hub, ruled(notice, ruling, now))
        elif self._pause.holds(now):
            left = self._pause.left(now)
            self._context.finish(self._hub, put_back(notice, self._pause, now + left))
        else:
            self._send(ruled(notice, ruling, now), case)

    def _sent_to_owner(self, notice: Notice, now: datetime) -> tuple[datetime, ...]:
        """Return when this channel notified the owner of other idle GPUs in the last two days."""
        if not is_idle_notice(notice.incident):
            return ()
        users = set(notice.to_incident().impact.users)
        since, sent = now - timedelta(days=2), (NoticeState.SENT.value,)
        found = self._hub.records(
            RecordKind.NOTICE, subject=notice.subject, since=since, states=sent, limit=_MOST_NOTICES
        )
        others = (one for one in readable(found, Notice.from_record) if one.id != notice.id)
        mine = (one for one in others if one.channel == notice.channel)
        counted = (one for one in mine if is_idle_notice(one.incident))
        theirs = (one for one in counted if users & set(one.to_incident().impact.users))
        return tuple(one.sent_at for one in theirs if one.sent_at and not is_idle_end(one.incident))

    def _send(self, notice: Notice, case: Case) -> None:
        context, now, siblings = self._context, self._context.clock.now(), case.siblings
        going = attempt_started(notice, now, self.channel.timeout_seconds + RECORDING_SECONDS)
        context.finish(self._hub, going, replaced(going, siblings, now))
        outcome = tried(lambda: self.channel.deliver(message_of(going, case, context, now)))
        ended = context.clock.now()
        self._bucket = self._bucket.take(context.clock.monotonic())
        self._pause = self._pause.after(outcome, ended, context.chance())
        reminder_from = case.reminder_from(going.verdict)
        chance = context.chance()
        after = attempt_ended(
            going,
            outcome,
            ended,
            chance,
            context.settings,
            case.repeat_seconds,
            reminder_from=reminder_from,
            reminders=case.reminders_after(going.verdict),
        )
        self._last_sent_at = after[0].sent_at or self._last_sent_at
        self._count(outcome, (ended - now).total_seconds())
        context.keep(self._hub, after)
        self._log_attempt(after[0], (ended - now).total_seconds())

    def _count(self, outcome: Outcome, seconds: float) -> None:
        self._attempts += 1
        self._seconds += max(seconds, 0.0)
        if not isinstance(outcome, Delivered):
            self._failures += 1
            self._last_error = outcome.reason

    def _log_attempt(self, notice: Notice, seconds: float) -> None:
        say = self._context.log.info if notice.sent_at else self._context.log.warning
        say(
            notice.state.value if notice.sent_at else "not delivered",
            notice=notice.id,
            kind=notice.kind.value,
            attempts=notice.attempts,
            seconds=seconds,
            error=notice.last_error or "",
        )


def message_of(notice: Notice, case: Case, context: Context, now: datetime) -> Message:
    """Return the message of a case's notice; ConfigError when the key of its links is missing."""
    return message(
        notice,
        now,
        context.settings.external_url,
        receipt_of(notice, case.siblings),
        seal=context.seal,
        runbook_url=context.settings.runbook_url,
        notified_owners=notified_owners(case.sent),
        previous_title=title(case.last_sent) if case.last_sent else "",
        owners_only=case.profile.owners_only,
        cost=cost_words(context.prices, notice.to_incident(), context.models.known, now),
    )


def hand_out(hub: Hub, context: Context, dispatchers: Mapping[str, Dispatcher]) -> None:
    """Claim due notices and give them to the dispatchers; one without a channel becomes dead.

    Notices that a dispatcher has no room for go back at once, all in one commit.
    """
    claimed = hub.claim(
        RecordKind.NOTICE,
        context.owner,
        lease_seconds=LEASE_SECONDS,
        limit=CLAIM_LIMIT,
        wait_seconds=POLL_SECONDS,
    )
    back: list[Notice] = []
    for record in claimed:
        dispatcher = dispatchers.get(str(record.body.get("channel")))
        if dispatcher is not None and dispatcher.accept(record):
            continue
        try:
            notice = Notice.from_record(record)
            back.append(orphaned(notice) if dispatcher is None else dispatcher.later(notice))
        except UNREADABLE as error:
            context.log.warning("notice cannot be read", id=record.id, error=repr(error))
    if back:
        context.finish_all(hub, back)
    context.gather(len(claimed))


_RANKS = len(Severity)


def _rank(record: Record) -> int:
    """Return how urgent a notice is; one that another version wrote is the least."""
    try:
        return Notice.from_record(record).severity.rank
    except UNREADABLE:
        return _RANKS


def notices_of(hub: Hub, incident: str) -> dict[str, Notice]:
    """Return the incident's notices by id, without those that another version wrote."""
    found = {}
    for record in hub.records(RecordKind.NOTICE, parent=incident):
        with contextlib.suppress(*UNREADABLE):
            found[record.id] = Notice.from_record(record)
    return found
