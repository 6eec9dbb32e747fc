"""The whole overview as one immutable value, made from facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuvigil.clock import duration, moment
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Record, with_kind
from gpuvigil.model.reporting import late_by_one_cause
from gpuvigil.numbers_in_words import capitalized, counted

from ..fleet import Fleet, IdentityCache
from ..model.cluster import ClusterView, NodeView
from ..model.delivery_status import failing_channels, is_failing
from ..model.facts import Facts
from ..model.service_start import hub_age, still_starting
from .attention import Attention, attention
from .flapping import comes_and_goes, flapping
from .fleet_map import encoded

PASSES_BEFORE_STALE = 3
NAMED_NODES = 8
# How far back an opened page looks; less if the installation is younger than half of it.
BACK, YOUNG_BACK = timedelta(hours=1), timedelta(minutes=15)
# Three pulses of the alerts service, which sends one every 10 s.
ALERTS_PATIENCE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """What every open overview shows."""

    now: datetime
    clusters: tuple[ClusterView, ...]
    attention: tuple[Attention, ...]
    failing_channels: tuple[str, ...]
    rows_at: datetime | None  # time of the newest row
    warnings: tuple[str, ...]  # why the view may be wrong
    maps: Mapping[str, bytes]  # per cluster, in the map component's format
    oldest_at: datetime | None = None  # time of the oldest row in the store
    clocks: Mapping[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    as_of: datetime | None = None  # the view's time while the hub or the store is away

    @property
    def back(self) -> timedelta:
        """How far back a page without a window looks: an hour, or less on a young installation."""
        age = None if self.oldest_at is None else self.now - self.oldest_at
        return BACK if age is None or age >= BACK / 2 else YOUNG_BACK

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The window of a page opened from this view; being absolute, it shows the same tomorrow."""
        return self.now - self.back, self.now

    def cluster(self, name: str | None) -> ClusterView | None:
        """Return the cluster of that name, else the first with GPUs, else the first; None without clusters."""
        named = [view for view in self.clusters if view.name == name]
        with_gpus = [view for view in self.clusters if view.strip.gpus]
        found = named or with_gpus or list(self.clusters)
        return found[0] if found else None


def fleet_view(
    facts: Facts, settings: AnalyzerSettings, now: datetime, fleet: Fleet | None = None
) -> FleetView:
    """Return the view of `facts` at `now`; while the hub is away the facts are older.

    A caller that draws repeatedly passes the same `fleet`, which caches what does not change.
    """
    fleet = fleet or Fleet()
    views, kept = fleet.clusters(facts), fleet.cache
    return FleetView(
        now=now,
        clusters=views,
        attention=attention(
            facts.incidents, facts.notices, now, _states(facts, views, settings, now), kept
        ),
        failing_channels=failing_channels(_failing(facts.notices, kept), now),
        rows_at=max((view.rows_at for view in views if view.rows_at), default=None),
        warnings=tuple(_warnings(facts, views, settings, now)),
        maps=kept.get("maps", (views,), lambda: {view.name: encoded(view) for view in views}),
        oldest_at=facts.oldest_at,
        clocks=facts.clocks,
    )


def _failing(notices: Sequence[Record], kept: IdentityCache) -> Sequence[Record]:
    """Return the notices that wait because their receiver failed, cached as there are thousands."""
    return kept.get("failing", (notices,), lambda: [*filter(is_failing, notices)])


def _states(
    facts: Facts, views: tuple[ClusterView, ...], settings: AnalyzerSettings, now: datetime
) -> dict[str, str]:
    ports = {view.name: view.ports for view in views}
    said = {}
    for one in filter(comes_and_goes, facts.incidents):
        is_port = one.subject.kind == "port"
        listed = ports.get(one.subject.cluster) if is_port else None
        port = listed.of(one.subject) if listed is not None else None
        last = facts.port_events.get(one.subject.key) if is_port else None
        said[one.id] = flapping(one, port.word if port else None, last, settings, now)
    return said


def _warnings(
    facts: Facts, views: tuple[ClusterView, ...], settings: AnalyzerSettings, now: datetime
) -> list[str]:
    if facts.not_back:
        return [
            f"The hub is back after an outage, and data is catching up:"
            f" {counted(facts.not_back, 'node')} not heard yet."
            f" The numbers below are of {moment(facts.now)}."
        ]
    racks = [(one.subject, one.rack) for one in facts.inventories if one.rack]
    said = [
        line
        for view in views
        if view.silent_nodes
        for line in _silences(
            view,
            {at.node: rack for at, rack in racks if at.cluster == view.name},
            facts.listening_since,
            now,
        )
    ]
    if facts.past:
        return said  # it is not recorded which services ran then
    passes = timedelta(seconds=max(PASSES_BEFORE_STALE * settings.tick_seconds, 15.0))
    said += _pulse(facts, "analyzer", "faults go undetected", passes, now)
    return said + _pulse(facts, "alerts", "nobody is notified of incidents", ALERTS_PATIENCE, now)


def _silences(
    view: ClusterView, racks: Mapping[str, str], hub_since: datetime | None, now: datetime
) -> list[str]:
    """Return a line about nodes that have not sent to a hub that just started, and lines about the others."""
    ages = {node.name: hub_age(hub_since, node.heard_at, now) for node in view.silent_nodes}
    early = [node for node in view.silent_nodes if ages[node.name] is not None]
    others = {node.name: node for node in view.silent_nodes if ages[node.name] is None}
    age = next((ages[node.name] for node in early), None)
    said = [] if age is None else [_not_yet(view, early, age)]
    return [*said, *(_silent(view, others, racks, now) if others else [])]


def _silent(
    view: ClusterView, silent: Mapping[str, NodeView], racks: Mapping[str, str], now: datetime
) -> list[str]:
    """Return a line about nodes that are silent by a common cause, such as the network, and one on the others."""
    late = {name: node.heard_at for name, node in silent.items() if node.heard_at}
    together = late_by_one_cause(late, view.layout.numbers.keys() - silent.keys(), racks)
    others = [node for name, node in silent.items() if name not in together]
    said = []
    if together:
        gpus = sum(silent[name].gpu_count for name in together)
        since = duration(now - max(late[name] for name in together))
        said.append(
            f"gpuvigil receives no data from {len(together)} of {len(view.layout.nodes)} nodes of"
            f" {with_kind('cluster', view.name)} for {since}: check the hub and the network to it first."
            f" {_unknown(gpus)}"
        )
    return [*said, *([_stopped(view, others, now)] if others else [])]


def _not_yet(view: ClusterView, early: Sequence[NodeView], age: timedelta) -> str:
    return (
        f"The hub started {duration(age)} ago: {len(early)} of"
        f" {counted(len(view.layout.nodes), 'node')} of {with_kind('cluster', view.name)} have yet to send data."
        f" {_unknown(sum(node.gpu_count for node in early))}"
    )


def _stopped(view: ClusterView, silent: Sequence[NodeView], now: datetime) -> str:
    named = ", ".join(
        node.name
        + (f" ({duration(now - node.heard_at)} ago)" if node.heard_at else " (no live data)")
        for node in silent[:NAMED_NODES]
    )
    rest = f" and {len(silent) - NAMED_NODES} more" if silent[NAMED_NODES:] else ""
    one = len(silent) == 1
    return (
        f"{len(silent)} node{' is' if one else 's are'} not reporting in {with_kind('cluster', view.name)}:"
        f" {named}{rest}. {_unknown(sum(node.gpu_count for node in silent))}"
    )


def _unknown(gpus: int) -> str:
    return f"The state of {counted(gpus, 'GPU')} is unknown."


def _pulse(facts: Facts, service: str, lost: str, patience: timedelta, now: datetime) -> list[str]:
    """Return a warning if a service is silent, since an empty incident list then means nothing."""
    pulses = [pulse.at for pulse in facts.pulses if pulse.id.partition(":")[0] == service]
    if not pulses:
        early = still_starting(facts.listening_since, service, now)
        return [
            f"{capitalized(early)}: {lost} until then."
            if early
            else f"No {service} service has reported: {lost}."
        ]
    silent = now - max(pulses)
    if silent <= patience:
        return []
    if early := still_starting(facts.listening_since, service, now, max(pulses)):
        return [f"{capitalized(early)}: {lost} until then."]
    since = moment(max(pulses))
    return [f"The {service} service has been silent for {duration(silent)}, since {since}: {lost}."]
