"""Play one fleet through the product's own analyzer, lifecycle and judge, and keep every message."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import to_text
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import Severity, Subject
from simulator.custom_kinds import is_look_alike
from simulator.fleet import Block, Fleet, FleetSettings, Truth, build
from simulator.fleet.sensors import SORTS

from ..judge.claims import Claim, claims
from ..judge.matching import Judged, Outcome, Verdict, judge, with_hidden
from ..replay import Replay, read_every

# Memory for an hour of a large fleet is a few hundred MB.
_BLOCK = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAlike:
    """What only looked like a fault, and the wrong messages about it."""

    what: Truth
    said: tuple[Claim, ...]

    @property
    def told(self) -> str:
        """The gravest severity that was reported for it; empty where nothing was said."""
        return (
            min((it.severity for it in self.said), key=lambda it: it.rank).value
            if self.said
            else ""
        )

    def to_json(self) -> dict[str, Any]:
        """Return what it was, and the incidents about it."""
        what = self.what.to_json()
        kept = ("id", "fault", "subject", "start", "end", "cause", "magnitude", "unit")
        ids = dict.fromkeys(claim.id for claim in self.said)
        return {name: what[name] for name in kept} | {"told": self.told, "incidents": list(ids)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayResult:
    """What happened on a fleet, and what was reported about it; outcomes are in the order of truths."""

    seed: int
    nodes: int
    start: datetime
    end: datetime
    truths: tuple[Truth, ...]
    outcomes: tuple[Outcome, ...]
    incidents: tuple[Judged, ...]
    look_alikes: tuple[
        LookAlike, ...
    ] = ()  # of kinds of a file: no faults, and what was said of them
    # By id of a fault: what it changes or reports and its node does not read.
    unread_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()  # fields that kinds of a file change but this fleet does not read
    hidden: int = 0  # faults that could show nowhere, such as a slow GPU without work

    @property
    def node_days(self) -> float:
        return self.nodes * (self.end - self.start) / timedelta(days=1)

    def to_json(self) -> dict[str, Any]:
        """Return every incident and every truth."""
        return {
            "seed": self.seed,
            "nodes": self.nodes,
            "unread": list(self.unread),
            "start": to_text(self.start),
            "end": to_text(self.end),
            "truths": [
                truth.to_json()
                | {"unread": list(self.unread_of.get(truth.id, ())), "outcome": asdict(outcome)}
                for truth, outcome in zip(self.truths, self.outcomes, strict=True)
            ],
            "look_alikes": [one.to_json() for one in self.look_alikes],
            "incidents": [_incident(one) for one in self.incidents],
        }


def play(
    settings: FleetSettings,
    switches: bool = True,
    tick_seconds: float = 10.0,
    reached: Callable[[timedelta], None] = lambda played: None,
) -> PlayResult:
    """Plan the fleet, play it, and judge the reports; ValueError where a setting makes no sense.

    Without `switches` the analyzer reads hosts alone. Nodes are read, and the detectors pass, every `tick_seconds`;
    half an hour must be a multiple of it. `reached` hears after each half hour how much has been played.
    """
    fleet = build(settings)
    replay = Replay(read_every(tick_seconds), ahead=_BLOCK, switches=switches)
    for happening in fleet.happenings():
        if happening.kind == "hub restart":
            replay.hub_away(happening.start, happening.end)
    unread: tuple[str, ...] | None = None
    for block in fleet.blocks(tick_seconds=tick_seconds, block_seconds=_BLOCK.total_seconds()):
        replay.feed(block)
        if unread is None:
            unread = _unread(fleet, block)
        reached(block.end - settings.start)
    # A fault that only shows under work, and had none, cannot be found: it is not counted.
    no_faults = {kind.key for kind in settings.more_kinds if is_look_alike(kind)}
    faults = [truth for truth in fleet.truths() if truth.fault not in no_faults]
    truths = [truth for truth in faults if not truth.hidden]
    outcomes, judged = judge(truths, claims(replay.transitions))
    judged = with_hidden(judged, [truth for truth in faults if truth.hidden])
    only_looks = [
        truth for truth in fleet.truths() if truth.fault in no_faults and not truth.hidden
    ]
    return PlayResult(
        seed=settings.seed,
        nodes=settings.nodes,
        start=settings.start,
        end=settings.end,
        truths=tuple(truths),
        outcomes=tuple(outcomes),
        incidents=tuple(judged),
        look_alikes=tuple(look_alikes(only_looks, judged)),
        unread_of=dict(_unread_by_nodes(fleet)),
        unread=unread or (),
        hidden=len(faults) - len(truths),
    )


def _unread(fleet: Fleet, block: Block) -> tuple[str, ...]:
    """Return fields that kinds of a file change though this fleet does not read them, so that they never show."""
    own = {kind.key for kind in fleet.settings.more_kinds}
    changed = {
        (change.on.value, change.name)
        for kind, site in fleet.plan.sites
        if kind.key in own
        for change in site.changes
    }
    return tuple(
        f"{measurement}.{name}"
        for measurement, name in sorted(changed)
        if measurement in block.tables
        and name in {metric.name for metric in MEASUREMENTS[measurement].metrics}
        and name not in block.tables[measurement].column_names
    )


def _unread_by_nodes(fleet: Fleet) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the id of each fault whose node does not read all that it changes or reports, and what that is."""
    topology = fleet.plan.topology
    for truth, (_, site) in zip(fleet.truths(), fleet.plan.sites, strict=True):
        sorts = [SORTS[sort] for sort, nodes in topology.unread.items() if nodes[site.node]]
        changed = {change.name for change in site.changes}
        fields = sorted(changed & frozenset[str]().union(*sorts))
        if site.planned_events and topology.silent_log[site.node]:
            fields.append("events")
        if fields:
            yield truth.id, tuple(fields)


def look_alikes(no_faults: Sequence[Truth], judged: Iterable[Judged]) -> list[LookAlike]:
    """Return each look-alike with the wrong messages that are about it, by the rules for faults."""
    wrong = [one.claim for one in judged if one.verdict is Verdict.FALSE]
    about = [(one.truth, one.claim) for one in judge(no_faults, wrong)[1]]
    return [
        LookAlike(what=one, said=tuple(claim for truth, claim in about if truth == one.id))
        for one in no_faults
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of several fleets together; `found` counts warnings and criticals."""

    node_days: float
    faults: int
    found: int
    right_cause: int
    one_incident: int
    wrong: dict[str, int]  # incidents about no fault, by severity
    seconds: tuple[float, ...]  # from the first sign to the message, of those found, in order
    look_alikes: int = 0  # of kinds of a file
    look_alikes_told: int = 0  # how many of them had a warning or a critical
    hidden: int = 0  # faults that could show nowhere, and are not counted

    @classmethod
    def of(cls, fleets: Iterable[PlayResult]) -> "Counts":
        fleets = list(fleets)
        outcomes = [outcome for fleet in fleets for outcome in fleet.outcomes]
        looked = [one for fleet in fleets for one in fleet.look_alikes]
        found = [it for it in outcomes if it.told in _ALARMS]
        wrong = [
            one.claim.severity.value
            for fleet in fleets
            for one in fleet.incidents
            if one.verdict is Verdict.FALSE
        ]
        return cls(
            node_days=sum(fleet.node_days for fleet in fleets),
            faults=len(outcomes),
            found=len(found),
            right_cause=sum(it.cause for it in found),
            one_incident=sum(it.incidents == 1 and it.named == 1 for it in outcomes),
            wrong={severity.value: wrong.count(severity.value) for severity in Severity},
            look_alikes=len(looked),
            look_alikes_told=sum(it.told in _ALARMS for it in looked),
            hidden=sum(fleet.hidden for fleet in fleets),
            seconds=tuple(sorted(it.seconds for it in found if it.seconds is not None)),
        )


_ALARMS = frozenset({Severity.CRITICAL.value, Severity.WARNING.value})


def _incident(one: Judged) -> dict[str, Any]:
    claim: Claim = one.claim
    return {
        "id": claim.id,
        "fault": claim.fault,
        "condition": claim.text.condition,
        "severity": claim.severity.value,
        "subject": claim.subject.key,
        "members": [Subject.parse(key).key for key in claim.members],
        "title": claim.title,
        "action": claim.action,
        "stood": [[to_text(since), until and to_text(until)] for since, until in claim.spans],
        "pages": [to_text(at) for at in claim.pages],
        "verdict": one.verdict.value,
        "truth": one.truth,
    }
