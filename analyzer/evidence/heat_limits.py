"""How much heat beyond what power explains is too much for a rack, a node and a heatsink.

A GPU that became hotter than it was needs less excess than one that differs from its peers.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpuvigil.model import Incident

from ..window.columns import Floats, Mask, clusters, combined_codes, nodes, per_group, racks
from ..window.rows import Rows
from ..window.window import Span, Window
from .heat import (
    CELSIUS,
    NODE_GPUS,
    Heat,
    at_its_limit,
    comparable_in_node,
    in_its_air_at_its_limit,
    is_awake,
    more_at_its_limit,
    works,
)

# What a GPU is compared with, as evidence names it.
PAST, USUAL, PEERS = "half an hour ago", "usually", "peers"
# A core under this has no heat problem, whatever its peers do: NVIDIA's data centre GPUs slow down at
# some 85 to 90 °C; at full load an H100 has 55 to 75.
LEAST_CELSIUS = 45.0
# The least excess of one GPU beside its node: kelvins, and a share of the rise that its power
# explains; heatsinks differ by some 7 % (one deviation, our 8 x H100).
_GPU_KELVIN, _RISE = 5.0, 0.3
# From `_TELL` GPUs on, which show how far heatsinks of the model differ: the excess in deviations,
# and at least this share of the rise for a GPU that changed. Against fewer peers than `_MANY` a
# larger share: some sound heatsinks are permanently a fifth off (ours), and a few may be alike by
# chance.
_TELL, _DEVIATIONS, _LEAST_RISE = 24, 5.0, 0.16
_MANY, _FEW_RISE = 64, 0.35
# For slowly growing heat: peers that come and go shift the excess by 6 to 8 K on mixed fleets, so
# it must be as large as against peers; but it need not do harm yet at the power limit, where an
# H100 has 55 to 75 °C.
_CREPT_CELSIUS = 70.0
# At a light or uneven load a GPU must have become this many kelvins hotter (ours), as its power
# explains little.
_LIGHT_KELVIN = 9.0
_DEVIATION_OF_MEDIAN = 1.4826  # a normal distribution's, of the median of the distances
# A heatsink that hardly touches shows at any load: by this many kelvins, and times what power
# explains. A GPU that draws no more than an unused one harms nobody's work.
_COOLING_KELVIN, _COOLING_RISE = 12.0, 1.5
# The share of the span's excess that the last minute must still have; and the share of a limit with
# which an active incident goes on (ours), as heat near a limit would come and go with every job.
LEFT, _STAYS = 0.5, 0.7
# From this share of a node's GPUs on, their heatsinks are not to blame; and the share of a limit
# from which on a GPU counts as on the way to it.
SEVERAL, _ON_THE_WAY = 0.375, 0.5
# Air that is warmer by this much counts at any load: ASHRAE's recommended range, 18 to 27 °C.
_RACK_KELVIN = 9.0
# For medians of several GPUs: a node beside its rack, a rack or node, and a node without a rack.
BESIDE_RACK, _NODE_KELVIN, ALONE_KELVIN = 4.0, 5.0, 7.0
# Hosts of one model differ permanently: against peers alone, a node's or rack's excess must be this
# share of what its power explains.
_NODE_RISE = 0.25
# At least this many GPUs of a rack must be measured.
_RACK_GPUS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits from which on a node, a rack or a heatsink is to blame."""

    full: Floats  # °C of each core, compared with `least`; NaN where its node is too little known
    own: Floats  # the same for a heat of its own
    in_air: Floats  # the same as `full`, if air explains what is beyond power
    more: Floats  # what each kelvin of a node's own excess adds to `in_air`
    air: float  # kelvins of a rack's air that count at any load
    least: float
    kelvin: Floats  # per row, for a node's or a rack's median
    rise: float  # least own heat of a GPU as a share of what its power explains, with many peers
    share: float  # the share of one GPU's limit that several on the way there need
    able: Mask  # which rows draw enough for a heat of their own
    far: Floats  # kelvins of its own that each row must have whatever its power explains
    grew: Mask  # which rows are hotter than what they are compared with, whatever their node is
    few: float = _RISE  # instead of `rise` with fewer than `many` GPUs
    many: int = _TELL


def limits_of(window: Window, rows: Rows, found: Heat, than: str) -> tuple[Limits, Limits]:
    """Return the limits for several GPUs on the way to a limit, and for a single one.

    A GPU that changed needs less than one that differs from its peers. Hosts of one model differ permanently, and no
    job waits for a core that is warmer than others and stays cool at full power: a difference from peers alone counts
    from `hot_celsius` on.
    """
    celsius = rows.values(CELSIUS.column)
    if than == PAST:
        limits = Limits(
            full=celsius,
            own=celsius,
            in_air=celsius,
            more=np.zeros(len(rows)),
            air=_NODE_KELVIN,
            least=LEAST_CELSIUS,
            kelvin=np.full(len(rows), _NODE_KELVIN),
            rise=_LEAST_RISE,
            share=_ON_THE_WAY,
            able=is_awake(rows),
            far=np.where(works(rows), 0.0, _LIGHT_KELVIN),
            grew=np.ones(len(rows), np.bool_),
        )
        return limits, replace(limits, share=1.0)
    told = comparable_in_node(rows, found)
    full = np.where(told, at_its_limit(rows), np.nan)
    limits = Limits(
        full=full,
        own=full,
        in_air=np.where(told, celsius + found.rise * more_at_its_limit(rows), np.nan),
        more=more_at_its_limit(rows),
        air=_RACK_KELVIN,
        least=window.settings.hot_celsius,
        kelvin=np.fmax(_NODE_KELVIN, _NODE_RISE * found.rise),
        rise=_RISE,
        share=1.0,
        able=works(rows),
        far=np.zeros(len(rows)),
        grew=np.ones(len(rows), np.bool_),
        few=_FEW_RISE,
        many=_MANY,
    )
    if than == PEERS:
        return limits, limits
    any_load = np.where(told, in_its_air_at_its_limit(rows, found.rise), np.nan)
    limits = replace(
        limits,
        own=np.fmax(full, any_load),
        in_air=full,
        more=np.zeros(len(rows)),
        least=_CREPT_CELSIUS,
        share=_ON_THE_WAY,
        able=is_awake(rows),
        far=np.where(works(rows) & (full >= _CREPT_CELSIUS), 0.0, _LIGHT_KELVIN),
        # What became known in warm air makes most of a node look cool once that is over: a GPU
        # beside them that is as it always was is not hot.
        grew=found.kelvin >= BESIDE_RACK,
        few=_RISE,
        many=_TELL,
    )
    return limits, replace(limits, share=1.0)


def of_racks(window: Window, rows: Rows, found: Heat) -> Floats:
    """Return the kelvins of each row's rack's median GPU; NaN where too few are known."""
    rack = combined_codes(clusters(rows), racks(window, rows))
    of_rack, in_rack = per_group(rack, found.sure)
    of_rack[(in_rack < _RACK_GPUS) | (racks(window, rows) == 0)] = np.nan
    return of_rack


def own_heat(
    rows: Rows, found: Heat, limits: Limits, air: Floats, lately: Floats
) -> tuple[Mask, Mask]:
    """Tell for each row whether it has a heat of its own, and whether its cooling is lost.

    `air`: kelvins of its node or rack beyond what power explains; NaN if unknown. `lately`: those
    of its node in the last minute.
    """
    beside, far = beside_air(rows, found, limits, air)
    beside_lately = found.lately - np.where(np.isnan(air), 0.0, lately)
    uncooled = is_awake(rows) & (beside >= _uncooled_from(found))
    own = limits.able & (beside >= limits.share * far)
    own = (uncooled | own) & is_left(beside, beside_lately)
    own |= _beyond_its_mates(rows, found, limits)
    return own & limits.grew, uncooled


def _beyond_its_mates(rows: Rows, found: Heat, limits: Limits) -> Mask:
    """Tell for each row whether it is hot beside others of its node that did the same.

    How far these differ is subtracted already, so that no more room for errors is needed.
    """
    if found.beside_mates is None:
        return np.zeros(len(rows), np.bool_)
    mean, lately = found.beside_mates
    far = np.fmax(np.fmax(ALONE_KELVIN, limits.far), limits.rise * found.rise) + found.doubt
    told: Mask = limits.able & (mean >= limits.share * far) & is_left(mean, lately)
    return told


def _uncooled_from(found: Heat) -> Floats:
    """Return the kelvins beside its node from which on each row's heatsink hardly touches."""
    far: Floats = np.fmax(_COOLING_KELVIN, _COOLING_RISE * found.rise)
    return far


def beside_air(rows: Rows, found: Heat, limits: Limits, air: Floats) -> tuple[Floats, Floats]:
    """Return each row's kelvins beside this air, and those from which on its heatsink is to blame."""
    beside = found.kelvin - np.nan_to_num(air)
    least = np.fmax(np.where(np.isnan(air), ALONE_KELVIN, 0.0), limits.far)
    return beside, np.fmax(least, _too_far(rows, found, beside, limits))


def is_left(mean: Floats, lately: Floats) -> Mask:
    """Tell whether enough of the mean's excess is still there in the last minute."""
    left: Mask = lately >= LEFT * mean
    return left


def _too_far(rows: Rows, found: Heat, beside: Floats, limits: Limits) -> Floats:
    """Return the kelvins beside its node from which on a heatsink is to blame; NaN if unknown."""
    share = np.where(works(rows), np.abs(beside) / found.rise, np.nan)
    usual, count = per_group(found.model, share)
    apart = np.where(count >= _TELL, _DEVIATIONS * _DEVIATION_OF_MEDIAN * usual, 0.0)
    told = np.fmax(np.where(count >= limits.many, limits.rise, limits.few), apart)
    far: Floats = np.fmax(_GPU_KELVIN, told * found.rise) + found.doubt
    return far


def still_hot(
    window: Window, found: Heat, numbers: list[int], incident: Incident, than: str
) -> bool:
    """Tell whether an incident's rows still have most of the heat that it needed, at any power."""
    rows = window.get("gpu", Span.STEADY)
    _, limits = limits_of(window, rows, found, than)
    if incident.subject.kind != "gpu":
        return bool(np.nanmedian((found.kelvin / limits.kelvin)[numbers]) >= _STAYS)
    of_node, in_node = per_group(nodes(rows), found.sure)
    air = np.where(in_node >= NODE_GPUS, of_node, of_racks(window, rows, found))
    beside, far = beside_air(rows, found, limits, air)
    if incident.condition == "cooling":
        far = _uncooled_from(found)
    return bool((beside >= _STAYS * far)[numbers].any())
