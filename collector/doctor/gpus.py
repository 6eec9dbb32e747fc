"""The driver: its library, its version, and what each GPU allows to be read.

Runs in a child process that may get stuck in the driver.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuvigil.config import CollectorSettings
from gpuvigil.model import Unmeasured

from ..processes.driver_lock import Stuck, hold_the_driver
from ..processes.watchdog_child import CALL_SECONDS, End, Send, all_at_once, calling
from ..sensors.pci import PciGpu
from .diagnosis import Diagnosis, limited, missing, ok
from .groups import Readable, diagnose

if TYPE_CHECKING:
    from ..nvml import Driver, Events

_SECOND_SWEEP_SECONDS = 0.15  # GPM's values are differences of samples 0.1 s apart
_LIBRARY = "libnvidia-ml.so"


@dataclass(slots=True, kw_only=True)
class ChildReport:
    """What the child reported."""

    end: End = End.LATE
    pci: tuple[PciGpu, ...] = ()
    others: tuple[PciGpu, ...] = ()  # of other makers
    called: dict[str, float] = field(default_factory=dict)  # calls that hang: how long they had
    released: bool = False
    library: str | None = None
    version: str | None = None
    count: int = 0
    failure: str = ""
    reason: Unmeasured | None = None
    stuck: Stuck | None = None
    others_seconds: float = 0.0  # as in check/facts.py
    events: str | None = None  # empty when they work, else why not
    persistence: dict[int, bool] = field(default_factory=dict)
    read: dict[int, Readable] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    told: dict[str, list[Diagnosis]] = field(default_factory=dict)  # by part, ready to be said


def keep(report: ChildReport, part: str, value: Any) -> None:
    """Keep one part that the child reported."""
    kept = getattr(report, part)
    if isinstance(kept, dict):
        kept.update(value)
    else:
        setattr(report, part, value)


def tasks(settings: CollectorSettings, send: Send) -> dict[str, Callable[[], None]]:
    """Return what the child does about GPUs, by part."""
    parts: dict[str, Callable[[], None]] = {"bus": partial(_read_bus, settings, send)}
    if settings.gpus:
        parts["driver"] = partial(_read_driver, settings, send)
    return parts


def _read_bus(settings: CollectorSettings, send: Send) -> None:
    from ..sensors.pci import all_gpus  # noqa: PLC0415 - only the child needs it

    if (settings.sysfs_root / "bus/pci/devices").exists():
        gpus = all_gpus(settings.sysfs_root)
        send("pci", tuple(gpu for gpu in gpus if gpu.vendor == "NVIDIA"))
        send("others", tuple(gpu for gpu in gpus if gpu.vendor != "NVIDIA"))


def _read_driver(settings: CollectorSettings, send: Send) -> None:
    from ..nvml import (  # noqa: PLC0415 - only the child may load the library
        Driver,
        DriverError,
        load_library,
    )

    if _is_released(settings):
        send("released", True)
        return
    held = hold_the_driver(settings.runtime_directory, send)
    load_library()
    try:
        with calling(send, "driver"):
            driver = Driver()
    except DriverError as error:
        send("reason", error.reason)
        send("failure", str(error))
        return
    send("library", _loaded_library())
    send("count", driver.count)
    send("version", driver.version)
    events = _open_events(send)
    looks = {
        f"GPU {index}": partial(_read_gpu, driver, index, events, send)
        for index in range(driver.count)
    }
    all_at_once(looks, send)
    held.close()


def _is_released(settings: CollectorSettings) -> bool:
    from gpuvigil.clock import SystemClock  # noqa: PLC0415 - only the child needs these

    from ..agent import saved_state  # noqa: PLC0415

    until = saved_state.load(settings.spool_directory / "node.json").released_until
    return until is not None and SystemClock().now() < until


def _open_events(send: Send) -> "Events | None":
    from ..nvml import DriverError, Events  # noqa: PLC0415 - only the child may load the library

    try:
        events = Events()
    except DriverError as error:
        send("events", str(error))
        return None
    send("events", "")
    return events


def _read_gpu(driver: "Driver", index: int, events: "Events | None", send: Send) -> None:
    from ..nvml import DriverError  # noqa: PLC0415 - only the child may load the library

    try:
        with calling(send, f"GPU {index}"):
            gpu = driver.gpu(index)
            gpu.read(slow=True)
            time.sleep(_SECOND_SWEEP_SECONDS)
            values = gpu.read(slow=True).every
    except DriverError as error:
        send("failed", {index: str(error)})
        return
    if "persistence_mode" in values:
        send("persistence", {index: values["persistence_mode"] == 1})
    refused = {name: DriverError(name, code).reason for name, code in gpu.refused().items()}
    send("read", {index: Readable(gpu=str(index), metrics=frozenset(values), refused=refused)})
    if events is not None:
        try:
            events.register(gpu)
        except DriverError as error:
            send("events", str(error))


def _loaded_library() -> str | None:
    """Return the library file that was actually loaded (proc(5), maps), None if there is none."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        if _LIBRARY in line:
            return line.split(maxsplit=5)[-1]
    return None


def diagnoses(settings: CollectorSettings, report: ChildReport, seconds: float) -> list[Diagnosis]:
    """Return the diagnoses of the driver and its GPUs, and of GPUs of other vendors."""
    found = _of_nvidia(settings, report, seconds)
    if report.others:
        named = ", ".join(gpu.words for gpu in report.others)
        todo = "gpuvigil reads NVIDIA's GPUs only; watch these with their maker's own tools"
        found.append(limited("other GPUs", f"not supported, and not read: {named}", todo))
    return found


def _of_nvidia(settings: CollectorSettings, report: ChildReport, seconds: float) -> list[Diagnosis]:
    if not settings.gpus:
        return [ok("driver", "not read: collector.gpus is false")]
    if report.released:
        return [ok("driver", "released for maintenance, so it was left alone")]
    if report.version is None:
        return [_no_driver(report, seconds)]
    found = [ok("NVML library", f"{report.library or 'loaded'}"), _driver(report)]
    found += [_listed(report)]
    for index, why in sorted(report.failed.items()):
        found.append(missing(f"GPU {index}", why, "see gpuvigil check"))
    silent = [i for i in range(report.count) if i not in report.read and i not in report.failed]
    for index in silent:
        found.append(_silent(report, f"GPU {index}", seconds))
    if report.events is not None:
        found.append(_events(report.events))
    return found + diagnose([report.read[index] for index in sorted(report.read)])


def _no_driver(report: ChildReport, seconds: float) -> Diagnosis:
    bus = f"{len(report.pci)} NVIDIA GPUs on the PCI bus"
    if report.end is End.DIED:
        return missing("driver", End.DIED.value, "load the library by hand: nvidia-smi")
    if "driver" in report.unread:
        return missing("driver", report.unread["driver"], "report this with gpuvigil --version")
    if report.failure:
        if not report.pci and report.reason is Unmeasured.DRIVER_NOT_LOADED:
            return ok("driver", "none, and no NVIDIA GPU on the PCI bus: ports only")
        todo = "load the driver (modprobe nvidia), and see that libnvidia-ml.so.1 is installed"
        return missing("driver", f"{report.failure}; {bus}", todo)
    text = f"no answer within {seconds:.0f} s; {bus}"
    if report.stuck is not None:
        text += f"; process {report.stuck.pid} is in it since {report.stuck.seconds:.0f} s"
    elif report.called.get("driver", 0.0) < CALL_SECONDS:
        return _silent(report, "driver", seconds)
    todo = "a driver that is not kept loaded may need longer: --timeout 30; else gpuvigil check"
    return missing("driver", text, todo)


def _silent(report: ChildReport, call: str, seconds: float) -> Diagnosis:
    """Return that a call had its time and got no answer, or had too little time to tell."""
    had = report.called.get(call, 0.0)
    if had >= CALL_SECONDS:
        return missing(call, f"no answer within {had:.0f} s", "see gpuvigil check")
    text = f"not looked at: of {seconds:.0f} s its call had {had:.1f} s, this machine is too busy"
    return limited(call, text, "try again later, or give it --timeout 60")


def _driver(report: ChildReport) -> Diagnosis:
    if report.persistence and not all(report.persistence.values()):
        off = ", ".join(str(index) for index, on in sorted(report.persistence.items()) if not on)
        return limited(
            "driver",
            f"{report.version}; persistence mode is off on GPU {off}: it wakes up for each first call",
            "nvidia-smi -pm 1, or run nvidia-persistenced",
        )
    return ok("driver", f"{report.version}")


def _listed(report: ChildReport) -> Diagnosis:
    held = [gpu for gpu in report.pci if gpu.for_nvidia]
    text = f"{report.count} by the driver, {len(report.pci)} on the PCI bus"
    if report.pci and len(held) > report.count:
        todo = "see gpuvigil check; a container sees only the GPUs that it was given"
        return limited("GPUs", text, todo)
    return ok("GPUs", text)


def _events(why: str) -> Diagnosis:
    if not why:
        return ok("Xid events", "the driver tells them at once")
    return limited("Xid events", why, "Xids come from the kernel log alone")
