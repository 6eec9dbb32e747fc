"""The fleet map's data: a few bytes per GPU, in the form that `components/fleet_map.js` reads."""

import json
import struct
from collections.abc import Iterable

from .cluster import Cell, ClusterView

# "Not measured", the largest number of each width.
NO_BYTE = 0xFF
NO_SHORT = 0xFFFF
NO_CELL = 0xFFFFFFFF


def encoded(view: ClusterView) -> bytes:
    """The map of one cluster.

    The length of a JSON header (4 bytes), the header (blocks, their nodes, the texts), then one
    array per property over all cells: look, utilisation, index, temperature (a byte each), and
    reason, holder and power (two bytes each). Everything is little-endian.
    """
    cells = view.cells
    texts = _Texts()
    reasons = [texts.number(cell.reason) for cell in cells]
    holders = [texts.number(cell.holder) for cell in cells]
    header = json.dumps(
        {
            "blocks": [
                [block.label, [[node.name, len(node.cells)] for node in block.nodes]]
                for block in view.blocks
            ],
            "texts": texts.all,
            "unnumbered": {i: c.subject.gpu for i, c in enumerate(cells) if not _fits(c.index)},
        },
        separators=(",", ":"),
    ).encode()
    shorts = [*reasons, *holders, *(_short(cell.power_watts) for cell in cells)]
    return b"".join(
        [
            struct.pack("<I", len(header)),
            header,
            bytes(cell.look for cell in cells),
            bytes(_byte(cell.utilization_percent) for cell in cells),
            bytes(cell.index if _fits(cell.index) else NO_BYTE for cell in cells),  # type: ignore[misc]
            bytes(_byte(cell.temperature_celsius) for cell in cells),
            struct.pack(f"<{len(shorts)}H", *shorts),
        ]
    )


def with_selection(encoded_map: bytes, cells: Iterable[Cell], selected: Cell | None) -> bytes:
    """The map with the number of the selected cell in front."""
    number = NO_CELL
    if selected is not None:
        number = next((i for i, c in enumerate(cells) if c.subject == selected.subject), NO_CELL)
    return struct.pack("<I", number) + encoded_map


class _Texts:
    """Texts that many cells share, each sent once."""

    def __init__(self) -> None:
        self.all = [""]
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        """The number of that text; 0, no text, when there are too many for two bytes."""
        if text not in self._numbers and len(self.all) < NO_SHORT:
            self._numbers[text] = len(self.all)
            self.all.append(text)
        return self._numbers.get(text, 0)


def _fits(index: int | None) -> bool:
    return index is not None and 0 <= index < NO_BYTE


def _byte(value: float | None) -> int:
    return NO_BYTE if value is None else min(max(round(value), 0), NO_BYTE - 1)


def _short(value: float | None) -> int:
    return NO_SHORT if value is None else min(max(round(value), 0), NO_SHORT - 1)
