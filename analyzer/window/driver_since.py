"""Since when a node has the driver version that it tells."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class DriverSince:
    """A version, and when the first of the inventories that name it was made.

    `changed`: whether the node had another one before, as far as it was followed.
    """

    version: str
    at: datetime
    changed: bool
