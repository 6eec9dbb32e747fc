"""What every GPU lately was beyond its peers at each power: the analyzer's memory, from pass to pass."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from .index import Index, Numbers

# Of a GPU's power limit, from where on it is held against what it was at such a power, and where the next
# begin; the first is rest, at which its node's air shows.
LEVELS = (0.0, 0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UsualHeat:
    """A row per GPU of `index`, a column per level of power; nobody changes the arrays."""

    index: Index
    kelvin: Numbers
    looks: Numbers  # at each level, that `kelvin` is the mean of
    at: datetime | None  # of the last look


_NOTHING = np.empty((0, len(LEVELS)))
NO_USUAL_HEAT = UsualHeat(index=Index(()), kelvin=_NOTHING, looks=_NOTHING, at=None)
