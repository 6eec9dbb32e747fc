"""How much hotter a GPU became than its power explains: each against what it was itself.

Nodes of one model are not alike: the warm places of a board differ from host to host, and so do
kelvins per watt. What a GPU was half an hour ago at a known power needs no peers. Temperature follows
power in a straight line, also in the mean over a span, and the line begins at the air that the GPU
gets. Nobody reads that; it lies between `_COLDEST` and `_WARMEST`, so that a change of power explains
so much at least and so much at most. A core follows its power minutes later, so that a mean lacks what
the core took up in its span, or has what it gave off: that shows in its degrees at both ends, and is
little where power goes up and down all the time. And means are of as many samples as came.

Where others of its node did the same work, these say better what is uncertain (`node_mates.py`).
"""

import numpy as np

from ..window.columns import (
    Codes,
    Floats,
    Mask,
    clusters,
    means_before,
    models,
    nodes,
    seconds,
    together,
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
# What a watt more of any other GPU of the node may warm it; 0.008 K of the one in front, measured.
_OF_OTHERS = 0.01
# Of the spans before and now, what must have been measured.
_COVERAGE = 0.5
# What a mean of a minute may differ from that of the span: a core follows a minute later.
_CHANGED, _CHANGED_WATTS = 0.1, 20.0
# The last minute speaks for the span once so much of it shows in the span's mean.
_SHOWS = 1.0 / 3.0
# What power may leave uncertain of the last minute.
_STILL_KELVIN = 3.0
# What is known to so many kelvins, were all swings of power to fall together, tells what air the others of
# its node get: few GPUs at light load beside many that are known from below are no node that became warm.
_SURE_KELVIN = 3.0
# Heatsinks of a node differ by some 15 % for ever (8 x H100), and what a change of power makes with them.
_UNLIKE = 0.25


def own_past_of(window: Window) -> Heat:
    """What every GPU of the steady span has beyond what it had before it, at its power.

    Kelvins as `Heat` has them: no more than what power cannot explain, NaN where nothing was measured
    before, or in the last minute. That minute counts for itself only where power stood still, in it
    and in both spans.
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
    alike = together(clusters(rows), models(window, rows))
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
    """Of which rows both the span and the time before it were measured well enough."""
    settings = window.settings
    length = seconds(long, rows)
    earlier = settings.trend_seconds - settings.steady_seconds
    known: Mask = seconds(rows) >= _COVERAGE * settings.steady_seconds
    known &= length - seconds(rows) >= _COVERAGE * earlier
    return known


def _late(window: Window, rows: Rows, long: Rows) -> Floats:
    """Watts that a core may not have followed yet in the mean of both spans, if all swings fell together."""
    settings = window.settings
    earlier = settings.trend_seconds - settings.steady_seconds
    swing = long.beside(rows, HIGHEST.column) - long.beside(rows, LOWEST.column)
    return swing * FOLLOWS_SECONDS * (1.0 / settings.steady_seconds + 1.0 / max(earlier, 1.0))


def _sampled(rows: Rows, long: Rows) -> Floats:
    """Watts by which the means of both spans together may be off what was sampled, each by its own swing."""
    late, every = rows.values("samples"), long.beside(rows, "samples")
    now = off_by(rows.values(HIGHEST.column) - rows.values(LOWEST.column), late)
    swing = long.beside(rows, HIGHEST.column) - long.beside(rows, LOWEST.column)
    found: Floats = np.hypot(now, off_by(swing, np.where(every > late, every - late, np.nan)))
    return found


def _taken_up(window: Window, rows: Rows, long: Rows) -> Floats:
    """Kelvins that the mean before may lack of what its power made, and that of now may have beyond it."""
    settings = window.settings
    earlier = settings.trend_seconds - settings.steady_seconds
    if earlier <= 0.0:
        return np.full(len(rows), np.nan)
    warmed = np.fmax(rows.values(FIRST.column) - long.beside(rows, FIRST.column), 0.0)
    found: Floats = FOLLOWS_SECONDS * (cooled(rows) / settings.steady_seconds + warmed / earlier)
    return found


def _more_of_others(node: Codes, more: Floats) -> Floats:
    """Watts that the other GPUs of each row's node draw more than before; less counts as nothing.

    Of these what each of them rose as the GPU itself is left out: its degrees before, by which the change of its own
    power is told, had the warmth of the others at theirs.
    """
    _, place = np.unique(node, return_inverse=True)
    told = np.isfinite(more)
    risen = np.where(told, np.fmax(more, 0.0), 0.0)
    others = np.bincount(place, told.astype(np.float64))[place] - told
    beyond = np.asarray(np.bincount(place, risen)[place] - risen - others * risen, np.float64)
    return np.fmax(beyond, 0.0)
