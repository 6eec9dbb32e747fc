"""`gpuvigil explain`: the whole reasoning behind an incident, and what speaks against it."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta

from accounting.hardware.incident_steps import reason
from accounting.hardware.repeat_offenders import SPAN
from gpuvigil.clock import moment
from gpuvigil.config import Config
from gpuvigil.config.startup import parser, run_command
from gpuvigil.errors import ConfigError
from gpuvigil.faults import FAULTS
from gpuvigil.faults.conditions import CONDITIONS
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Incident, Opinion, RecordKind, Subject, Transition, readable
from gpuvigil.numbers_in_words import counted

from .correlation.all_detectors import DETECTORS
from .correlation.breaker import is_cluster_wide

_MOST = 100_000  # records of a kind
# Many nodes at once are more often a room, a rollout or a wrong rule than as many separate faults.
_TOGETHER = timedelta(minutes=5)
# An incident this short was mostly over before anybody came.
_BRIEF = timedelta(minutes=10)


def main(arguments: Sequence[str]) -> int:
    """Explain one incident; return the exit code."""
    options = parser(
        "explain", "Explain why an incident was raised: rule, numbers, steps, and doubts."
    )
    options.add_argument("incident", help="the incident's ID, from a message or page")
    return run_command(options, arguments, _explain)


def _explain(config: Config, chosen: argparse.Namespace) -> None:
    with closing(service_hubs(config.hub)()) as hub:
        for line in _lines(hub, chosen.incident):
            print(line)


def _lines(hub: Hub, identifier: str) -> Iterator[str]:
    record = hub.record(RecordKind.INCIDENT, identifier)
    incident = next(readable([record] if record else [], Incident.from_record), None)
    if incident is None:
        raise ConfigError(
            f"the hub has no incident {identifier!r}; 'gpuvigil status' lists the open ones"
        )
    steps = hub.records(RecordKind.TRANSITION, parent=incident.id)
    # The incidents of the `SPAN` before it, and those that began together with it.
    since, until = incident.since - SPAN, incident.since + 2 * _TOGETHER
    near = hub.records(RecordKind.INCIDENT, since=since, until=until, limit=_MOST)
    said = hub.records(RecordKind.OPINION, since=since, limit=_MOST)
    yield from explained(
        incident,
        readable(steps, Transition.from_record),
        readable(near, Incident.from_record),
        readable(said, Opinion.from_record),
    )


def explained(
    incident: Incident,
    steps: Iterable[Transition],
    others: Iterable[Incident],
    opinions: Iterable[Opinion] = (),
) -> Iterator[str]:
    """Yield the reasoning line by line: rule, numbers, steps, doubts, what it covers, first action.

    `others` are the incidents around it and `opinions` people's verdicts, both of the last weeks.
    """
    ordered = sorted(steps, key=lambda step: step.number)
    others = [one for one in others if _same_world(one.subject, incident.subject)]
    yield f"{incident.label or incident.subject.key}: {incident.title}"
    yield f"{incident.severity.value}, {incident.state}, since {moment(incident.since)}"
    out = incident.out_of_service
    if out is not None:
        yield f"no alerts while it is out of service: {out.reason}"
    yield from _rule(incident)
    yield "evidence:"
    yield from (f"  {item.text}" for item in incident.evidence)
    yield "timeline:"
    yield from (
        f"  {moment(step.at)}: {step.from_state} to {step.to_state}, {reason(step, before)}"
        for before, step in zip((None, *ordered), ordered, strict=False)
    )
    yield "doubts:"
    doubts = [*_doubts(incident, ordered, others), *_doubts_of_rule(incident, others, opinions)]
    yield from (f"  {doubt}" for doubt in doubts or ["none"])
    if incident.covers:
        yield "covered by it, without alerts of their own:"
        yield from (f"  {covered}" for covered in incident.covers)
    yield from _history(incident, others)
    if incident.impact.text:
        yield f"impact: {incident.impact.text}"
    yield f"first action: {incident.action}"


def _same_world(one: Subject, other: Subject) -> bool:
    """Tell whether both are real, both simulated, or both the selftest's; only these compare."""
    return (one.simulated, one.marked) == (other.simulated, other.marked)


def _rule(incident: Incident) -> Iterator[str]:
    detector = next((it for it in DETECTORS if incident.fault in it.faults), None)
    if detector is not None:
        yield f"rule: {detector.name}: {detector.sentence}"
    condition = CONDITIONS.get(incident.condition)
    if condition is not None:
        yield f"condition: {condition.key}"
    yield f"source of the rule: {incident.source}"
    if incident.fault in FAULTS:
        yield f"confidence: {FAULTS[incident.fault].confidence.value}"


def _doubts(
    incident: Incident, steps: Sequence[Transition], others: Iterable[Incident]
) -> Iterator[str]:
    returns = sum(s.signal in {Signal.RETURNED.value, Signal.FLAPPED.value} for s in steps)
    if returns:
        yield f"it went away and came back {counted(returns, 'time')}"
    if incident.late:
        yield "all its data arrived late, from a spool"
    if incident.state == State.RESOLVED.value and steps:
        yield f"it is over: {steps[-1].reason}"
    usual = FAULTS.get(incident.fault)
    if usual is not None and incident.severity.rank > usual.severity.rank:
        yield f"it is less severe than this fault usually is ({usual.severity.value})"
    nodes = _alike(incident, others)
    if len(nodes) > 1:
        yield (
            f"{len(nodes)} other nodes have the same fault within"
            f" {_TOGETHER.total_seconds() / 60.0:g} min: check what they share"
        )


def _doubts_of_rule(
    incident: Incident, others: Iterable[Incident], opinions: Iterable[Opinion]
) -> Iterator[str]:
    """Yield why the rule itself may be wrong: whose its limit is, and how it did lately."""
    if is_cluster_wide(incident):
        yield "it affects so many nodes that the rule may be wrong: check whether one of them is healthy"
    if incident.own_limit:
        yield f"its limit is gpuvigil's own, not a vendor's: {incident.source}"
    said = [one for one in opinions if one.fault == incident.fault]
    noise = sum(not one.useful for one in said)
    if noise:
        yield f"{noise} of {len(said)} messages about {incident.fault} were marked as noise"
    over = [
        other.resolved_at - other.since
        for other in others
        if other.resolved_at is not None
        and other.id != incident.id
        and (other.fault, other.subject) == (incident.fault, incident.subject)
    ]
    brief = sum(lasted <= _BRIEF for lasted in over)
    if brief:
        minutes = _BRIEF.total_seconds() / 60.0
        yield f"{brief} of {len(over)} earlier ones on the same part ended within {minutes:g} min"


def _alike(incident: Incident, others: Iterable[Incident]) -> set[Subject]:
    node = incident.subject.of_node()
    return {
        other.subject.of_node()
        for other in others
        if other.fault == incident.fault
        and other.subject.of_node() != node
        and abs(other.since - incident.since) <= _TOGETHER
    }


def _history(incident: Incident, others: Iterable[Incident]) -> Iterator[str]:
    """Yield how often this part and its node had incidents before: repeat offenders."""
    before = [o for o in others if o.id != incident.id and o.since < incident.since]
    own = [o for o in before if o.subject == incident.subject]
    node = [o for o in before if o.subject.of_node() == incident.subject.of_node()]
    if node:
        days = SPAN.days
        yield f"incidents in the {days} days before: {len(own)} on the same part, {len(node)} on its node"
        kinds = sorted({o.title for o in own})
        yield from (f"  {title}" for title in kinds[:5])
