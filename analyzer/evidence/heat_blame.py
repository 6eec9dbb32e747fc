"""Where heat comes from: the air of a rack, what cools a node, or the heatsink of one GPU.

Temperatures do not tell a weak fan from a weak pump or a clogged filter: none of these is named.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuvigil.model import Evidence, Subject

from ..window.columns import (
    Floats,
    Mask,
    clusters,
    combined_codes,
    group_count,
    group_maximum,
    nodes,
    per_group,
    racks,
)
from ..window.rows import Row, Rows
from ..window.window import Span, Window
from .claims import Claim
from .grouping import in_racks
from .heat import CELSIUS, NODE_GPUS, WATTS, Heat, heat_of, median_of_other_nodes, unlike_air
from .heat_limits import (
    ALONE_KELVIN,
    BESIDE_RACK,
    LEAST_CELSIUS,
    LEFT,
    PAST,
    PEERS,
    SEVERAL,
    USUAL,
    Limits,
    is_left,
    limits_of,
    of_racks,
    own_heat,
)
from .own_past import own_past_of
from .usual_heat import beyond_usual

CORE = "core"
# What a GPU is compared with, and the name of that.
AGAINST = (
    (own_past_of, PAST),
    (beyond_usual, USUAL),
    (heat_of, PEERS),
)


def hotter(window: Window) -> list[Claim]:
    """Return claims of heat: against a GPU's past first, then its usual place, then its peers.

    A later comparison adds nothing on a node that an earlier one claims already.
    """
    rows = window.get("gpu", Span.STEADY)
    found: list[Claim] = []
    for of, than in AGAINST if len(rows) else ():
        told = {claim.subject.of_node() for claim in found}
        more = _beyond(window, rows, of(window), than)
        found += [claim for claim in more if claim.subject.of_node() not in told]
    return found


def _beyond(window: Window, rows: Rows, found: Heat, than: str) -> list[Claim]:
    """Return claims of heat by one comparison.

    What most of a rack has is due to its air, what a node has beyond its rack to its own cooling, and what a
    GPU has beyond its node to its heatsink. The more GPUs agree, the fewer kelvins are needed.
    """
    kelvin, celsius = found.kelvin, rows.values(CELSIUS.column)
    node, rack = nodes(rows), combined_codes(clusters(rows), racks(window, rows))
    limits, whole = limits_of(window, rows, found, than)
    # That a rack's air became warmer than it was counts at any temperature.
    warm = (group_maximum(rack, celsius) >= LEAST_CELSIUS) | (than == PAST)
    most_told = kelvin if found.beside_mates is None else np.fmax(kelvin, found.beside_mates[0])
    if not (warm & (most_told >= BESIDE_RACK)).any():
        return []
    usual, measured = per_group(node, np.stack([found.sure, found.lately]))
    (of_node, node_lately), in_node = usual, measured[0]
    of_rack = of_racks(window, rows, found)
    of_warm_rack = (of_rack >= limits.kelvin) & (of_node >= BESIDE_RACK)
    air = unlike_air(found, rack, of_rack, limits.air) if than == PEERS else limits.air
    of_warm_rack &= (per_group(rack, limits.in_air)[0] >= limits.least) | (of_rack >= air)
    by_fan = _by_fan(window, rows, found, limits)
    # A failing fan warms some of a node's GPUs: they are compared with the others. If several are
    # on the way there with the first, none of them has a heat of its own.
    cool, _ = per_group(node, np.where(found.sure <= of_node, found.sure, np.nan))
    tells, hot = in_node >= NODE_GPUS, limits.own >= limits.least
    beside = np.where(tells, cool, of_rack)
    first, _ = own_heat(rows, found, whole, beside, node_lately)
    warmer, _ = own_heat(rows, found, limits, beside, node_lately)
    warmer &= hot & (group_count(node, warmer & hot) >= np.fmax(NODE_GPUS, SEVERAL * in_node))
    several = warmer & (group_count(node, first & hot) > 0.0)
    several |= _from_below(window, rows, found, limits) & (than == PAST)
    own, uncooled = _own_heat(
        window, rows, found, whole, np.where(tells, of_node, of_rack), node_lately
    )
    own &= (hot | uncooled & (celsius >= LEAST_CELSIUS)) & (group_count(node, warmer) == 0.0)
    by_fan |= several
    by_air = of_warm_rack & (group_count(node, by_fan) == 0.0)
    # A GPU of a warm node without a known excess is no evidence.
    told = warm & (kelvin >= LEFT * np.nan_to_num(of_node)) & ~own
    told &= is_left(of_node, node_lately) | several
    beyond = np.where(several, kelvin, of_node)
    claimed = _Claimed(window, rows, found, than)
    return [
        *claimed.of_nodes(by_fan & told, beyond),
        *in_racks(window, claimed.of_nodes(by_air & told, of_node), measured_nodes),
        *claimed.of_gpus(own & ~uncooled, "heatsink", kelvin),
        *claimed.of_gpus(own & uncooled, "cooling", kelvin),
    ]


def _own_heat(
    window: Window, rows: Rows, found: Heat, limits: Limits, air: Floats, lately: Floats
) -> tuple[Mask, Mask]:
    """Tell as `own_heat`, without GPUs in unknown air that are hardly hotter than those of their rack's other nodes.

    While jobs change their pace, one GPU of each node may be known: a rack that warms up is no heatsink of each.
    """
    own, uncooled = own_heat(rows, found, limits, air, lately)
    alone = own & np.isnan(air)
    others = median_of_other_nodes(window, rows, found.sure, alone)
    return own & ~(alone & (found.kelvin - others < ALONE_KELVIN)), uncooled


def _from_below(window: Window, rows: Rows, found: Heat, limits: Limits) -> Mask:
    """Tell for each row whether most GPUs of its node became hotter, by a lower bound for each.

    In a job that pauses, hardly any GPU is known better, and one that is tells nothing of the
    others. Heat that the rack's other nodes got, too, is due to their air.
    """
    node, least = nodes(rows), found.kelvin - found.doubt
    of_node, known = per_group(node, least)
    warm = (of_node >= ALONE_KELVIN) & (per_group(node, found.sure)[1] < NODE_GPUS)
    warm &= known >= np.fmax(NODE_GPUS, group_count(node, np.isfinite(rows.values(CELSIUS.column))))
    warm &= per_group(node, limits.full)[0] >= limits.least
    others = np.nan_to_num(median_of_other_nodes(window, rows, least, warm))
    warm &= of_node - others >= BESIDE_RACK
    return warm & (least >= BESIDE_RACK)


def _by_fan(window: Window, rows: Rows, found: Heat, limits: Limits) -> Mask:
    """Tell for each row whether its node is hot beyond its rack; that excess grows with power."""
    node = nodes(rows)
    of_node, in_node = per_group(node, found.sure)
    warm = (of_node >= limits.kelvin) & (in_node >= NODE_GPUS)
    warm &= per_group(node, limits.full)[0] >= limits.least
    others = median_of_other_nodes(window, rows, found.sure, warm)
    own = of_node - others
    warm &= per_group(node, limits.in_air + np.nan_to_num(own) * limits.more)[0] >= limits.least
    warm &= np.where(np.isnan(others), of_node >= ALONE_KELVIN, own >= BESIDE_RACK)
    return warm


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Claims from rows of the steady span, each beyond what `than` explains."""

    window: Window
    rows: Rows
    found: Heat
    than: str

    def of_nodes(self, warm: Mask, kelvin: Floats) -> list[Claim]:
        """Return one claim per node of these rows."""
        of_warm: dict[Subject, list[Claim]] = defaultdict(list)
        for (subject, row), excess in zip(self.rows.where(warm), kelvin[warm], strict=True):
            of_warm[subject.of_node()].append(self._of("node_hot", subject, row, excess))
        return [
            replace(them[0], subject=node, members=tuple(sorted(c.subject for c in them)))
            for node, them in sorted(of_warm.items())
        ]

    def of_gpus(self, hot: Mask, condition: str, kelvin: Floats) -> Iterator[Claim]:
        """Yield one claim per GPU of these rows."""
        for (subject, row), excess in zip(self.rows.where(hot), kelvin[hot], strict=True):
            yield self._of(condition, subject, row, excess)

    def _of(self, condition: str, subject: Subject, row: Row, kelvin: float) -> Claim:
        celsius, watts = row[CELSIUS.column], row[WATTS.column]
        minutes = self.window.settings.steady_seconds / 60.0
        span = f"over {minutes:g} min"
        if self.than == PAST:
            # The span's mean still contains much of the past that it is compared with.
            lately = self.window.get("gpu", Span.RECENT).get(subject)
            assert lately is not None  # else nothing would be known of it
            celsius, watts = lately[CELSIUS.column], lately[WATTS.column]
            span = "in the last minute"
            kelvin = self._lately(self.rows.index.number(subject) or 0)
        told = Evidence(name=CORE, value=f"{celsius:.0f} °C at {watts:.0f} W {span}")
        usual = f"{celsius - kelvin:.0f} °C at that power"
        evidence = {
            PAST: (told, Evidence(name=PAST, value=f"at most {usual}")),
            USUAL: (told, Evidence(name=USUAL, value=usual)),
            PEERS: (replace(told, peers=usual),),
        }[self.than]
        return Claim(condition=condition, subject=subject, since=row["last_at"], evidence=evidence)

    def _lately(self, number: int) -> float:
        """Return the last minute's kelvins that the row's past or its node's other GPUs leave over."""
        mates = self.found.beside_mates
        told = self.found.lately if mates is None else np.fmax(self.found.lately, mates[1])
        return float(told[number])


def measured_nodes(window: Window) -> frozenset[Subject]:
    """Return the nodes whose GPUs were measured in the recent span."""
    return frozenset(gpu.of_node() for gpu in window.get("gpu", Span.RECENT).subjects)
