"""What a decision needs besides its incident: silences, racks, other open incidents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from gpuvigil.config import AlertsSettings, InhibitSettings
from gpuvigil.faults.trial import Feedback, feedback
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.matching.matchers import Labels, covered
from gpuvigil.model import Incident, Inventory, Opinion, RecordKind, Silence, readable

from .inhibition import Inhibition

# Read again this often; a new silence counts from then on.
REFRESH_SECONDS = 2.0
RACK_SECONDS = VOTES_SECONDS = 60.0
_MOST_NODES = _MOST_ACTIVE = _MOST_VOTES = 100_000


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The situation at one moment; what follows from it is worked out once."""

    silences: tuple[Silence, ...] = ()
    racks: Mapping[str, str] = field(default_factory=dict)  # by the node's key
    active: tuple[Incident, ...] = ()  # only where something is inhibited by something
    feedback: Mapping[str, Feedback] = field(default_factory=dict)  # by fault

    def silence(self, labels: Labels, now: datetime) -> Silence | None:
        """Return the silence that holds for these labels for longest; None when there is none."""
        found = [one for one in self.silences if one.holds(now) and _silences(one, labels)]
        return max(found, key=lambda one: one.ends_at, default=None)

    def inhibitor(
        self, rules: Sequence[InhibitSettings], incident: Incident, labels: Labels
    ) -> Incident | None:
        """Return an active incident that explains this one by one of the rules, or None."""
        return self._inhibition.inhibitor(rules, incident, labels)

    @cached_property
    def _inhibition(self) -> Inhibition:
        return Inhibition(self.active, self.racks)


NO_SITUATION = Situation()


class SituationReader:
    """Reads the situation from the hub, each part only as often as needed; for one thread."""

    def __init__(self, hub: Hub, settings: AlertsSettings) -> None:
        self._hub = hub
        self._inhibits = bool(settings.inhibit)
        texts = [text for one in settings.routes for text in one.match]
        texts += [text for one in settings.inhibit for text in (*one.by, *one.of, *one.same)]
        self._racked = any("rack" in text for text in texts)
        self._situation = NO_SITUATION
        self._read_at = self._nodes_read_at = self._votes_read_at = float("-inf")

    def read(self, now: float) -> Situation:
        """Return the situation at monotonic `now`, at most a little old."""
        if now - self._read_at >= REFRESH_SECONDS:
            found = self._hub.records(RecordKind.SILENCE)
            silences = tuple(readable(found, Silence.from_record))
            active = self._active_incidents() if self._inhibits else ()
            self._situation = replace(self._situation, silences=silences, active=active)
            self._read_at = now
        silences = self._situation.silences
        by_rack = self._racked or any("rack" in text for s in silences for text in s.matchers)
        if by_rack and now - self._nodes_read_at >= RACK_SECONDS:
            found = self._hub.records(RecordKind.INVENTORY, limit=_MOST_NODES)
            nodes = readable(found, Inventory.from_record)
            racks = {node.subject.key: node.rack for node in nodes if node.rack}
            self._situation = replace(self._situation, racks=racks)
            self._nodes_read_at = now
        if now - self._votes_read_at >= VOTES_SECONDS:
            votes = self._hub.records(RecordKind.OPINION, limit=_MOST_VOTES)
            said = feedback(readable(votes, Opinion.from_record))
            self._situation = replace(self._situation, feedback=said)
            self._votes_read_at = now
        return self._situation

    def _active_incidents(self) -> tuple[Incident, ...]:
        states = tuple(state.value for state in ACTIVE)
        records = self._hub.records(RecordKind.INCIDENT, states=states, limit=_MOST_ACTIVE)
        return tuple(readable(records, Incident.from_record))


def _silences(silence: Silence, labels: Labels) -> bool:
    """Return whether a silence covers all labels; one from another version covers nothing."""
    try:
        return covered(silence.matchers, labels)
    except ValueError:
        return False
