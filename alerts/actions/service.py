"""`gpuvigil act`: drains nodes with a fault, and gives them back; off unless asked for, and then a dry run first."""

import argparse
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuvigil.clock import SystemClock
from gpuvigil.command import parser, run_service
from gpuvigil.config import ActionsSettings, Config
from gpuvigil.errors import ConfigError, HubError
from gpuvigil.faults import FAULTS
from gpuvigil.hub import Hub, service_hubs
from gpuvigil.lifecycle import STANDING
from gpuvigil.log import Log
from gpuvigil.model import Incident, RecordKind, readable

from .decide import Machine, Plan, Step, marked, plan
from .slurm import Slurm, SlurmError

_MOST = 10_000


def main(arguments: Sequence[str]) -> int:
    """`gpuvigil act`: until SIGTERM or SIGINT; with `--once` one look."""
    commands = parser("act", "Drain nodes with a fault, and give them back; off by default.")
    commands.add_argument("--once", action="store_true", help="look once, act, and end")
    return run_service(commands, arguments, run)


def run(config: Config, chosen: argparse.Namespace, stop: threading.Event) -> None:
    """ConfigError while actions are off."""
    settings = config.actions
    if not settings.enabled:
        raise ConfigError(
            "actions are off: set actions.enabled; nothing is done until actions.dry_run is false"
        )
    for fault in settings.faults:
        if fault not in FAULTS:
            raise ConfigError(f"actions.faults: {fault!r} is none of docs/faults.md")
    clock = SystemClock()
    slurm = Slurm(config.slurm.directory, config.slurm.timeout_seconds)
    actor = Actor(service_hubs(config.hub)(), slurm, settings, config.collector.cluster)
    actor.log.info("acting", dry_run=settings.dry_run, cluster=config.collector.cluster)
    while not stop.is_set():
        try:
            actor.look(clock.now())
        except (HubError, SlurmError) as error:
            if chosen.once:
                raise
            actor.log.warning("nothing is done: not everything is known", reason=str(error))
        if chosen.once:
            return
        clock.wait(stop, settings.interval_seconds)


class Actor:
    """Looks, decides, acts and writes down, one look after another."""

    def __init__(self, hub: Hub, slurm: Slurm, settings: ActionsSettings, cluster: str) -> None:
        self.log = Log("actions")
        self._hub = hub
        self._slurm = slurm
        self._settings = settings
        self._cluster = cluster
        self._said: set[tuple[str, str, str]] = set()

    def look(self, now: datetime) -> Plan:
        """What was decided; SlurmError or HubError when something is not known: then nothing is done."""
        machines = self._slurm.machines()
        found = plan(self._settings, self._cluster, self._incidents(machines), machines, now)
        still = {(it.node, it.incident, it.why.value) for it in found.refused}
        self._said &= still | {(it.node, it.incident, it.what.value) for it in found.steps}
        for no in found.refused:
            self._once("not done", (no.node, no.incident, no.why.value))
        for step in found.steps:
            if self._settings.dry_run:
                self._once("would be done", (step.node, step.incident, step.what.value))
            else:
                self._do(step, machines)
        return found

    def _do(self, step: Step, machines: Mapping[str, Machine]) -> None:
        # A person may have done something to it meanwhile.
        if self._slurm.machines(step.node).get(step.node) != machines[step.node]:
            self.log.info("left to the next look: it has changed", node=step.node)
            return
        self._slurm.do(step)
        self.log.info(
            "done",
            what=step.what.value,
            node=step.node,
            incident=step.incident,
            reason=step.reason,
            undo=_undo(step),
        )

    def _once(self, said: str, key: tuple[str, str, str]) -> None:
        if key not in self._said:
            self._said.add(key)
            node, incident, what = key
            self.log.info(said, node=node, incident=incident, what=what)

    def _incidents(self, machines: Mapping[str, Machine]) -> list[Incident]:
        """Those that stand, and those that our marks name."""
        states = sorted(state.value for state in STANDING)
        records = list(self._hub.records(RecordKind.INCIDENT, states=states, limit=_MOST))
        if len(records) == _MOST:
            raise HubError(f"{_MOST:,} incidents stand: that is no time for acting")
        for name in marked(machines.values()):
            record = self._hub.record(RecordKind.INCIDENT, name)
            if record is not None:
                records.append(record)
        return list(readable(records, Incident.from_record))


def _undo(step: Step) -> str:
    verb = "resume" if step.what.value == "drain" else "drain reason=..."
    return f"scontrol update nodename={step.node} state={verb}"
