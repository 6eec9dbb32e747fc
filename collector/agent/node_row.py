"""The node's own row: the collector's health, the machine's load, and its disk and network I/O."""

from datetime import datetime

from gpuvigil.clock import Clock
from gpuvigil.config import CollectorSettings
from gpuvigil.metrics import NODE
from gpuvigil.model import Subject

from ..machine.inspection_supervisor import Machine
from ..rows.catalogue_rows import Number, Row
from ..rows.gpu_changes import GpuNews
from ..samples.messages import Tick
from ..sensors.host import read_host, read_processors
from ..sensors.storage import Storage
from ..sensors.throttling import Throttling
from ..spool.queue import Spool
from .reader_supervisor import ReaderSupervisor
from .saved_state import Remembered


class NodeRow:
    """Makes the node's row, once a tick."""

    def __init__(
        self,
        node: Subject,
        settings: CollectorSettings,
        clock: Clock,
        known: Remembered,
        spool: Spool,
        *,
        children: tuple[ReaderSupervisor, Machine],
    ) -> None:
        self._node, self._proc_root, self._known = node, settings.proc_root, known
        self._spool = spool
        self._reader, self._machine = children
        self._storage = Storage(settings.proc_root, settings.sysfs_root, clock.monotonic)
        self._throttling = Throttling(settings.sysfs_root, clock.monotonic)

    def row(self, tick: Tick | None, news: GpuNews, now: datetime) -> Row:
        """Return the current row; its counters span all runs of the collector."""
        spool = self._spool
        answering = news.driver_answering
        counted = {
            **read_processors(self._proc_root),
            **self._throttling.read(),
            **self._storage.read(),
        }
        fields = {
            "gpus_expected": len(self._known.gpus),
            "gpus_answering": news.answering,
            "driver_answering": None if answering is None else int(answering),
            "driver_silent_seconds": news.driver_silent_seconds,
            "reader_restarts": self._count("reader_restarts", self._reader.restarts),
            "sweep_seconds": None if tick is None else tick.sweep_seconds,
            "spool_bytes": spool.bytes,
            "spool_oldest_seconds": spool.oldest_seconds(now),
            "spool_writable": int(spool.disk.refusal is None),
            "dropped_bodies": self._count("dropped_bodies", spool.dropped),
            **read_host(self._proc_root),
            **{name: self._count(name, n) for name, n in counted.items()},
            **self._machine.fields(),
            **self._memory_errors(),
        }
        tags = {"cluster": self._node.cluster, "node": self._node.node}
        return Row(measurement=NODE, tags=tags, fields=fields, at=now)

    def _memory_errors(self) -> dict[str, Number]:
        """Return the counts of memory errors over all boots of the machine."""
        counted = self._machine.memory_errors
        names = ("memory_errors_corrected", "memory_errors_uncorrected")
        return {name: self._count(name, n) for name, n in zip(names, counted or (), strict=False)}

    def _count(self, metric: str, since_start: int) -> Number:
        """Return the count over all runs of the collector."""
        count, _ = self._known.counters.update(f"node {metric}", since_start)
        return count
