"""A GPU's usual place beside its peers: learned look by look, per level of what it depends on."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from gpuvigil.model import Subject

from ..window.columns import Codes, Floats
from ..window.index import NOWHERE, Index
from ..window.rows import Rows
from ..window.usual import Usual, nothing_usual
from ..window.window import Window

# A week at work, with a look in ten minutes: slower changes are ageing, and lasting ones become
# usual.
_MOST = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """The settings with which one detector learns."""

    name: str
    levels: int
    known: float  # how many looks at a level make it known
    far: float  # the most that one look counts: a fault must not soon become usual

    def before(self, window: Window) -> Usual:
        """Return what earlier passes learned."""
        found = window.usual.get(self.name)
        # What another version wrote may have other levels.
        if found is None or found.beyond.shape[1] != self.levels:
            return nothing_usual(self.levels)
        return found

    def is_due(self, window: Window, rows: Rows) -> bool:
        """Tell whether there is something to learn: one look counts per steady span."""
        at, rest = self.before(window).at, timedelta(seconds=window.settings.steady_seconds)
        return len(rows) > 0 and (at is None or window.now - at >= rest)

    def learned(self, window: Window, rows: Rows, now: Floats, level: Codes) -> Usual:
        """Return what is known after this pass; rows at level -1 teach nothing."""
        before = self.before(window)
        index, beyond, looks = _with_room(window, before, rows)
        told = np.flatnonzero(np.isfinite(now) & (level >= 0))
        place = rows.index.places(index)[told], level[told]
        off = now[told] - beyond[place]
        off = np.where(looks[place] < self.known, off, np.clip(off, -self.far, self.far))
        looks[place] = np.fmin(looks[place] + 1.0, _MOST)
        beyond[place] += off / looks[place]
        return Usual(index=index, beyond=beyond, looks=looks, at=window.now)

    def usual(self, window: Window, rows: Rows, level: Codes) -> Floats:
        """Return each GPU's usual value at its level; NaN where it had too few looks."""
        of = self.before(window)
        if not len(of.index):
            return np.full(len(rows), np.nan)
        place = rows.index.places(of.index)
        known = (place != NOWHERE) & (level >= 0) & (of.looks[place, level] >= self.known)
        found: Floats = np.where(known, of.beyond[place, level], np.nan)
        return found


def _with_room(window: Window, before: Usual, rows: Rows) -> tuple[Index, Floats, Floats]:
    """Return writable copies with a row for every GPU; GPUs that are gone are dropped as new ones come."""
    new = np.flatnonzero(rows.index.places(before.index) == NOWHERE).tolist()
    if not new:
        return before.index, before.beyond.copy(), before.looks.copy()
    known = before.index.subjects
    kept = [n for n, gpu in enumerate(known) if _is_there(window, gpu)]
    index = Index((*(known[n] for n in kept), *(rows.subjects[n] for n in new)))
    more = np.zeros((len(new), before.beyond.shape[1]))
    return (
        index,
        np.concatenate([before.beyond[kept], more]),
        np.concatenate([before.looks[kept], more]),
    )


def _is_there(window: Window, gpu: Subject) -> bool:
    return gpu.of_node().key in window.inventories and window.has(gpu)
