"""The node's own numbers over the window: load, memory, storage, and its collector's health; pure."""

from collections.abc import Callable, Mapping

import numpy as np

from gpuvigil.numbers_in_words import counted, of_many

from .curves import GIB, Chart, Curve
from .grid import Floats, increase, rates
from .hub_queries import OFFSETS, Numbers

_STORAGE = {
    "disk_read_bytes": "own disks, read",
    "disk_write_bytes": "own disks, written",
    "shared_read_bytes": "NFS and Lustre, read",
    "shared_write_bytes": "NFS and Lustre, written",
}


def charts(numbers: Numbers) -> tuple[Chart, ...]:
    """Return seven charts; those that were never measured have no line."""

    def read(name: str, factor: float = 1.0) -> Floats:
        return numbers.node.get(name, numbers.nothing) * factor

    def grown(name: str, factor: float) -> Floats:
        return factor * rates(read(name), read(OFFSETS), numbers.grid)

    total = read("memory_total_bytes", 1 / GIB)
    used = total - read("memory_available_bytes", 1 / GIB)
    return (
        Chart(
            key="load",
            title="Load average",
            unit="tasks",
            digits=1,
            curves=(Curve(name="load, 1 min", values=read("load_average")),),
        ),
        *_processors(grown),
        Chart(
            key="host-memory",
            title="Host memory used",
            unit="GiB",
            curves=(
                Curve(name="installed", values=total, look="limit"),
                Curve(name="used", values=used),
            ),
        ),
        Chart(
            key="storage",
            title="Storage",
            unit="MB/s",
            digits=1,
            curves=tuple(
                Curve(name=words, values=grown(it, 1e-6)) for it, words in _STORAGE.items()
            ),
        ),
        Chart(
            key="collector",
            title="Collector's sweep over all GPUs",
            unit="ms",
            digits=1,
            curves=(Curve(name="sweep", values=read("sweep_seconds", 1e3)),),
        ),
    )


_NOTHING = "No collector reported anything about itself in this window."


def health(numbers: Numbers) -> str:
    """Return the collector's health in one line."""
    node = numbers.node
    if not node:
        return _NOTHING
    said = [
        _grown(
            node, "reader_restarts", "the reader was restarted {}", "times", "no reader restart"
        ),
        _grown(node, "dropped_bodies", "{} dropped", "batches", "nothing was dropped"),
        _spool(node),
    ]
    answering, expected = _last(node, "gpus_answering"), _last(node, "gpus_expected")
    if answering is not None and expected is not None:
        said.insert(0, f"{answering:.0f} of {counted(int(expected), 'GPU')} answer")
    told = ", ".join(it for it in said if it)
    return f"Collector: {told}." if told else _NOTHING


def _grown(node: Mapping[str, Floats], name: str, some: str, what: str, none: str) -> str:
    grown = increase(node[name]) if name in node else None
    return "" if grown is None else some.format(of_many(grown, what)) if grown else none


def _spool(node: Mapping[str, Floats]) -> str:
    if _last(node, "spool_writable") == 0.0:
        return "the spool's disk is full or fails"
    oldest = node.get("spool_oldest_seconds")
    if oldest is None or not np.isfinite(oldest).any():
        return ""
    longest = float(np.nanmax(oldest))
    return (
        f"the oldest batch waited {longest:.0f} s in the spool" if longest >= 1 else "spool empty"
    )


def _last(node: Mapping[str, Floats], name: str) -> float | None:
    values = node.get(name)
    measured = np.array([]) if values is None else values[np.isfinite(values)]
    return float(measured[-1]) if len(measured) else None


def _processors(grown: Callable[[str, float], Floats]) -> tuple[Chart, ...]:
    """Return the charts of what the processors did, and what kept them from it."""
    return (
        Chart(
            key="processors",
            title="Processors",
            unit="cores",
            digits=1,
            curves=(
                Curve(name="installed", values=grown("cpu_milliseconds", 1e-3), look="limit"),
                Curve(name="busy", values=grown("cpu_busy_milliseconds", 1e-3)),
            ),
        ),
        Chart(
            key="processor-pressure",
            title="Time in which a task waits for a processor",
            unit="%",
            curves=(Curve(name="waiting", values=grown("cpu_pressure_microseconds", 1e-4)),),
        ),
        Chart(
            key="processor-heat",
            title="Time in which heat slows processors down",
            unit="%",
            curves=(Curve(name="slowed down", values=grown("cpu_throttled_milliseconds", 0.1)),),
        ),
    )
