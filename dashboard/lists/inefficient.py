"""`gpuvigil inefficient`: holders that are busy but get little out of their GPUs, with advice."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from accounting.cost.money import Prices, models_of
from accounting.efficiency.efficiency import COVERAGE, EfficiencyAdvice, Work, judge, scattered
from accounting.efficiency.efficiency_query import ASKED, worked
from accounting.efficiency.on_call import is_on_call
from gpuvigil.clock import duration
from gpuvigil.hub_client import Hub
from gpuvigil.model import Allocation, Subject
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN, counted
from gpuvigil.store.external import store_of

from ..data.job_queue import rooms
from .fleet_now import FleetNow
from .idle_reasons import excused
from .table import Column, Grid, Value, percents, tenths, whole

COLUMNS = (
    Column(key="wasted_gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    Column(key="wasted_cost", title="COST", show=whole, right=True),
    Column(key="gpus", title="GPUS", show=whole, right=True),
    Column(key="user", title="USER", flexible=True),
    Column(key="holder", title="HOLDER", flexible=True),
    Column(key="advice", title="ADVICE", flexible=True),
    Column(key="said", title="BECAUSE IT", flexible=True),
    Column(key="sm_activity_percent", title="SM", show=percents, right=True),
    Column(key="tensor_activity_percent", title="TENSOR", show=percents, right=True),
    Column(key="dram_activity_percent", title="DRAM", show=percents, right=True),
    Column(key="partition", title="PARTITION", flexible=True),
    Column(key="account", title="ACCOUNT", flexible=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 7
_Row = Mapping[str, Any]
_Holder = tuple[str, str, str | None]  # cluster, holder, user


def fetch(
    hub: Hub,
    moment: FleetNow,
    span: tuple[datetime, datetime],
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
) -> Grid:
    """Ask for the span and return the table; HubUnavailable, HubRefused or StoreError without an answer."""
    found = store_of(hub).window("gpu", ASKED, *span)
    rows = {
        Subject(cluster=row["cluster"], node=row["node"], gpu=row["uuid"]).key: row
        for row in found.to_pylist()
    }
    return grid(moment, rows, span, prices)


def grid(
    moment: FleetNow,
    rows: Mapping[str, _Row],
    span: tuple[datetime, datetime],
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
) -> Grid:
    """Return a row per inefficient holder of unshared GPUs over the whole span, largest waste first."""
    works = _works(moment, rows, span)
    bill = _Bill(prices=prices, models=models_of(moment.inventories), span=span)
    alone, excuses = _alone(moment), excused(moment)
    left = {
        holder: held
        for holder, held in alone.items()
        if not excuses.hold_up([one.subject for one in held])
    }
    known = sum(_is_known(held, works, span[0]) for held in left.values())
    found = [
        _row(holder, held, [works[one.subject.key] for one in held], judged, bill)
        for holder, held in left.items()
        if (judged := _judged(held, works, span[0])) is not None
    ]
    found.sort(key=lambda row: (-_number(row[0]), str(row[4])))
    columns = list(COLUMNS)
    if prices:
        columns[1] = replace(columns[1], title=f"COST {prices.currency}")
    else:
        del columns[1]
        found = [(row[0], *row[2:]) for row in found]
    return Grid(
        columns=columns,
        rows=found,
        for_people=_FOR_PEOPLE - (not prices),
        head=_scattered(moment),
        notes=[
            f"The last {duration(span[1] - span[0])}, for holders that had their GPUs throughout and to"
            " themselves, none of them broken or barely measured. GPU-HOURS: unused, by SM activity;"
            f" known of {known} of {counted(len(alone), 'holder')}."
        ],
        empty=HOLDERS_UNKNOWN
        if not alone and any(one.strip.unattributed for one in moment.clusters)
        else "No inefficient jobs."
        if known or not alone
        else f"Not known yet: nobody's GPUs were measured for all of {duration(span[1] - span[0])}.",
    )


def _alone(moment: FleetNow) -> Mapping[_Holder, Sequence[Allocation]]:
    """Return the GPUs of each holder that shares none, since on shared ones it is not known who does what."""
    found: defaultdict[_Holder, list[Allocation]] = defaultdict(list)
    shared: set[_Holder] = set()
    for cluster in moment.clusters:
        for cell in cluster.cells:
            held = moment.of(cell.subject)
            keys = {(cluster.name, str(one.holder), one.user) for one in held}
            if len(keys) > 1 or any(one.part for one in held):
                shared |= keys
            for key in keys:
                found[key].append(held[0])
    return {key: held for key, held in found.items() if key not in shared}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bill:
    """Prices for the hours of the span."""

    prices: Prices
    models: Mapping[str, str]  # by GPU key
    span: tuple[datetime, datetime]

    @property
    def hours(self) -> float:
        return (self.span[1] - self.span[0]) / timedelta(hours=1)

    def cost(self, held: Sequence[Allocation], judged: EfficiencyAdvice) -> float | None:
        """Return the cost of the wasted share, at the mean price of the holder's GPUs; None without prices."""
        each = [
            self.prices.cost(one.subject.cluster, self.models.get(one.subject.key), *self.span)
            for one in held
        ]
        known = [one for one in each if one is not None]
        if not known or len(known) < len(each):
            return None
        return sum(known) / len(known) * judged.gpus * judged.wasted_share


def _is_known(held: Sequence[Allocation], of_gpus: Mapping[str, Work], start: datetime) -> bool:
    """Return whether enough was measured on all of a holder's GPUs over the whole span to judge it."""
    works = [of_gpus.get(one.subject.key) for one in held]
    whole = all(one is not None and one.coverage >= COVERAGE for one in works)
    active = any(one is not None and one.sm_percent is not None for one in works)
    return whole and active and all(one.started_at <= start for one in held)


def _judged(
    held: Sequence[Allocation], of_gpus: Mapping[str, Work], start: datetime
) -> EfficiencyAdvice | None:
    if any(one.started_at > start or one.subject.key not in of_gpus for one in held):
        return None
    works = [of_gpus[one.subject.key] for one in held]
    return judge(works, on_call=any(map(is_on_call, held)))


def _row(
    holder: _Holder,
    held: Sequence[Allocation],
    works: Sequence[Work],
    judged: EfficiencyAdvice,
    bill: _Bill,
) -> tuple[Value, ...]:
    return (
        judged.gpus * bill.hours * judged.wasted_share,
        bill.cost(held, judged),
        judged.gpus,
        holder[2],
        holder[1],
        judged.advice.value,
        judged.text,
        _mean([one.sm_percent for one in works]),
        _mean([one.tensor_percent for one in works]),
        _mean([one.dram_percent for one in works]),
        held[0].partition,
        held[0].account,
        holder[0],
    )


def _works(
    moment: FleetNow, rows: Mapping[str, _Row], span: tuple[datetime, datetime]
) -> Mapping[str, Work]:
    """Return by key what each GPU did, and how much of the span was measured."""
    found: dict[str, Work] = {}
    for one in moment.inventories:
        for gpu in one.gpus:
            key = replace(one.subject, gpu=gpu.uuid).key
            if key in rows:
                found[key] = worked(rows[key], span, one.tick_seconds)
    return found


def _scattered(moment: FleetNow) -> Sequence[str]:
    """Return a line for each cluster whose free GPUs are scattered over partly allocated nodes."""
    said = []
    for cluster in moment.clusters:
        found = scattered([(room.free, room.gpus) for room in rooms(cluster, ()).values()])
        if found is not None:
            said.append(
                f"{cluster.name}: {found.gpus:,} free GPUs lie on {found.nodes:,} nodes that are partly"
                f" allocated; together they would be {counted(found.whole, 'whole node')}."
            )
    return said


def _mean(values: Sequence[float | None]) -> float | None:
    seen = [value for value in values if value is not None]
    return sum(seen) / len(seen) if seen else None


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
