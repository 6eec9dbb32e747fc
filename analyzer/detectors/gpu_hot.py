"""A GPU that heat slows down, or that is hotter than its power and its peers explain."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from gpuvigil.model import Evidence, Finding, Incident, Inventory, Severity, Subject
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
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
_INDEX = Aggregate(function=Function.MAX, field="index")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_HARDWARE, _SOFTWARE, _WARMEST, _WATTS)),
    Need(measurement="gpu", span=Span.STEADY, aggregates=(_CELSIUS, _WATTS, _LIMIT, _INDEX)),
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
# Of a rack's other nodes, so many must be measured before it tells what one of them has beyond it.
_OTHER_NODES = 2
# A heatsink shows itself under load; warm air also on a GPU that rests. Of the power limit, or watts
# where it is not told.
_WORKING_SHARE, _WORKING_WATTS = 0.3, 200.0
# Peers draw about as much.
_LIKE_WATTS, _PEERS = 150.0, 6
# What a mean of a minute may differ from that of the span.
_CHANGED, _CHANGED_WATTS = 0.25, 20.0
# Of the steady span, what must have been measured.
_COVERAGE = 0.5
# Names of evidence, by which a standing incident tells what it rests on.
_SLOWED, _CORE = "slowed down by heat", "core"

# What the detector worked out in this pass serves the question whether heat would be seen.
_EXCESS: WeakKeyDictionary[Rows, tuple[Rows, Mapping[str, Inventory], Floats]]
_EXCESS = WeakKeyDictionary()


def hot_gpus(window: Window) -> list[Finding]:
    """One finding per GPU; per node where most are, and per rack where most of its nodes are."""
    slowed = by_node(window, _slowed(window), 0.375, "node_hot")
    claims = [*slowed, *_hotter(window)]
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
    if np.isnan(rows.values(_WATTS.column)[numbers]).all():
        return None
    seen = np.isfinite(_excess(window, rows)[numbers])
    if incident.subject.kind == "gpu":
        return bool(seen.all() and _works(rows)[numbers].all())
    return int(seen.sum()) >= max(min(_NODE_GPUS, len(numbers)), 0.5 * len(numbers))


def _is_at_work(window: Window, subject: Subject) -> bool | None:
    """Whether a GPU draws power enough to become hot; None of a node, and where nobody reads it."""
    row = window.get("gpu", Span.RECENT).get(subject) if subject.kind == "gpu" else None
    watts = None if row is None else row[_WATTS.column]
    if row is None or watts is None:
        return None
    long = window.get("gpu", Span.STEADY).get(subject)
    limit = None if long is None else long[_LIMIT.column]
    return bool(watts >= (_WORKING_WATTS if limit is None else _WORKING_SHARE * limit))


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
    by_fan = (of_node >= _NODE_KELVIN) & (in_node >= _NODE_GPUS)
    others = _of_other_nodes(window, rows, kelvin, by_fan)
    by_fan &= np.where(np.isnan(others), of_node >= _ALONE_KELVIN, of_node - others >= _BESIDE_RACK)
    # A GPU of a warm node of which nothing can be said is no evidence.
    measured = np.isfinite(kelvin)
    claims = [
        *_of_nodes(window, rows, by_fan & measured, of_node),
        *_in_racks(window, _of_nodes(window, rows, of_warm_rack & ~by_fan & measured, of_node)),
    ]
    beside = kelvin - np.where(in_node >= _NODE_GPUS, of_node, np.nan_to_num(of_rack))
    rise = rows.values(_CELSIUS.column) - kelvin - _ROOM_CELSIUS
    alone = _works(rows) & (beside >= np.fmax(_GPU_KELVIN, _RISE * rise))
    claims += [
        _claim(window, "heatsink", subject, row, excess)
        for (subject, row), excess in zip(rows.where(alone), kelvin[alone], strict=True)
    ]
    return claims


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


def _excess(window: Window, rows: Rows) -> Floats:
    """Kelvins above what the slot's peers have at that power; NaN where nothing can be said."""
    lately = window.get("gpu", Span.RECENT)
    before = _EXCESS.get(rows)
    if before is None or before[0] is not lately or before[1] is not window.inventories:
        before = lately, window.inventories, _work_out(window, rows)
        _EXCESS[rows] = before
    return before[2]


def _work_out(window: Window, rows: Rows) -> Floats:
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
    excess = celsius - usual - _kelvin_per_watt(rows, model, celsius, watts) * (watts - usual_watts)
    found: Floats = np.where(peers >= _PEERS, excess, np.nan)
    return found


def _works(rows: Rows) -> Mask:
    """Of each row whether it drew enough over the span to warm its heatsink."""
    share = _WORKING_SHARE * rows.values(_LIMIT.column)
    enough: Mask = rows.values(_WATTS.column) >= np.where(np.isnan(share), _WORKING_WATTS, share)
    return enough


def _settled(window: Window, rows: Rows, watts: Floats) -> Mask:
    """Of each row whether it drew lately what it drew all the time: a core follows a minute later."""
    lately = window.get("gpu", Span.RECENT).beside(rows, _WATTS.column)
    settled: Mask = np.abs(lately - watts) <= np.fmax(_CHANGED_WATTS, _CHANGED * watts)
    return settled


def _kelvin_per_watt(rows: Rows, model: Codes, celsius: Floats, watts: Floats) -> Floats:
    """Of each row's model in the middle; of GPUs at work where there are any."""
    ratio = (celsius - _ROOM_CELSIUS) / watts
    of_all, _ = per_group(model, ratio)
    at_work, _ = per_group(model, np.where(_works(rows), ratio, np.nan))
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
                name=_CORE,
                value=f"{celsius:.0f} °C at {watts:.0f} W over {minutes:g} min",
                peers=f"{celsius - kelvin:.0f} °C at that power",
            ),
        ),
    )
