"""A block of what was recorded, or of the hub's own past."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from gpuvigil.model import Allocation, Event, Inventory, Scheduler, Switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What `evaluation.replay.Telemetry` asks for."""

    start: datetime
    end: datetime
    tables: Mapping[str, pa.Table]
    arrivals: Mapping[str, pa.Array]
    events: tuple[Event, ...] = ()
    event_arrivals: tuple[datetime, ...] = ()
    inventories: tuple[Inventory, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    schedulers: tuple[Scheduler, ...] = ()
    switches: tuple[Switch, ...] = ()
