"""The inputs of a report, read once through the hub."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from accounting.cost.example import of_cluster
from accounting.cost.money import Prices
from accounting.efficiency.inefficient_hours import HOUR, WasteHour
from accounting.hardware.repeat_offenders import SPAN as OFFENDERS_SPAN
from accounting.jobs.losses import Loss, Restart
from accounting.usage import Usage, share_percent
from accounting.usage.columns import SHARES, together
from accounting.usage.ledger_query import Shape, ledgers
from accounting.usage.model import cluster_key
from accounting.usage.query import clusters, usage
from gpuvigil.clock import duration
from gpuvigil.config import Config
from gpuvigil.errors import ConfigError
from gpuvigil.faults.trial import STARTS_ON_TRIAL, Feedback, feedback, on_trial
from gpuvigil.hub_client import Hub
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import (
    SIMULATED_CLUSTER,
    Incident,
    Inventory,
    Job,
    Opinion,
    Record,
    RecordKind,
    Rma,
    readable,
)

from ..model.calendar import Calendar
from ..model.rounding import rounded
from .failed_jobs import failed, lost, ran_again

# Unconfirmed incidents do not count yet, and dismissed ones never did.
_CONFIRMED = frozenset({state.value for state in ACTIVE} | {State.RESOLVED.value})
_MOST_RECORDS = 100_000
# A quarter of 92 days may have an hour more.
_WAITS, _LONGEST_TREND = timedelta(days=14), timedelta(days=92, hours=1)
TREND = 8  # spans, including this one
_NAMES = "account", "user", "project", "partition"
_USED = pa.schema([SHARES.field(name) for name in (*_NAMES, "used", "measured")])
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanData:
    """What is known of one span of a cluster."""

    usage: Usage
    incidents: tuple[Incident, ...] = ()  # confirmed ones that overlap the span
    wastes: tuple[WasteHour, ...] = ()  # its hours that were judged
    jobs: tuple[Job, ...] = ()  # that a scheduler reported


# Used percent of an earlier span for each team, user, project or partition; "" is the name of nobody.
Week = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The hub's answers about one cluster and one span; an empty name means a hub without GPUs."""

    cluster: str
    now: SpanData
    earlier: SpanData  # the previous span: of the same kind, or of the same length
    calendar: Calendar = field(default_factory=Calendar)
    lately: tuple[Incident, ...] = ()  # confirmed ones of the 30 days before the end
    opinions: tuple[Opinion, ...] = ()  # given within the span
    on_trial: frozenset[str] = frozenset()  # faults that go to the digest at this site
    returns: tuple[Rma, ...] = ()
    inventories: tuple[Inventory, ...] = ()
    lost: tuple[Loss, ...] | None = ()  # jobs ended by a failure; None: no scheduler reported jobs
    ran_again: tuple[Restart, ...] = ()  # of the jobs that are known of the 30 days before the end
    history: tuple[Week, ...] = ()  # previous spans of the same length, the oldest first
    idle_after: timedelta
    idle_below_percent: float
    made_at: datetime
    prices: Prices = field(default_factory=Prices)
    notes: tuple[str, ...] = ()  # on how the numbers were obtained, beside the report's own
    team: str = ""  # the team of this edition: nobody else is in these facts

    @property
    def simulated(self) -> bool:
        return self.cluster == SIMULATED_CLUSTER

    @property
    def usage(self) -> Usage:
        return self.now.usage

    @property
    def before(self) -> Usage:
        return self.earlier.usage

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return self.now.incidents

    @property
    def priced(self) -> bool:
        """Whether any of its GPUs has a price."""
        return self.mean_rate is not None

    @property
    def mean_rate(self) -> float | None:
        """The mean price of a GPU-hour over the GPUs that have one; None when none has."""
        hours = cost = 0.0
        last = self.usage.buckets[-1:]
        models = (last[0].models if last else {}) or {"": 1}
        for model, number in models.items():
            found = self.prices.price(self.cluster, model, self.usage.end)
            if found is not None:
                hours, cost = hours + number, cost + number * found.per_gpu_hour
        return cost / hours if hours else None

    @property
    def currency(self) -> str:
        return self.prices.currency

    @property
    def span(self) -> tuple[datetime, datetime]:
        return self.usage.start, self.usage.end

    @property
    def before_word(self) -> str:
        """The previous span's name for a column head."""
        return self.calendar.short_before(self.span)

    @property
    def trend_word(self) -> str:
        """The spans that the trends cover, in words."""
        return self.calendar.spans(len(self.history) + 1, self.span)

    @property
    def longer(self) -> float:
        """The ratio of this span's length to the previous one's, by which the previous sums are scaled."""
        length = self.before.end - self.before.start
        return (self.usage.end - self.usage.start) / length if length else 1.0


def read(
    hub: Hub,
    chosen: str | None,
    span: tuple[datetime, datetime],
    now: datetime,
    config: Config,
    calendar: Calendar | None = None,
) -> tuple[Facts, ...]:
    """Read the facts of the chosen cluster, else of all real ones with GPUs, else of the simulated one.

    ConfigError when the chosen cluster is not known; HubError as the hub's client raises it.
    """
    inventories = tuple(_each(hub, RecordKind.INVENTORY, None, Inventory.from_record))
    names = _wanted(chosen, _known(hub, inventories))
    cut = calendar or Calendar()
    found = (_facts(hub, name, span, now, config, cut) for name in names)
    return tuple(
        replace(
            one,
            inventories=tuple(it for it in inventories if it.subject.cluster == one.cluster),
        )
        for one in found
    )


def _facts(
    hub: Hub,
    cluster: str,
    span: tuple[datetime, datetime],
    now: datetime,
    config: Config,
    calendar: Calendar,
) -> Facts:
    counted = _usage(hub, cluster, span, now)
    before = _usage(hub, cluster, calendar.before((counted.start, counted.end)), now)
    incidents = _confirmed(hub, cluster) if cluster else ()
    jobs = _jobs(hub, cluster, (before.start, counted.end)) if cluster else ()
    kept = timedelta(days=config.hub.records_days)
    history, fewer = _history(hub, counted, calendar, now, kept) if cluster else ((), "")
    month = replace(counted, start=min(counted.end - OFFENDERS_SPAN, counted.start), buckets=())
    gone = failed(hub, jobs, incidents, (month.start, month.end)) if cluster else ()
    return Facts(
        cluster=cluster,
        now=_past(hub, counted, incidents, jobs),
        earlier=_past(hub, before, incidents, jobs),
        calendar=calendar,
        lately=_overlapping(incidents, month),
        opinions=_given(hub, cluster, counted) if cluster else (),
        on_trial=_on_trial(hub, config.alerts.proven),
        returns=tuple(_each(hub, RecordKind.RMA, cluster, Rma.from_record)) if cluster else (),
        lost=None if gone is None else lost(hub, gone, incidents, (counted.start, counted.end)),
        ran_again=ran_again(gone or (), jobs),
        history=history,
        notes=(fewer,) if fewer else (),
        idle_after=timedelta(seconds=config.analyzer.idle_after_seconds),
        idle_below_percent=config.analyzer.idle_below_percent,
        made_at=now,
        prices=of_cluster(config.cost, cluster),
    )


def _past(
    hub: Hub, span: Usage, incidents: tuple[Incident, ...], jobs: tuple[Job, ...]
) -> SpanData:
    return SpanData(
        usage=span,
        incidents=_overlapping(incidents, span),
        wastes=_judged(hub, span.cluster, span) if span.cluster else (),
        jobs=tuple(
            one
            for one in jobs
            if one.submitted_at < span.end and (one.ended_at is None or one.ended_at > span.start)
        ),
    )


def _jobs(hub: Hub, cluster: str, span: tuple[datetime, datetime]) -> tuple[Job, ...]:
    """Return jobs submitted in the span or up to a fortnight before; longer waits are not counted."""
    records = hub.records(
        RecordKind.JOB,
        subject=cluster_key(cluster),
        since=span[0] - _WAITS,
        until=span[1],
        limit=_MOST_RECORDS,
    )
    return tuple(readable(records, Job.from_record))


def _history(
    hub: Hub, counted: Usage, calendar: Calendar, now: datetime, kept: timedelta
) -> tuple[tuple[Week, ...], str]:
    """Return the used percents of the previous seven spans, as far as kept, and why there are no more."""
    span = counted.start, counted.end
    if not timedelta(hours=1) <= span[1] - span[0] <= _LONGEST_TREND:
        return (), ""
    starts = [span[0], *calendar.starts_before(span, TREND - 1)]
    whole = [at for at in starts if at >= now - kept]
    weeks: list[Week] = []
    for until, since in pairwise(whole):
        # Not added up by holder, as `answer` does: that is most of its work, and not needed here.
        found, _ = ledgers(hub, counted.cluster, (since, until), now, Shape(places=False))
        weeks.append(_week(together((one.holders for one in found), _USED)))
    while weeks and not weeks[-1]:
        weeks.pop()
    if len(whole) == len(starts) or len(weeks) + 1 < len(whole):
        return tuple(reversed(weeks)), ""  # spans that were never counted are not missed
    why = _why_no_more(calendar, span, len(weeks), kept, now - starts[-1])
    return tuple(reversed(weeks)), why


def _why_no_more(
    calendar: Calendar,
    span: tuple[datetime, datetime],
    found: int,
    kept: timedelta,
    needed: timedelta,
) -> str:
    """Say how far the trends go, and how long usage has to be kept for all of them."""
    over = f"Trends go over {calendar.spans(found + 1, span)}" if found else "There are no trends"
    days = math.ceil(needed / timedelta(days=1))
    return (
        f"{over}: usage is kept for {duration(kept)}. With hub.records_days = {days} from now on they will go"
        f" over {calendar.spans(TREND, span)}."
    )


def _week(holders: pa.Table) -> Week:
    """Return used percent by name; empty when nothing was counted."""
    if not holders.num_rows:
        return {}
    found: dict[str, Mapping[str, float | None]] = {}
    for name in _NAMES:
        grouped = holders.group_by(name, use_threads=False)
        sums = grouped.aggregate([("used", "sum"), ("measured", "sum")])
        columns = (sums[one].to_pylist() for one in (name, "used_sum", "measured_sum"))
        found[name] = {
            key or "": rounded(share_percent(used or 0.0, measured or 0.0))
            for key, used, measured in zip(*columns, strict=True)
        }
    used, measured = (pc.sum(holders[name]).as_py() or 0.0 for name in ("used", "measured"))
    return {**found, "": {"": rounded(share_percent(used, measured))}}


def _known(hub: Hub, inventories: tuple[Inventory, ...]) -> tuple[str, ...]:
    """Return the clusters that have GPUs now or have counted usage."""
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
    """Return the hours that lie entirely in the span, in order."""
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


def _on_trial(hub: Hub, proven: Collection[str]) -> frozenset[str]:
    """Return the faults on trial, judged by all feedback at this site, whatever the cluster and span."""
    said = feedback(_each(hub, RecordKind.OPINION, None, Opinion.from_record))
    return frozenset(
        key for key in STARTS_ON_TRIAL if on_trial(key, said.get(key, Feedback()), proven)
    )


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
