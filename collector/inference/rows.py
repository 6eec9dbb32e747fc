"""Rows for inference servers: one for each replica and each GPU that serves it."""

from collections.abc import Iterable
from datetime import datetime

from gpuvigil.metrics import INFERENCE, Kind
from gpuvigil.model import Subject

from ..rows.catalogue_rows import Number, Row
from ..rows.monotone_counters import MonotoneCounters
from .scrape_result import Replica
from .scrape_supervisor import Served

_COUNTERS = tuple(metric for metric in INFERENCE.metrics if metric.kind is Kind.COUNTER)
_GAUGES = tuple(metric.name for metric in INFERENCE.metrics if metric.kind is Kind.GAUGE)
# Model names come from outside: more of them than this can only be abuse.
_MOST_COUNTERS = 2_000


class InferenceBook:
    """Makes rows; counters continue across a server's restarts, as long as the collector runs."""

    def __init__(self, node: Subject) -> None:
        self._node = node
        self._counters = MonotoneCounters()

    def rows(self, found: Iterable[Served], at: datetime) -> list[Row]:
        """Return one row for each replica and GPU; without a UUID where no GPU is known."""
        if len(self._counters.states) > _MOST_COUNTERS:
            self._counters = MonotoneCounters()
        return [
            row for served in found for one in served.replicas for row in self._of(served, one, at)
        ]

    def _of(self, served: Served, replica: Replica, at: datetime) -> list[Row]:
        fields = self._fields(served, replica)
        tags = {
            "cluster": self._node.cluster,
            "node": self._node.node,
            "server": replica.server,
            "endpoint": served.where.name,
            "model": replica.model,
            "engine": replica.engine,
        }
        gpus = replica.gpus or served.gpus or ("",)
        return [
            Row(measurement=INFERENCE, tags={**tags, "uuid": uuid}, fields=fields, at=at)
            for uuid in gpus
        ]

    def _fields(self, served: Served, replica: Replica) -> dict[str, Number | None]:
        fields: dict[str, Number | None] = {name: getattr(replica, name) for name in _GAUGES}
        key = f"{served.where.name} {replica.model} {replica.engine}"
        for metric in _COUNTERS:
            raw = getattr(replica, metric.name)
            if raw is not None:
                whole = int(raw) if metric.integer else raw
                fields[metric.name], _ = self._counters.update(f"{key} {metric.name}", whole)
        return fields
