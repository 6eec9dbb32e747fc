"""Rows for `/metrics` alone: the GPUs' names, their Xids, and the time of the page."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from gpuvigil.config import CollectorSettings
from gpuvigil.metrics import DRIVER_CALL, GPU_INFO, GPU_XID, NODE_TICK, NVLINK, Measurement
from gpuvigil.model import Allocation, Event, GpuIdentity, Subject

from .catalogue_rows import Row
from .dcgm_page import dcgm


class Page:
    """What `/metrics` shows in addition to the rows that are sent; for the main loop alone."""

    def __init__(
        self,
        node: Subject,
        gpus: Mapping[str, GpuIdentity],
        *,
        links: bool,
        calls: bool,
        as_dcgm: bool = False,
    ) -> None:
        """Set up; `gpus` is read in every tick; `links`, `calls`: show rows of NVLinks, of calls."""
        self._as_dcgm = as_dcgm
        self._tags = {"cluster": node.cluster, "node": node.node}
        self._gpus = gpus
        self._left_out: tuple[Measurement, ...] = () if links else (NVLINK,)
        self._left_out += () if calls else (DRIVER_CALL,)
        self._xids: Counter[tuple[str, int]] = Counter()
        self._last_xids: dict[str, int] = {}  # by UUID
        self._named: tuple[tuple[GpuIdentity, ...], str | None] | None = None
        self._names: tuple[Row, ...] = ()

    @classmethod
    def of(
        cls, settings: CollectorSettings, node: Subject, gpus: Mapping[str, GpuIdentity]
    ) -> "Page":
        """Return the page with what the settings want on it."""
        return cls(
            node,
            gpus,
            links=settings.metrics_links,
            calls=settings.metrics_details,
            as_dcgm=settings.metrics_dcgm,
        )

    def dcgm(self, held: Sequence[Allocation]) -> Callable[[Sequence[Row]], str] | None:
        """Return the function that makes DCGM's text of the page's rows; None if it is not wanted."""
        if not self._as_dcgm:
            return None
        return partial(dcgm, xids=dict(self._last_xids), held=tuple(held))

    def count(self, events: Iterable[Event]) -> None:
        """Count events when they are recorded; repeated ones come with their count."""
        for event in events:
            if event.xid is not None and event.version == 1:
                self._xids[event.subject.gpu or "", event.xid] += event.count
                self._last_xids[event.subject.gpu or ""] = event.xid

    def rows(self, told: Sequence[Row], driver: str | None, at: datetime) -> list[Row]:
        """Return all rows of a tick's page, including `told`."""
        shown = [row for row in told if row.measurement not in self._left_out]
        tick = {"last_tick_timestamp_seconds": round(at.timestamp(), 3)}
        xids = [
            Row(
                measurement=GPU_XID,
                tags={**self._tags, "uuid": uuid, "xid": str(xid)},
                fields={"xids": count},
                at=at,
            )
            for (uuid, xid), count in sorted(self._xids.items())
        ]
        own = Row(measurement=NODE_TICK, tags=self._tags, fields=tick, at=at)
        return [*shown, *self._info(driver, at), *xids, own]

    def _info(self, driver: str | None, at: datetime) -> tuple[Row, ...]:
        """Return the rows with the GPUs' names; made anew when one has changed."""
        now = (tuple(self._gpus.values()), driver)
        if now != self._named:
            self._named = now
            self._names = tuple(
                Row(
                    measurement=GPU_INFO,
                    tags={
                        **self._tags,
                        "uuid": gpu.uuid,
                        "index": "" if gpu.index is None else str(gpu.index),
                        "pci_address": gpu.pci_address or "",
                        "model": gpu.model,
                        "driver_version": driver or "",
                    },
                    fields={"info": 1},
                    at=at,
                )
                for gpu in now[0]
            )
        return self._names
