"""When nodes that nobody held were away and came back: some are switched off every night."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuvigil.model import Incident
from gpuvigil.silence_conditions import NodeSilence

from .fault_kinds import SILENCES

# Ours: long enough for every absence that counts (`evidence/usual_absence.py`) until the one that it
# is compared with is over.
_REMEMBERED = timedelta(days=14)
# What a silence was after which the machine had booted.
_BOOTED = frozenset({NodeSilence.WAS_DOWN, NodeSilence.WAS_REBOOTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A silence of a node that took nobody's work along, after which the machine had booted."""

    begin: datetime  # when the node was last heard
    end: datetime


class Absences:
    """The absences of each node in the last days, from its incidents. One thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, Incident] = {}

    def add(self, incidents: Iterable[Incident]) -> None:
        """Remember those of the incidents that are such an absence; one that stands again is none."""
        for one in incidents:
            if _is_absence(one):
                self._known[one.id] = one
            else:
                self._known.pop(one.id, None)

    def by_node(self, now: datetime) -> Mapping[str, tuple[Absence, ...]]:
        """Return each node's absences, by key."""
        found: dict[str, list[Absence]] = defaultdict(list)
        for identifier, one in list(self._known.items()):
            if one.resolved_at is None or now - one.resolved_at > _REMEMBERED:
                del self._known[identifier]
            else:
                found[one.subject.key].append(Absence(begin=one.since, end=one.resolved_at))
        return {key: tuple(them) for key, them in found.items()}


def _is_absence(incident: Incident) -> bool:
    """Tell whether an incident was a silence without a fault: of one node, unheld, and over by a boot."""
    return (
        incident.fault in SILENCES
        and incident.condition in _BOOTED
        and incident.resolved_at is not None
        and not incident.covered_by
        and not incident.covers
        and not incident.impact.holders
    )
