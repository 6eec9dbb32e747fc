"""Finds idle jobs whose end is due, checks them again, ends them and tells their owners."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from accounting.efficiency.idle_reason import END
from accounting.efficiency.recent_incidents import resolved_since
from gpuvigil.clock import Clock, to_text
from gpuvigil.config import Config
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.log import Log, Value
from gpuvigil.model import (
    Allocation,
    AllocationState,
    Holder,
    Incident,
    RecordKind,
    Subject,
    Transition,
    readable,
)
from gpuvigil.schedulers.jobs import Jobs, jobs_since, with_job_details

from ..delivery.dispatcher import notices_of
from ..delivery.self_check import last_step
from ..idle.idle_notice import PLACE, IdleHolding, Terms, holdings, idle_since, terms, verdict
from ..idle.idle_samples import StoreIdleSamples
from ..routing.notice import is_idle_end
from .drain_rules import Machine
from .job_end_rules import (
    HOUR,
    Ending,
    EndRefusal,
    How,
    by_controller,
    by_policy,
    by_slurm,
    done,
    end_is_due,
    end_notice,
    end_started,
    has_other_incident,
    is_end_started,
    within_limits,
)
from .log_once import ChangeLogger
from .slurm import Slurm, SlurmError

_MOST = 100_000
_DAY = timedelta(days=1)


@dataclass(slots=True)
class Found:
    """The result of one look: jobs to be ended, and jobs that are not, with the reason."""

    endings: list[Ending] = field(default_factory=list)
    refused: list[tuple[str, EndRefusal]] = field(default_factory=list)


class IdleJobs:
    """Ends the idle jobs of one Slurm cluster; `look` does all of it."""

    def __init__(self, hub: Hub, slurm: Slurm, config: Config, clock: Clock, log: Log) -> None:
        self._hub = hub
        self._slurm = slurm
        self._settings = config.actions
        self._policies = config.alerts.idle
        self._below = config.analyzer.idle_below_percent
        self._cluster = config.collector.cluster
        self._clock = clock
        self._log = log
        self._changes = ChangeLogger(log)
        self._unrecorded: list[Transition] = []

    def end_due(self, active: Sequence[Incident], machines: Mapping[str, Machine]) -> Found:
        """End the jobs that are due; ActionError, HubError or StoreError if anything is unknown."""
        self._record()
        now = self._clock.now()
        steps = self._steps(now)
        self._settle(steps)
        found = self._due(now, active, self._allocations() if self._is_any(active, now) else [])
        installed = sum(machine.gpus for machine in machines.values())
        may, may_not = within_limits(self._settings, found.endings, lately(steps, now), installed)
        found.refused += [(str(one.held.holder), why) for one, why in may_not]
        found.endings = [one for one in may if self._do(one, found.refused)]
        self._changes.log_changes(
            "not ended", {(job, "idle"): {"why": why.value} for job, why in found.refused}
        )
        if self._settings.dry_run:
            self._changes.log_changes(
                "would be ended",
                {(str(one.held.holder), "idle"): _facts(one) for one in found.endings},
            )
        return found

    def _is_any(self, active: Sequence[Incident], now: datetime) -> bool:
        """Return whether anything has been idle as long as the shortest policy asks.

        If nothing has, nothing need be read.
        """
        ends = [one.end_minutes for one in self._policies if one.end_minutes]
        shortest = timedelta(minutes=min(ends)) if ends else None
        since = idle_since(active).values()
        return shortest is not None and any(now - at >= shortest for at in since)

    def _do(self, ending: Ending, refused: list[tuple[str, EndRefusal]]) -> bool:
        """Check a job again, Slurm last of all, and end it; return whether it was, or would be."""
        again = self._again(ending)
        now = self._clock.now()
        running = self._slurm.job(ending.number) if again.endings else None
        why = by_slurm(ending, running, now) if again.endings else None
        if not again.endings or running is None or why is not None:
            refused += [(str(ending.held.holder), why or EndRefusal.CHANGED)]
            return False
        ending = again.endings[0]
        facts = _facts(ending)
        if self._settings.dry_run:
            return True
        step = end_started(end_notice(ending, now))
        # Recorded first: an end that is not recorded would neither count nor be told.
        self._hub.write_records([step.to_record()])
        try:
            self._slurm.end(ending, running.target, ending.mark(now))
        except SlurmError as error:
            # A controller that answers late has usually done it all the same.
            self._log.error("not known to be ended", job=ending.number, error=str(error), **facts)
            raise
        self._log.info("ended", job=ending.number, undo=ending.undo, **facts)
        self._unrecorded.append(done(step))
        self._record()
        return True

    def _settle(self, steps: Iterable[Transition]) -> None:
        """Report the ends that any process has begun and that are known to be done only now."""
        for step in filter(is_end_started, steps):
            number = Holder.parse(str(step.snapshot["body"]["label"])).name
            found = self._slurm.job(number)
            if found is None or not found.goes_on(step.at):
                self._unrecorded.append(done(step))
        self._record()

    def _again(self, ending: Ending) -> Found:
        """Decide about the same holder again, with everything read anew."""
        states = tuple(state.value for state in ACTIVE)
        records = self._hub.records(RecordKind.INCIDENT, states=states, limit=_MOST)
        nodes = {gpu.of_node() for gpu in ending.held.gpus}
        allocations = [one for node in nodes for one in self._allocations(node)]
        found = self._due(
            self._clock.now(), list(readable(records, Incident.from_record)), allocations
        )
        same = ending.held.notice(END)
        return Found([one for one in found.endings if one.held.notice(END) == same])

    def _due(
        self, now: datetime, active: Sequence[Incident], allocations: Sequence[Allocation]
    ) -> Found:
        found = Found()
        jobs = jobs_since(self._hub, None, now - HOUR) if allocations else {}
        theirs = [with_job_details(one, jobs) for one in allocations]
        due: list[tuple[IdleHolding, Terms]] = []
        for held in holdings(theirs, idle_since(active)):
            asked = terms(self._policies, held) if held.cluster == self._cluster else None
            if asked is not None and end_is_due(held, asked, now):
                due.append((held, asked))
        stood = self._excusing(active, [asked for _, asked in due], now)
        samples = StoreIdleSamples(self._hub, stood, now, [held for held, _ in due])
        for held, asked in due:
            why = self._why_not(held, asked, active, jobs, samples)
            if isinstance(why, EndRefusal):
                found.refused.append((str(held.holder), why))
            else:
                found.endings.append(why)
        return found

    def _excusing(
        self, active: Sequence[Incident], due: Sequence[Terms], now: datetime
    ) -> Sequence[Incident]:
        """Return what may excuse due holders: incidents that stood at any time until their end."""
        lengths = [asked.policy.end_after for asked in due if asked.policy.end_after is not None]
        longest = max(lengths, default=None)
        return (*active, *(resolved_since(self._hub, now - longest) if longest else ()))

    def _why_not(
        self,
        held: IdleHolding,
        asked: Terms,
        active: Sequence[Incident],
        jobs: Jobs,
        samples: StoreIdleSamples,
    ) -> EndRefusal | Ending:
        if last_step(self._hub, held.notice(END)) is not None:
            return EndRefusal.ONCE
        if has_other_incident(held, active):
            return EndRefusal.OTHER_INCIDENT
        after = asked.policy.end_after
        assert after is not None
        found = samples.why(held, after, self._below)
        sent = self._sent(held, asked)
        no = by_policy(held, asked, sent, found, samples.used_share(held), samples.now)
        if no is None and not samples.seen_lately(held, after):
            no = EndRefusal.STALE
        if no is None:
            known = jobs.get((held.cluster, held.holder), ())
            no = by_controller(held, max(known, key=lambda job: job.submitted_at, default=None))
        how = How(asked.end_by)
        return no or Ending(held=held, how=how, why=verdict(found.values()), asked=asked)

    def _sent(self, held: IdleHolding, asked: Terms) -> dict[str, datetime]:
        """Return when each stage's notice of this idleness went out.

        It goes to the owner, or to whoever is asked for it. A job's notices keep their ids for all
        its life, also after it is requeued.
        """
        sent = {}
        for stage, _ in asked.policy.stages():
            times = [one.sent_at for one in notices_of(self._hub, held.notice(stage)).values()]
            known = [at for at in times if at is not None and at >= held.since]
            if known:
                sent[stage] = min(known)
        return sent

    def _allocations(self, node: Subject | None = None) -> list[Allocation]:
        """Return the allocations held in this cluster, or on one of its nodes."""
        held = (AllocationState.HELD.value,)
        key = None if node is None else node.key
        found = self._hub.records(RecordKind.ALLOCATION, subject=key, states=held, limit=_MOST)
        every = readable(found, Allocation.from_record)
        return [one for one in every if one.subject.cluster == self._cluster]

    def _steps(self, now: datetime) -> list[Transition]:
        """Return the last step of each end that any process has begun within a day."""
        records = self._hub.records(RecordKind.TRANSITION, subject=PLACE.key, since=now - _DAY)
        steps: Iterable[Transition] = readable(records, Transition.from_record)
        ours = [step for step in steps if is_idle_end(step.incident)]
        return list({one.incident: one for one in sorted(ours, key=lambda it: it.number)}.values())

    def _record(self) -> None:
        """Record what was done: owners are notified by it, and it is not done twice."""
        if self._unrecorded:
            self._hub.write_records([one.to_record() for one in self._unrecorded])
            self._unrecorded.clear()


def lately(steps: Iterable[Transition], now: datetime) -> list[int]:
    """Return how many GPUs each job had whose end was begun within the last hour."""
    return [int(step.snapshot["body"]["impact"]["gpus"]) for step in steps if now - step.at < HOUR]


def _facts(ending: Ending) -> dict[str, Value]:
    return {
        "user": ending.held.user,
        "how": ending.how.value,
        "gpus": ending.gpus,
        "why": ending.why.value,
        "idle_since": to_text(ending.held.since),
    }
