"""What one tick changes for a node's GPUs, and how long a silence lasts until it counts."""

from dataclasses import dataclass

from gpuvigil.config import CollectorSettings
from gpuvigil.model import Event

from .catalogue_rows import Row

# A sweep still under way at the tick after its own may be a little younger than a tick.
_SHARE_OF_TICK = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNews:
    """A tick's result: a row for each GPU with known state, events, and the driver's state."""

    rows: tuple[Row, ...]  # to be sent
    shown: tuple[Row, ...]  # on `/metrics`
    events: tuple[Event, ...]
    answering: int
    driver_answering: bool | None  # None without a driver that can be judged
    driver_silent_seconds: float | None
    changed: bool  # the node's GPUs, or its missing ones, are others than before


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """How long calls on a GPU may be under way until its state is unknown, and until an event."""

    unknown_seconds: float
    event_seconds: float

    @classmethod
    def of(cls, settings: CollectorSettings) -> "Silence":
        """Return the limits of the settings.

        A hang shows within two ticks; an event is made once a call should have returned.
        """
        timeout = settings.driver_timeout_seconds
        return cls(
            unknown_seconds=min(timeout, _SHARE_OF_TICK * settings.tick_seconds),
            event_seconds=timeout,
        )
