"""Inhibition: which open incident explains another, so that the other is not sent meanwhile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property

from gpuvigil.config import InhibitSettings
from gpuvigil.matching.matchers import Labels, fit, labels_of
from gpuvigil.model import Incident

# Indexes of the incidents that a rule takes for reasons: by the value of the first label that both
# must have in common, and by whether the rule explains them, too.
_Reasons = Mapping[tuple[str, bool], Sequence[int]]


class Inhibition:
    """The active incidents at one moment; their labels, and each rule's reasons, are found once.

    In a storm thousands are decided about while thousands stand.
    """

    def __init__(self, active: Sequence[Incident], racks: Mapping[str, str]) -> None:
        self._active = active
        self._racks = racks
        self._reasons: dict[InhibitSettings, _Reasons] = {}

    @cached_property
    def _labels(self) -> Mapping[str, Labels]:
        return {one.id: labels_of(one, self._racks) for one in self._active}

    def inhibitor(
        self, rules: Sequence[InhibitSettings], incident: Incident, labels: Labels
    ) -> Incident | None:
        """Return an active incident that explains this one by one of the rules; None if none does.

        Where incidents explain each other in a ring, the oldest of them is sent. The rest is as in
        Alertmanager: an incident on both sides of a rule does not explain another that is, too.
        """
        candidates = self._candidates(rules, incident, labels)
        if not candidates:
            return None
        known = {**self._labels, incident.id: labels}
        ring: set[str] | None = None
        for other in candidates:
            if not _explains(rules, other, incident, known):
                continue
            if _age(other) < _age(incident):
                return other
            if ring is None:
                others = [one for one in self._active if one.id != incident.id]
                ring = _explained_by(rules, incident, others, known)
            if other.id not in ring:
                return other
        return None

    def _candidates(
        self, rules: Iterable[InhibitSettings], incident: Incident, labels: Labels
    ) -> list[Incident]:
        """Return the only incidents that may explain this one, in the order they are known."""
        found: set[int] = set()
        for rule in rules:
            if not fit(rule.of, labels):
                continue
            reasons, is_one = self._reasons_of(rule), fit(rule.by, labels)
            for value in _common(rule, labels):
                found.update(reasons.get((value, False), ()))
                if not is_one:
                    found.update(reasons.get((value, True), ()))
        others = (self._active[number] for number in sorted(found))
        return [one for one in others if one.id != incident.id]

    def _reasons_of(self, rule: InhibitSettings) -> _Reasons:
        known = self._reasons.get(rule)
        if known is not None:
            return known
        found: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
        for number, one in enumerate(self._active):
            theirs = self._labels[one.id]
            if fit(rule.by, theirs):
                is_explained = fit(rule.of, theirs)
                for value in _common(rule, theirs):
                    found[value, is_explained].append(number)
        self._reasons[rule] = found
        return found


def _common(rule: InhibitSettings, labels: Labels) -> Sequence[str]:
    """Return the values of which both must have one; a common one where the rule asks for none."""
    return labels[rule.same[0]] if rule.same else ("",)


def _explains(
    rules: Iterable[InhibitSettings],
    other: Incident,
    incident: Incident,
    known: Mapping[str, Labels],
) -> bool:
    """Return whether `other` alone explains `incident` by one of the rules."""
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
    """Return the ids of all that the incident explains, directly or through what it explains."""
    found: set[str] = set()
    left, ahead = list(others), [incident]
    while ahead:
        source = ahead.pop()
        if not any(fit(rule.by, known[source.id]) for rule in rules):
            continue  # it explains nothing
        reached = [one for one in left if _explains(rules, source, one, known)]
        found |= {one.id for one in reached}
        left = [one for one in left if one.id not in found]
        ahead += reached
    return found


def _age(incident: Incident) -> tuple[datetime, str]:
    return incident.since, incident.id
