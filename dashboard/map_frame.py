"""What the fleet map is told besides its cells: where they are, what it shows, and for when."""

import json
import struct
from datetime import datetime, timedelta

from gpuvigil import links

# How far back a page that is opened from the map looks.
BACK = timedelta(hours=1)
METRICS = ("state", "utilization", "temperature", "power")


def metric(asked: str | None) -> str:
    """What the cells show: what the address asks for, else their state."""
    return asked if asked in METRICS else METRICS[0]


def framed(
    encoded_map: bytes, cluster: str, now: datetime, *, shows: str, wall: bool = False
) -> bytes:
    """The length of a JSON header (4 bytes, little-endian), the header, then `encoded_map`."""
    window = links.window(now - BACK, now)
    frame = {"cluster": cluster, "metric": shows, "wall": wall, **window}
    header = json.dumps(frame, separators=(",", ":")).encode()
    return struct.pack("<I", len(header)) + header + encoded_map
