"""Everything that a report is made of, read once through the hub."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from accounting.cost.money import Prices
from accounting.efficiency.inefficient_hours import HOUR, WasteHour
from accounting.usage import Usage
from accounting.usage.model import cluster_key
from accounting.usage.query import clusters, usage
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import STANDING, State
from gpuvigil.model import (
    SIMULATED_CLUSTER,
    Incident,
    Inventory,
    Opinion,
    Record,
    RecordKind,
    readable,
)

# What was never confirmed is no incident yet, and what was dismissed never was one.
_CONFIRMED = frozenset({state.value for state in STANDING} | {State.RESOLVED.value})
_MOST_RECORDS = 100_000
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the hub said about one cluster and one span; an empty name is a hub without GPUs."""

    cluster: str
    usage: Usage
    before: Usage  # the span of the same length before it
    incidents: tuple[Incident, ...] = ()  # confirmed ones that overlap the span
    incidents_before: tuple[Incident, ...] = ()  # and those that overlap the span before
    opinions: tuple[Opinion, ...] = ()  # that people gave within the span
    inventories: tuple[Inventory, ...] = ()
    idle_after: timedelta
    idle_below_percent: float
    made_at: datetime
    prices: Prices = field(default_factory=Prices)
    wastes: tuple[WasteHour, ...] = ()  # hours of the span that were judged
    notes: tuple[str, ...] = ()  # on how the numbers came about, beside the report's own

    @property
    def simulated(self) -> bool:
        return self.cluster == SIMULATED_CLUSTER


def read(
    hub: Hub,
    chosen: str | None,
    span: tuple[datetime, datetime],
    now: datetime,
    config: Config,
) -> tuple[Facts, ...]:
    """Facts of the chosen cluster, else of every real one with GPUs, else of the simulated one.

    ConfigError when the chosen cluster is not known; HubError as the hub's client raises it.
    """
    inventories = tuple(_each(hub, RecordKind.INVENTORY, None, Inventory.from_record))
    names = _wanted(chosen, _known(hub, inventories))
    prices = Prices(settings=config.cost)
    found = (_facts(hub, name, span, now, config.analyzer) for name in names)
    return tuple(
        replace(
            one,
            inventories=tuple(it for it in inventories if it.subject.cluster == one.cluster),
            prices=prices,
        )
        for one in found
    )


def _facts(
    hub: Hub,
    cluster: str,
    span: tuple[datetime, datetime],
    now: datetime,
    settings: AnalyzerSettings,
) -> Facts:
    counted = _usage(hub, cluster, span, now)
    length = counted.end - counted.start
    before = _usage(hub, cluster, (counted.start - length, counted.start), now)
    incidents = _confirmed(hub, cluster) if cluster else ()
    return Facts(
        cluster=cluster,
        usage=counted,
        before=before,
        incidents=_overlapping(incidents, counted),
        incidents_before=_overlapping(incidents, before),
        wastes=_judged(hub, cluster, counted) if cluster else (),
        opinions=_given(hub, cluster, counted) if cluster else (),
        idle_after=timedelta(seconds=settings.idle_after_seconds),
        idle_below_percent=settings.idle_below_percent,
        made_at=now,
    )


def _known(hub: Hub, inventories: tuple[Inventory, ...]) -> tuple[str, ...]:
    """Clusters that have GPUs now or had usage counted."""
    with_gpus = {one.subject.cluster for one in inventories if one.gpus and not one.subject.marked}
    return tuple(sorted(with_gpus | set(clusters(hub))))


def _wanted(chosen: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if chosen is not None and chosen not in known:
        there = f"there is {', '.join(known)}" if known else "no cluster has a GPU yet"
        raise ConfigError(f"--cluster {chosen!r} is not known to the hub: {there}")
    real = tuple(name for name in known if name != SIMULATED_CLUSTER)
    return (chosen,) if chosen is not None else real or known or ("",)


def _usage(hub: Hub, cluster: str, span: tuple[datetime, datetime], now: datetime) -> Usage:
    if not cluster:
        return Usage(cluster="", start=span[0], end=span[1], buckets=())
    return usage(hub, cluster, *span, now)


def _confirmed(hub: Hub, cluster: str) -> tuple[Incident, ...]:
    found = _each(hub, RecordKind.INCIDENT, cluster, Incident.from_record)
    return tuple(one for one in found if one.state in _CONFIRMED)


def _judged(hub: Hub, cluster: str, span: Usage) -> tuple[WasteHour, ...]:
    """Hours that lie in the span as a whole, in their order."""
    records = hub.records(
        RecordKind.WASTE,
        subject=cluster_key(cluster),
        since=span.start,
        until=span.end,
        limit=_MOST_RECORDS,
    )
    found = readable(records, WasteHour.from_record)
    whole = (one for one in found if span.start <= one.start and one.start + HOUR <= span.end)
    return tuple(sorted(whole, key=lambda one: one.start))


def _given(hub: Hub, cluster: str, span: Usage) -> tuple[Opinion, ...]:
    found = _each(hub, RecordKind.OPINION, cluster, Opinion.from_record)
    return tuple(one for one in found if span.start <= one.at < span.end)


def _overlapping(incidents: Iterable[Incident], span: Usage) -> tuple[Incident, ...]:
    return tuple(
        one
        for one in incidents
        if one.since < span.end and (one.resolved_at is None or one.resolved_at > span.start)
    )


def _each(
    hub: Hub, kind: RecordKind, cluster: str | None, read_one: Callable[[Record], _Read]
) -> Iterator[_Read]:
    below: dict[str, Any] = {} if cluster is None else {"subject": cluster_key(cluster)}
    return readable(hub.records(kind, limit=_MOST_RECORDS, **below), read_one)
