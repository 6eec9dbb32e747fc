"""Fleets with network faults, each played once for an analyzer that reads hosts alone and for one that reads switches too."""

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from analyzer.evidence.fabric_links import NOT_OBSERVABLE
from gpuvigil.model import Incident, Record, Transition
from simulator.fleet import Fleet, Truth, build

from ..judge.claims import claims
from ..judge.matching import Judged, Outcome, Verdict, judge
from ..replay import Replay
from .fleets import HOURS, NODES, fleet_of

HOSTS, BOTH = "hosts", "hosts and switches"
_BLOCK = timedelta(minutes=30)


def heard(fleet: Fleet) -> dict[str, Sequence[Transition]]:
    """Return the transitions of each of the two analyzers on a fleet."""
    replays = {name: Replay(ahead=_BLOCK, switches=name == BOTH) for name in (HOSTS, BOTH)}
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            for replay in replays.values():
                replay.hub_away(happening.start, happening.end)
    for block in fleet.blocks(block_seconds=_BLOCK.total_seconds()):
        for replay in replays.values():
            replay.feed(block)
    return {name: replay.transitions for name, replay in replays.items()}


def played(seed: int) -> dict[str, Any]:
    """Play one fleet and return its outcomes by what the analyzer read; only messages about the network are kept."""
    begun = time.process_time()
    fleet = build(fleet_of(seed))
    known = [(truth, truth.pace_lost or 0.0) for truth in fleet.truths() if not truth.hidden]
    truths = {truth.id: truth for truth, _ in known}
    found: dict[str, Any] = {}
    for name, steps in heard(fleet).items():
        outcomes, judged = judge(list(truths.values()), claims(steps))
        abstained = abstaining(steps)
        silent = {it.truth for it in judged if it.claim.id in abstained and _is_read(it)}
        found[name] = {
            "faults": [
                {**_fault(it, truth, lost, it.id in silent), "said": _said(judged, it.id)}
                for it, (truth, lost) in zip(outcomes, known, strict=True)
            ],
            "messages": [_message(it, truths.get(it.truth or "")) for it in judged if _is_read(it)],
        }
    return {
        "seed": seed,
        "roce": fleet.plan.topology.is_roce,
        "node_days": NODES * HOURS / 24.0,
        "cpu_seconds": round(time.process_time() - begun),
        **found,
    }


def abstaining(steps: Sequence[Transition]) -> frozenset[str]:
    """Return the incidents whose last record states that the cause lies where nobody can look."""
    last = {it.incident: it.snapshot for it in sorted(steps, key=lambda it: it.number)}
    told = {key: Incident.from_record(Record.from_json(it)) for key, it in last.items()}
    return frozenset(key for key, incident in told.items() if NOT_OBSERVABLE in incident.evidence)


def _fault(it: Outcome, truth: Truth, lost: float, abstained: bool) -> dict[str, Any]:
    return {
        "id": it.id,
        "kind": it.fault,
        "magnitude": it.magnitude,
        "lost": round(lost, 4),
        "seconds": it.seconds,
        "cause": it.cause,
        "place": it.place,
        "abstained": abstained,
        "severity": it.told == truth.severity.value,
        "one": it.exactly_one,
        "incidents": it.incidents,
    }


def _said(judged: Iterable[Judged], fault: str) -> list[str]:
    """Return the messages about a fault, including those that are not about the network."""
    own = [it for it in judged if it.truth == fault and it.claim.read_at is not None]
    return [f"{it.claim.title} at {it.claim.subject.key} ({it.verdict.value})" for it in own]


def _is_read(it: Judged) -> bool:
    """Return whether this is a warning or critical about the network, or about a fault of it."""
    about = it.claim.subject
    of_network = about.port is not None or it.verdict is Verdict.RIGHT
    return it.claim.read_at is not None and of_network


def _message(it: Judged, truth: Truth | None) -> dict[str, Any]:
    # For a message about a part or an echo of a fault, another severity may be right.
    named = truth if it.verdict is Verdict.RIGHT else None
    as_grave = named is None or it.claim.severity is named.severity
    return {
        "title": it.claim.title,
        "subject": it.claim.subject.key,
        "at": it.claim.spans[-1][0].isoformat(),
        "verdict": it.verdict.value,
        "truth": it.truth,
        "as_grave": as_grave and it.verdict is not Verdict.FALSE,
    }
