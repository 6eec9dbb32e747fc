"""A GPU that heat slows down, or that is hotter than its power and its peers explain."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from gpuvigil.faults import found_by
from gpuvigil.faults.symptoms import HARDWARE_THERMAL, SOFTWARE_THERMAL
from gpuvigil.model import Evidence, Finding, Subject
from gpuvigil.store import Aggregate, Function

from ..evidence import heat, memory_heat, own_past, usual_heat
from ..evidence.active_heat import SLOWED, lapsed, would_show_heat
from ..evidence.claims import Claim, findings
from ..evidence.grouping import by_node, by_rack, rack_mates
from ..evidence.heat_blame import CORE, hotter, measured_nodes
from ..evidence.heat_limits import SEVERAL
from ..window.window import Need, Span, Window
from . import Detector

_HARDWARE, _SOFTWARE = (
    Aggregate(function=Function.INCREASE, field=row.counter)
    for row in (HARDWARE_THERMAL, SOFTWARE_THERMAL)
)
_OF_NODE, _OF_RACK = "node_hot", "rack_hot"
# The nodes of a rack warm up at different powers: whatever of it shows, does so within two steady spans (ours).
_TOGETHER = timedelta(minutes=20)
_WARMEST = Aggregate(function=Function.MAX, field="temperature_celsius")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_HARDWARE, _SOFTWARE, _WARMEST)),
    *heat.NEEDS,
    *own_past.NEEDS,
    *memory_heat.NEEDS,
)


def hot_gpus(window: Window) -> list[Finding]:
    """Return one finding per GPU, per node where most of its GPUs are hot, and per rack where most of its nodes are."""
    slowed, of_heat = _explained(list(_slowed(window)), hotter(window))
    of_memory = memory_heat.hot_memory(window)
    claims = [*by_node(window, slowed, SEVERAL, _OF_NODE), *of_heat, *of_memory]
    measured = measured_nodes(window) if claims else frozenset()
    before = _reported_lately(window, claims)
    joined = by_rack(window, [*claims, *before], _OF_RACK, among=measured)
    joined = [claim for claim in joined if claim not in before]
    return findings("gpu_hot", _with_slowed_of_racks(window, joined))


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
                        name=SLOWED,
                        value=f"{seconds:.0f} s of the last {span:.0f} s",
                        limit="0 s",
                    ),
                    Evidence(name=CORE, value=f"{row[_WARMEST.column]} °C at most"),
                ),
            )


def _explained(slowed: list[Claim], of_heat: list[Claim]) -> tuple[list[Claim], list[Claim]]:
    """Return the slowdown claims that remain, and the heat claims with the GPUs that their node's warm air explains.

    GPUs that the hardware slows down, or that are hot themselves, keep a claim of their own.
    """
    warm = {claim.subject for claim in of_heat if claim.subject.kind == "node"}
    own = {claim.subject for claim in of_heat if claim.subject.kind == "gpu"}
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
        for claim in of_heat
    ]
    return left, named


def _reported_lately(window: Window, claims: list[Claim]) -> list[Claim]:
    """Return claims on other nodes of the claimed ones' racks, whose heat was reported a short while ago and is open.

    While such a node changes its load, nobody can measure its heat, and its rack's next one seemed to be alone.
    """
    hit = {claim.subject for claim in claims if claim.subject.kind == "node"}
    if not hit:
        return []
    mates = rack_mates(window)
    beside = {mate for node in hit for mate in mates.get(node, ())} - hit
    return [
        Claim(
            condition=_OF_NODE,
            subject=one.subject.of_node(),
            since=one.since,
            evidence=one.evidence,
            severity=one.severity,
            members=tuple(it for it in map(Subject.parse, one.members) if it.kind == "gpu"),
        )
        for one in window.active_incidents
        if one.condition == _OF_NODE
        and one.subject.of_node() in beside
        and window.now - one.since <= _TOGETHER
    ]


def _with_slowed_of_racks(window: Window, claims: list[Claim]) -> list[Claim]:
    """Return the claims, with the GPUs that a warm rack's air explains in the rack's.

    While a job changes its pace, the air of its nodes cannot be measured, and slows its GPUs all the same.
    """
    if all(claim.condition != _OF_RACK for claim in claims):
        return claims
    mates, left = rack_mates(window), list(claims)
    for rack in (claim for claim in claims if claim.condition == _OF_RACK):
        here = set(mates[rack.subject])
        own = Counter(claim.subject for claim in left)
        slowed = [
            claim
            for claim in left
            if claim.condition == SOFTWARE_THERMAL.key
            and claim.subject.of_node() in here
            and own[claim.subject] == 1
        ]
        gpus = {claim.subject for claim in slowed}
        members = {*rack.members, *gpus, *(gpu.of_node() for gpu in gpus)} - {rack.subject}
        left = [claim for claim in left if claim is not rack and claim not in slowed]
        left.append(replace(rack, members=tuple(sorted(members))))
    return left


DETECTOR = Detector(
    name="gpu_hot",
    find=hot_gpus,
    faults=found_by("gpu_hot"),
    needs=NEEDS,
    sentence="A GPU that heat slows down, or that is hotter than its power and its peers explain.",
    source="nvml.h, clock event reasons; degrees per watt against peers",
    would_show=would_show_heat,
    lapsed=lapsed,
    learns={
        usual_heat.HEAT.name: usual_heat.learned,
        usual_heat.BESIDE_MATES.name: usual_heat.learned_beside_mates,
    },
)
