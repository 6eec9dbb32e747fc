"""What every GPU lately was beyond its peers: the analyzer's memory, from pass to pass."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from .index import Index, Numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Usual:
    """A row per GPU of `index`, a column per level of what it depends on; nobody changes the arrays."""

    index: Index
    beyond: Numbers
    looks: Numbers  # at each level, that `beyond` is the mean of
    at: datetime | None  # of the last look


def nothing_usual(levels: int) -> Usual:
    """Before the first look."""
    none = np.empty((0, levels))
    return Usual(index=Index(()), beyond=none, looks=none, at=None)
