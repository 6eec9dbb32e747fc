"""How much heat beyond what power explains is too much: of a rack, of a node and of one heatsink.

What became hotter than it was needs less than what is unlike its peers.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpuvigil.model import Incident

from ..window.columns import Floats, Mask, clusters, nodes, per_group, racks, together
from ..window.rows import Rows
from ..window.window import Span, Window
from .heat import (
    CELSIUS,
    NODE_GPUS,
    Heat,
    at_its_limit,
    in_its_air_at_its_limit,
    is_awake,
    more_at_its_limit,
    told_by_their_nodes,
    works,
)

# What a GPU is held against, by the name of the evidence that says so.
PAST, USUAL, PEERS = "half an hour ago", "usually", "peers"
# A core under this has no heat problem, whatever its peers do: NVIDIA's data centre GPUs slow down at
# some 85 to 90 °C; at full load an H100 has 55 to 75.
LEAST_CELSIUS = 45.0
# Hosts of one model differ for ever, and no job waits for a core that is warmer than others and stays
# under this at full power: what only peers tell is told from here on.
_HARMS_CELSIUS = 80.0
# How much hotter than power explains. Of one GPU beside its node: so many kelvins, and so much of the
# rise that its power explains; heatsinks differ by some 7 % (one deviation, our 8 x H100).
_GPU_KELVIN, _RISE = 5.0, 0.3
# Where so many GPUs tell how far heatsinks of the model differ, so many deviations, and no less than so
# much of the rise of a GPU that changed. Where fewer tell against peers, more of it: heatsinks that are
# a fifth off for ever are among sound ones (ours), and a few may be alike by chance.
_TELL, _DEVIATIONS, _LEAST_RISE = 24, 5.0, 0.16
_MANY, _FEW_RISE = 64, 0.35
# Of what creeps: peers that come and go move what is beyond them by 6 to 8 K on fleets that are unlike
# each other, so that it must be as much as against peers; but it need not do harm yet at its power limit,
# where an H100 has 55 to 75 °C.
_CREPT_CELSIUS = 70.0
# At a light or a ragged load a GPU must have become so many kelvins hotter (ours): what its power explains is little.
_LIGHT_KELVIN = 9.0
_DEVIATION_OF_MEDIAN = 1.4826  # a normal distribution's, of the median of the distances
# A heatsink that hardly touches shows itself at any load: so many kelvins, and so many times what power
# explains. A GPU that draws no more than a free one harms nobody's work: of the power limit, or watts.
_COOLING_KELVIN, _COOLING_RISE = 12.0, 1.5
# Of what was too much in the mean, the last minute must still have; and of what was enough to be told,
# what stands goes on with (ours): what is near its limit would come and go with every job.
LEFT, _STAYS = 0.5, 0.7
# So much of a node's GPUs is no matter of their heatsinks; of the limit, what counts as on the way.
SEVERAL, _ON_THE_WAY = 0.375, 0.5
# Air that is so much warmer is told at any load: ASHRAE's recommended range, 18 to 27 °C.
_RACK_KELVIN = 9.0
# Of the middle of several GPUs: of a node beside its rack, of a rack or node, and of a node without one.
BESIDE_RACK, _NODE_KELVIN, ALONE_KELVIN = 4.0, 5.0, 7.0
# Hosts of one model differ for ever: what only peers tell of a node or a rack must be so much of what its
# power explains.
_NODE_RISE = 0.25
# So many of a rack must be measured.
_RACK_GPUS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What must be reached before a node, a rack or a heatsink is to blame."""

    full: Floats  # degrees of each row's core, held against `least`; NaN where its node tells too little
    own: Floats  # the same of a heat of its own
    in_air: Floats  # the same as `full` where its air explains what is beyond power
    more: Floats  # for each kelvin of a node's own, what that adds
    air: float  # kelvins of a rack's air that are told at any load
    least: float
    kelvin: Floats  # of a node's or a rack's middle, per row
    rise: float  # of what a GPU's power explains, its own heat's at least where many GPUs tell
    share: float  # of what is too much of one GPU, what several on the way there need
    able: Mask  # which rows draw enough for a heat of their own
    far: Floats  # kelvins of its own that each row must have whatever its power explains
    few: float = _RISE  # instead of `rise` where less than so many GPUs tell
    many: int = _TELL


def limits_of(rows: Rows, found: Heat, than: str) -> tuple[Limits, Limits]:
    """Those of several on the way, and of one. What changed needs less than what is unlike its peers."""
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
        )
        return limits, replace(limits, share=1.0)
    told = told_by_their_nodes(rows, found)
    full = np.where(told, at_its_limit(rows), np.nan)
    limits = Limits(
        full=full,
        own=full,
        in_air=np.where(told, celsius + found.rise * more_at_its_limit(rows), np.nan),
        more=more_at_its_limit(rows),
        air=_RACK_KELVIN,
        least=_HARMS_CELSIUS,
        kelvin=np.fmax(_NODE_KELVIN, _NODE_RISE * found.rise),
        rise=_RISE,
        share=1.0,
        able=works(rows),
        far=np.zeros(len(rows)),
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
        few=_RISE,
        many=_TELL,
    )
    return limits, replace(limits, share=1.0)


def of_racks(window: Window, rows: Rows, found: Heat) -> Floats:
    """What the middle GPU of each row's rack has; NaN where too few tell."""
    rack = together(clusters(rows), racks(window, rows))
    of_rack, in_rack = per_group(rack, found.sure)
    of_rack[(in_rack < _RACK_GPUS) | (racks(window, rows) == 0)] = np.nan
    return of_rack


def own_heat(
    rows: Rows, found: Heat, limits: Limits, air: Floats, lately: Floats
) -> tuple[Mask, Mask]:
    """Of each row whether it has a heat of its own, and whether it is that of a lost cooling.

    `air` is what its node or rack has beyond what power explains; NaN where nobody tells. `lately`
    is what its node had in the last minute.
    """
    beside, far = beside_air(rows, found, limits, air)
    beside_lately = found.lately - np.where(np.isnan(air), 0.0, lately)
    uncooled = is_awake(rows) & (beside >= _uncooled_from(found))
    own = limits.able & (beside >= limits.share * far)
    own = (uncooled | own) & is_left(beside, beside_lately)
    return own | _beyond_its_mates(rows, found, limits), uncooled


def _beyond_its_mates(rows: Rows, found: Heat, limits: Limits) -> Mask:
    """Of each row whether others of its node that did the same show a heat of its own.

    How far these are apart is taken from it already, so that what it may be off needs no more room.
    """
    if found.beside_mates is None:
        return np.zeros(len(rows), np.bool_)
    mean, lately = found.beside_mates
    far = np.fmax(np.fmax(ALONE_KELVIN, limits.far), limits.rise * found.rise) + found.doubt
    told: Mask = limits.able & (mean >= limits.share * far) & is_left(mean, lately)
    return told


def _uncooled_from(found: Heat) -> Floats:
    """Kelvins beside its node from which on each row's heatsink hardly touches."""
    far: Floats = np.fmax(_COOLING_KELVIN, _COOLING_RISE * found.rise)
    return far


def beside_air(rows: Rows, found: Heat, limits: Limits, air: Floats) -> tuple[Floats, Floats]:
    """Kelvins of each row beside this air, and those from which on its heatsink is to blame."""
    beside = found.kelvin - np.nan_to_num(air)
    least = np.fmax(np.where(np.isnan(air), ALONE_KELVIN, 0.0), limits.far)
    return beside, np.fmax(least, _too_far(rows, found, beside, limits))


def is_left(mean: Floats, lately: Floats) -> Mask:
    """Whether what was too much in the mean is still there."""
    left: Mask = lately >= LEFT * mean
    return left


def _too_far(rows: Rows, found: Heat, beside: Floats, limits: Limits) -> Floats:
    """Kelvins beside its node from which on a heatsink is to blame; NaN where nothing can be said."""
    share = np.where(works(rows), np.abs(beside) / found.rise, np.nan)
    usual, count = per_group(found.model, share)
    apart = np.where(count >= _TELL, _DEVIATIONS * _DEVIATION_OF_MEDIAN * usual, 0.0)
    told = np.fmax(np.where(count >= limits.many, limits.rise, limits.few), apart)
    far: Floats = np.fmax(_GPU_KELVIN, told * found.rise) + found.doubt
    return far


def still_hot(
    window: Window, found: Heat, numbers: list[int], incident: Incident, than: str
) -> bool:
    """Whether they still have most of what was enough to tell it, whatever their power makes of it."""
    rows = window.get("gpu", Span.STEADY)
    _, limits = limits_of(rows, found, than)
    if incident.subject.kind != "gpu":
        return bool(np.nanmedian((found.kelvin / limits.kelvin)[numbers]) >= _STAYS)
    of_node, in_node = per_group(nodes(rows), found.sure)
    air = np.where(in_node >= NODE_GPUS, of_node, of_racks(window, rows, found))
    beside, far = beside_air(rows, found, limits, air)
    if incident.condition == "cooling":
        far = _uncooled_from(found)
    return bool((beside >= _STAYS * far)[numbers].any())
