"""What a fleet's inference servers did over a span, by model, with a verdict on each."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import isnan
from typing import Any

import numpy as np

from accounting.cost.money import Prices, models_of
from accounting.inference_capacity import CapacityVerdict, Numbers, Replica, Steps, judge, numbers
from gpuvigil.config import IdleSettings
from gpuvigil.config.routing import is_standby
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, Subject
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.external import store_of

from ..data.activity import ACTIVITY, activity, pieces
from ..data.series import Ints, Key, TimeSeries, time_series
from .fleet_now import FleetNow
from .idle_reasons import labels_of

GAUGES = ("requests_running", "requests_waiting", "kv_cache_percent")
_COUNTED = tuple(
    Aggregate(function=Function.INCREASE, field=name)
    for name in ("requests", "preemptions", "queue_seconds")
)
FIELDS = (*GAUGES, *(one.field for one in _COUNTED))
_MOST_STEPS = 360
_LEAST_STEP = timedelta(minutes=1)
_MOST_ROWS = 1_000_000  # of server series in one answer
_Row = Mapping[str, Any]
PLACE = ("cluster", "server", "model", "node", "endpoint", "engine")
_NO_STEPS: Mapping[str, Any] = dict.fromkeys(
    ("running", "waiting", "cache_percent", "activity_percent"), ()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceTelemetry:
    """The store's answers about a span."""

    span: tuple[datetime, datetime]
    step: timedelta
    series: Mapping[Key, TimeSeries]  # `GAUGES` of each inference server, by its `PLACE` tags
    counted: Sequence[_Row]  # counts of the same servers over the span
    gpus: Mapping[str, TimeSeries]  # activity of the servers' GPUs, by key

    @property
    def serving_gpus(self) -> set[str]:
        """The keys of GPUs that a server reports to serve from."""
        return {_gpu(row) for row in self.counted if row["uuid"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What all services are made from."""

    moment: FleetNow
    telemetry: InferenceTelemetry
    prices: Prices
    holders: Mapping[str, Sequence[Allocation]]  # by GPU key


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """All replicas of one model in a cluster."""

    cluster: str
    server: str
    model: str
    replicas: tuple[Replica, ...]
    numbers: Numbers
    judged: CapacityVerdict | None
    queue_seconds: float | None  # the mean wait of a request
    holders: tuple[str, ...]
    users: tuple[str, ...]
    gpus: int
    spare_gpu_hours: float
    spare_cost: float | None = None  # None without a price

    @property
    def standby(self) -> bool:
        return all(one.standby for one in self.replicas)


def query_telemetry(
    hub: Hub, clusters: Iterable[str], span: tuple[datetime, datetime]
) -> InferenceTelemetry:
    """Ask for the servers' span; HubUnavailable, HubRefused or StoreError without an answer."""
    store = store_of(hub)
    step = max((span[1] - span[0]) / _MOST_STEPS, _LEAST_STEP)
    wanted = set(clusters)
    counted = store.window("inference", _COUNTED, *span).to_pylist()
    counted = [row for row in counted if row["cluster"] in wanted]
    found = (
        store.series("inference", GAUGES, {"cluster": cluster}, piece, step)
        for cluster, rows in sorted(Counter(row["cluster"] for row in counted).items())
        for piece in pieces(span, step, max(_MOST_ROWS // rows, 1))
    )
    nodes = {(row["cluster"], row["node"]) for row in counted if row["uuid"]}
    of = {_gpu(row) for row in counted if row["uuid"]}
    return InferenceTelemetry(
        span=span,
        step=step,
        series=time_series(found, PLACE, GAUGES),
        counted=counted,
        gpus=activity(store, nodes, of, span, step),
    )


def services(
    moment: FleetNow,
    telemetry: InferenceTelemetry,
    declared: Sequence[IdleSettings] = (),
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
) -> list[Service]:
    """Return the services: first those that harm their users, then those with most spare GPU-hours."""
    counted: defaultdict[Key, list[_Row]] = defaultdict(list)
    for row in telemetry.counted:
        counted[_place(row)].append(row)
    known = _Known(moment=moment, telemetry=telemetry, prices=prices, holders=_holders(moment))
    models: defaultdict[Key, list[Key]] = defaultdict(list)
    for place in counted:
        models[place[:3]].append(place)
    found = []
    steps = _scraped(telemetry.series.values())
    for key, places in models.items():
        them = []
        for place in sorted(places):
            gpus = tuple(sorted({_gpu(row) for row in counted[place] if row["uuid"]}))
            standby = bool(gpus) and all(_is_standby(known.holders, gpu, declared) for gpu in gpus)
            course = telemetry.series.get(place)
            them.append(_replica(place, (steps, course), counted[place], gpus, telemetry, standby))
        rows = [row for place in places for row in counted[place][:1]]
        heard = len(
            _scraped(telemetry.series[place] for place in places if place in telemetry.series)
        )
        found.append(_service(key, them, rows, heard * telemetry.step, known))
    return sorted(found, key=_rank)


_ORDER = ("saturated", "unbalanced", "over-provisioned", "no requests", "")


def _rank(one: Service) -> tuple[int, float, str, str]:
    verdict = one.judged.verdict.value if one.judged else ""
    return _ORDER.index(verdict), -one.spare_gpu_hours, one.cluster, one.model


def _service(
    key: Key,
    replicas: Sequence[Replica],
    counted: Sequence[_Row],
    scraped: timedelta,
    known: _Known,
) -> Service:
    """Return one service; `scraped` is for how long its servers answered, as only that time can be spare."""
    judged = judge(replicas)
    gpus = sorted({gpu for one in replicas for gpu in one.gpus})
    mine = [held for gpu in gpus for held in known.holders.get(gpu, ())]
    spare = judged.spare_gpus if judged else 0
    waited = [row["queue_seconds_increase"] for row in counted]
    answered = sum(row["requests_increase"] or 0.0 for row in counted)
    queued = [one for one in waited if one is not None]
    return Service(
        cluster=key[0],
        server=key[1],
        model=key[2],
        replicas=tuple(replace(one, **_NO_STEPS) for one in replicas),
        numbers=numbers(replicas),
        judged=judged,
        queue_seconds=sum(queued) / answered if queued and answered else None,
        holders=tuple(dict.fromkeys(str(held.holder) for held in mine)),
        users=tuple(dict.fromkeys(held.user for held in mine if held.user)),
        gpus=len(gpus),
        spare_gpu_hours=spare * (scraped / timedelta(hours=1)),
        spare_cost=_cost(known, gpus, spare, scraped) if spare else None,
    )


def _cost(known: _Known, gpus: Sequence[str], spare: int, scraped: timedelta) -> float | None:
    """Return what the spare GPUs cost while the servers answered, at the mean price; None without prices."""
    if not known.prices:
        return None
    models, (start, end) = models_of(known.moment.inventories), known.telemetry.span
    part = scraped / (end - start)
    each = [
        known.prices.cost(Subject.parse(gpu).cluster, models.get(gpu), start, end) for gpu in gpus
    ]
    priced = [one for one in each if one is not None]
    if not priced or len(priced) < len(each):
        return None
    return part * spare * sum(priced) / len(priced)


def _replica(
    place: Key,
    said: tuple[Ints, TimeSeries | None],
    counted: Sequence[_Row],
    gpus: tuple[str, ...],
    telemetry: InferenceTelemetry,
    standby: bool,
) -> Replica:
    _, server, _, node, endpoint, engine = place
    alone = engine in {"", "1" if server == "triton" else "0"}
    steps, course = said  # a server's series is the same for each of its GPUs
    running, waiting, cache = (_in(steps, course, name) for name in GAUGES)
    of_gpus = [_in(steps, telemetry.gpus.get(gpu), ACTIVITY) for gpu in gpus]
    numbers_of = {one.field: _most(row[one.column] for row in counted) for one in _COUNTED}
    return Replica(
        name=f"{node} {endpoint}" + ("" if alone else f" #{engine}"),
        gpus=gpus,
        running=running,
        waiting=waiting,
        cache_percent=cache,
        activity_percent=_together(of_gpus),
        answered=numbers_of["requests"],
        preempted=numbers_of["preemptions"],
        standby=standby,
    )


def _scraped(of: Iterable[TimeSeries]) -> Ints:
    """Return the steps in which any of the servers was scraped."""
    found = [course.at for course in of]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _in(steps: Ints, course: TimeSeries | None, field: str) -> Steps:
    """Return a field at each step, None where missing; empty if it was never measured."""
    if course is None or not course.measured(field):
        return ()
    return [None if isnan(value) else value for value in course.on(steps, field).tolist()]


def _together(of_gpus: Sequence[Steps]) -> Steps:
    """Return the mean of all GPUs per step, None if one was not measured; empty if no step has all."""
    if not of_gpus or not all(of_gpus):
        return ()
    found = [
        None if None in values else sum(filter(None, values)) / len(values)
        for values in zip(*of_gpus, strict=True)
    ]
    return found if any(one is not None for one in found) else ()


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _holders(moment: FleetNow) -> Mapping[str, Sequence[Allocation]]:
    held = [one for them in moment.allocations.values() for one in them]
    found: defaultdict[str, list[Allocation]] = defaultdict(list)
    for one in held:
        found[one.subject.key].append(one)
    return found


def _is_standby(
    holders: Mapping[str, Sequence[Allocation]], gpu: str, declared: Sequence[IdleSettings]
) -> bool:
    return any(is_standby(declared, labels_of([held])) for held in holders.get(gpu, ()))


def _gpu(row: _Row) -> str:
    return Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]).key


def _place(row: _Row) -> Key:
    return tuple(row[name] or "" for name in PLACE)
