"""`gpuvigil usage`: where the GPU-hours of a span went."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from accounting.cost.money import Prices, listed
from accounting.usage import Seconds, share_percent
from accounting.usage.ledger import Ledger
from accounting.usage.ledger_query import Answer, Shape
from dashboard.lists.table import Column, Grid, Value, percents, tenths, whole
from gpuvigil.model import SIMULATED_CLUSTER, GpuState
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN
from gpuvigil.schedulers.out_of_service import LostTo
from report.model.rounding import near, shared

_HOUR = 3600.0
_MONEY = ("cost", "idle_cost")
_KILOWATT_HOUR = 3.6e6

_HELD = (
    Column(key="gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    Column(key="share_percent", title="OF ALL HELD", show=percents, right=True),
    Column(key="used_percent", title="USED", show=percents, right=True),
    Column(key="idle_gpu_hours", title="IDLE HOURS", show=tenths, right=True),
    Column(key="cost", title="COST", show=whole, right=True),
    Column(key="idle_cost", title="IDLE", show=whole, right=True),
    Column(key="most_gpus", title="MOST GPUS", show=whole, right=True),
    Column(key="energy_kilowatt_hours", title="KWH", show=tenths, right=True),
    Column(key="shared_gpu_hours", title="SHARED HOURS", show=tenths, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_HELD_FOR_PEOPLE = 8
_INSTALLED = (
    Column(key="gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    *(
        Column(key=f"{state.value}_gpu_hours", title=title, show=tenths, right=True)
        for state, title in (
            (GpuState.ACTIVE, "ACTIVE"),
            (GpuState.IDLE, "IDLE"),
            (GpuState.FREE, "FREE"),
            (GpuState.UNAVAILABLE, "UNAVAIL."),
            (GpuState.UNKNOWN, "UNKNOWN"),
        )
    ),
    Column(key="used_percent", title="USED", show=percents, right=True),
    Column(key="cost", title="COST", show=whole, right=True),
    Column(key="energy_kilowatt_hours", title="KWH", show=tenths, right=True),
    Column(key="in_service_percent", title="IN SERVICE", show=percents, right=True),
    *(
        Column(
            key=f"lost_{to.value}_gpu_hours",
            title=f"LOST: {to.value.upper()}",
            show=tenths,
            right=True,
        )
        for to in LostTo
    ),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_INSTALLED_FOR_PEOPLE = 7
_STATE = (
    Column(key="gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    Column(key="share_percent", title="OF INSTALLED", show=percents, right=True),
    Column(key="cost", title="COST", show=whole, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)

# What a row stands for: a kind of holder, of installed GPUs, or a state.
HOLDERS = ("account", "job", "partition", "project", "user")
PLACES = ("model", "node")
BY = (*HOLDERS, *PLACES, "state")


_NO_PRICES = Prices()


def asked(by: str) -> str:
    """Return the column to group by: a team of the pages is an account in schedulers and in the table."""
    return "account" if by == "team" else by


def shape(by: str, prices: Prices, span: tuple[datetime, datetime]) -> Shape:
    """Return which tables and price changes `grid` needs in an answer."""
    return Shape(
        cuts=prices.changes(*span),
        places=by not in HOLDERS or bool(prices),
        holders=by in HOLDERS or bool(prices),
    )


def grid(answers: Iterable[Answer], by: str, prices: Prices = _NO_PRICES) -> Grid:
    """Return a row per name and cluster, those with most hours first; clusters are never summed.

    With prices and a real cluster there are columns of what the hours cost.
    """
    answers = list(answers)
    rows: list[tuple[Value, ...]] = []
    head: list[str] = []
    notes: list[str] = []
    shared = 0.0
    columns, people = (
        (_HELD, _HELD_FOR_PEOPLE)
        if by in HOLDERS
        else (_INSTALLED, _INSTALLED_FOR_PEOPLE)
        if by in PLACES
        else (_STATE, 5)
    )
    money = bool(prices) and any(one.ledger.cluster != SIMULATED_CLUSTER for one in answers)
    for one in answers:
        rows += _holders(one, by, prices, money) if by in HOLDERS else _installed(one, by, prices)
        head += sentences(one, prices)
        notes += _price_notes(one, prices)
        shared += pc.sum(one.ledger.holders["shared"]).as_py() or 0.0
    titled = [Column(key=by, title=by.upper(), flexible=True), *columns]
    if shared > 0 and by in HOLDERS:
        notes.append(
            f"{shared / _HOUR:,.1f} of the allocated GPU-hours were shared, not attributable: several held"
            " a GPU at once (time slicing, MPS, several processes) and have equal parts of it."
        )
    if not money:
        drop = [place for place, one in enumerate(titled) if one.key in _MONEY]
        titled = [one for one in titled if one.key not in _MONEY]
        if by not in HOLDERS:  # rows of holders, which may be many, are made without them
            rows = [tuple(it for n, it in enumerate(row) if n not in drop) for row in rows]
        people -= sum(1 for place in drop if place < people)
    else:
        titled = [
            replace(it, title=f"{it.title} {prices.currency}") if it.key in _MONEY else it
            for it in titled
        ]
    return Grid(
        columns=titled,
        rows=rows,
        for_people=people,
        head=head,
        notes=notes,
        empty=HOLDERS_UNKNOWN
        if any(one.ledger.seconds.unattributed > 0 for one in answers)
        else "Nobody held a GPU in this span.",
    )


def sentences(one: Answer, prices: Prices = _NO_PRICES) -> Sequence[str]:
    """Return lines on the states of all installed GPU-hours, which add up, and until when they are counted."""
    seconds, cluster = one.ledger.seconds, one.ledger.cluster
    marked = " (simulated)" if cluster == SIMULATED_CLUSTER else ""
    installed = near(seconds.installed / _HOUR, 1)
    hours = shared([seconds.of(state) / _HOUR for state in GpuState], installed, 1)
    states = ", ".join(
        f"{'-' if seconds.measured_of(state) is None else f'{hour:,.1f}'} {state.value}"
        for hour, state in zip(hours, GpuState, strict=True)
    )
    said = [f"{cluster}{marked}: {installed:,.1f} GPU-hours: {states}"]
    said.append(f"  {_in_service(seconds)}")
    if seconds.powered > 0:
        kilowatt_hours = seconds.energy_joules / _KILOWATT_HOUR
        real = cluster != SIMULATED_CLUSTER
        carbon = prices.carbon_words(seconds.energy_joules) if real else ""
        said.append(f"  {kilowatt_hours:,.1f} kWh of GPU boards{f'; {carbon}' if carbon else ''}")
    if prices and cluster != SIMULATED_CLUSTER:
        said += _idle_sentence(one, prices)
    if one.missing:
        verb = "is" if one.missing == 1 else "are"
        said.append(
            f"  {one.missing} of its quarters of an hour {verb} missing: not counted yet, or never"
        )
    if one.until < one.asked_until:
        said.append(f"  counted until {one.until:%H:%M} UTC; later quarters are still to come")
    return said


def _in_service(seconds: Seconds) -> str:
    """Say how many owned GPU-hours were in service and what the others were lost to; these add up."""
    if seconds.judged <= 0:
        return "In service: -, not known what was out of service"
    owned, lost = near(seconds.judged / _HOUR, 1), [seconds.lost(to) / _HOUR for to in LostTo]
    *hours, served = shared([*lost, max(seconds.judged / _HOUR - sum(lost), 0.0)], owned, 1)
    reasons = ", ".join(f"{hour:,.1f} {to.value}" for hour, to in zip(hours, LostTo, strict=True))
    unjudged = near((seconds.installed - seconds.judged) / _HOUR, 1)
    rest = f"; for {unjudged:,.1f} it is not known" if unjudged else ""
    said = f"In service: {served:,.1f} of {owned:,.1f} owned GPU-hours"
    return f"{said} ({seconds.in_service_percent:.1f} %), lost: {reasons}{rest}"


def _idle_sentence(one: Answer, prices: Prices) -> Sequence[str]:
    """Say what idle held hours cost, counting only hours that have a price; empty if none has."""
    held = _rows_of(one, "holders", prices)
    held = held.filter(pc.is_valid(held["idle_cost"]))
    lost = pc.sum(held["idle_cost"]).as_py()
    hours = (pc.sum(held["idle"]).as_py() or 0.0) / _HOUR
    return (
        []
        if lost is None
        else [f"  {hours:,.1f} GPU-hours allocated at 0 % = {prices.formatted(lost)}"]
    )


def _price_notes(one: Answer, prices: Prices) -> Sequence[str]:
    """Say what an hour costs at the end of the span and how that price is made up."""
    if not prices or one.ledger.cluster == SIMULATED_CLUSTER:
        return ()
    models = one.ledger.places["model"].unique().to_pylist()
    return list(listed(prices, one.ledger.cluster, models, one.ledger.end))


def _priced(part: Ledger, rows: pa.Table, prices: Prices) -> pa.Table:
    """Add `cost` of the held (or else the installed) hours and `idle_cost`; null without a price.

    A part lies between price changes, so each model has one price in it.
    """
    found = rows["model"].combine_chunks().dictionary_encode()
    known = [
        prices.price(part.cluster, model, part.start) for model in found.dictionary.to_pylist()
    ]
    hourly = pa.array(
        [None if it is None else it.per_gpu_hour / _HOUR for it in known], pa.float64()
    )
    nameless = prices.price(part.cluster, "", part.start)
    of_row = pc.fill_null(found.indices, len(hourly))
    hourly = pa.concat_arrays(
        [
            hourly,
            pa.array([None if nameless is None else nameless.per_gpu_hour / _HOUR], pa.float64()),
        ]
    ).take(of_row)
    amount = "allocated" if "holder" in rows.column_names else "installed"
    return rows.append_column("cost", pc.multiply(rows[amount], hourly)).append_column(
        "idle_cost", pc.multiply(rows["idle"], hourly)
    )


def _rows_of(one: Answer, name: str, prices: Prices) -> pa.Table:
    """Return the holders or places of all parts, each at the price of its own time."""
    return pa.concat_tables([_priced(part, getattr(part, name), prices) for part in one.parts])


def _of_holders(one: Answer, prices: Prices, money: bool) -> pa.Table:
    if money:
        return _rows_of(one, "holders", prices)
    return pa.concat_tables([part.holders for part in one.parts])


def _holders(one: Answer, by: str, prices: Prices, money: bool) -> list[tuple[Value, ...]]:
    """Return rows in the order of `_HELD`; without `money`, without its columns."""
    told = _MONEY if money else ()
    amounts = ("allocated", "used", "measured", "idle", "energy_joules", "shared", *told)
    rows = _named(_of_holders(one, prices, money), "holder" if by == "job" else by)
    sums = [(name, "sum") for name in amounts]
    # A job's GPUs of several models add up; of several jobs only the most counts, as they may share GPUs in turn.
    keys = ["name", "holder", "user"]
    if one.parts[1:]:
        rows = _most_gpus(rows, (*keys, "model"), sums)
    if by == "job":
        found = rows.group_by(["name", "user"]).aggregate([*sums, ("gpus", "sum")])
    else:
        jobs = rows.group_by(keys).aggregate([*sums, ("gpus", "sum")])
        jobs = jobs.rename_columns([it.removesuffix("_sum") for it in jobs.column_names])
        found = jobs.group_by(["name"]).aggregate([*sums, ("gpus", "max")])
    name = found["name"]
    if by == "job":
        user = pc.fill_null(found["user"], "unknown")
        name = pc.binary_join_element_wise(
            name, pc.binary_join_element_wise(" (", user, ")", ""), ""
        )
    held = pc.sum(found["allocated_sum"]).as_py() or 0.0
    columns = {
        "name": name,
        "gpu_hours": pc.divide(found["allocated_sum"], _HOUR),
        "share_percent": _percent(found["allocated_sum"], held),
        "used_percent": _percent(found["used_sum"], found["measured_sum"]),
        "idle_gpu_hours": pc.divide(found["idle_sum"], _HOUR),
        **{name: found[f"{name}_sum"] for name in told},
        "most_gpus": found["gpus_sum" if by == "job" else "gpus_max"],
        # A GPU board always draws power: zero energy means that it was not measured.
        "kilowatt_hours": pc.divide(_some(found["energy_joules_sum"]), _KILOWATT_HOUR),
        "shared_gpu_hours": pc.divide(found["shared_sum"], _HOUR),
    }
    rows = pa.table(columns).sort_by([("gpu_hours", "descending"), ("name", "ascending")])
    of_cluster = [one.ledger.cluster] * rows.num_rows
    return list(zip(*(column.to_pylist() for column in rows.columns), of_cluster, strict=True))


def _percent(part: pa.ChunkedArray, whole: pa.ChunkedArray | float) -> pa.ChunkedArray:
    """Return `part` in percent of `whole`; null where `whole` is not positive."""
    return pc.multiply(pc.divide(part, _some(whole)), 100.0)


def _some(amount: pa.ChunkedArray | float) -> pa.ChunkedArray:
    """Return the amount, with null where it is not positive."""
    return pc.if_else(pc.greater(amount, 0.0), amount, pa.scalar(None, pa.float64()))


def _most_gpus(rows: pa.Table, keys: Sequence[str], sums: Sequence[tuple[str, str]]) -> pa.Table:
    """Merge the parts of a holder into one row, with the most GPUs that it had in any of them."""
    found = rows.group_by(list(keys)).aggregate([*sums, ("gpus", "max")])
    names = {f"{name}_sum": name for name, _ in sums} | {"gpus_max": "gpus"}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


def _installed(one: Answer, by: str, prices: Prices) -> list[tuple[Value, ...]]:
    cluster = one.ledger.cluster
    if by == "state":
        seconds = one.ledger.seconds
        return [
            (
                state.value,
                _hours(found := seconds.measured_of(state)),
                None if found is None else share_percent(found, seconds.installed),
                _state_cost(one, state, prices),
                cluster,
            )
            for state in GpuState
        ]
    names = [*Seconds.__dataclass_fields__, "cost"]
    rows = _named(_rows_of(one, "places", prices), by)
    found = rows.group_by("name").aggregate([(name, "sum") for name in names]).to_pylist()
    return sorted(
        (
            _place(
                row["name"],
                Seconds(*(row[f"{name}_sum"] or 0.0 for name in Seconds.__dataclass_fields__)),
                row["cost_sum"],
                cluster,
            )
            for row in found
        ),
        key=_most,
    )


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / _HOUR


def _state_cost(one: Answer, state: GpuState, prices: Prices) -> float | None:
    """Return what the hours in a state cost, for models that have a price; None if none has."""
    found: list[float] = []
    for part in one.parts if prices else ():
        of = part.places.group_by("model").aggregate([(state.value, "sum")]).to_pylist()
        for row in of:
            price = prices.price(part.cluster, row["model"], part.start)
            if price is not None:
                found.append(price.per_gpu_hour * row[f"{state.value}_sum"] / _HOUR)
    return sum(found) if found else None


def _place(name: str, seconds: Seconds, cost: float | None, cluster: str) -> tuple[Value, ...]:
    return (
        name,
        seconds.installed / _HOUR,
        *(_hours(seconds.measured_of(state)) for state in GpuState),
        share_percent(seconds.used, seconds.measured),
        cost,
        seconds.energy_joules / _KILOWATT_HOUR if seconds.powered else None,
        seconds.in_service_percent,
        *(seconds.lost(to) / _HOUR if seconds.judged else None for to in LostTo),
        cluster,
    )


def _named(rows: pa.Table, by: str) -> pa.Table:
    """Add a column `name`, "unknown" where the column `by` is empty."""
    column = pc.if_else(pc.equal(rows[by], ""), None, rows[by])
    return rows.append_column("name", pc.fill_null(column, "unknown"))


def _most(row: Sequence[Value]) -> tuple[float, str]:
    hours = row[1]
    return -hours if isinstance(hours, float) else 0.0, str(row[0])
