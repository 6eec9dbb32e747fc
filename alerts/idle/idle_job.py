"""Finds holders of idle GPUs whose notice is due, where a channel writes to owners."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from accounting.efficiency.idle_reason import END
from accounting.efficiency.recent_incidents import resolved_since
from gpuvigil.clock import EPOCH
from gpuvigil.errors import StoreError
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import (
    Allocation,
    AllocationState,
    Holder,
    Incident,
    RecordKind,
    Transition,
    readable,
)
from gpuvigil.schedulers.jobs import jobs_since, with_job_details

from ..delivery.dispatcher import notices_of
from ..delivery.hub_access import Context
from ..delivery.self_check import last_step
from ..messages.self_monitoring import analyzer_trouble
from ..routing.notice import NoticeState, is_idle_end
from .idle_notice import (
    PLACE,
    IdleHolding,
    Terms,
    holdings,
    idle_since,
    notice,
    over,
    stage_of,
    terms,
    verdict,
)
from .idle_samples import StoreIdleSamples

CHECK_SECONDS = 60.0
# At most a twentieth of the time is spent on looking.
WAIT_PER_CHECK = 20.0
# The store is asked for the span of each holder: the others are due at the next look.
MOST_AT_ONCE = 20
# A holder that was excused, or has just got a notice, is asked about again then.
ASK_AGAIN = timedelta(minutes=5)
MOST_REMEMBERED = 10_000
_MOST_RECORDS = 100_000
_DAY = timedelta(days=1)
_SUSPENDED = "SUSPENDED"


class IdleWatch:
    """One process's checks of idle GPUs' holders; `below_percent` as the idle detector has it."""

    def __init__(self, context: Context, connect: Callable[[], Hub], below_percent: float) -> None:
        self._context = context
        self._hub = connect()
        self._below = below_percent
        self._sent: dict[str, datetime] = {}  # by the notice's incident
        self._suspended: dict[
            tuple[str, Holder], datetime
        ] = {}  # jobs, and when they were last seen suspended
        self._asked_again: dict[str, datetime] = {}  # when a holder is asked about again, by notice

    def step(self) -> None:
        """Record due notices, and wait; on a large fleet, where a look is long, for longer."""
        clock, log = self._context.clock, self._context.log
        began = clock.monotonic()
        found = self.due(clock.now())
        if found:
            self._hub.write_records([one.to_record() for one in found])
            for one in found:
                log.info("idle notice", incident=one.incident, stage=one.reason)
        took = clock.monotonic() - began
        clock.wait(self._context.stop, max(CHECK_SECONDS, took * WAIT_PER_CHECK))

    def due(self, now: datetime) -> list[Transition]:
        """Return the notices that are due now; HubError where the hub does not answer."""
        if len(self._sent) > MOST_REMEMBERED:
            self._sent.clear()  # the hub has them
        if analyzer_trouble(self._hub.record(RecordKind.PULSE, "analyzer"), now) is not None:
            return []  # these may be long over
        active = self._active_incidents()
        idle = idle_since(active)
        holders = holdings(self._allocations(now), idle) if idle else []
        again = self._asked_again
        named = {held.notice("") for held in holders}
        self._asked_again = {name: at for name, at in again.items() if name in named}
        asked: list[tuple[IdleHolding, Terms]] = []
        stand: set[str] = set()  # notices whose holders are still to be told
        for held in holders:
            of_holder = terms(self._context.settings.idle, held)
            if of_holder is None or self._was_suspended(held, of_holder, now):
                continue
            stand |= {held.notice(stage) for stage, _ in of_holder.policy.stages()}
            if self._is_worth_asking(held, of_holder, now):
                asked.append((held, of_holder))
        # Holders that were never asked about come first: for the others the store said no before.
        asked.sort(key=lambda one: again.get(one[0].notice(""), EPOCH))
        made = self._notices(asked[:MOST_AT_ONCE], active, now)
        return [*self._over(stand, now), *made]

    def _was_suspended(self, held: IdleHolding, asked: Terms, now: datetime) -> bool:
        """Return whether the job was seen suspended in Slurm within the first notice's time."""
        seen = self._suspended.get((held.cluster, held.holder))
        return seen is not None and now - seen < asked.policy.notices[0]

    def _over(self, stand: Collection[str], now: datetime) -> list[Transition]:
        """Return the ends of waiting notices that need not be sent any more."""
        waiting = self._hub.records(
            RecordKind.NOTICE,
            subject=PLACE.key,
            states=(NoticeState.DUE.value,),
            limit=_MOST_RECORDS,
        )
        parents = {str(one.parent) for one in waiting if not is_idle_end(str(one.parent))}
        gone = sorted(parents - set(stand))
        steps = (last_step(self._hub, incident) for incident in gone)
        ends = [over(step, now) for step in steps if step is not None]
        return [one for one in ends if one is not None]

    def _notices(
        self,
        asked: Sequence[tuple[IdleHolding, Terms]],
        active: Sequence[Incident],
        now: datetime,
    ) -> list[Transition]:
        """Return the due notices of these holders; when the store fails, those until then."""
        if not asked:
            return []
        since = now - max(of_holder.policy.notices[-1] for _, of_holder in asked)
        stood = (*active, *resolved_since(self._hub, since))
        samples = StoreIdleSamples(self._hub, stood, now, [held for held, _ in asked])
        made: list[Transition] = []
        for held, of_holder in asked:
            try:
                one = self._notice(held, of_holder, samples)
            except StoreError as error:
                self._context.log.warning("idle GPUs not looked at", error=str(error))
                break
            made += [one] if one else []
        return made

    def _is_worth_asking(self, held: IdleHolding, asked: Terms, now: datetime) -> bool:
        """Return whether a notice is due, unless the measurements speak against it."""
        if now - held.since < asked.policy.notices[0]:
            return False
        if now < self._asked_again.get(held.notice(""), now):
            return False
        sent = self._stages(held, asked)
        if sent is None:
            self._asked_again[held.notice("")] = now + ASK_AGAIN
            return False
        # An end is told by `gpuvigil act`, which makes it.
        return stage_of(held, asked, sent, now) not in {None, END}

    def _active_incidents(self) -> list[Incident]:
        states = tuple(state.value for state in ACTIVE)
        found = self._hub.records(RecordKind.INCIDENT, states=states, limit=_MOST_RECORDS)
        return list(readable(found, Incident.from_record))

    def _allocations(self, now: datetime) -> list[Allocation]:
        held = (AllocationState.HELD.value,)
        found = self._hub.records(RecordKind.ALLOCATION, states=held, limit=_MOST_RECORDS)
        jobs = jobs_since(self._hub, None, now - _DAY)
        stopped = {key: now for key, known in jobs.items() if known[0].state == _SUSPENDED}
        before = {key: at for key, at in self._suspended.items() if key in jobs}
        self._suspended = {**before, **stopped}
        return [with_job_details(one, jobs) for one in readable(found, Allocation.from_record)]

    def _stages(self, held: IdleHolding, asked: Terms) -> dict[str, datetime] | None:
        """Return when each stage's notice went out, by this process or another.

        None while one has not: it waits, or could not be sent, and no later stage goes first.
        """
        sent = {}
        for stage, _ in asked.policy.stages():
            incident = held.notice(stage)
            if incident not in self._sent:
                step = last_step(self._hub, incident)
                told = [one.sent_at for one in notices_of(self._hub, incident).values()]
                times = [at for at in told if at is not None]
                if not times:
                    if step is None or step.to_state == State.RESOLVED.value:
                        break
                    return None
                self._sent[incident] = min(times)
            sent[stage] = self._sent[incident]
        return sent

    def _notice(
        self, held: IdleHolding, asked: Terms, samples: StoreIdleSamples
    ) -> Transition | None:
        """Return the due notice, or None if measurements speak against it: it is asked again later."""
        now = samples.now
        self._asked_again[held.notice("")] = now + ASK_AGAIN
        sent = self._stages(held, asked)
        stage = None if sent is None else stage_of(held, asked, sent, now)
        if sent is None or stage is None or stage == END:
            return None
        # An incident tolerates a moment's work: the samples say whether there was any in this time.
        after = dict(asked.policy.stages())[stage]
        held = held.only(key for key, since in held.idle.items() if now - since >= after)
        found = samples.why(held, after, self._below)
        if not found:
            return None
        why, held = verdict(found.values()), held.only(found)
        if stage_of(held, asked, sent, now, why, samples.used_share(held)) != stage:
            return None
        before = last_step(self._hub, held.notice(stage))
        return notice(held, stage, asked.policy, why, now, before)
