"""What is reported about idle GPUs, and who is notified, look by look; and what of it was right.

The judged code is that behind `gpuvigil idle` and the notices: `accounting.efficiency.idle_query`,
`accounting.efficiency.idle_reason` and `alerts.idle`, with the analyzer's own incidents and the rows that had
reached the hub.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.efficiency.idle_query import ASKED, Measurements, Row, excuses, why_idle
from alerts.idle.idle_notice import (
    IdleHolding,
    Terms,
    holdings,
    idle_since,
    stage_of,
    terms,
    verdict,
)
from alerts.idle.idle_samples import IdleSamples
from gpuvigil.config import AnalyzerSettings, IdleSettings
from gpuvigil.config.routing import is_standby
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import Allocation, Holder, Incident, Subject, job_holder
from gpuvigil.store import Aggregate

from .measured import Measured
from .scenes import STANDBY_PARTITION
from .truth import GpuTruth, Truth

LOOK, NOTICES = timedelta(minutes=5), timedelta(minutes=1)
# As in `alerts.idle.idle_job`.
_ASK_AGAIN = timedelta(minutes=5)
_TICK_SECONDS, _YOUNG = 10.0, timedelta(seconds=60)
# The policy of the simulated site: standby is declared by the partition, all else is the default.
POLICY = (
    IdleSettings(match=(f'partition="{STANDBY_PARTITION}"',), standby=True),
    IdleSettings(),
)
FIELDS = (*(one.field for one in ASKED), "utilization_percent")
_NOT_SAID = ""


@dataclass(slots=True)
class Mail:
    """A notice that was sent: for which job, about which GPUs, at which stage."""

    job: int
    at: datetime
    stage: str
    gpus: tuple[int, ...]
    why: str


class IdleJudge:
    """Looks at a staged fleet as it is played, and keeps what was reported beside what is true."""

    def __init__(self, truth: Truth, settings: AnalyzerSettings, start: datetime) -> None:
        self._truth, self._settings, self._start = truth, settings, start
        topology = truth.plan.topology
        self.rows = Measured(FIELDS)
        self._gpus: dict[str, int] = {}
        self._uuids = topology.uuids
        for number, uuid in enumerate(self._uuids):
            self._gpus[uuid] = number
        self._jobs = {
            job_holder(10_000 + job.number): row for row, job in enumerate(truth.plan.jobs)
        }
        self.looks: list[tuple[datetime, dict[int, tuple[GpuTruth, str]]]] = []
        self.mails: list[Mail] = []
        self._sent: dict[str, dict[str, datetime]] = {}
        self._asked_again: dict[str, datetime] = {}

    def start_of(self, seconds: float) -> datetime:
        """Return the moment of so many seconds since the fleet's start."""
        return self._start + timedelta(seconds=seconds)

    def seconds_of(self, at: datetime) -> float:
        return (at - self._start).total_seconds()

    def look(
        self, now: datetime, held: Sequence[Allocation], incidents: Sequence[Incident]
    ) -> None:
        """Record what `gpuvigil idle` reports now."""
        length = timedelta(seconds=self._settings.idle_after_seconds)
        gpus = {one.subject.key: one.subject for one in held}
        of_holder: dict[Holder, list[Subject]] = {}
        for one in held:
            of_holder.setdefault(one.holder, []).append(one.subject)
        span = Measurements(
            start=now - length,
            end=now,
            rows=self.measured(gpus.values(), ASKED, (now - length, now), now),
            expected={
                one.of_node().key: length.total_seconds() / _TICK_SECONDS for one in gpus.values()
            },
            excuses=excuses(incidents, now - length),
            below_percent=self._settings.idle_below_percent,
        )
        since = {one.subject.key: one.started_at for one in held}
        declared = {
            one.subject.key
            for one in held
            if is_standby(POLICY, {"partition": (one.partition or "",)})
        }
        told: dict[int, str] = {}
        for holder in of_holder.values():
            for gpu in holder:
                uuid = gpu.gpu or ""
                still = self.rows.newest(uuid, "utilization_percent", now, _YOUNG) == 0.0
                if not still or span.seen(gpu) is None:
                    continue
                peers = [one for one in holder if one is not gpu]
                standby = gpu.key in declared
                why = why_idle(gpu, peers, span, standby=standby, held_since=since[gpu.key])
                if why is not None:
                    told[self._gpus[uuid]] = why.value
        right = self._truth.at((now - self._start).total_seconds(), length.total_seconds())
        self.looks.append(
            (now, {gpu: (said, told.get(gpu, _NOT_SAID)) for gpu, said in right.items()})
        )

    def measured(
        self,
        gpus: Iterable[Subject],
        aggregates: Sequence[Aggregate],
        span: tuple[datetime, datetime],
        now: datetime,
    ) -> dict[str, Row]:
        """Return the rows of these GPUs that had arrived, by key."""
        found = {gpu.key: self.rows.window(gpu.gpu or "", aggregates, span, now) for gpu in gpus}
        return {key: row for key, row in found.items() if row is not None}

    def notices(
        self, now: datetime, held: Sequence[Allocation], incidents: Sequence[Incident]
    ) -> None:
        """Send the notices due now, as `alerts.idle.idle_job.IdleWatch.due` decides it."""
        idle = idle_since(one for one in incidents if State(one.state) in ACTIVE)
        for one in holdings(held, idle) if idle else []:
            asked = terms(POLICY, one)
            name = one.notice("")
            if asked is None or now - one.since < asked.policy.notices[0]:
                continue
            sent = self._sent.setdefault(name, {})
            stage = stage_of(one, asked, sent, now)
            if now < self._asked_again.get(name, now) or stage is None:
                continue
            self._asked_again[name] = now + _ASK_AGAIN
            self._write(one, asked, stage, _ArrivedSamples(self, now, incidents, one.gpus))

    def _write(
        self, held: IdleHolding, asked: Terms, stage: str, samples: "_ArrivedSamples"
    ) -> None:
        now, sent = samples.now, self._sent[held.notice("")]
        after = dict(asked.policy.stages())[stage]
        held = held.only(key for key, since in held.idle.items() if now - since >= after)
        found = samples.why(held, after, self._settings.idle_below_percent)
        if not found:
            return
        why, held = verdict(found.values()), held.only(found)
        if stage_of(held, asked, sent, now, why, samples.used_share(held)) == stage:
            sent[stage] = now
            gpus = tuple(self._gpus[key.rsplit("/", 1)[-1]] for key in held.idle)
            job = self._jobs[held.holder]
            self.mails.append(Mail(job=job, at=now, stage=stage, gpus=gpus, why=why.value))


class _ArrivedSamples(IdleSamples):
    """A look at the rows that have arrived."""

    def __init__(
        self, judge: IdleJudge, now: datetime, stood: Sequence[Incident], gpus: Sequence[Subject]
    ) -> None:
        super().__init__(stood, now)
        self._judge, self._gpus = judge, gpus

    def tick_seconds(self, node: Subject) -> float:
        return _TICK_SECONDS

    def rows(
        self, aggregates: Sequence[Aggregate], start: datetime, end: datetime
    ) -> Mapping[str, Row]:
        return self._judge.measured(self._gpus, aggregates, (start, end), self.now)

    def servers(self, start: datetime) -> Sequence[Row]:
        return ()
