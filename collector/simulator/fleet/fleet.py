"""The fleet: planned once, played as often as asked."""

from collections.abc import Iterator
from datetime import datetime

from .model import Block, FleetSettings, Happening, Truth


class Fleet:
    """A planned fleet; see the package for what its blocks hold."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings

    def truths(self) -> list[Truth]:
        """Every fault of the horizon, in order of start."""
        raise NotImplementedError

    def happenings(self) -> list[Happening]:
        """What life did that is no fault, in order of start."""
        raise NotImplementedError

    def blocks(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        tick_seconds: float = 10.0,
        block_seconds: float = 3600.0,
    ) -> Iterator[Block]:
        """Play from `start` to `end` (the whole horizon by default)."""
        raise NotImplementedError


def build(settings: FleetSettings) -> Fleet:
    """Plan a fleet; ValueError says which setting makes no sense."""
    return Fleet(settings)
