"""What the fleet map is told besides its cells: where they are, what it shows, and for when."""

import json
import struct
from datetime import datetime

from gpuvigil.web import page_links

METRICS = ("state", "utilization", "temperature", "power")


def metric(asked: str | None) -> str:
    """What the cells show: what the address asks for, else their state."""
    return asked if asked in METRICS else METRICS[0]


def framed(
    encoded_map: bytes,
    cluster: str,
    span: tuple[datetime, datetime],
    *,
    shows: str,
    holders_known: bool,
    wall: bool = False,
) -> bytes:
    """The length of a JSON header (4 bytes, little-endian), the header, then `encoded_map`.

    `span` is the window of the pages that are opened from the map; without `holders_known` the
    legend counts neither free nor held GPUs.
    """
    window = page_links.window(*span)
    frame = {
        "cluster": cluster,
        "metric": shows,
        "holders_known": holders_known,
        "wall": wall,
        **window,
    }
    header = json.dumps(frame, separators=(",", ":")).encode()
    return struct.pack("<I", len(header)) + header + encoded_map
