"""The reader's newest samples of every GPU, for a node check that gets no CPU core of its own."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuvigil.clock import Clock
from gpuvigil.plain import plain

from ..samples.field_values import Values
from ..samples.messages import GpuTick, Tick


class NewestSamples:
    """The newest sample of each GPU as plain values; the driver's own numbers, not yet accumulated."""

    def __init__(self, clock: Clock, tick_seconds: float) -> None:
        self._clock = clock
        self._tick_seconds = tick_seconds
        self._tick: Tick | None = None
        self._at = 0.0
        # By index: values and when they were read, since a sweep may take several ticks.
        self._last_values: dict[int, tuple[GpuTick, Values, float]] = {}
        self._slow: dict[int, Values] = {}

    def update(self, tick: Tick) -> None:
        """Keep a copy of the tick's samples, before anybody changes its numbers."""
        self._tick, self._at = tick, self._clock.monotonic()
        listed = {gpu.index for gpu in tick.gpus}
        for gone in self._last_values.keys() - listed:
            self._last_values.pop(gone), self._slow.pop(gone, None)
        for gpu in tick.gpus:
            if gpu.slow is not None:
                self._slow[gpu.index] = dict(gpu.slow)
            if gpu.values is not None:
                self._last_values[gpu.index] = gpu, dict(gpu.values), self._at
            elif gpu.reason is not None:
                # Another GPU may have this index when it answers again.
                self._slow.pop(gpu.index, None)
                self._last_values[gpu.index] = gpu, {}, self._at

    def repeat(self, at: datetime) -> Tick | None:
        """Return the last tick once more, for another sensor's news that cannot wait for the next.

        None before the first tick.
        """
        if self._tick is None:
            return None
        gpus = tuple(
            replace(
                gpu,
                values=None if gpu.values is None else dict(self._last_values[gpu.index][1]),
                slow=None,
                links=None,
                costs=None,
            )
            for gpu in self._tick.gpus
        )
        return replace(self._tick, at=at, gpus=gpus)

    def plain(self) -> Mapping[str, Any]:
        """Return the newest samples as plain values; {} before the first tick.

        {"state", "driver", "age_seconds", "tick_seconds", "silent_seconds", "gpus": [{"index",
        "identity", "values", "reason", "age_seconds", "silent_seconds"}]}
        """
        tick = self._tick
        if tick is None:
            return {}
        return {
            "state": tick.state,
            "driver": tick.driver,
            "age_seconds": self._clock.monotonic() - self._at,
            "tick_seconds": self._tick_seconds,
            "silent_seconds": tick.silent_seconds,
            "gpus": [self._gpu(gpu) for gpu in tick.gpus],
        }

    def _gpu(self, newest: GpuTick) -> Mapping[str, Any]:
        said, values, at = self._last_values.get(newest.index, (newest, {}, self._at))
        identity = newest.identity or said.identity
        return {
            "index": newest.index,
            "identity": None if identity is None else plain(identity),
            "values": {**self._slow.get(newest.index, {}), **values} if values else None,
            "reason": None if said.reason is None else said.reason.value,
            "age_seconds": self._clock.monotonic() - at,
            "silent_seconds": newest.silent_seconds,
        }
