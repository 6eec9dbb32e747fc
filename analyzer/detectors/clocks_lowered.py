"""Nodes whose GPUs run at lower clocks than half an hour ago, several of one model at about the same time.

A single GPU whose clock does not rise is compared with its neighbours. Where a roll-out sets the clocks of
whole nodes, or of all of them, neighbours show nothing: only what each GPU reached before does.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuvigil.faults import FAULTS, found_by
from gpuvigil.model import Evidence, Finding, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..window.columns import Floats, Mask, seconds
from ..window.rows import Row, Rows
from ..window.window import Need, Span, Window
from . import Detector

_CLOCK, _HIGHEST = (
    Aggregate(function=Function.MAX, field=name)
    for name in ("sm_clock_hertz", "sm_clock_max_hertz")
)
_BUSY = Aggregate(function=Function.MEAN, field="utilization_percent")
_HELD = tuple(
    Aggregate(function=Function.INCREASE, field=name)
    for name in (
        "power_cap_seconds",
        "software_thermal_slowdown_seconds",
        "hardware_thermal_slowdown_seconds",
        "power_brake_seconds",
    )
)
NEEDS = (
    Need(measurement="gpu", span=Span.STEADY, aggregates=(_CLOCK, _HIGHEST, _BUSY, *_HELD)),
    Need(measurement="gpu", span=Span.TREND, aggregates=(_CLOCK,)),
)

_FAULT = FAULTS["clocks_lowered"]
# Limits as for a GPU's clock beside its peers, but applied to its own past.
_LOW, _HIGHER, _BUSY_PERCENT, _COVERAGE, _EXPLAINED = 0.9, 1.08, 50.0, 0.8, 0.1
# At least this many nodes of a model: two may run a job that asks for less. And this share of a node's GPUs
# at work.
_NODES, _SHARE = 3, 0.75
_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lower:
    """A node, its GPUs with lowered clocks, and the row of the first of them."""

    node: Subject
    gpus: tuple[Subject, ...]
    row: Row
    before: float | None  # what the first GPU reached before; None where that is too long ago


def lowered_clocks(window: Window) -> list[Finding]:
    """Return one finding per cluster and model for nodes whose GPUs had their clocks set lower.

    It takes three nodes, or one that an open incident already names.
    """
    stands = _open_incidents(window)
    of_model: dict[tuple[str, str], list[_Lower]] = defaultdict(list)
    for one in _lower_nodes(window, stands):
        inventory = window.inventories.get(one.node.key)
        if inventory is not None and inventory.gpus:
            of_model[one.node.cluster, inventory.gpus[0].model].append(one)
    return [
        _finding(model, nodes, stands)
        for (_, model), nodes in sorted(of_model.items())
        if len(nodes) >= _NODES or any(one.node in stands for one in nodes)
    ]


def _lower_nodes(window: Window, incidents: Mapping[Subject, Incident]) -> Iterator[_Lower]:
    """Yield nodes where most GPUs under load run lower than before or, with an open incident, still run low."""
    rows = window.get("gpu", Span.STEADY)
    tells = _is_unexplained(window, rows)
    clock = rows.values(_CLOCK.column)
    before = window.get("gpu", Span.TREND).beside(rows, _CLOCK.column)
    low = tells & (clock < _LOW * rows.values(_HIGHEST.column))
    fell = low & (clock * _HIGHER <= before)
    if not (fell.any() or (incidents and low.any())):
        return
    at_work = Counter(subject.of_node() for subject, _ in rows.where(tells))
    lower: dict[Subject, list[tuple[Subject, Row, float | None]]] = defaultdict(list)
    for place, (subject, row) in zip(np.flatnonzero(low), rows.where(low), strict=True):
        if fell[place] or subject.of_node() in incidents:
            past = float(before[place]) if fell[place] else None
            lower[subject.of_node()].append((subject, row, past))
    for node, them in sorted(lower.items()):
        if len(them) >= _SHARE * at_work[node]:
            gpus = tuple(sorted(subject for subject, _, _ in them))
            _, row, past = them[0]
            yield _Lower(node=node, gpus=gpus, row=row, before=past)


def _is_unexplained(window: Window, rows: Rows) -> Mask:
    """Return for each row whether its clock is one under load that neither power nor heat holds down.

    False where any of these was not read.
    """
    held: Floats = np.sum([rows.values(it.column) for it in _HELD], axis=0)
    tells: Mask = rows.values(_BUSY.column) >= _BUSY_PERCENT
    tells &= held < _EXPLAINED * window.settings.steady_seconds
    tells &= seconds(rows) >= _COVERAGE * window.settings.steady_seconds
    return tells


def _open_incidents(window: Window) -> Mapping[Subject, Incident]:
    """Return the open incidents of this fault by each of their nodes."""
    found: dict[Subject, Incident] = {}
    for one in window.active_incidents:
        if one.fault == _FAULT.key:
            members = map(Subject.parse, one.members or (one.subject.key,))
            found |= {member.of_node(): one for member in members}
    return found


def _finding(model: str, nodes: Sequence[_Lower], incidents: Mapping[Subject, Incident]) -> Finding:
    """Build the finding about the open incident's subject, or else about the first node."""
    first = nodes[0]
    known = next((incidents[one.node] for one in nodes if one.node in incidents), None)
    subject = first.node if known is None else known.subject
    past = max((one.before or 0.0 for one in nodes), default=0.0) or None
    return Finding(
        fault="clocks_lowered",
        subject=subject,
        severity=_FAULT.severity,
        since=first.row["first_at"],
        evidence=(
            Evidence(name="nodes", value=_names([one.node.node for one in nodes])),
            Evidence(
                name="SM clock",
                value=f"{first.row[_CLOCK.column] / 1e6:.0f} MHz at most",
                limit=f"{first.row[_HIGHEST.column] / 1e6:.0f} MHz on {model}",
            ),
            *(
                [Evidence(name="before", value=f"{past / 1e6:.0f} MHz within half an hour")]
                if past is not None
                else []
            ),
        ),
        detector="clocks_lowered",
        action=_FAULT.action,
        source=_FAULT.source,
        own_limit=_FAULT.own_limit,
        members=tuple(sorted({it for one in nodes for it in (one.node, *one.gpus)} - {subject})),
    )


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more


def would_show_lowered_clocks(window: Window, incident: Incident) -> bool:
    """Return whether a GPU on one of the incident's nodes is under load; only then do clocks tell anything."""
    rows = window.get("gpu", Span.STEADY)
    nodes = {Subject.parse(key).of_node() for key in (incident.subject.key, *incident.members)}
    return any(
        subject.of_node() in nodes for subject, _ in rows.where(_is_unexplained(window, rows))
    )


DETECTOR = Detector(
    name="clocks_lowered",
    find=lowered_clocks,
    faults=found_by("clocks_lowered"),
    needs=NEEDS,
    sentence="Nodes whose GPUs run at lower clocks under load than before, though neither power nor heat says why.",
    source="each GPU's own clock of half an hour, and clock event counters",
    would_show=would_show_lowered_clocks,
)
