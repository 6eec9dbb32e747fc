"""`gpuvigil usage`: where the GPU-hours of a span went."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gpuvigil.model import SIMULATED_CLUSTER, GpuState
from gpuvigil.usage import Seconds, share_percent
from gpuvigil.usage.question import Answer

from .grid import Column, Grid, Value, percents, tenths, whole

_HOUR = 3600.0
_KILOWATT_HOUR = 3.6e6

_HELD = (
    Column(key="gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    Column(key="share_percent", title="OF ALL HELD", show=percents, right=True),
    Column(key="used_percent", title="USED", show=percents, right=True),
    Column(key="idle_gpu_hours", title="IDLE HOURS", show=tenths, right=True),
    Column(key="most_gpus", title="MOST GPUS", show=whole, right=True),
    Column(key="energy_kilowatt_hours", title="KWH", show=tenths, right=True),
    Column(key="shared_gpu_hours", title="SHARED HOURS", show=tenths, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_HELD_FOR_PEOPLE = 6
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
    Column(key="energy_kilowatt_hours", title="KWH", show=tenths, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_INSTALLED_FOR_PEOPLE = 7
_STATE = (
    Column(key="gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    Column(key="share_percent", title="OF INSTALLED", show=percents, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)

# What a row is: of holders, of what is installed, or of a state.
HOLDERS = ("account", "job", "partition", "project", "user")
PLACES = ("model", "node")
BY = (*HOLDERS, *PLACES, "state")


def grid(answers: Iterable[Answer], by: str) -> Grid:
    """A row per name and cluster, those with most hours first; clusters are never summed."""
    rows: list[tuple[Value, ...]] = []
    head: list[str] = []
    shared = 0.0
    columns, people = (
        (_HELD, _HELD_FOR_PEOPLE)
        if by in HOLDERS
        else (_INSTALLED, _INSTALLED_FOR_PEOPLE)
        if by in PLACES
        else (_STATE, 4)
    )
    for one in answers:
        rows += _holders(one, by) if by in HOLDERS else _installed(one, by)
        head += sentences(one)
        shared += pc.sum(one.ledger.holders["shared"]).as_py() or 0.0
    titled = [Column(key=by, title=by.upper(), flexible=True), *columns]
    note = (
        f"{shared / _HOUR:,.1f} of the held GPU-hours were shared, not attributable: several held a"
        " GPU at once (time slicing, MPS, several processes) and have equal parts of it."
    )
    return Grid(
        columns=titled,
        rows=rows,
        for_people=people,
        head=head,
        notes=[note] if shared > 0 and by in HOLDERS else [],
        empty="Nobody held a GPU in this span.",
    )


def sentences(one: Answer) -> Sequence[str]:
    """The states of all installed GPU-hours, which add up; and how far they are counted."""
    seconds, cluster = one.ledger.seconds, one.ledger.cluster
    marked = " (simulated)" if cluster == SIMULATED_CLUSTER else ""
    states = ", ".join(f"{seconds.of(state) / _HOUR:,.1f} {state.value}" for state in GpuState)
    said = f"{cluster}{marked}: {seconds.installed / _HOUR:,.1f} GPU-hours: {states}"
    if one.until < one.asked_until:
        return said, f"  counted until {one.until:%H:%M} UTC; later quarters are still to come"
    return (said,)


def _holders(one: Answer, by: str) -> list[tuple[Value, ...]]:
    amounts = ("allocated", "used", "measured", "idle", "energy_joules", "shared")
    rows = _named(one.ledger.holders, "holder" if by == "job" else by)
    sums = [(name, "sum") for name in amounts]
    # One job's GPUs of several models were all its own; jobs may have had the same one in turn.
    keys = ["name", "holder", "user"]
    jobs = rows.group_by(keys).aggregate([*sums, ("gpus", "sum")])
    jobs = jobs.rename_columns([it.removesuffix("_sum") for it in jobs.column_names])
    groups = ["name", "user"] if by == "job" else ["name"]
    found = jobs.group_by(groups).aggregate([*sums, ("gpus", "max")]).to_pylist()
    held = sum(row["allocated_sum"] for row in found)
    answer: list[tuple[Value, ...]] = [
        (
            f"{row['name']} ({row['user'] or 'unknown'})" if by == "job" else row["name"],
            row["allocated_sum"] / _HOUR,
            share_percent(row["allocated_sum"], held),
            share_percent(row["used_sum"], row["measured_sum"]),
            row["idle_sum"] / _HOUR,
            row["gpus_max"],
            row["energy_joules_sum"] / _KILOWATT_HOUR,
            row["shared_sum"] / _HOUR,
            one.ledger.cluster,
        )
        for row in found
    ]
    return sorted(answer, key=_most)


def _installed(one: Answer, by: str) -> list[tuple[Value, ...]]:
    cluster = one.ledger.cluster
    if by == "state":
        seconds = one.ledger.seconds
        return [
            (
                state.value,
                seconds.of(state) / _HOUR,
                share_percent(seconds.of(state), seconds.installed),
                cluster,
            )
            for state in GpuState
        ]
    names = Seconds.__dataclass_fields__
    rows = _named(one.ledger.places, by)
    found = rows.group_by("name").aggregate([(name, "sum") for name in names]).to_pylist()
    return sorted(
        (
            _place(row["name"], Seconds(*(row[f"{name}_sum"] for name in names)), cluster)
            for row in found
        ),
        key=_most,
    )


def _place(name: str, seconds: Seconds, cluster: str) -> tuple[Value, ...]:
    return (
        name,
        seconds.installed / _HOUR,
        *(seconds.of(state) / _HOUR for state in GpuState),
        share_percent(seconds.used, seconds.measured),
        seconds.energy_joules / _KILOWATT_HOUR if seconds.powered else None,
        cluster,
    )


def _named(rows: pa.Table, by: str) -> pa.Table:
    """With a column `name`; what nobody names is unknown."""
    column = pc.if_else(pc.equal(rows[by], ""), None, rows[by])
    return rows.append_column("name", pc.fill_null(column, "unknown"))


def _most(row: Sequence[Value]) -> tuple[float, str]:
    hours = row[1]
    return -hours if isinstance(hours, float) else 0.0, str(row[0])
