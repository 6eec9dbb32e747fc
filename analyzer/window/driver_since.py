"""Since when a node has its current driver version."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class DriverSince:
    """A driver version, and the time of the first inventory that names it.

    `changed`: whether the node had another version before, as far as the analyzer followed it.
    """

    version: str
    at: datetime
    changed: bool
