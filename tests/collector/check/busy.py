"""Checks of all kinds on a machine without a free core: what they find, lose and invent."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.agent.control_socket import ask
from gpuvigil.errors import GpuvigilError
from gpuvigil.faults import FAULTS
from gpuvigil.faults.node_check_faults import NODE_FAULTS
from tests.collector.agent import Agent
from tests.collector.check.node import Node, Told, run
from tests.load import Load
from tests.nvml_fake import FakeDriver
from tests.polling import wait_until

BUSY_PROCESSES = 40
GPUS = 4
CALLERS: dict[str, tuple[str, ...]] = {
    "person": (),
    "program": ("-o", "json"),
    **{who: ("--as", who) for who in ("nagios", "npd", "slurm-prolog", "slurm-health")},
}
_PATIENCE_SECONDS = 5.0
_GIVE_UP = ("npd", "slurm-prolog", "slurm-health")
_UNKNOWN_CODES = {"person": 1, "program": 1, "nagios": 3, "npd": 2}
_CRITICAL_CODES = {"person": 4, "program": 4, "nagios": 2, "npd": 1, "slurm-prolog": 1}
_TITLES = {key: fault.title for key, fault in {**NODE_FAULTS, **FAULTS}.items()}
_SILENT_SECONDS = 31.0  # a silence that is certain

Put = Callable[[FakeDriver], None]
# What is wrong with the driver, and which fault a check has to name.
SICK: dict[str, tuple[Put, str]] = {
    "lost": (lambda driver: driver.lose(2), "gpu_lost"),
    "recovery": (lambda driver: driver.set(1, recovery_action=2), "recovery_action"),
    "one hangs": (lambda driver: driver.hang(1), "gpu_silent"),
    "all hangs": (lambda driver: driver.hang_all(), "driver_silent"),
}


@dataclass(slots=True)
class Tally:
    """What checks said, by count; each wrong one in full."""

    runs: int = 0
    found: int = 0  # the fault that is there was named
    well: int = 0  # of a healthy driver: nothing found
    unknown: int = 0
    lost: int = 0  # a fault that is there, and the check says neither that nor that it cannot tell
    invented: int = 0
    late: int = 0  # over the 5 s that Slurm and node-problem-detector wait
    slowest_seconds: float = 0.0
    unknown_by: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def count(self, who: str, told: Told, fault: str | None) -> None:
        self.runs += 1
        self.slowest_seconds = max(self.slowest_seconds, round(told.seconds, 2))
        self.late += who in _GIVE_UP and told.seconds > _PATIENCE_SECONDS
        named = {key for key, title in _TITLES.items() if title in told.out}
        if named - {fault}:
            self._wrong("invented", who, told)
        elif fault in named:
            self.found += 1
        elif _is_unknown(who, told):
            self.unknown += 1
            self.unknown_by[who] = self.unknown_by.get(who, 0) + 1
        elif fault is not None:
            self._wrong("lost", who, told)
        else:
            self.well += 1
        if fault is None and told.code == _CRITICAL_CODES.get(who):
            self._wrong("invented", who, told)

    def _wrong(self, what: str, who: str, told: Told) -> None:
        setattr(self, what, getattr(self, what) + 1)
        self.wrong.append(f"{what}: {who}: {told}")


def _is_unknown(who: str, told: Told) -> bool:
    """By its exit code; Slurm's callers have none for it, so by its words."""
    if who in _UNKNOWN_CODES:
        return told.code == _UNKNOWN_CODES[who]
    return told.code == 0 and ("not looked at: " in told.out or "out of time" in told.err)


def play(
    node: Node, agent: Agent | None, runs: int, chance: random.Random, states: list[str]
) -> Tally:
    """So many checks, by turns of a healthy driver and of sick ones, at a load of 40.

    With `agent`, a collector runs beside them from the start; a fault is there once it says so.
    """
    tally = Tally()
    with Load(BUSY_PROCESSES), _running(agent):
        for turn, state in enumerate(states):
            put, fault = SICK[state] if state != "well" else (None, None)
            if put is not None:
                put(node.driver)
            if agent is not None:
                _wait_for_word(node, state)
            share = runs // len(states) + (turn < runs % len(states))
            for _ in range(share):
                who = chance.choice(list(CALLERS))
                tally.count(who, _checked(node, who), fault)
            _heal(node.driver)
            if agent is not None:
                _wait_for_word(node, "well")
    return tally


def _checked(node: Node, who: str) -> Told:
    """As `docs/check.md` has it: those that give up after seconds raise its priority from the start."""
    hurried = ["nice", "-n", "-10"] if who in _GIVE_UP else []
    return run([*hurried, *node.command(*CALLERS[who])], node.environment)


def _heal(driver: FakeDriver) -> None:
    driver.release()
    driver.restore(2)
    driver.set(1, recovery_action=0)


@contextmanager
def _running(agent: Agent | None) -> Iterator[None]:
    if agent is None:
        yield
        return
    agent.start()
    try:
        yield
    finally:
        agent.stop()


def _wait_for_word(node: Node, state: str) -> None:
    """Until the collector has seen it."""
    wait_until(f"the collector's word on {state}", lambda: _says(_asked(node.spool), state), 180.0)


def _asked(spool: Path) -> dict[str, Any]:
    try:
        return ask(spool, {"do": "status", "gpus": True})
    except GpuvigilError:
        time.sleep(0.5)
        return {}


def _says(said: dict[str, Any], state: str) -> bool:
    newest = said.get("newest") or {}
    gpus = newest.get("gpus") or []
    if state == "all hangs":
        return (newest.get("silent_seconds") or 0.0) > _SILENT_SECONDS
    if len(gpus) < GPUS:
        return False
    if state == "one hangs":
        return (gpus[1]["silent_seconds"] or 0.0) > _SILENT_SECONDS
    if state == "lost":
        return bool(gpus[2]["reason"])
    values = [gpu["values"] or {} for gpu in gpus]
    wanted = 2 if state == "recovery" else 0
    return all(gpu["reason"] is None for gpu in gpus) and (
        values[1].get("recovery_action") == wanted
    )
