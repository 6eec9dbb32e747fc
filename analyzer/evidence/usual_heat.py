"""How much hotter a GPU is beside its peers than it used to be, at about the same power.

What it has beyond its peers is its place, its heatsink and its rack's air for as long as nothing
happens, and a change of it needs no limit for what is usual elsewhere. A fan that fades and dust take
hours and weeks, of which half an hour of its own past (`own_past.py`) shows nothing. Power counts by
level: air is so many degrees at any power, and what a heatsink makes goes with it.
"""

from dataclasses import replace
from datetime import timedelta

import numpy as np

from gpuvigil.model import Subject

from ..window.columns import Codes, Floats
from ..window.index import NOWHERE, Index
from ..window.rows import Rows
from ..window.usual_heat import LEVELS, UsualHeat
from ..window.window import Span, Window
from .heat import LIMIT, WATTS, WORKING_SHARE, WORKING_WATTS, Heat, heat_of

# So many looks at a level make it known: half an hour, as `own_past.py` asks of its own.
_KNOWN = 3.0
# What is further off than this teaches no more than this: a fault does not soon become usual.
_FAR_KELVIN = 2.0
# A week at work, with a look in ten minutes: what is slower is how a GPU ages, what lasts becomes usual.
_MOST = 1000.0


def learned(window: Window) -> UsualHeat:
    """What is known after this pass; a look counts once for each steady span."""
    before, rows = window.usual_heat, window.get("gpu", Span.STEADY)
    rest = timedelta(seconds=window.settings.steady_seconds)
    if not len(rows) or (before.at is not None and window.now - before.at < rest):
        return before
    index, kelvin, looks = _with_room(window, rows)
    now, level = heat_of(window).kelvin, _levels(rows)
    told = np.flatnonzero(np.isfinite(now) & (level >= 0))
    place = rows.index.places(index)[told], level[told]
    off = now[told] - kelvin[place]
    off = np.where(looks[place] < _KNOWN, off, np.clip(off, -_FAR_KELVIN, _FAR_KELVIN))
    looks[place] = np.fmin(looks[place] + 1.0, _MOST)
    kelvin[place] += off / looks[place]
    return UsualHeat(index=index, kelvin=kelvin, looks=looks, at=window.now)


def beyond_usual(window: Window) -> Heat:
    """What every GPU of the steady span has beyond its peers, less what it usually has at its power.

    NaN where it was not looked at for half an hour at such a power.
    """
    found, usual, rows = heat_of(window), window.usual_heat, window.get("gpu", Span.STEADY)
    if not len(usual.index):
        nothing = np.full(len(rows), np.nan)
        return replace(found, kelvin=nothing, sure=nothing, lately=nothing)
    place, level = rows.index.places(usual.index), _levels(rows)
    known = (place != NOWHERE) & (level >= 0) & (usual.looks[place, level] >= _KNOWN)
    own: Floats = np.where(known, usual.kelvin[place, level], np.nan)
    kelvin = found.kelvin - own
    return replace(found, kelvin=kelvin, sure=kelvin, lately=found.lately - own)


def _with_room(window: Window, rows: Rows) -> tuple[Index, Floats, Floats]:
    """Copies to write to, with a row for every GPU; what the fleet has no more goes when others come."""
    before = window.usual_heat
    new = np.flatnonzero(rows.index.places(before.index) == NOWHERE).tolist()
    if not new:
        return before.index, before.kelvin.copy(), before.looks.copy()
    known = before.index.subjects
    kept = [n for n, gpu in enumerate(known) if _is_there(window, gpu)]
    index = Index((*(known[n] for n in kept), *(rows.subjects[n] for n in new)))
    more = np.zeros((len(new), len(LEVELS)))
    return (
        index,
        np.concatenate([before.kelvin[kept], more]),
        np.concatenate([before.looks[kept], more]),
    )


def _is_there(window: Window, gpu: Subject) -> bool:
    return gpu.of_node().key in window.inventories and window.has(gpu)


def _levels(rows: Rows) -> Codes:
    """Which of `LEVELS` each row's power has reached; -1 where it is not read."""
    limit = rows.values(LIMIT.column)
    of = np.where(np.isnan(limit), WORKING_WATTS / WORKING_SHARE, limit)
    share = np.nan_to_num(rows.values(WATTS.column) / of, nan=-1.0)
    found: Codes = np.searchsorted(LEVELS, share, side="right") - 1
    return found
