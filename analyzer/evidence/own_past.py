"""How much hotter a GPU became than its power explains, compared with its own past.

Nodes of one model are not alike: the warm places of a board differ from host to host, and so do
kelvins per watt. A GPU's temperature half an hour ago at a known power needs no peers. Temperature
is linear in power, also in the mean over a span, and the line begins at the temperature of the
GPU's air. That is not measured; it lies between `_COLDEST` and `_WARMEST`, so a change of power
explains a least and a most. A core follows its power minutes later, so a mean lacks the heat that
the core took up in its span, or includes what it gave off: that shows in the temperatures at both
ends, and is little where power goes up and down all the time. And means are only of the samples
that came.

If others of its node did the same work, they tell better what is uncertain (`node_mates.py`).
"""

import numpy as np

from ..window.columns import (
    Codes,
    Floats,
    Mask,
    clusters,
    combined_codes,
    means_before,
    models,
    nodes,
    seconds,
)
from ..window.rows import Rows
from ..window.window import Need, Span, Window
from .heat import (
    CELSIUS,
    FIRST,
    FOLLOWS_SECONDS,
    HIGHEST,
    LIMIT,
    LOWEST,
    WATTS,
    Heat,
    cooled,
    off_by,
)
from .node_mates import beyond_mates

NEEDS = (
    Need(measurement="gpu", span=Span.TREND, aggregates=(CELSIUS, WATTS, HIGHEST, LOWEST, FIRST)),
)

# Air that a GPU may get, in degrees: ASHRAE's allowable range of class A1 is 15 to 32 at a server's
# front, and the machine warms it before.
_COLDEST, _WARMEST = 15.0, 40.0
# No sound board would be hotter at its power limit: NVIDIA's data centre GPUs slow down at some 85 to 90 °C.
_HOTTEST = 90.0
# NVML tells whole degrees.
_DEGREE = 1.0
# How many kelvins a watt more of any other GPU of the node may warm it; measured: 0.008 K by the
# one in front.
_OF_OTHERS = 0.01
# The share of the spans before and now that must have been measured.
_COVERAGE = 0.5
# How far the power of the last minute may differ from the span's mean: a core follows a minute
# later.
_CHANGED, _CHANGED_WATTS = 0.1, 20.0
# The last minute counts for the span once this share of its excess shows in the span's mean.
_SHOWS = 1.0 / 3.0
# The most kelvins that power may leave uncertain in the last minute.
_STILL_KELVIN = 3.0
# A GPU known to within this many kelvins, even if all swings of power coincide, tells about its
# node's air: a few GPUs at light load, beside many with only a lower bound, do not make a warm
# node.
_SURE_KELVIN = 3.0
# Heatsinks of a node differ permanently by some 15 % (8 x H100), and so does the effect of a change
# of power.
_UNLIKE = 0.25


def own_past_of(window: Window) -> Heat:
    """Return every GPU's heat over the steady span beyond its temperature before, at its power.

    The kelvins, as in `Heat`, are only what power cannot explain; NaN if nothing was measured
    before or in the last minute. That minute counts by itself only if power was steady in it and in
    both spans.
    """
    rows, long = window.get("gpu", Span.STEADY), window.get("gpu", Span.TREND)
    recent = window.get("gpu", Span.RECENT)
    lately_celsius, lately_watts = (recent.beside(rows, it.column) for it in (CELSIUS, WATTS))
    then = means_before(rows, long, (CELSIUS.column, WATTS.column))
    celsius, watts = then[CELSIUS.column], then[WATTS.column]
    known = _measured(window, rows, long) & (watts > 0.0)
    known &= np.isfinite(lately_celsius) & np.isfinite(lately_watts)
    warm = np.where(known, celsius, np.nan)
    least = np.fmax(warm - _DEGREE - _WARMEST, 0.0) / watts
    most = np.fmax(warm + _DEGREE - _COLDEST, 0.0) / watts
    most = np.fmin(most, (_HOTTEST - _COLDEST) / rows.values(LIMIT.column))
    now, now_watts = rows.values(CELSIUS.column), rows.values(WATTS.column)
    more = now_watts - watts
    explained = np.where(more > 0.0, most, least) * more
    still = np.abs(lately_watts - now_watts) <= np.fmax(_CHANGED_WATTS, _CHANGED * now_watts)
    followed = most * _late(window, rows, long)
    still &= followed <= _STILL_KELVIN
    since = lately_watts - watts
    warmer = lately_celsius - warm - np.where(since > 0.0, most, least) * since
    sampled = most * _sampled(rows, long)
    unsure = sampled + _taken_up(window, rows, long)
    beyond = now - warm - explained
    kelvin = beyond - unsure
    lately = np.where(still, warmer - unsure, kelvin)
    kelvin = np.where(kelvin >= _SHOWS * lately, np.fmax(kelvin, lately), kelvin)
    is_sure = (most - least) * np.abs(more) + sampled + followed <= _SURE_KELVIN
    alike = combined_codes(clusters(rows), models(window, rows))
    mates = beyond_mates(nodes(rows), alike, watts, now_watts, beyond, warmer)
    return Heat(
        model=alike,
        kelvin=kelvin,
        sure=np.where(is_sure, kelvin, np.nan),
        lately=lately,
        rise=np.fmax(warm - _COLDEST, 1.0),
        doubt=_OF_OTHERS * _more_of_others(nodes(rows), more),
        beside_mates=mates - _UNLIKE * most * np.abs(more),
    )


def _measured(window: Window, rows: Rows, long: Rows) -> Mask:
    """Tell which rows were measured well enough, both in the span and before it."""
    settings = window.settings
    length = seconds(long, rows)
    earlier = settings.trend_seconds - settings.steady_seconds
    known: Mask = seconds(rows) >= _COVERAGE * settings.steady_seconds
    known &= length - seconds(rows) >= _COVERAGE * earlier
    return known


def _late(window: Window, rows: Rows, long: Rows) -> Floats:
    """Return the watts that a core may not have followed yet in both spans' means, at worst."""
    settings = window.settings
    earlier = settings.trend_seconds - settings.steady_seconds
    swing = long.beside(rows, HIGHEST.column) - long.beside(rows, LOWEST.column)
    return swing * FOLLOWS_SECONDS * (1.0 / settings.steady_seconds + 1.0 / max(earlier, 1.0))


def _sampled(rows: Rows, long: Rows) -> Floats:
    """Return the watts by which the sampled means of both spans may be off, each by its own swing."""
    late, every = rows.values("samples"), long.beside(rows, "samples")
    now = off_by(rows.values(HIGHEST.column) - rows.values(LOWEST.column), late)
    swing = long.beside(rows, HIGHEST.column) - long.beside(rows, LOWEST.column)
    found: Floats = np.hypot(now, off_by(swing, np.where(every > late, every - late, np.nan)))
    return found


def _taken_up(window: Window, rows: Rows, long: Rows) -> Floats:
    """Return the kelvins that the mean before may lack, and that of now have in excess, by delay."""
    settings = window.settings
    earlier = settings.trend_seconds - settings.steady_seconds
    if earlier <= 0.0:
        return np.full(len(rows), np.nan)
    warmed = np.fmax(rows.values(FIRST.column) - long.beside(rows, FIRST.column), 0.0)
    found: Floats = FOLLOWS_SECONDS * (cooled(rows) / settings.steady_seconds + warmed / earlier)
    return found


def _more_of_others(node: Codes, more: Floats) -> Floats:
    """Return the watts that each row's node's other GPUs draw more than before; less counts as 0.

    As far as each of them rose by as much as the GPU itself, that is left out: the GPU's
    temperature before, from which the effect of its own change is derived, included the others'
    warmth.
    """
    _, place = np.unique(node, return_inverse=True)
    told = np.isfinite(more)
    risen = np.where(told, np.fmax(more, 0.0), 0.0)
    others = np.bincount(place, told.astype(np.float64))[place] - told
    beyond = np.asarray(np.bincount(place, risen)[place] - risen - others * risen, np.float64)
    return np.fmax(beyond, 0.0)
