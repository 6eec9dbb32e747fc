"""A GPU that heat slows down, or that is hotter than its power and its peers explain."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from gpuvigil.faults import found_by
from gpuvigil.faults.symptoms import HARDWARE_THERMAL, SOFTWARE_THERMAL
from gpuvigil.model import Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence import heat, memory_heat, own_past, usual_heat
from ..evidence.claims import Claim, findings
from ..evidence.grouping import by_node, by_rack, in_racks
from ..evidence.heat import (
    CELSIUS,
    LIMIT,
    NODE_GPUS,
    WATTS,
    WORKING_SHARE,
    WORKING_WATTS,
    Heat,
    at_its_limit,
    heat_of,
    is_awake,
    more_at_its_limit,
    of_other_nodes,
    told_by_their_nodes,
    unlike_air,
    works,
)
from ..window.columns import (
    Floats,
    Mask,
    clusters,
    counted,
    most,
    nodes,
    per_group,
    racks,
    together,
)
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_HARDWARE, _SOFTWARE = (
    Aggregate(function=Function.INCREASE, field=row.counter)
    for row in (HARDWARE_THERMAL, SOFTWARE_THERMAL)
)
_WARMEST = Aggregate(function=Function.MAX, field="temperature_celsius")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_HARDWARE, _SOFTWARE, _WARMEST)),
    *heat.NEEDS,
    *own_past.NEEDS,
    *memory_heat.NEEDS,
)

# A core under this has no heat problem, whatever its peers do: NVIDIA's data centre GPUs slow down at
# some 85 to 90 °C; at full load an H100 has 55 to 75.
_LEAST_CELSIUS = 45.0
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
_MANY, _FEW_RISE = 64, 0.4
# Of what creeps: peers that come and go move what is beyond them by 6 to 8 K on fleets that are unlike
# each other, so that it must be as much as against peers; but it need not do harm yet at its power limit,
# where an H100 has 55 to 75 °C.
_CREPT_CELSIUS = 70.0
_DEVIATION_OF_MEDIAN = 1.4826  # a normal distribution's, of the median of the distances
# A heatsink that hardly touches shows itself at any load: so many kelvins, and so many times what power
# explains. A GPU that draws no more than a free one harms nobody's work: of the power limit, or watts.
_COOLING_KELVIN, _COOLING_RISE = 12.0, 1.5
# What began with more than `_GPU_KELVIN` is over once a GPU has become so much cooler at its power.
_COOLER_KELVIN, _LAPSE = 4.0, timedelta(hours=24)
# Of what was too much in the mean, the last minute must still have; and of what was enough to be told,
# what stands goes on with (ours): what is near its limit would come and go with every job.
_LEFT, _STAYS = 0.5, 0.7
# So much of a node's GPUs is no matter of their heatsinks; of the limit, what counts as on the way.
_SEVERAL, _ON_THE_WAY = 0.375, 0.5
# Air that is so much warmer is told at any load: ASHRAE's recommended range, 18 to 27 °C.
_RACK_KELVIN = 9.0
# Of the middle of several GPUs: of a node beside its rack, of a rack or node, and of a node without one.
_BESIDE_RACK, _NODE_KELVIN, _ALONE_KELVIN = 4.0, 5.0, 7.0
# Hosts of one model differ for ever: what only peers tell of a node or a rack must be so much of what its
# power explains.
_NODE_RISE = 0.25
# So many of a rack must be measured.
_RACK_GPUS = 6
# Names of evidence, by which a standing incident tells what it rests on.
_SLOWED, _CORE, _PAST = "slowed down by heat", "core", "half an hour ago"
_USUAL, _PEERS = "usually", "peers"
# What a GPU is held against, and by which name.
_AGAINST = (
    (own_past.own_past_of, _PAST),
    (usual_heat.beyond_usual, _USUAL),
    (heat_of, _PEERS),
)


def hot_gpus(window: Window) -> list[Finding]:
    """One finding per GPU; per node where most are, and per rack where most of its nodes are."""
    slowed, hotter = _explained(list(_slowed(window)), _hotter(window))
    of_memory = memory_heat.hot_memory(window)
    claims = [*by_node(window, slowed, _SEVERAL, "node_hot"), *hotter, *of_memory]
    measured = _measured(window) if claims else frozenset()
    return findings("gpu_hot", by_rack(window, claims, "rack_hot", among=measured))


def says_whether_hot(window: Window, incident: Incident) -> bool | None:
    """Whether a standing incident of heat would show; None where its node's lines are enough.

    The counters of slowdowns tell at any load of several GPUs, whose air is warm also at rest; of
    one they tell while it works: a GPU that rests is not slowed down. What was held against its own
    past or its peers shows only where it can be held against peers now, or where it became cooler.
    """
    told = {item.name for item in incident.evidence if item.peers}
    told |= {item.name for item in incident.evidence} & {_SLOWED, _PAST, _USUAL}
    rows = window.get("gpu", Span.STEADY)
    if told == {_SLOWED}:
        return _is_at_work(window, incident.subject)
    numbers = _rows_of(rows, incident) if len(rows) else []
    if not numbers:
        return False
    if np.isnan(rows.values(WATTS.column)[numbers]).all():
        return None
    if _PAST in told and _became_cooler(window, numbers):
        return True
    of, than = _AGAINST[1] if _USUAL in told else _AGAINST[2]
    found = of(window)
    shows = _shows(rows, found, numbers, incident)
    return shows and not _stays(window, found, numbers, incident, than)


def _became_cooler(window: Window, numbers: list[int]) -> bool:
    """Whether half of these GPUs are cooler by now than half an hour ago, at their power."""
    past = own_past.own_past_of(window)
    known = past.lately[numbers][np.isfinite(past.sure[numbers])]
    return bool(len(known) and np.median(known) <= -_COOLER_KELVIN)


def _shows(rows: Rows, found: Heat, numbers: list[int], incident: Incident) -> bool:
    """Whether it can be told now: not while the load changes, and of a heatsink not at rest.

    Of several GPUs half must tell. One whose power nobody reads is never held against peers.
    """
    seen = np.isfinite(found.kelvin[numbers])
    if incident.subject.kind == "gpu":
        is_cooling = incident.condition == "cooling"
        told = told_by_their_nodes(rows, found)
        shows = is_awake(rows) if is_cooling else works(rows) & told
        return bool(seen.all() and shows[numbers].all())
    return int(seen.sum()) >= max(min(NODE_GPUS, len(numbers)), 0.5 * len(numbers))


def _stays(window: Window, found: Heat, numbers: list[int], incident: Incident, than: str) -> bool:
    """Whether they still have most of what was enough to tell it, whatever their power makes of it."""
    rows = window.get("gpu", Span.STEADY)
    _, limits = _limits_of(rows, found, than)
    if incident.subject.kind != "gpu":
        return bool(np.nanmedian((found.kelvin / limits.kelvin)[numbers]) >= _STAYS)
    of_node, in_node = per_group(nodes(rows), found.sure)
    air = np.where(in_node >= NODE_GPUS, of_node, _of_racks(window, rows, found))
    beside, far = _beside(rows, found, limits, air)
    if incident.condition == "cooling":
        far = _uncooled_from(found)
    return bool((beside >= _STAYS * far)[numbers].any())


def lapsed(window: Window, incident: Incident) -> datetime | None:
    """When one that rests on its own past was last seen, where that is long ago.

    Half an hour after the change nothing of it shows any more, unless peers tell.
    """
    by_past = any(item.name == _PAST for item in incident.evidence)
    is_long_ago = window.now - incident.updated_at >= _LAPSE
    return incident.updated_at if by_past and is_long_ago else None


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
    by_hardware = rows.values(_HARDWARE.column) >= HARDWARE_THERMAL.least(span)
    by_software = rows.values(_SOFTWARE.column) >= SOFTWARE_THERMAL.least(span)
    for slowed, counter, told in (
        (HARDWARE_THERMAL, _HARDWARE, by_hardware),
        (SOFTWARE_THERMAL, _SOFTWARE, by_software & ~by_hardware),
    ):
        for subject, row in rows.where(told):
            seconds = row[counter.column]
            yield Claim(
                condition=slowed.key,
                subject=subject,
                since=row["first_at"],
                severity=None if slowed.lasts(seconds, span) else slowed.at_a_look,
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
        if claim.condition == SOFTWARE_THERMAL.key and node in warm and gpu not in own:
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
    """Against its own past first, then against its usual place beside its peers, then against those.

    What the next says of a node of which one tells already adds nothing.
    """
    rows = window.get("gpu", Span.STEADY)
    found: list[Claim] = []
    for of, than in _AGAINST if len(rows) else ():
        told = {claim.subject.of_node() for claim in found}
        more = _beyond(window, rows, of(window), than)
        found += [claim for claim in more if claim.subject.of_node() not in told]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What must be reached before a node, a rack or a heatsink is to blame."""

    full: Floats  # degrees of each row's core, held against `least`; NaN where its node tells too little
    in_air: Floats  # the same where its air explains what is beyond power
    more: Floats  # for each kelvin of a node's own, what that adds
    air: float  # kelvins of a rack's air that are told at any load
    least: float
    kelvin: Floats  # of a node's or a rack's middle, per row
    rise: float  # of what a GPU's power explains, its own heat's at least where many GPUs tell
    share: float  # of what is too much of one GPU, what several on the way there need
    few: float = _RISE  # instead of `rise` where less than so many GPUs tell
    many: int = _TELL


def _limits_of(rows: Rows, found: Heat, than: str) -> tuple[_Limits, _Limits]:
    """Those of several on the way, and of one. What changed needs less than what is unlike its peers."""
    celsius = rows.values(CELSIUS.column)
    if than == _PAST:
        limits = _Limits(
            full=celsius,
            in_air=celsius,
            more=np.zeros(len(rows)),
            air=_NODE_KELVIN,
            least=_LEAST_CELSIUS,
            kelvin=np.full(len(rows), _NODE_KELVIN),
            rise=_LEAST_RISE,
            share=_ON_THE_WAY,
        )
        return limits, replace(limits, share=1.0)
    told = told_by_their_nodes(rows, found)
    full = np.where(told, at_its_limit(rows), np.nan)
    limits = _Limits(
        full=full,
        in_air=np.where(told, celsius + found.rise * more_at_its_limit(rows), np.nan),
        more=more_at_its_limit(rows),
        air=_RACK_KELVIN,
        least=_HARMS_CELSIUS,
        kelvin=np.fmax(_NODE_KELVIN, _NODE_RISE * found.rise),
        rise=_RISE,
        share=1.0,
        few=_FEW_RISE,
        many=_MANY,
    )
    if than == _PEERS:
        return limits, limits
    limits = replace(limits, in_air=full, more=np.zeros(len(rows)))
    limits = replace(limits, least=_CREPT_CELSIUS, share=_ON_THE_WAY, few=_RISE, many=_TELL)
    return limits, replace(limits, share=1.0)


def _beyond(window: Window, rows: Rows, found: Heat, than: str) -> list[Claim]:
    """What most of a rack has is its air; what a node has beyond its rack is a fan, and what a GPU
    has beyond its node is its heatsink. The more GPUs agree, the fewer kelvins are needed.
    """
    kelvin, celsius = found.kelvin, rows.values(CELSIUS.column)
    node, rack = nodes(rows), together(clusters(rows), racks(window, rows))
    limits, whole = _limits_of(rows, found, than)
    # That a rack's air became warmer says so at any temperature.
    warm = (most(rack, celsius) >= _LEAST_CELSIUS) | (than == _PAST)
    if not (warm & (kelvin >= _BESIDE_RACK)).any():
        return []
    usual, measured = per_group(node, np.stack([found.sure, found.lately]))
    (of_node, node_lately), in_node = usual, measured[0]
    of_rack = _of_racks(window, rows, found)
    of_warm_rack = (of_rack >= limits.kelvin) & (of_node >= _BESIDE_RACK)
    air = unlike_air(found, rack, of_rack, limits.air) if than == _PEERS else limits.air
    of_warm_rack &= (per_group(rack, limits.in_air)[0] >= limits.least) | (of_rack >= air)
    by_fan = _by_fan(window, rows, found, limits)
    # A fan warms some of a node's GPUs: they are held against those that it does not. Where several
    # are on the way there with the first, none of them has a heat of its own.
    cool, _ = per_group(node, np.where(found.sure <= of_node, found.sure, np.nan))
    tells, hot = in_node >= NODE_GPUS, limits.full >= limits.least
    beside = np.where(tells, cool, of_rack)
    first, _ = _own_heat(rows, found, whole, beside, node_lately)
    warmer, _ = _own_heat(rows, found, limits, beside, node_lately)
    warmer &= hot & (counted(node, warmer & hot) >= np.fmax(NODE_GPUS, _SEVERAL * in_node))
    several = warmer & (counted(node, first & hot) > 0.0)
    own, uncooled = _own_heat(rows, found, whole, np.where(tells, of_node, of_rack), node_lately)
    own &= (hot | uncooled & (celsius >= _LEAST_CELSIUS)) & (counted(node, warmer) == 0.0)
    by_fan |= several
    by_air = of_warm_rack & (counted(node, by_fan) == 0.0)
    # A GPU of a warm node of which nothing can be said is no evidence.
    told = warm & (kelvin >= _LEFT * of_node) & ~own & (_is_left(of_node, node_lately) | several)
    beyond = np.where(several, kelvin, of_node)
    claimed = _Claimed(window, rows, found, than)
    return [
        *claimed.of_nodes(by_fan & told, beyond),
        *in_racks(window, claimed.of_nodes(by_air & told, of_node), _measured),
        *claimed.of_gpus(own & ~uncooled, "heatsink", kelvin),
        *claimed.of_gpus(own & uncooled, "cooling", kelvin),
    ]


def _of_racks(window: Window, rows: Rows, found: Heat) -> Floats:
    """What the middle GPU of each row's rack has; NaN where too few tell."""
    rack = together(clusters(rows), racks(window, rows))
    of_rack, in_rack = per_group(rack, found.sure)
    of_rack[(in_rack < _RACK_GPUS) | (racks(window, rows) == 0)] = np.nan
    return of_rack


def _by_fan(window: Window, rows: Rows, found: Heat, limits: _Limits) -> Mask:
    """Of each row whether its node is hot beyond its rack: what it has beyond that grows with power."""
    node = nodes(rows)
    of_node, in_node = per_group(node, found.sure)
    warm = (of_node >= limits.kelvin) & (in_node >= NODE_GPUS)
    warm &= per_group(node, limits.full)[0] >= limits.least
    others = of_other_nodes(window, rows, found.sure, warm)
    own = of_node - others
    warm &= per_group(node, limits.in_air + np.nan_to_num(own) * limits.more)[0] >= limits.least
    warm &= np.where(np.isnan(others), of_node >= _ALONE_KELVIN, own >= _BESIDE_RACK)
    return warm


def _own_heat(
    rows: Rows, found: Heat, limits: _Limits, air: Floats, lately: Floats
) -> tuple[Mask, Mask]:
    """Of each row whether it has a heat of its own, and whether it is that of a lost cooling.

    `air` is what its node or rack has beyond what power explains; NaN where nobody tells. `lately`
    is what its node had in the last minute.
    """
    beside, far = _beside(rows, found, limits, air)
    beside_lately = found.lately - np.where(np.isnan(air), 0.0, lately)
    uncooled = is_awake(rows) & (beside >= _uncooled_from(found))
    own = works(rows) & (beside >= limits.share * far)
    return (uncooled | own) & _is_left(beside, beside_lately), uncooled


def _uncooled_from(found: Heat) -> Floats:
    """Kelvins beside its node from which on each row's heatsink hardly touches."""
    far: Floats = np.fmax(_COOLING_KELVIN, _COOLING_RISE * found.rise)
    return far


def _beside(rows: Rows, found: Heat, limits: _Limits, air: Floats) -> tuple[Floats, Floats]:
    """Kelvins of each row beside this air, and those from which on its heatsink is to blame."""
    beside = found.kelvin - np.nan_to_num(air)
    least = np.where(np.isnan(air), _ALONE_KELVIN, 0.0)
    return beside, np.fmax(least, _too_far(rows, found, beside, limits))


def _is_left(mean: Floats, lately: Floats) -> Mask:
    """Whether what was too much in the mean is still there."""
    left: Mask = lately >= _LEFT * mean
    return left


def _too_far(rows: Rows, found: Heat, beside: Floats, limits: _Limits) -> Floats:
    """Kelvins beside its node from which on a heatsink is to blame; NaN where nothing can be said."""
    share = np.where(works(rows), np.abs(beside) / found.rise, np.nan)
    usual, count = per_group(found.model, share)
    apart = np.where(count >= _TELL, _DEVIATIONS * _DEVIATION_OF_MEDIAN * usual, 0.0)
    told = np.fmax(np.where(count >= limits.many, limits.rise, limits.few), apart)
    far: Floats = np.fmax(_GPU_KELVIN, told * found.rise) + found.doubt
    return far


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Claims from rows of the steady span, each beyond what `than` explains."""

    window: Window
    rows: Rows
    found: Heat
    than: str

    def of_nodes(self, warm: Mask, kelvin: Floats) -> list[Claim]:
        """One claim per node of these rows."""
        of_warm: dict[Subject, list[Claim]] = defaultdict(list)
        for (subject, row), excess in zip(self.rows.where(warm), kelvin[warm], strict=True):
            of_warm[subject.of_node()].append(self._of("node_hot", subject, row, excess))
        return [
            replace(them[0], subject=node, members=tuple(sorted(c.subject for c in them)))
            for node, them in sorted(of_warm.items())
        ]

    def of_gpus(self, hot: Mask, condition: str, kelvin: Floats) -> Iterator[Claim]:
        """One claim per GPU of these rows."""
        for (subject, row), excess in zip(self.rows.where(hot), kelvin[hot], strict=True):
            yield self._of(condition, subject, row, excess)

    def _of(self, condition: str, subject: Subject, row: Row, kelvin: float) -> Claim:
        celsius, watts = row[CELSIUS.column], row[WATTS.column]
        minutes = self.window.settings.steady_seconds / 60.0
        span = f"over {minutes:g} min"
        if self.than == _PAST:
            # The mean of the span has much of what it is held against.
            lately = self.window.get("gpu", Span.RECENT).get(subject)
            assert lately is not None  # else nothing would be known of it
            celsius, watts = lately[CELSIUS.column], lately[WATTS.column]
            span = "in the last minute"
            kelvin = float(self.found.lately[self.rows.index.number(subject) or 0])
        told = Evidence(name=_CORE, value=f"{celsius:.0f} °C at {watts:.0f} W {span}")
        usual = f"{celsius - kelvin:.0f} °C at that power"
        evidence = {
            _PAST: (told, Evidence(name=_PAST, value=f"at most {usual}")),
            _USUAL: (told, Evidence(name=_USUAL, value=usual)),
            _PEERS: (replace(told, peers=usual),),
        }[self.than]
        return Claim(condition=condition, subject=subject, since=row["last_at"], evidence=evidence)


DETECTOR = Detector(
    name="gpu_hot",
    find=hot_gpus,
    faults=found_by("gpu_hot"),
    needs=NEEDS,
    sentence="A GPU that heat slows down, or that is hotter than its power and its peers explain.",
    source="nvml.h, clock event reasons; degrees per watt against peers",
    would_show=says_whether_hot,
    lapsed=lapsed,
    learns={usual_heat.HEAT.name: usual_heat.learned},
)
