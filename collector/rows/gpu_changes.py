"""What one tick changes for a node's GPUs, and how long a silence lasts until it counts."""

from dataclasses import dataclass

from gpuvigil.config import CollectorSettings
from gpuvigil.model import Event

from .catalogue_rows import Row

# A sweep that is under way at the tick after its own is a little younger than a tick, or older.
_SHARE_OF_TICK = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNews:
    """What one tick says: a row per GPU that can be spoken for, events, and the driver's state."""

    rows: tuple[Row, ...]  # to be sent
    shown: tuple[Row, ...]  # on `/metrics`
    events: tuple[Event, ...]
    answering: int
    driver_answering: bool | None  # None without a driver
    driver_silent_seconds: float | None
    changed: bool  # the node has other GPUs than before, or misses others


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """For how long calls on a GPU may be under way until it is unknown, and until that is told."""

    unknown_seconds: float
    event_seconds: float

    @classmethod
    def of(cls, settings: CollectorSettings) -> "Silence":
        """A hang shows within two ticks; people hear of it when a call should have come back."""
        timeout = settings.driver_timeout_seconds
        return cls(
            unknown_seconds=min(timeout, _SHARE_OF_TICK * settings.tick_seconds),
            event_seconds=timeout,
        )
