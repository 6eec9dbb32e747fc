"""Rows of a GPU from its samples: counters made monotone, values of slow ticks kept."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuvigil.metrics import DRIVER_CALL, GPU, MIG, Kind
from gpuvigil.model import GpuIdentity, Subject, Unmeasured

from ..samples.field_values import Values
from ..samples.gpu_sample import CallCost
from ..samples.messages import GpuTick
from .catalogue_rows import Number, Row, Steady
from .monotone_counters import MonotoneCounters
from .nvlink_rows import LinkBook
from .spin_times import Spins

_COUNTERS = frozenset(metric.name for metric in GPU.metrics if metric.kind is Kind.COUNTER)
_WRAPS_AT = {"pcie_replays": 2**32}  # nvml.h: an unsigned int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRows:
    """The rows of one GPU in one tick; `links` holds those that are due, `migs` all MIG devices'."""

    gpu: Row
    links: tuple[Row, ...] = ()
    migs: tuple[Row, ...] = ()


class GpuRowMaker:
    """Makes the rows of every GPU of a node."""

    def __init__(
        self,
        node: Subject,
        counters: MonotoneCounters,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up; `counters` is kept up to date for saving."""
        self._monotonic = monotonic
        self._node = node
        self._counters = counters
        self._slow: dict[str, Steady] = {}
        self._links = LinkBook(counters)
        self._spins = Spins()
        self._costs: dict[str, CallCost] = {}
        self._calls: tuple[Row, ...] = ()

    def make_monotone(self, uuid: str, gpu: GpuTick) -> bool:
        """Make the counters among the GPU's values monotone; return true when the GPU was reset."""
        if gpu.values is None and gpu.reason is not None:
            # The GPU may have changed when it answers again: reset, or with another firmware.
            self._slow.pop(uuid, None)
            self._links.forget(uuid)
        was_reset = self._make_monotone(uuid, gpu.values or {})
        if gpu.slow is not None:
            self._make_monotone(uuid, gpu.slow)
            self._slow[uuid] = Steady(GPU, gpu.slow)
        for call, cost in (gpu.costs or {}).items():
            self._costs.setdefault(call, CallCost()).add(cost)
            self._calls = ()
        return was_reset

    def rows(
        self,
        identity: GpuIdentity,
        gpu: GpuTick,
        at: datetime,
        driverless_fields: Mapping[str, Number | None],
    ) -> GpuRows:
        """Return the rows of a tick, after `make_monotone`; `driverless_fields` is what is known without the driver."""
        uuid = identity.uuid
        slow = self._slow.get(uuid) if gpu.values is not None else None
        fields: dict[str, Number | None] = {**(gpu.values or {}), **driverless_fields}
        if gpu.values is not None:
            fields["up"] = 1
            fields["read_seconds"] = gpu.read_seconds and round(gpu.read_seconds, 6)
        else:
            fields["up"] = 0 if gpu.reason is Unmeasured.LOST else None
            fields["unmeasured_reason"] = gpu.reason
            fields["index"] = identity.index
        if gpu.values is not None:
            kept: Mapping[str, Number] = {} if slow is None else slow.values
            fields |= self._spins.update(
                uuid,
                lambda name: fields.get(name, kept.get(name)),
                gpu.processes,
                self._monotonic(),
            )
        if slow is not None:
            slow = self._without(uuid, slow, fields)
        tags = self._tags(uuid=uuid, model=identity.model)
        return GpuRows(
            gpu=Row(measurement=GPU, tags=tags, fields=fields, at=at, steady=slow),
            links=() if gpu.links is None else self._links.update(tags, gpu.links, at),
            migs=tuple(
                Row(
                    measurement=MIG,
                    tags=self._tags(uuid=uuid, mig=mig.uuid, profile=mig.profile),
                    fields={**mig.values},
                    at=at,
                )
                for mig in gpu.migs
            ),
        )

    def _without(self, uuid: str, slow: Steady, fields: Mapping[str, object]) -> Steady:
        """Return the slow tick's values without those that this tick gives, which are newer."""
        if slow.values.keys().isdisjoint(fields):
            return slow
        rest = {name: value for name, value in slow.values.items() if name not in fields}
        self._slow[uuid] = Steady(GPU, rest)
        return self._slow[uuid]

    def links_shown(self, uuid: str) -> tuple[Row, ...]:
        """Return the row of every link of a GPU as last read."""
        return self._links.shown(uuid)

    def calls(self, at: datetime) -> tuple[Row, ...]:
        """Return the costs of each driver call since the collector started, over all GPUs.

        As of the last slow tick of any GPU.
        """
        if not self._calls:
            self._calls = tuple(self._call(call, cost, at) for call, cost in self._costs.items())
        return self._calls

    def _call(self, call: str, cost: CallCost, at: datetime) -> Row:
        fields = {
            "calls": cost.calls,
            "call_seconds": round(cost.seconds, 9),
            "call_slowest_seconds": round(cost.slowest_seconds, 9),
        }
        return Row(measurement=DRIVER_CALL, tags=self._tags(call=call), fields=fields, at=at)

    def _make_monotone(self, uuid: str, values: Values) -> bool:
        take, was_reset = self._counters.update, False
        for metric in values.keys() & _COUNTERS:
            energy = metric == "energy_joules"
            value, fell = take(
                f"{uuid} {metric}",
                values[metric],
                from_zero=energy,
                wraps_at=_WRAPS_AT.get(metric),
            )
            values[metric] = value if type(value) is int else round(value, 6)
            was_reset |= energy and fell
        return was_reset

    def _tags(self, **more: str) -> Mapping[str, str]:
        return {"cluster": self._node.cluster, "node": self._node.node, **more}
