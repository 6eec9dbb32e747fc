"""The fleet map's data: a few bytes per GPU, in the format that `components/fleet_map.js` reads."""

import json
import struct

import numpy as np

from ..model.cluster import ClusterView
from ..model.gpus import Column

# The largest number of each width means "not measured".
NO_BYTE = 0xFF
NO_SHORT = 0xFFFF


def encoded(view: ClusterView) -> bytes:
    """Return the map of one cluster.

    The format: the length of a JSON header (4 bytes), the header (blocks, their nodes, texts), then one
    array per property over all cells: look, utilisation, index, temperature (a byte each), then reason,
    holder and power (two bytes each). Everything is little-endian.
    """
    gpus = view.gpus
    fits = (gpus.index >= 0) & (gpus.index < NO_BYTE)
    unnumbered = {number: gpus.uuid[number] for number in np.flatnonzero(~fits).tolist()}
    # Reasons come first: they are few, while holders may be too many for two bytes.
    texts = ["", *gpus.reasons, *gpus.holders[1:]]
    header = (
        f'{{"blocks":{view.layout.blocks_json},"texts":{_json(texts[:NO_SHORT])}'
        f',"unnumbered":{_json(unnumbered)}}}'
    ).encode()
    shorts = (
        _places(gpus.reason + 1),
        _places(np.where(gpus.holder > 0, gpus.holder + len(gpus.reasons), 0)),
        _rounded(gpus.power_watts, NO_SHORT),
    )
    return b"".join(
        [
            struct.pack("<I", len(header)),
            header,
            *(
                column.astype(np.uint8).tobytes()
                for column in (
                    gpus.look,
                    _rounded(gpus.utilization_percent, NO_BYTE),
                    np.where(fits, gpus.index, NO_BYTE),
                    _rounded(gpus.temperature_celsius, NO_BYTE),
                )
            ),
            *(column.astype("<u2").tobytes() for column in shorts),
        ]
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _places(places: Column) -> Column:
    """Return the places of texts, with 0 (no text) for those too large for two bytes."""
    return np.where(places < NO_SHORT, places, 0)


def _rounded(values: Column, missing: int) -> Column:
    """Return whole numbers below `missing`; `missing` stands for NaN."""
    measured = np.clip(np.rint(values), 0, missing - 1)
    return np.where(np.isnan(values), missing, measured)
