"""`gpuvigil act`: drains faulty nodes, resumes them, and ends idle jobs; off unless asked for."""

import argparse
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from gpuvigil.clock import SystemClock
from gpuvigil.config import ActionsSettings, Config
from gpuvigil.config.startup import parser, run_service
from gpuvigil.errors import ConfigError, GpuvigilError, HubError
from gpuvigil.faults import FAULTS
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.log import Log
from gpuvigil.model import (
    Acceptance,
    Act,
    Incident,
    NodeAction,
    RecordKind,
    Subject,
    readable,
)
from gpuvigil.schedulers.kubernetes_api import api_server

from ..messages.self_monitoring import analyzer_trouble
from .drain_rules import ActionError, Machine, Past, Plan, Step, marked, plan
from .job_end_loop import IdleJobs
from .kubernetes import Kubernetes
from .log_once import ChangeLogger
from .slurm import Slurm

_MOST = 10_000


class Nodes(Protocol):
    """A scheduler's nodes; each method raises ActionError when it does not answer, or refuses."""

    @property
    def name(self) -> str: ...

    def machines(self, node: str = "") -> Mapping[str, Machine]:
        """Return all nodes by name, or one."""

    def do(self, step: Step) -> None: ...

    def undo(self, step: Step) -> str:
        """Return the command that undoes a step."""


def main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil act` until SIGTERM or SIGINT; with `--once`, for one look."""
    commands = parser(
        "act",
        "Drain faulty nodes, return them to service, end idle jobs. Off by default.",
    )
    commands.add_argument("--once", action="store_true", help="make one pass and exit")
    return run_service(commands, arguments, run)


def run(config: Config, chosen: argparse.Namespace, stop: threading.Event) -> None:
    """Act until `stop` is set; ConfigError while actions are off."""
    settings = config.actions
    if not settings.enabled:
        raise ConfigError(
            "actions are off: set actions.enabled; nothing is done until actions.dry_run is false"
        )
    check_faults(settings.faults)
    with closing(service_hubs(config.hub)()) as hub:
        nodes, idle = _scheduler(config, hub)
        actor = Actor(hub, nodes, settings, config.collector.cluster, idle)
        actor.log.info(
            "acting",
            dry_run=settings.dry_run,
            cluster=config.collector.cluster,
            of=nodes.name,
            ends_idle_jobs=idle is not None,
        )
        _go_on(actor, settings.interval_seconds, chosen.once, stop)


def check_faults(faults: Sequence[str]) -> None:
    """Raise ConfigError for an unknown fault, or one for which only a person may drain a node."""
    for fault in faults:
        if fault not in FAULTS:
            raise ConfigError(f"actions.faults: {fault!r} is none of docs/faults.md")
        if FAULTS[fault].inferred:
            reported = ", ".join(key for key, row in FAULTS.items() if not row.inferred)
            raise ConfigError(
                f"actions.faults: {fault!r} is inferred, not reported by a device or the kernel: a"
                f" person decides about that node; take it out (possible are {reported})"
            )


def _go_on(actor: "Actor", interval_seconds: float, once: bool, stop: threading.Event) -> None:
    """Look until asked to stop, or once; an error in one look does not end the loop."""
    clock = SystemClock()
    while not stop.is_set():
        try:
            actor.run_once(clock.now())
        except Exception as error:  # what cannot be read is not known either
            if once:
                raise
            reason = str(error) if isinstance(error, GpuvigilError) else repr(error)
            actor.log.warning("nothing is done: not everything is known", reason=reason)
        if once:
            return
        clock.wait(stop, interval_seconds)


def _scheduler(config: Config, hub: Hub) -> tuple[Nodes, IdleJobs | None]:
    """Return the scheduler to act on, and what ends idle jobs; ConfigError for wrong settings."""
    settings = config.actions
    if settings.of == "kubernetes":
        if settings.end_idle:
            raise ConfigError("actions.end_idle ends Slurm's jobs only: not with actions.of")
        return Kubernetes(api_server(config.kubernetes)), None
    if settings.of != "slurm":
        raise ConfigError(f"actions.of: {settings.of!r} is neither slurm nor kubernetes")
    slurm = Slurm(config.slurm.directory, config.slurm.timeout_seconds)
    if not settings.end_idle:
        return slurm, None
    if not any(one.end_minutes for one in config.alerts.idle):
        raise ConfigError("actions.end_idle: no policy in alerts.idle has end_minutes")
    return slurm, IdleJobs(hub, slurm, config, SystemClock(), Log("actions"))


class Actor:
    """Looks, decides, acts and records, one look after another."""

    def __init__(
        self,
        hub: Hub,
        nodes: Nodes,
        settings: ActionsSettings,
        cluster: str,
        idle: IdleJobs | None = None,
    ) -> None:
        self.log = Log("actions")
        self._hub = hub
        self._nodes = nodes
        self._settings = settings
        self._cluster = cluster
        self._idle = idle
        self._changes = ChangeLogger(self.log)
        self._drained: set[tuple[str, str]] = set()  # nodes, and for which incidents
        self._unrecorded: list[NodeAction] = []

    def run_once(self, now: datetime) -> Plan:
        """Look and act once; return what was decided about nodes.

        ActionError, HubError or StoreError when something is not known: then nothing more is done.
        """
        self._ask_for_analyzer(now)
        self._record()
        machines = self._nodes.machines()
        incidents = self._incidents(machines)
        found = self._plan(incidents, machines, now)
        self._changes.log_changes(
            "not done",
            {(it.node, it.incident): {"what": it.why.value} for it in found.refused},
        )
        if self._settings.dry_run:
            self._changes.log_changes(
                "would be done",
                {(it.node, it.incident): {"what": it.what.value} for it in found.steps},
            )
        else:
            self._do_all(found.steps, machines, now)
        if self._idle is not None:
            self._idle.end_due(incidents, machines)
        return found

    def _plan(
        self, incidents: Sequence[Incident], machines: Mapping[str, Machine], now: datetime
    ) -> Plan:
        """Return what is to be done, given what any process has done before."""
        accepted = self._accepted(machines) if self._settings.resume else {}
        while True:
            past = Past(drained=self._drained, accepted=accepted)
            found = plan(self._settings, self._cluster, incidents, machines, now, past)
            before = self._drained_before(found.steps) - self._drained
            if not before:
                return found
            self._drained |= before

    def _accepted(self, machines: Mapping[str, Machine]) -> dict[str, datetime]:
        """Return when each node that we drained was last accepted."""
        ours = (it.name for it in machines.values() if it.ours is not None)
        names = {Subject(cluster=self._cluster, node=it).key for it in ours}
        records = (self._hub.record(RecordKind.ACCEPTANCE, name) for name in sorted(names))
        found = readable((it for it in records if it is not None), Acceptance.from_record)
        return {one.node.node: one.at for one in found}

    def _drained_before(self, steps: Sequence[Step]) -> set[tuple[str, str]]:
        """Return steps whose node was drained before for the incident: a person has resumed it."""
        found = set()
        for step in steps:
            if step.what is Act.DRAIN:
                records = self._hub.records(RecordKind.ACTION, parent=step.incident)
                done = [
                    one
                    for one in readable(records, NodeAction.from_record)
                    if one.node.node == step.node
                ]
                last = max(done, key=lambda one: one.at, default=None)
                if last is not None and last.act is Act.DRAIN:
                    found.add((step.node, step.incident))
        return found

    def _do_all(
        self, steps: Sequence[Step], machines: Mapping[str, Machine], now: datetime
    ) -> None:
        """Take every step, also when another was refused; then raise the ActionError of the first."""
        refused: list[ActionError] = []
        for step in steps:
            try:
                self._do(step, machines, now)
            except ActionError as error:
                refused.append(error)
        if refused:
            raise refused[0]

    def _do(self, step: Step, machines: Mapping[str, Machine], now: datetime) -> None:
        # A person may have done something to it meanwhile.
        machine = self._nodes.machines(step.node).get(step.node)
        if machine is None or machine != machines[step.node]:
            self.log.info("left to the next look: it has changed", node=step.node)
            return
        self._nodes.do(replace(step, version=machine.version))
        if step.what is Act.DRAIN:
            self._drained.add((step.node, step.incident))
        else:
            self._drained.discard((step.node, step.incident))
        self.log.info(
            "done",
            what=step.what.value,
            node=step.node,
            incident=step.incident,
            reason=step.reason,
            undo=self._nodes.undo(step),
        )
        self._unrecorded.append(
            NodeAction(
                incident=step.incident,
                node=Subject(cluster=self._cluster, node=step.node),
                act=step.what,
                at=now,
                undo=self._nodes.undo(step),
            )
        )
        self._record()

    def _record(self) -> None:
        """Record what was done, for the next process and for people."""
        if self._unrecorded:
            self._hub.write_records([one.to_record() for one in self._unrecorded])
            self._unrecorded.clear()

    def _ask_for_analyzer(self, now: datetime) -> None:
        """Raise ActionError when the analyzer is silent: its active incidents may be long over."""
        trouble = analyzer_trouble(self._hub.record(RecordKind.PULSE, "analyzer"), now)
        if trouble is not None:
            raise ActionError(
                f"the analyzer is silent, {trouble.value}: open incidents are not known"
            )

    def _incidents(self, machines: Mapping[str, Machine]) -> list[Incident]:
        """Return the incidents that stand, and those that our marks name."""
        states = sorted(state.value for state in ACTIVE)
        records = list(self._hub.records(RecordKind.INCIDENT, states=states, limit=_MOST))
        if len(records) == _MOST:
            raise HubError(f"{_MOST:,} incidents are open: that is no time for acting")
        for name in marked(machines.values()):
            record = self._hub.record(RecordKind.INCIDENT, name)
            if record is not None:
                records.append(record)
        return list(readable(records, Incident.from_record))
