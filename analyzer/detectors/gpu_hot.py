"""A GPU that heat slows down, or that is hotter than its power and its peers explain."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.model import Evidence, Finding, Incident, Severity, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence import heat
from ..evidence.claims import Claim, findings
from ..evidence.grouping import by_node, by_rack, rack_mates
from ..evidence.heat import (
    CELSIUS,
    LIMIT,
    WATTS,
    WORKING_SHARE,
    WORKING_WATTS,
    Heat,
    heat_of,
    works,
)
from ..window.columns import Floats, Mask, clusters, counted, nodes, per_group, racks, together
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_HARDWARE, _SOFTWARE = (
    Aggregate(function=Function.INCREASE, field=f"{who}_thermal_slowdown_seconds")
    for who in ("hardware", "software")
)
_WARMEST = Aggregate(function=Function.MAX, field="temperature_celsius")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_HARDWARE, _SOFTWARE, _WARMEST)),
    *heat.NEEDS,
)

# gpud alarms at 0.6 slowdowns a minute over ten; a second is nothing, half of a minute is.
_SHARE, _LEAST_SECONDS = 0.5, 10.0
# How much hotter than power explains. Of one GPU beside its node: so many kelvins, and so much of the
# rise that its power explains; heatsinks differ by some 7 % (one deviation, our 8 x H100).
_GPU_KELVIN, _RISE = 5.0, 0.2
# Where so many GPUs tell how far heatsinks of the model differ, so many deviations, and no less than.
_TELL, _DEVIATIONS, _LEAST_RISE = 24, 5.0, 0.16
_DEVIATION_OF_MEDIAN = 1.4826  # a normal distribution's, of the median of the distances
# A heatsink that hardly touches shows itself at any load: so many kelvins, and so many times what power
# explains. A GPU that draws no more than a free one harms nobody's work: of the power limit, or watts.
_COOLING_KELVIN, _COOLING_RISE = 12.0, 1.5
_AWAKE_SHARE, _AWAKE_WATTS = 0.15, 100.0
# Of what was too much in the mean, the last minute must still have.
_LEFT = 0.5
# So much of a node's GPUs is no matter of their heatsinks.
_SEVERAL = 0.375
# Of the middle of several GPUs: of a rack, of a node beside its rack, and of a node without one.
_RACK_KELVIN, _BESIDE_RACK, _NODE_KELVIN, _ALONE_KELVIN = 5.0, 4.0, 5.0, 7.0
# So many must be measured; a rack is warm when half of its nodes are, two at least.
_NODE_GPUS, _RACK_GPUS, _RACK_NODES = 3, 6, 2
# Of a rack's other nodes, so many must be measured before it tells what one of them has beyond it.
_OTHER_NODES = 2
# Names of evidence, by which a standing incident tells what it rests on.
_SLOWED, _CORE = "slowed down by heat", "core"


def hot_gpus(window: Window) -> list[Finding]:
    """One finding per GPU; per node where most are, and per rack where most of its nodes are."""
    slowed, hotter = _explained(list(_slowed(window)), _hotter(window))
    claims = [*by_node(window, slowed, _SEVERAL, "node_hot"), *hotter]
    measured = _measured(window) if claims else frozenset()
    return findings("gpu_hot", by_rack(window, claims, "rack_hot", among=measured))


def says_whether_hot(window: Window, incident: Incident) -> bool | None:
    """Whether a standing incident of heat would show; None where its node's lines are enough.

    The counters of slowdowns tell at any load of several GPUs, whose air is warm also at rest; of
    one they tell while it works: a GPU that rests is not slowed down. What was held against peers shows only where it can
    be held against them now: not while the load changes, and a heatsink's not at rest. Of several
    GPUs half must tell. One whose power nobody reads is never held against peers.
    """
    told = {item.name for item in incident.evidence if item.name == _SLOWED or item.peers}
    rows = window.get("gpu", Span.STEADY)
    if told == {_SLOWED}:
        return _is_at_work(window, incident.subject)
    numbers = _rows_of(rows, incident) if len(rows) else []
    if not numbers:
        return False
    if np.isnan(rows.values(WATTS.column)[numbers]).all():
        return None
    seen = np.isfinite(heat_of(window).kelvin[numbers])
    if incident.subject.kind == "gpu":
        is_cooling = incident.condition == "cooling"
        shows = _is_awake(rows) if is_cooling else works(rows)
        return bool(seen.all() and shows[numbers].all())
    return int(seen.sum()) >= max(min(_NODE_GPUS, len(numbers)), 0.5 * len(numbers))


def _is_at_work(window: Window, subject: Subject) -> bool | None:
    """Whether a GPU draws power enough to become hot; None of a node, and where nobody reads it."""
    row = window.get("gpu", Span.RECENT).get(subject) if subject.kind == "gpu" else None
    watts = None if row is None else row[WATTS.column]
    if row is None or watts is None:
        return None
    long = window.get("gpu", Span.STEADY).get(subject)
    limit = None if long is None else long[LIMIT.column]
    return bool(watts >= (WORKING_WATTS if limit is None else WORKING_SHARE * limit))


def _rows_of(rows: Rows, incident: Incident) -> list[int]:
    """The rows of the GPUs that it is about: of a node those that it names and that are still there,
    else all of its nodes.
    """
    gpu = incident.subject.kind == "gpu"
    members = {incident.subject, *(() if gpu else map(Subject.parse, incident.members))}
    named = [rows.index.number(member) for member in sorted(members) if member.kind == "gpu"]
    found = [number for number in named if number is not None]
    if found or gpu:
        return found
    hosts = {member.of_node() for member in members}
    return [n for host in sorted(hosts) for n in rows.index.of_node(host).tolist()]


def _measured(window: Window) -> frozenset[Subject]:
    """Nodes whose GPUs were read lately."""
    return frozenset(gpu.of_node() for gpu in window.get("gpu", Span.RECENT).subjects)


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
                    name=_SLOWED,
                    value=f"{seconds:.0f} s of the last {span:.0f} s",
                    limit="0 s",
                ),
                Evidence(name=_CORE, value=f"{row[_WARMEST.column]} °C at most"),
            ),
        )


def _explained(slowed: list[Claim], hotter: list[Claim]) -> tuple[list[Claim], list[Claim]]:
    """Both, where a warm node's claim names the GPUs that its air makes the driver hold back.

    What the hardware slows down is told for itself, and what has a heat of its own.
    """
    warm = {claim.subject for claim in hotter if claim.subject.kind == "node"}
    own = {claim.subject for claim in hotter if claim.subject.kind == "gpu"}
    of_node: dict[Subject, list[Subject]] = defaultdict(list)
    left = []
    for claim in slowed:
        gpu, node = claim.subject, claim.subject.of_node()
        if claim.condition == "software_thermal" and node in warm and gpu not in own:
            of_node[node].append(gpu)
        else:
            left.append(claim)
    named = [
        replace(claim, members=tuple(sorted({*claim.members, *of_node[claim.subject]})))
        if claim.subject in of_node
        else claim
        for claim in hotter
    ]
    return left, named


def _hotter(window: Window) -> list[Claim]:
    """Against the same slot of other nodes: a slot behind another one always gets warmer air.

    What most of a rack has is its air; what a node has beyond its rack is a fan, and what a GPU has
    beyond its node is its heatsink. The more GPUs agree, the fewer kelvins are needed.
    """
    rows = window.get("gpu", Span.STEADY)
    if not len(rows):
        return []
    found = heat_of(window)
    kelvin = found.kelvin
    of_node, in_node = per_group(nodes(rows), kelvin)
    node_lately, _ = per_group(nodes(rows), found.lately)
    of_rack, in_rack = per_group(together(clusters(rows), racks(window, rows)), kelvin)
    of_rack[(in_rack < _RACK_GPUS) | (racks(window, rows) == 0)] = np.nan
    of_warm_rack = (of_rack >= _RACK_KELVIN) & (of_node >= _BESIDE_RACK)
    by_fan = (of_node >= _NODE_KELVIN) & (in_node >= _NODE_GPUS)
    others = _of_other_nodes(window, rows, kelvin, by_fan)
    by_fan &= np.where(np.isnan(others), of_node >= _ALONE_KELVIN, of_node - others >= _BESIDE_RACK)
    own, uncooled = _own_heat(rows, found, np.where(in_node >= _NODE_GPUS, of_node, of_rack))
    several = own & (counted(nodes(rows), own) >= np.fmax(_NODE_GPUS, _SEVERAL * in_node))
    by_fan, own = by_fan | several, own & ~several
    by_air = of_warm_rack & (counted(nodes(rows), by_fan) == 0.0)
    # A GPU of a warm node of which nothing can be said is no evidence.
    told = np.isfinite(kelvin) & ~own & (_is_left(of_node, node_lately) | several)
    beyond = np.where(several, kelvin, of_node)
    return [
        *_of_nodes(window, rows, by_fan & told, beyond),
        *_in_racks(window, _of_nodes(window, rows, by_air & told, of_node)),
        *_of_gpus(window, rows, own & ~uncooled, "heatsink", kelvin),
        *_of_gpus(window, rows, own & uncooled, "cooling", kelvin),
    ]


def _own_heat(rows: Rows, found: Heat, air: Floats) -> tuple[Mask, Mask]:
    """Of each row whether it has a heat of its own, and whether it is that of a lost cooling.

    `air` is what its node or rack has beyond what power explains; NaN where nobody tells.
    """
    lately, _ = per_group(nodes(rows), found.lately)
    beside = found.kelvin - np.nan_to_num(air)
    beside_lately = found.lately - np.where(np.isnan(air), 0.0, lately)
    least = np.where(np.isnan(air), _ALONE_KELVIN, 0.0)
    uncooled = beside >= np.fmax(_COOLING_KELVIN, _COOLING_RISE * found.rise)
    uncooled &= _is_awake(rows)
    own = works(rows) & (beside >= np.fmax(least, _too_far(rows, found, beside)))
    return (uncooled | own) & _is_left(beside, beside_lately), uncooled


def _is_awake(rows: Rows) -> Mask:
    """Of each row whether it draws more than a GPU that nobody uses."""
    share = _AWAKE_SHARE * rows.values(LIMIT.column)
    awake: Mask = rows.values(WATTS.column) >= np.where(np.isnan(share), _AWAKE_WATTS, share)
    return awake


def _is_left(mean: Floats, lately: Floats) -> Mask:
    """Whether what was too much in the mean is still there."""
    left: Mask = lately >= _LEFT * mean
    return left


def _too_far(rows: Rows, found: Heat, beside: Floats) -> Floats:
    """Kelvins beside its node from which on a heatsink is to blame; NaN where nothing can be said."""
    share = np.where(works(rows), np.abs(beside) / found.rise, np.nan)
    usual, count = per_group(found.model, share)
    told = np.fmax(_LEAST_RISE, _DEVIATIONS * _DEVIATION_OF_MEDIAN * usual)
    far = np.fmax(_GPU_KELVIN, np.where(count >= _TELL, told, _RISE) * found.rise)
    doubted: Floats = far + found.doubt
    return doubted


def _of_other_nodes(window: Window, rows: Rows, kelvin: Floats, warm: Mask) -> Floats:
    """The middle of the rack's other nodes for each warm row; NaN where too few are measured."""
    found = np.full(len(rows), np.nan)
    if not warm.any():
        return found
    node, rack = nodes(rows), together(clusters(rows), racks(window, rows))
    told = np.isfinite(kelvin) & (racks(window, rows) != 0)
    for one in np.unique(node[warm & told]).tolist():
        here = node == one
        others = told & ~here & (rack == rack[here][0])
        if len(np.unique(node[others])) >= _OTHER_NODES and others.sum() >= _NODE_GPUS:
            found[here] = np.median(kelvin[others])
    return found


def _of_nodes(window: Window, rows: Rows, warm: Mask, kelvin: Floats) -> list[Claim]:
    """One claim per node of these rows."""
    of_warm: dict[Subject, list[Claim]] = defaultdict(list)
    for (subject, row), excess in zip(rows.where(warm), kelvin[warm], strict=True):
        of_warm[subject.of_node()].append(_claim(window, "node_hot", subject, row, excess))
    return [
        replace(them[0], subject=node, members=tuple(sorted(c.subject for c in them)))
        for node, them in sorted(of_warm.items())
    ]


def _of_gpus(
    window: Window, rows: Rows, hot: Mask, condition: str, kelvin: Floats
) -> Iterator[Claim]:
    """One claim per GPU of these rows."""
    for (subject, row), excess in zip(rows.where(hot), kelvin[hot], strict=True):
        yield _claim(window, condition, subject, row, excess)


def _in_racks(window: Window, warm: list[Claim]) -> list[Claim]:
    """Those of racks of which enough nodes are warm: fewer kelvins of one node are no fan."""
    hit = {claim.subject for claim in warm}
    mates = rack_mates(window) if warm else {}
    measured = _measured(window) if warm else frozenset()

    def are_most(rack: Sequence[Subject]) -> bool:
        return len(hit.intersection(rack)) >= max(
            _RACK_NODES, 0.5 * len(measured.intersection(rack))
        )

    return [claim for claim in warm if are_most(mates.get(claim.subject, ()))]


def _claim(window: Window, condition: str, subject: Subject, row: Row, kelvin: float) -> Claim:
    celsius, watts = row[CELSIUS.column], row[WATTS.column]
    minutes = window.settings.steady_seconds / 60.0
    return Claim(
        condition=condition,
        subject=subject,
        since=row["last_at"],
        evidence=(
            Evidence(
                name=_CORE,
                value=f"{celsius:.0f} °C at {watts:.0f} W over {minutes:g} min",
                peers=f"{celsius - kelvin:.0f} °C at that power",
            ),
        ),
    )


DETECTOR = Detector(
    name="gpu_hot",
    find=hot_gpus,
    faults=found_by("gpu_hot"),
    needs=NEEDS,
    sentence="A GPU that heat slows down, or that is hotter than its power and its peers explain.",
    source="nvml.h, clock event reasons; degrees per watt against peers",
    would_show=says_whether_hot,
)
