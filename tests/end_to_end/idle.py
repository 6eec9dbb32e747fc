"""A site whose nodes and alerts have told of idle jobs, for `gpuvigil act` to look at."""

import getpass
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from accounting.efficiency.idle_reason import FOR_JOBS, Idleness
from alerts.actions.job_end_loop import Found, IdleJobs
from alerts.actions.slurm import Slurm as Commands
from alerts.decisions.decide import decide
from alerts.idle.idle_notice import holdings, notice
from alerts.routing.case import ChannelProfile
from alerts.routing.notice import NoticeState
from gpuvigil.clock import ManualClock
from gpuvigil.config import ActionsSettings, AlertsSettings, CollectorSettings, Config, IdleSettings
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import (
    Allocation,
    Holder,
    Incident,
    Inventory,
    RecordKind,
    Severity,
    Subject,
    fingerprint,
)
from gpuvigil.store.external import store_of

MINUTE = timedelta(minutes=1)
USER = getpass.getuser()
ACTIONS = ActionsSettings(enabled=True, end_idle=True, ends_percent=100.0, ends_per_hour=9)
ROUTE = ChannelProfile(
    name="owners",
    minimum_severity=Severity.INFO,
    every_change=False,
    owners=True,
    owners_only=True,
)


class Site:
    """What nodes and alerts have told the hub of two hours of idle jobs, three hours from now."""

    def __init__(self, hub: Hub, directory: str = "") -> None:
        self.hub = hub
        self._commands = Commands(directory, 20.0)
        self.now = datetime.now(timezone.utc) + timedelta(hours=3)
        self.begun = self.now - 170 * MINUTE
        self._used = 0
        node = Subject(cluster="c", node="n1")
        inventory = Inventory(subject=node, at=self.now, boot="b", tick_seconds=60.0, version="1")
        hub.write_records([inventory.to_record()])

    def hold(
        self,
        job: str,
        busy: Sequence[bool],
        notices: Iterable[int] = (60, 105),
        silent_minutes: int = 0,
    ) -> None:
        """A GPU of the node for each of `busy`; its notices went out when so many minutes were idle."""
        first, self._used = self._used, self._used + len(busy)
        idle_since, cards, rows = self.now - 125 * MINUTE, [], []
        for number, computes in enumerate(busy, first):
            cards.append(Subject(cluster="c", node="n1", gpu=f"GPU-{number}"))
            measured = range(130 - silent_minutes)
            rows += [self._row(f"GPU-{number}", computes, minute) for minute in measured]
        store_of(self.hub).write("\n".join(rows).encode())
        given = [
            Allocation(
                subject=card,
                holder=Holder.parse(f"job {job}"),
                user=USER,
                command="train.py",
                started_at=self.begun,
                partition="gpu",
            )
            for card in cards
        ]
        idle = [card for card, computes in zip(cards, busy, strict=True) if not computes]
        stands = [self._incident(card, idle_since) for card in idle]
        (held,) = holdings(given, {card.key: idle_since for card in idle})
        records = [*(one.to_record() for one in given), *(one.to_record() for one in stands)]
        for number, minutes in enumerate(notices, 1):
            at = idle_since + minutes * MINUTE
            step = notice(held, f"notice {number}", FOR_JOBS, Idleness.NO_PROCESS, at)
            (due,) = decide(step, [ROUTE], [], at, AlertsSettings())
            sent = due.next(state=NoticeState.SENT, sent_at=at)
            records += [step.to_record(), sent.to_record()]
        self.hub.write_records(records)

    def _row(self, uuid: str, computes: bool, minute: int) -> str:
        at = int((self.now - (129 - minute) * MINUTE - timedelta(seconds=30)).timestamp()) * 10**9
        percent = 93.0 if computes else 0.0
        return (
            f"gpu,cluster=c,node=n1,uuid={uuid},model=H100 up=1i,utilization_percent={percent},"
            "memory_utilization_percent=0,compute_processes=0i,memory_used_bytes=1i,"
            f"memory_total_bytes=80i,power_watts=70,power_limit_watts=700 {at}"
        )

    def _incident(self, card: Subject, since: datetime) -> Incident:
        return Incident(
            id=f"i-{card.gpu}",
            fingerprint=fingerprint("gpu_idle_held", card),
            fault="gpu_idle_held",
            subject=card,
            severity=Severity.INFO,
            state="open",
            title="held and idle",
            since=since,
            updated_at=self.now,
        )

    def look(self, policies: Sequence[IdleSettings], **changes: object) -> Found:
        """What `gpuvigil act` does now."""
        config = Config(
            collector=CollectorSettings(cluster="c"),
            alerts=AlertsSettings(idle=tuple(policies)),
            actions=replace(ACTIONS, **changes),  # type: ignore[arg-type]
        )
        clock = ManualClock(self.now)
        records = self.hub.records(RecordKind.INCIDENT)
        incidents = [Incident.from_record(one) for one in records]
        jobs = IdleJobs(self.hub, self._commands, config, clock, Log("actions"))
        return jobs.end_due(incidents, self._commands.machines())
