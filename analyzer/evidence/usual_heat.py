"""How much hotter a GPU is beside its peers than it used to be, at about the same power.

As long as nothing happens, its excess over its peers comes from its place, its heatsink and its
rack's air, and a change of that needs no limit for what is usual elsewhere. A fading fan and dust
take hours and weeks, which half an hour of its own past (`own_past.py`) does not show. Power counts
by level: warm air adds the same at any power, but a heatsink's effect grows with it.
"""

from dataclasses import replace

import numpy as np

from gpuvigil.model import Subject

from ..window.columns import Codes, Mask, nodes, per_group
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

# Where the levels of power begin, as shares of a GPU's limit: it is compared with its own values at
# the same level. The first level is rest, at which its node's air shows.
LEVELS = (0.0, 0.3, 0.5, 0.7)
_AIR = frozenset({"node_hot", "rack_hot"})
# A level is known after half an hour, as in `own_past.py`; `far` is in kelvins.
HEAT = Teaching(name="heat", levels=len(LEVELS), known=3.0, far=2.0)
BESIDE_MATES = Teaching(name="heat_mates", levels=len(LEVELS), known=3.0, far=2.0)


def learned(window: Window) -> Usual:
    """Return the usual heat of each GPU beside its peers, as known after this pass."""
    rows = window.get("gpu", Span.STEADY)
    if not HEAT.is_due(window, rows):
        return HEAT.before(window)
    level = _levels(rows)
    # A power that a GPU first draws in warm air says nothing of its heat in usual air.
    new = np.isnan(HEAT.usual(window, rows, level))
    level = np.where(new & _in_warm_air(window, rows), -1, level)
    return HEAT.learned(window, rows, heat_at_any_load(window).kelvin, level)


def _in_warm_air(window: Window, rows: Rows) -> Mask:
    """Tell for each row whether an open incident says that its node's or its rack's air is warm."""
    keys = {
        key
        for one in window.active_incidents
        if one.condition in _AIR
        for key in (one.subject.key, *one.members)
    }
    found = np.zeros(len(rows), np.bool_)
    for node in {Subject.parse(key).of_node() for key in keys}:
        found[rows.index.of_node(node)] = True
    return found


def learned_beside_mates(window: Window) -> Usual:
    """Return the usual heat of each GPU beside others of its node, as known after this pass."""
    return learned_of_mates(window, BESIDE_MATES, _levels(window.get("gpu", Span.STEADY)))


def beyond_usual(window: Window) -> Heat:
    """Return every GPU's heat beyond its usual place beside its peers.

    A GPU without peers is compared with others of its node.
    """
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
    """Return every GPU's heat beyond its peers over the steady span, less its usual one at its power.

    NaN if it had less than half an hour at such a power. At a light or uneven load, others of its
    node may be at powers that became known in warm air: that is no heat of its own.
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
    # While its power goes down, a node's mean over the span mostly shows its earlier heat.
    sure = np.where(found.doubt <= ALONE_KELVIN, kelvin, np.nan)
    return replace(found, kelvin=kelvin, sure=sure, lately=found.lately - own, doubt=doubt)


def _levels(rows: Rows) -> Codes:
    """Return which of `LEVELS` each row's power has reached; -1 where it is not measured."""
    limit = rows.values(LIMIT.column)
    of = np.where(np.isnan(limit), WORKING_WATTS / WORKING_SHARE, limit)
    share = np.nan_to_num(rows.values(WATTS.column) / of, nan=-1.0)
    found: Codes = np.searchsorted(LEVELS, share, side="right") - 1
    return found
