"""Looks at the node in a child process that may get stuck, and asks the collector meanwhile."""

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from gpuvigil.config import CollectorSettings, Config
from gpuvigil.errors import GpuvigilError

from ..agent.control_socket import Question
from ..agent.node_config import is_contained
from ..processes.driver_lock import hold_the_driver
from ..processes.watchdog_child import End, Say, all_at_once, calling, run_in_child
from .agent_samples import CollectorAnswer, completed, parse
from .facts import DriverFacts, Facts, GpuFacts, Known

_SAVED_STATE_SECONDS = 2.0
_AGENT_SECONDS = 0.5  # for each step of the request; its answer is waited for during the look


def initial_facts(config: Config, gpus: int | None = None) -> Facts:
    """Return the facts of this node before it is looked at."""
    return Facts(
        node=config.collector.node or socket.gethostname(),
        cluster=config.collector.cluster,
        at=datetime.now(timezone.utc),
        uptime_seconds=time.clock_gettime(time.CLOCK_BOOTTIME),
        wants_gpus=config.collector.gpus,
        analyzer=config.analyzer,
        gpus_wanted=gpus,
        container=is_contained(config.collector.sysfs_root),
    )


def look(
    facts: Facts, settings: CollectorSettings, seconds: float, counters: bool = False
) -> Facts:
    """Return `facts` with everything that could be read of this node within `seconds`.

    Ports' `counters` are for callers that look again: a single look tells nothing by them.
    """
    began = time.monotonic()
    agent = _Agent(settings, facts.at)

    def take(part: str, value: Any) -> None:
        nonlocal facts
        facts = fold(facts, part, value)

    def tasks(say: Say) -> dict[str, Callable[[], None]]:
        saved = _SavedState(settings, say)
        parts: dict[str, Callable[[], None]] = {
            "the collector's memory": saved.look,
            "PCI bus": partial(_look_at_the_bus, settings, say),
            "network ports": partial(_look_at_ports, settings, counters, say),
            "Slurm's GPUs": partial(_ask_slurm, facts.node, say),
            "kernel log": partial(_look_at_the_log, settings, facts.at, say),
        }
        if settings.gpus:
            parts["driver"] = partial(
                _look_at_gpus, saved, settings.runtime_directory, facts.at, say
            )
        return parts

    try:
        end = run_in_child(tasks, take, seconds, agent.waiting)
    finally:
        agent.close()
    if end is End.DIED:
        facts = fold(facts, "unread", {"driver": end.value})
    if settings.gpus:
        facts = completed(facts, agent.answer)
    return replace(facts, waited_seconds=time.monotonic() - began)


def fold(facts: Facts, part: str, value: Any) -> Facts:
    """Return the facts with one more part that the child reported."""
    if part == "gpu":
        return replace(facts, gpus={**facts.gpus, value.index: value})
    if part == "unread":
        return replace(facts, unread={**facts.unread, **value})
    return replace(facts, **{part: value})


class _Agent:
    """The collector on this node, if one runs and this user may ask it."""

    def __init__(self, settings: CollectorSettings, at: datetime) -> None:
        self._at = at
        self._question: Question | None = None
        self.answer: CollectorAnswer | None = None
        with suppress(GpuvigilError):
            request = {"do": "status", "gpus": True}
            self._question = Question(settings.spool_directory, request, _AGENT_SECONDS)

    @property
    def waiting(self) -> dict[int, Callable[[], None]]:
        """The descriptor to wait on, and what to call when it becomes readable."""
        return {} if self._question is None else {self._question.fileno(): self._take}

    def _take(self) -> None:
        assert self._question is not None
        with suppress(GpuvigilError, ValueError):
            self.answer = parse(self._question.answer(), self._at)

    def close(self) -> None:
        """Stop waiting for the answer."""
        if self._question is not None:
            self._question.close()


class _SavedState:
    """What the collector remembers, including whether the driver may be touched."""

    def __init__(self, settings: CollectorSettings, say: Say) -> None:
        self._file = settings.spool_directory / "node.json"
        self._public = settings.runtime_directory
        self._say = say
        self._looked = threading.Event()
        self._known = Known()

    def look(self) -> None:
        from ..agent import saved_state  # noqa: PLC0415 - only the child needs it

        try:
            file = self._readable(self._public / saved_state.PUBLIC)
            if file is not None:
                found = saved_state.load(file)
                self._known = Known(
                    gpus=tuple(found.gpus.values()),
                    ports=tuple(found.ports.values()),
                    missing_since=found.missing,
                    released_until=found.released_until,
                )
                self._say("known", self._known)
        finally:
            self._looked.set()

    def _readable(self, public: Path) -> Path | None:
        """Return the file of the saved state, or of its public part; None when there is none."""
        try:
            with self._file.open("rb"):
                return self._file
        except FileNotFoundError:
            return None
        except PermissionError:
            with suppress(OSError), public.open("rb"):
                return public
            raise

    def released(self, at: datetime) -> bool:
        """Return whether the driver is to be left alone; false when the disk does not answer."""
        self._looked.wait(_SAVED_STATE_SECONDS)
        until = self._known.released_until
        return until is not None and at < until


def _look_at_the_bus(settings: CollectorSettings, say: Say) -> None:
    from ..sensors.pci import all_gpus  # noqa: PLC0415 - only the child needs it

    with suppress(FileNotFoundError):  # a machine without PCI
        gpus = all_gpus(settings.sysfs_root)
        say("pci", tuple(gpu for gpu in gpus if gpu.vendor == "NVIDIA"))
        say("unsupported", tuple(gpu for gpu in gpus if gpu.vendor != "NVIDIA"))


def _ask_slurm(node: str, say: Say) -> None:
    from ..owners.gres import read  # noqa: PLC0415 - only the child needs it

    conf = os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")
    given = "SLURM_JOB_GPUS" in os.environ  # slurmd sets it for a prolog (slurm.conf(5), "Prolog")
    say("expects_gpus", given or read(conf, node).minors is not None)


def _look_at_ports(settings: CollectorSettings, counters: bool, say: Say) -> None:
    from ..sensors.ports import PortSensor  # noqa: PLC0415 - only the child needs it

    say("ports", PortSensor(settings.sysfs_root, settings.proc_root).read(counters=counters))


def _look_at_the_log(settings: CollectorSettings, at: datetime, say: Say) -> None:
    from .kernel_log import read_log  # noqa: PLC0415 - only the child needs it

    say("kernel", read_log(settings, at))


def _look_at_gpus(saved: _SavedState, runtime: Path, at: datetime, say: Say) -> None:
    """Read the driver, then every GPU in a thread of its own."""
    if saved.released(at):
        return
    from ..nvml import (  # noqa: PLC0415 - only the child may load the library
        Driver,
        DriverError,
        load_library,
    )

    held = hold_the_driver(runtime, say)
    load_library()
    try:
        with calling(say, "driver"):
            driver = Driver()
    except DriverError as error:
        say("driver", DriverFacts(code=error.code, failure=str(error), reason=error.reason))
        return
    say("driver", DriverFacts(version=driver.version, gpus=driver.count))

    def gpu(index: int) -> None:
        identity = None
        try:
            with calling(say, f"GPU {index}"):
                found = driver.gpu(index)
                identity = found.identity
                say("gpu", GpuFacts(index=index, identity=identity))
                reading = found.read(slow=True)
            values, processes = reading.every, reading.processes
            say("gpu", GpuFacts(index=index, identity=identity, values=values, processes=processes))
        except DriverError as error:
            failed = GpuFacts(
                index=index, identity=identity, failure=str(error), reason=error.reason
            )
            say("gpu", failed)

    all_at_once({f"GPU {index}": partial(gpu, index) for index in range(driver.count)}, say)
    held.close()
