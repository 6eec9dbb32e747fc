"""A GPU that heat slows down, or that is hotter than its power and its peers explain."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuvigil.model import Evidence, Finding, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..claims import Claim, findings
from ..columns import (
    Codes,
    Floats,
    Mask,
    clusters,
    models,
    nodes,
    per_group,
    racks,
    seconds,
    together,
)
from ..rows import Row, Rows
from ..together import by_node, by_rack, rack_mates
from ..window import Need, Span, Window

_HARDWARE, _SOFTWARE = (
    Aggregate(function=Function.INCREASE, field=f"{who}_thermal_slowdown_seconds")
    for who in ("hardware", "software")
)
_CELSIUS = Aggregate(function=Function.MEAN, field="temperature_celsius")
_WATTS = Aggregate(function=Function.MEAN, field="power_watts")
_WARMEST = Aggregate(function=Function.MAX, field="temperature_celsius")
_INDEX = Aggregate(function=Function.MAX, field="index")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_HARDWARE, _SOFTWARE, _WARMEST, _WATTS)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(_CELSIUS, _WATTS, _INDEX)),
)

# gpud alarms at 0.6 slowdowns a minute over ten; a second is nothing, half of a minute is.
_SHARE, _LEAST_SECONDS = 0.5, 10.0
# Air of a machine room, to which a core without power would cool down.
_ROOM_CELSIUS = 25.0
# How much hotter than the same slot of other nodes at the same power. Of one GPU beside its node, and
# of the rise that its power explains: heatsinks differ by some 7 % (one deviation, our 8 x H100).
_GPU_KELVIN, _RISE = 6.0, 0.2
# Of the middle of several GPUs: of a rack, of a node beside its rack, and of a node without one.
_RACK_KELVIN, _BESIDE_RACK, _NODE_KELVIN, _ALONE_KELVIN = 5.0, 4.0, 5.0, 7.0
# So many must be measured; a rack is warm when half of its nodes are, two at least.
_NODE_GPUS, _RACK_GPUS, _RACK_NODES = 3, 6, 2
# A heatsink shows itself under load; warm air also on a GPU that rests.
# Peers draw about as much.
_WORKING_WATTS, _LIKE_WATTS, _PEERS = 200.0, 150.0, 6
# What a mean of a minute may differ from that of the span.
_CHANGED, _CHANGED_WATTS = 0.25, 20.0
# Of the steady span, what must have been measured.
_COVERAGE = 0.5


def hot_gpus(window: Window) -> list[Finding]:
    """One finding per GPU; per node where most are, and per rack where most of its nodes are."""
    slowed = by_node(window, _slowed(window), 0.375, "node_hot")
    return findings("gpu_hot", by_rack(window, [*slowed, *_hotter(window)], "rack_hot"))


def _slowed(window: Window) -> Iterator[Claim]:
    rows = window.get("gpu", Span.RECENT)
    span = window.settings.window_seconds
    least = min(_LEAST_SECONDS, _SHARE * span)
    hardware, software = rows.values(_HARDWARE.column), rows.values(_SOFTWARE.column)
    for subject, row in rows.where((hardware >= least) | (software >= _SHARE * span)):
        by_hardware = row[_HARDWARE.column] or 0.0
        lasts = by_hardware >= _SHARE * span
        seconds = by_hardware if by_hardware >= least else row[_SOFTWARE.column]
        yield Claim(
            condition="hardware_thermal" if by_hardware >= least else "software_thermal",
            subject=subject,
            since=row["first_at"],
            severity=None if lasts else Severity.WARNING,
            evidence=(
                Evidence(
                    name="slowed down by heat",
                    value=f"{seconds:.0f} s of the last {span:.0f} s",
                    limit="0 s",
                ),
                Evidence(name="core", value=f"{row[_WARMEST.column]} °C at most"),
            ),
        )


def _hotter(window: Window) -> list[Claim]:
    """Against the same slot of other nodes: a slot behind another one always gets warmer air.

    What most of a rack has is its air; what a node has beyond its rack is a fan, and what a GPU has
    beyond its node is its heatsink. The more GPUs agree, the fewer kelvins are needed.
    """
    rows = window.get("gpu", Span.STEADY)
    if not len(rows):
        return []
    kelvin = _excess(window, rows)
    of_node, in_node = per_group(nodes(rows), kelvin)
    of_rack, in_rack = per_group(together(clusters(rows), racks(window, rows)), kelvin)
    of_rack[(in_rack < _RACK_GPUS) | (racks(window, rows) == 0)] = np.nan
    of_warm_rack = (of_rack >= _RACK_KELVIN) & (of_node >= _BESIDE_RACK)
    by_fan = (of_node >= _NODE_KELVIN) & (of_node - of_rack >= _BESIDE_RACK)
    by_fan |= np.isnan(of_rack) & (of_node >= _ALONE_KELVIN)
    by_fan &= in_node >= _NODE_GPUS
    # A GPU of a warm node of which nothing can be said is no evidence.
    measured = np.isfinite(kelvin)
    claims = [
        *_of_nodes(window, rows, by_fan & measured, of_node),
        *_in_racks(window, _of_nodes(window, rows, of_warm_rack & ~by_fan & measured, of_node)),
    ]
    beside = kelvin - np.where(in_node >= _NODE_GPUS, of_node, np.nan_to_num(of_rack))
    rise = rows.values(_CELSIUS.column) - kelvin - _ROOM_CELSIUS
    works = rows.values(_WATTS.column) >= _WORKING_WATTS
    alone = works & (beside >= np.fmax(_GPU_KELVIN, _RISE * rise))
    claims += [
        _claim(window, "heatsink", subject, row, excess)
        for (subject, row), excess in zip(rows.where(alone), kelvin[alone], strict=True)
    ]
    return claims


def says_whether_hot(window: Window, gpu: Subject) -> bool:
    """Whether a GPU has worked over the steady span: at rest no GPU is hot, be its heatsink gone."""
    row = window.get("gpu", Span.STEADY).get(gpu)
    return row is not None and (row[_WATTS.column] or 0.0) >= _WORKING_WATTS


def _of_nodes(window: Window, rows: Rows, warm: Mask, kelvin: Floats) -> list[Claim]:
    """One claim per node of these rows."""
    of_warm: dict[Subject, list[Claim]] = defaultdict(list)
    for (subject, row), excess in zip(rows.where(warm), kelvin[warm], strict=True):
        of_warm[subject.of_node()].append(_claim(window, "node_hot", subject, row, excess))
    return [
        replace(them[0], subject=node, members=tuple(sorted(c.subject for c in them)))
        for node, them in sorted(of_warm.items())
    ]


def _in_racks(window: Window, warm: list[Claim]) -> list[Claim]:
    """Those of racks of which enough nodes are warm: fewer kelvins of one node are no fan."""
    hit = {claim.subject for claim in warm}
    mates = rack_mates(window) if warm else {}

    def are_most(rack: Sequence[Subject]) -> bool:
        return len(hit.intersection(rack)) >= max(_RACK_NODES, 0.5 * len(rack))

    return [claim for claim in warm if are_most(mates.get(claim.subject, ()))]


def _excess(window: Window, rows: Rows) -> Floats:
    """Kelvins above what the slot's peers have at that power; NaN where nothing can be said."""
    celsius, watts = rows.values(_CELSIUS.column), rows.values(_WATTS.column)
    covered = seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    known = covered & (watts > 0.0) & _settled(window, rows, watts)
    celsius, watts = np.where(known, celsius, np.nan), np.where(known, watts, np.nan)
    slot = np.nan_to_num(rows.values(_INDEX.column), nan=-1.0).astype(np.int64) + 1
    model = together(clusters(rows), models(window, rows))
    # The air's own warmth weighs more the less a GPU draws: alike are only those that draw alike.
    alike = together(model, slot, np.nan_to_num(watts // _LIKE_WATTS).astype(np.int64))
    usual, peers = per_group(alike, celsius)
    usual_watts, _ = per_group(alike, watts)
    excess = celsius - usual - _kelvin_per_watt(model, celsius, watts) * (watts - usual_watts)
    found: Floats = np.where(peers >= _PEERS, excess, np.nan)
    return found


def _settled(window: Window, rows: Rows, watts: Floats) -> Mask:
    """Of each row whether it drew lately what it drew all the time: a core follows a minute later."""
    lately = window.get("gpu", Span.RECENT).beside(rows, _WATTS.column)
    settled: Mask = np.abs(lately - watts) <= np.fmax(_CHANGED_WATTS, _CHANGED * watts)
    return settled


def _kelvin_per_watt(model: Codes, celsius: Floats, watts: Floats) -> Floats:
    """Of each row's model in the middle; of GPUs at work where there are any."""
    ratio = (celsius - _ROOM_CELSIUS) / watts
    of_all, _ = per_group(model, ratio)
    at_work, _ = per_group(model, np.where(watts >= _WORKING_WATTS, ratio, np.nan))
    found: Floats = np.where(np.isnan(at_work), of_all, at_work)
    return np.fmax(found, 0.0)


def _claim(window: Window, condition: str, subject: Subject, row: Row, kelvin: float) -> Claim:
    celsius, watts = row[_CELSIUS.column], row[_WATTS.column]
    minutes = window.settings.steady_seconds / 60.0
    return Claim(
        condition=condition,
        subject=subject,
        since=row["last_at"],
        evidence=(
            Evidence(
                name="core",
                value=f"{celsius:.0f} °C at {watts:.0f} W over {minutes:g} min",
                peers=f"{celsius - kelvin:.0f} °C at that power",
            ),
        ),
    )
