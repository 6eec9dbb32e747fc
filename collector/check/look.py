"""Looking at the node, in a child process that may get stuck."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from gpuvigil.config import CollectorSettings
from gpuvigil.errors import GpuvigilError

from ..aside import End, Say, all_at_once, aside, hold_the_driver
from .facts import DriverFacts, Facts, GpuFacts, Known

_PAST_SECONDS = 1.0


def look(facts: Facts, settings: CollectorSettings, seconds: float) -> Facts:
    """`facts` with everything that could be seen of this node within `seconds`."""
    began = time.monotonic()

    def take(part: str, value: Any) -> None:
        nonlocal facts
        facts = fold(facts, part, value)

    def works(say: Say) -> dict[str, Callable[[], None]]:
        past = _Past(settings, say)
        parts: dict[str, Callable[[], None]] = {
            "the collector's memory": past.look,
            "PCI bus": partial(_look_at_the_bus, settings, say),
            "network ports": partial(_look_at_ports, settings, say),
            "kernel log": partial(_look_at_the_log, settings, facts.at, say),
            "collector": partial(_ask_the_agent, settings, facts.at, say),
        }
        if settings.gpus:
            parts["driver"] = partial(_look_at_gpus, past, facts.at, say)
        return parts

    end = aside(works, take, seconds)
    if end is End.DIED:
        facts = fold(facts, "unread", {"driver": end.value})
    return replace(facts, waited_seconds=time.monotonic() - began)


def fold(facts: Facts, part: str, value: Any) -> Facts:
    """The facts with one more thing that was said in them."""
    if part == "gpu":
        return replace(facts, gpus={**facts.gpus, value.index: value})
    if part == "unread":
        return replace(facts, unread={**facts.unread, **value})
    return replace(facts, **{part: value})


class _Past:
    """What the collector remembers, which says also whether the driver may be touched."""

    def __init__(self, settings: CollectorSettings, say: Say) -> None:
        self._file = settings.spool_directory / "node.json"
        self._public = settings.runtime_directory
        self._say = say
        self._looked = threading.Event()
        self._known = Known()

    def look(self) -> None:
        from .. import remembered  # noqa: PLC0415 - only the child needs it

        try:
            file = self._readable(self._public / remembered.PUBLIC)
            if file is not None:
                found = remembered.load(file)
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
        """The collector's own memory, or what it tells everybody; None when it has none."""
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
        """Whether the driver is to be left alone; a disk that does not answer says nothing."""
        self._looked.wait(_PAST_SECONDS)
        until = self._known.released_until
        return until is not None and at < until


def _look_at_the_bus(settings: CollectorSettings, say: Say) -> None:
    from ..sensors.pci import nvidia_gpus  # noqa: PLC0415 - only the child needs it

    with suppress(FileNotFoundError):  # a machine without PCI
        say("pci", nvidia_gpus(settings.sysfs_root))


def _look_at_ports(settings: CollectorSettings, say: Say) -> None:
    from ..sensors.ports import PortSensor  # noqa: PLC0415 - only the child needs it

    say("ports", PortSensor(settings.sysfs_root, settings.proc_root).read())


def _look_at_the_log(settings: CollectorSettings, at: datetime, say: Say) -> None:
    from .kernel import read_log  # noqa: PLC0415 - only the child needs it

    say("kernel", read_log(settings, at))


def _ask_the_agent(settings: CollectorSettings, at: datetime, say: Say) -> None:
    """Since when the collector on this node has no answer from the driver, if one runs."""
    from gpuvigil.clock import from_text  # noqa: PLC0415 - only the child needs these

    from ..localsocket import ask  # noqa: PLC0415

    with suppress(GpuvigilError):
        since = ask(settings.spool_directory, {"do": "status"}).get("driver_silent_since")
        if since is not None:
            say("agent_silent_seconds", (at - from_text(since)).total_seconds())


def _look_at_gpus(past: _Past, at: datetime, say: Say) -> None:
    """The driver, then every GPU in a thread of its own."""
    if past.released(at):
        return
    from ..nvml import Driver, DriverError  # noqa: PLC0415 - only the child may load the library

    held = hold_the_driver(say)
    try:
        driver = Driver()
    except DriverError as error:
        say("driver", DriverFacts(code=error.code, failure=str(error), reason=error.reason))
        return
    say("driver", DriverFacts(version=driver.version, gpus=driver.count))

    def gpu(index: int) -> None:
        identity = None
        try:
            found = driver.gpu(index)
            identity = found.identity
            say("gpu", GpuFacts(index=index, identity=identity))
            say("gpu", GpuFacts(index=index, identity=identity, values=found.read(slow=True).every))
        except DriverError as error:
            failed = GpuFacts(
                index=index, identity=identity, failure=str(error), reason=error.reason
            )
            say("gpu", failed)

    all_at_once({f"GPU {index}": partial(gpu, index) for index in range(driver.count)}, say)
    held.close()
