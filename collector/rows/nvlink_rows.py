"""Rows of single NVLinks: sent when a link has changed or counts an error, and every hour.

A missing row means "unchanged since". `/metrics` shows each link as last read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuvigil.metrics import NVLINK, Kind

from ..samples.field_values import Values
from .catalogue_rows import Row
from .monotone_counters import MonotoneCounters

_EVERY = timedelta(hours=1)
_COUNTERS = tuple(metric.name for metric in NVLINK.metrics if metric.kind is Kind.COUNTER)
# Traffic changes all the time and is summed in the GPU's own row; alone it does not send a row.
_TRAFFIC = frozenset(
    {
        "receive_bytes",
        "transmit_bytes",
        "raw_receive_bytes",
        "raw_transmit_bytes",
        "symbol_errors",
    }
)
_NEWS = tuple(metric.name for metric in NVLINK.metrics if metric.name not in _TRAFFIC)


@dataclass(slots=True)
class _Known:
    """The links of one GPU: their rows, and what was sent of them when."""

    shown: tuple[Row, ...] = ()
    sent: dict[int, tuple[datetime, tuple[object, ...]]] = field(default_factory=dict)


class LinkBook:
    """The last rows of every link of a node."""

    def __init__(self, counters: MonotoneCounters) -> None:
        self._counters = counters
        self._gpus: dict[str, _Known] = {}

    def update(
        self, tags: Mapping[str, str], links: Mapping[int, Values], at: datetime
    ) -> tuple[Row, ...]:
        """Return the rows to send of one GPU's links, as just read; `tags` are those of the GPU."""
        known = self._gpus.setdefault(tags["uuid"], _Known())
        rows = {link: self._row(tags, link, values, at) for link, values in links.items()}
        known.shown = tuple(rows.values())
        due = []
        for link, row in rows.items():
            said = tuple(row.fields.get(name) for name in _NEWS)
            before = known.sent.get(link)
            if before is None or before[1] != said or abs(at - before[0]) >= _EVERY:
                known.sent[link] = at, said
                due.append(row)
        return tuple(due)

    def shown(self, uuid: str) -> tuple[Row, ...]:
        """Return the newest row of every link of a GPU."""
        known = self._gpus.get(uuid)
        return () if known is None else known.shown

    def forget(self, uuid: str) -> None:
        """Show nothing of this GPU's links until they are read again, and then send all of them."""
        self._gpus.pop(uuid, None)

    def _row(self, tags: Mapping[str, str], link: int, values: Values, at: datetime) -> Row:
        for name in _COUNTERS:
            if name in values:
                key = f"{tags['uuid']} link {link} {name}"
                values[name], _ = self._counters.update(key, values[name])
        return Row(measurement=NVLINK, tags={**tags, "link": str(link)}, fields={**values}, at=at)
