"""How much hotter a GPU is beside its peers than it used to be, at about the same power.

What it has beyond its peers is its place, its heatsink and its rack's air for as long as nothing
happens, and a change of it needs no limit for what is usual elsewhere. A fan that fades and dust take
hours and weeks, of which half an hour of its own past (`own_past.py`) shows nothing. Power counts by
level: air is so many degrees at any power, and what a heatsink makes goes with it.
"""

from dataclasses import replace

import numpy as np

from ..window.columns import Codes, nodes, per_group
from ..window.rows import Rows
from ..window.usual import Usual
from ..window.window import Span, Window
from .heat import (
    LIMIT,
    NODE_GPUS,
    WATTS,
    WORKING_SHARE,
    WORKING_WATTS,
    Heat,
    heat_at_any_load,
    heat_of,
    works,
)
from .heat_limits import ALONE_KELVIN, BESIDE_RACK
from .usual import Teaching
from .usual_mates import beyond_usual_mates
from .usual_mates import learned as learned_of_mates

# Of a GPU's power limit, from where on it is held against what it was at such a power, and where the next
# begin; the first is rest, at which its node's air shows.
LEVELS = (0.0, 0.3, 0.5, 0.7)
# Known after half an hour at a level, as `own_past.py` asks of its own; kelvins.
HEAT = Teaching(name="heat", levels=len(LEVELS), known=3.0, far=2.0)
BESIDE_MATES = Teaching(name="heat_mates", levels=len(LEVELS), known=3.0, far=2.0)


def learned(window: Window) -> Usual:
    """What is known after this pass."""
    rows = window.get("gpu", Span.STEADY)
    if not HEAT.is_due(window, rows):
        return HEAT.before(window)
    return HEAT.learned(window, rows, heat_at_any_load(window).kelvin, _levels(rows))


def learned_beside_mates(window: Window) -> Usual:
    """The same beside others of its node."""
    return learned_of_mates(window, BESIDE_MATES, _levels(window.get("gpu", Span.STEADY)))


def beyond_usual(window: Window) -> Heat:
    """What every GPU has beyond its peers, less what it usually has; of one without peers beyond its node's others."""
    found, rows = _beyond_peers(window), window.get("gpu", Span.STEADY)
    alone = ~np.isfinite(heat_at_any_load(window).kelvin)
    if not alone.any():
        return found
    mates = beyond_usual_mates(window, BESIDE_MATES, _levels(rows))
    return replace(
        found,
        kelvin=np.where(alone, mates.kelvin, found.kelvin),
        lately=np.where(alone, mates.lately, found.lately),
        rise=np.where(alone, mates.rise, found.rise),
        doubt=np.where(alone, mates.doubt, found.doubt),
    )


def _beyond_peers(window: Window) -> Heat:
    """What every GPU of the steady span has beyond its peers, less what it usually has at its power.

    NaN where it was not looked at for half an hour at such a power. At a light or a ragged load others of
    its node may be at powers that became known in warm air: that is no heat of its own.
    """
    found, rows = heat_at_any_load(window), window.get("gpu", Span.STEADY)
    own = HEAT.usual(window, rows, _levels(rows))
    kelvin = found.kelvin - own
    doubt = found.doubt
    unsure = (kelvin >= BESIDE_RACK) & ~(works(rows) & np.isfinite(heat_of(window).kelvin))
    if unsure.any():
        of_node, in_node = per_group(nodes(rows), found.kelvin)
        unsure &= (in_node >= NODE_GPUS) & (of_node - own >= BESIDE_RACK)
        doubt = doubt + np.where(unsure, of_node - own, 0.0)
    # While its power goes down, what a node has in the mean of the span is mostly what it had before.
    sure = np.where(found.doubt <= ALONE_KELVIN, kelvin, np.nan)
    return replace(found, kelvin=kelvin, sure=sure, lately=found.lately - own, doubt=doubt)


def _levels(rows: Rows) -> Codes:
    """Which of `LEVELS` each row's power has reached; -1 where it is not read."""
    limit = rows.values(LIMIT.column)
    of = np.where(np.isnan(limit), WORKING_WATTS / WORKING_SHARE, limit)
    share = np.nan_to_num(rows.values(WATTS.column) / of, nan=-1.0)
    found: Codes = np.searchsorted(LEVELS, share, side="right") - 1
    return found
