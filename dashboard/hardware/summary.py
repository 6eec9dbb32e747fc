"""Failures by fault and place, and the power and temperature of each rack; pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from accounting.hardware.repeat_offenders import Failure
from gpuvigil.faults import FAULTS
from gpuvigil.model import Incident, Subject
from gpuvigil.numbers_in_words import natural
from gpuvigil.web.page_links import node_page, rack_page

from ..model.cluster import ClusterView
from ..model.gpus import DisplayState, summed

# The most columns, as more cannot be read side by side.
MOST_PLACES = 12
NO_RACK = "no rack reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """How often each fault occurred at each place; the most frequent come first in both.

    Racks come before nodes and switches that are in none.
    """

    places: Sequence[str]
    rows: Sequence[tuple[str, str, Sequence[int], int]]  # fault, title, counts, total
    more: int  # number of places not shown
    pages: Mapping[str, str] = field(default_factory=dict)  # page by place

    @property
    def most(self) -> int:
        return max((count for *_, counts, _ in self.rows for count in counts), default=0)


def matrix(found: Iterable[Failure], place_of: Mapping[tuple[str, str], str]) -> Matrix:
    """Count failures by fault and place; `place_of` has the rack by cluster and node, else the node counts."""
    counts: Counter[tuple[str, str]] = Counter()
    pages: dict[str, str] = {}
    racks = set(place_of.values())
    for one in found:
        rack = place_of.get((one.cluster, one.node))
        place = rack or one.node
        counts[one.fault, place] += 1
        pages[place] = rack_page(one.cluster, rack) if rack else node_page(one.cluster, one.node)
    by_place: Counter[str] = Counter()
    by_fault: Counter[str] = Counter()
    for (fault, place), count in counts.items():
        by_place[place] += count
        by_fault[fault] += count
    ordered = sorted(by_place, key=lambda it: (-by_place[it], natural(it)))
    shown = sorted(ordered[:MOST_PLACES], key=lambda it: it not in racks)
    rows = [
        (fault, _title(fault), [counts[fault, place] for place in shown], by_fault[fault])
        for fault in sorted(by_fault, key=lambda it: (-by_fault[it], it))
    ]
    return Matrix(places=shown, rows=rows, more=len(ordered) - len(shown), pages=pages)


def _title(fault: str) -> str:
    return FAULTS[fault].title if fault in FAULTS else fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack:
    """One rack of a cluster; None is not measured."""

    cluster: str
    name: str
    nodes: Sequence[Subject]
    silent: int
    gpus: int
    failing: int
    held_percent: float | None
    power_watts: float | None
    power_limit_watts: float | None
    hottest_celsius: float | None
    middle_celsius: float | None
    open_incidents: Sequence[Incident] = ()
    parts: Sequence["Rack"] = ()  # the same for each of its nodes, if asked for


def racks(
    cluster: ClusterView,
    rack_of: Mapping[Subject, str],
    open_incidents: Iterable[Incident],
    asked: str = "",
) -> Sequence[Rack]:
    """Return each rack with its GPUs' power and temperature, by name; empty if no node has a rack.

    `asked`: the rack whose nodes are also returned one by one.
    """
    nodes: defaultdict[str, list[int]] = defaultdict(list)
    for number, node in enumerate(cluster.layout.nodes):
        nodes[rack_of.get(node, "")].append(number)
    if set(nodes) <= {""}:
        return []
    here = [one for one in open_incidents if one.subject.cluster == cluster.name]
    racks_of = [(one, {rack_of.get(node, "") for node in _nodes(one)}) for one in here]
    struck = {name: [one for one, them in racks_of if name in them] for name in nodes}
    found = [_rack(cluster, name, them, struck[name]) for name, them in nodes.items()]
    found = [
        replace(one, parts=_parts(cluster, nodes[one.name], here)) if one.name == asked else one
        for one in found
    ]
    return sorted(found, key=lambda one: (one.name == NO_RACK, natural(one.name)))


def _parts(
    cluster: ClusterView, numbers: Sequence[int], open_incidents: Sequence[Incident]
) -> Sequence[Rack]:
    nodes = [(number, cluster.layout.nodes[number]) for number in numbers]
    return [
        _rack(cluster, node.node, [number], [one for one in open_incidents if node in _nodes(one)])
        for number, node in nodes
    ]


def _nodes(one: Incident) -> set[Subject]:
    found = {one.subject.of_node()}
    for key in one.members:
        try:
            found.add(Subject.parse(key).of_node())
        except ValueError:
            continue
    return found


def _rack(
    cluster: ClusterView, name: str, numbers: Sequence[int], open_incidents: Sequence[Incident]
) -> Rack:
    spans = [cluster.layout.spans[number] for number in numbers]
    chosen = np.concatenate([np.arange(it.start, it.stop) for it in spans])
    gpus = cluster.gpus.part(chosen.astype(int))
    strip = summed(gpus)
    heat = gpus.temperature_celsius[~np.isnan(gpus.temperature_celsius.astype(float))]
    return Rack(
        cluster=cluster.name,
        name=name or NO_RACK,
        nodes=[cluster.layout.nodes[number] for number in numbers],
        silent=int(sum(bool(cluster.silent[number]) for number in numbers)),
        gpus=len(gpus),
        failing=strip.looks[DisplayState.FAILED],
        held_percent=strip.held_percent,
        power_watts=strip.power_watts,
        power_limit_watts=strip.power_limit_watts,
        hottest_celsius=float(heat.max()) if len(heat) else None,
        middle_celsius=float(np.median(heat)) if len(heat) else None,
        open_incidents=open_incidents,
    )
