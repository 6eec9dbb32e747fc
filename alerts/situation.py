"""What is to be known beside an incident to decide about it: silences, racks, what else stands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpuvigil.config import AlertsSettings, InhibitSettings
from gpuvigil.hub import Hub
from gpuvigil.lifecycle import STANDING
from gpuvigil.matching import Labels, covered, fit, labels_of
from gpuvigil.model import Incident, Inventory, RecordKind, Silence, readable

# Looked up again this often; a silence counts from then on.
LOOK_SECONDS = 2.0
RACK_SECONDS = 60.0
_MOST_NODES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All of it, at one moment."""

    silences: tuple[Silence, ...] = ()
    racks: Mapping[str, str] = field(default_factory=dict)  # by the node's key
    standing: tuple[Incident, ...] = ()  # only where something is inhibited by something

    def silence(self, labels: Labels, now: datetime) -> Silence | None:
        """The silence that holds for these labels for longest; None when there is none."""
        found = [one for one in self.silences if one.holds(now) and _silences(one, labels)]
        return max(found, key=lambda one: one.ends_at, default=None)

    def inhibitor(
        self, rules: Sequence[InhibitSettings], incident: Incident, labels: Labels
    ) -> Incident | None:
        """What stands and explains the incident by one of the rules; None when nothing does.

        Where incidents explain each other in a ring, the oldest of them is told. The rest is as in
        Alertmanager: what is on both sides of a rule does not explain another that is, too.
        """
        if not any(fit(rule.of, labels) for rule in rules):
            return None
        others = [one for one in self.standing if one.id != incident.id]
        known = {one.id: labels_of(one, self.racks) for one in others} | {incident.id: labels}
        ring: set[str] | None = None
        for other in others:
            if not _explains(rules, other, incident, known):
                continue
            if _age(other) < _age(incident):
                return other
            if ring is None:
                ring = _explained_by(rules, incident, others, known)
            if other.id not in ring:
                return other
        return None


def _explains(
    rules: Iterable[InhibitSettings],
    other: Incident,
    incident: Incident,
    known: Mapping[str, Labels],
) -> bool:
    """Whether `other` alone, by one of the rules, is why `incident` need not be told."""
    if (other.simulated and not incident.simulated) or other.marked is not incident.marked:
        return False
    theirs, labels = known[other.id], known[incident.id]
    for rule in rules:
        if not (fit(rule.of, labels) and fit(rule.by, theirs)):
            continue
        both = fit(rule.of, theirs) and fit(rule.by, labels)
        if not both and all(set(labels[key]) & set(theirs[key]) for key in rule.same):
            return True
    return False


def _explained_by(
    rules: Iterable[InhibitSettings],
    incident: Incident,
    others: Iterable[Incident],
    known: Mapping[str, Labels],
) -> set[str]:
    """The ids of all that the incident explains, also by what it explains."""
    found: set[str] = set()
    left, ahead = list(others), [incident]
    while ahead:
        source = ahead.pop()
        reached = [one for one in left if _explains(rules, source, one, known)]
        found |= {one.id for one in reached}
        left = [one for one in left if one.id not in found]
        ahead += reached
    return found


def _age(incident: Incident) -> tuple[datetime, str]:
    return incident.since, incident.id


NOTHING = Situation()


class Lookout:
    """Asks the hub for the situation, each part no more often than it is worth; for one thread."""

    def __init__(self, hub: Hub, settings: AlertsSettings) -> None:
        self._hub = hub
        self._inhibits = bool(settings.inhibit)
        texts = [text for one in settings.routes for text in one.match]
        texts += [text for one in settings.inhibit for text in (*one.by, *one.of, *one.same)]
        self._racked = any("rack" in text for text in texts)
        self._silences: tuple[Silence, ...] = ()
        self._standing: tuple[Incident, ...] = ()
        self._racks: dict[str, str] = {}
        self._looked = self._nodes_looked = float("-inf")

    def look(self, now: float) -> Situation:
        """The situation at monotonic `now`, at most a little old."""
        if now - self._looked >= LOOK_SECONDS:
            found = self._hub.records(RecordKind.SILENCE)
            self._silences = tuple(readable(found, Silence.from_record))
            if self._inhibits:
                states = tuple(state.value for state in STANDING)
                records = self._hub.records(RecordKind.INCIDENT, states=states)
                self._standing = tuple(readable(records, Incident.from_record))
            self._looked = now
        by_rack = self._racked or any("rack" in text for s in self._silences for text in s.matchers)
        if by_rack and now - self._nodes_looked >= RACK_SECONDS:
            found = self._hub.records(RecordKind.INVENTORY, limit=_MOST_NODES)
            nodes = tuple(readable(found, Inventory.from_record))
            self._racks = {node.subject.key: node.rack for node in nodes if node.rack}
            self._nodes_looked = now
        return Situation(
            silences=self._silences,
            racks=self._racks,
            standing=self._standing,
        )


def _silences(silence: Silence, labels: Labels) -> bool:
    """Whether it speaks of all of it; what another version wrote silences nothing."""
    try:
        return covered(silence.matchers, labels)
    except ValueError:
        return False
