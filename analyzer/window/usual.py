"""How far each GPU lately was beyond its peers, remembered by the analyzer from pass to pass."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from .index import Index, Numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Usual:
    """A row per GPU of `index`, a column per level of what it depends on; never modified."""

    index: Index
    beyond: Numbers
    looks: Numbers  # how many looks at each level `beyond` is the mean of
    at: datetime | None  # of the last look


def nothing_usual(levels: int) -> Usual:
    """Return the state before the first look."""
    none = np.empty((0, levels))
    return Usual(index=Index(()), beyond=none, looks=none, at=None)
