"""How much hotter than usual a GPU is beside others of its node that do the same work, its mates.

Heat that grows for longer than a GPU's own past reaches (`own_past.py`) needs no other node:
without peers (`usual_heat.py`), the GPUs of its node that draw as much show it. How their slots
differ is learned at each power, and what all of them together are off that now is due to their air.
"""

from dataclasses import dataclass

import numpy as np

from ..window.columns import (
    Codes,
    Floats,
    clusters,
    combined_codes,
    divided,
    models,
    nodes,
    seconds,
)
from ..window.rows import Rows
from ..window.usual import Usual
from ..window.window import Span, Window
from .heat import CELSIUS, ROOM_CELSIUS, WATTS, doubt_of_others
from .node_mates import beyond_mates, middle_of_mates
from .usual import Teaching

# The share of the steady span that must have been measured.
_COVERAGE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideMates:
    """Heat beside mates per row of the steady span; NaN with too few mates or no known usual value."""

    kelvin: Floats
    lately: Floats
    rise: Floats
    doubt: Floats


def learned(window: Window, teaching: Teaching, levels: Codes) -> Usual:
    """Return the usual heat of each GPU beside its mates, as known after this pass."""
    rows = window.get("gpu", Span.STEADY)
    if not teaching.is_due(window, rows):
        return teaching.before(window)
    return teaching.learned(window, rows, _beside(window, rows), levels)


def beyond_usual_mates(window: Window, teaching: Teaching, levels: Codes) -> BesideMates:
    """Return each GPU's heat beyond its mates, less its usual one and the range of the mates."""
    rows, recent = window.get("gpu", Span.STEADY), window.get("gpu", Span.RECENT)
    celsius, watts = rows.values(CELSIUS.column), rows.values(WATTS.column)
    kelvin = _beside(window, rows) - teaching.usual(window, rows, levels)
    warmer = recent.beside(rows, CELSIUS.column) - celsius
    per_watt = divided(np.fmax(celsius - ROOM_CELSIUS, 0.0), watts)
    lately = kelvin + warmer - per_watt * (recent.beside(rows, WATTS.column) - watts)
    both = beyond_mates(nodes(rows), _models(window, rows), watts, watts, kelvin, lately)
    rise = np.fmax(celsius - both[0] - ROOM_CELSIUS, 1.0)
    return BesideMates(
        kelvin=both[0], lately=both[1], rise=rise, doubt=doubt_of_others(window, rows, rise)
    )


def _beside(window: Window, rows: Rows) -> Floats:
    """Return by how many kelvins each GPU is warmer than the median of its mates."""
    celsius, watts = rows.values(CELSIUS.column), rows.values(WATTS.column)
    covered = seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    known = np.where(covered & (watts > 0.0), celsius, np.nan)
    return known - middle_of_mates(nodes(rows), _models(window, rows), watts, known)


def _models(window: Window, rows: Rows) -> Codes:
    return combined_codes(clusters(rows), models(window, rows))
