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
from ..processes.watchdog_child import End, Send, all_at_once, calling, run_in_child
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


def read_facts(
    facts: Facts, settings: CollectorSettings, seconds: float, counters: bool = False
) -> Facts:
    """Return `facts` with everything that could be read of this node within `seconds`.

    Ports' `counters` are for callers that look again: a single look tells nothing by them.
    """
    began = time.monotonic()
    agent = _Agent(settings, facts.at)

    def receive(part: str, value: Any) -> None:
        nonlocal facts
        facts = fold(facts, part, value)

    def tasks(send: Send) -> dict[str, Callable[[], None]]:
        saved = _SavedState(settings, send)
        parts: dict[str, Callable[[], None]] = {
            "the collector's memory": saved.load,
            "PCI bus": partial(_read_bus, settings, send),
            "network ports": partial(_read_ports, settings, counters, send),
            "Slurm's GPUs": partial(_ask_slurm, facts.node, send),
            "kernel log": partial(_read_kernel_log, settings, facts.at, send),
        }
        if settings.gpus:
            parts["driver"] = partial(_read_gpus, saved, settings.runtime_directory, facts.at, send)
        return parts

    try:
        end = run_in_child(tasks, receive, seconds, agent.waiting)
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
        return {} if self._question is None else {self._question.fileno(): self._receive_answer}

    def _receive_answer(self) -> None:
        assert self._question is not None
        with suppress(GpuvigilError, ValueError):
            self.answer = parse(self._question.answer(), self._at)

    def close(self) -> None:
        """Stop waiting for the answer."""
        if self._question is not None:
            self._question.close()


class _SavedState:
    """What the collector remembers, including whether the driver may be touched."""

    def __init__(self, settings: CollectorSettings, send: Send) -> None:
        self._file = settings.spool_directory / "node.json"
        self._public = settings.runtime_directory
        self._send = send
        self._loaded = threading.Event()
        self._known = Known()

    def load(self) -> None:
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
                self._send("known", self._known)
        finally:
            self._loaded.set()

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
        self._loaded.wait(_SAVED_STATE_SECONDS)
        until = self._known.released_until
        return until is not None and at < until


def _read_bus(settings: CollectorSettings, send: Send) -> None:
    from ..sensors.pci import all_gpus  # noqa: PLC0415 - only the child needs it

    with suppress(FileNotFoundError):  # a machine without PCI
        gpus = all_gpus(settings.sysfs_root)
        send("pci", tuple(gpu for gpu in gpus if gpu.vendor == "NVIDIA"))
        send("unsupported", tuple(gpu for gpu in gpus if gpu.vendor != "NVIDIA"))


def _ask_slurm(node: str, send: Send) -> None:
    from ..owners.gres import read  # noqa: PLC0415 - only the child needs it

    conf = os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")
    given = "SLURM_JOB_GPUS" in os.environ  # slurmd sets it for a prolog (slurm.conf(5), "Prolog")
    send("expects_gpus", given or read(conf, node).minors is not None)


def _read_ports(settings: CollectorSettings, counters: bool, send: Send) -> None:
    from ..sensors.ports import PortSensor  # noqa: PLC0415 - only the child needs it

    send("ports", PortSensor(settings.sysfs_root, settings.proc_root).read(counters=counters))


def _read_kernel_log(settings: CollectorSettings, at: datetime, send: Send) -> None:
    from .kernel_log import read_log  # noqa: PLC0415 - only the child needs it

    send("kernel", read_log(settings, at))


def _read_gpus(saved: _SavedState, runtime: Path, at: datetime, send: Send) -> None:
    """Read the driver, then every GPU in a thread of its own."""
    if saved.released(at):
        return
    from ..nvml import (  # noqa: PLC0415 - only the child may load the library
        Driver,
        DriverError,
        load_library,
    )

    held = hold_the_driver(runtime, send)
    load_library()
    try:
        with calling(send, "driver"):
            driver = Driver()
    except DriverError as error:
        send("driver", DriverFacts(code=error.code, failure=str(error), reason=error.reason))
        return
    send("driver", DriverFacts(version=driver.version, gpus=driver.count))

    def gpu(index: int) -> None:
        identity = None
        try:
            with calling(send, f"GPU {index}"):
                found = driver.gpu(index)
                identity = found.identity
                send("gpu", GpuFacts(index=index, identity=identity))
                reading = found.read(slow=True)
            values, processes = reading.every, reading.processes
            send(
                "gpu", GpuFacts(index=index, identity=identity, values=values, processes=processes)
            )
        except DriverError as error:
            failed = GpuFacts(
                index=index, identity=identity, failure=str(error), reason=error.reason
            )
            send("gpu", failed)

    all_at_once({f"GPU {index}": partial(gpu, index) for index in range(driver.count)}, send)
    held.close()
