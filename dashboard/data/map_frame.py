"""The fleet map's frame around its cells: cluster, metric and time window."""

import json
import struct
from datetime import datetime

from gpuvigil.web import page_links

METRICS = ("state", "utilization", "temperature", "power")


def metric(asked: str | None) -> str:
    """Return the metric that the cells show: the one in the address, else the state."""
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
    """Return the length of a JSON header (4 bytes, little-endian), the header, then `encoded_map`.

    `span` is the window of the pages opened from the map. Without `holders_known` the legend counts
    neither free nor held GPUs.
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
