"""`gpuvigil usage`: where the GPU-hours of a span went."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from gpuvigil.usage.model import Share, Usage, share_percent

from .grid import Column, Grid, Value, percents, tenths, whole

_HOUR = 3600.0

COLUMNS = (
    Column(key="name", title="", flexible=True),
    Column(key="gpu_hours", title="GPU-HOURS", show=tenths, right=True),
    Column(key="share_percent", title="OF ALL HELD", show=percents, right=True),
    Column(key="used_percent", title="USED", show=percents, right=True),
    Column(key="idle_gpu_hours", title="IDLE HOURS", show=tenths, right=True),
    Column(key="most_gpus", title="MOST GPUS", show=whole, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)

# What a row is.
BY: dict[str, Callable[[Share], str]] = {
    "user": lambda share: share.user or "unknown",
    "job": lambda share: f"{share.holder} ({share.user or 'unknown'})",
    "account": lambda share: share.account or "unknown",
    "partition": lambda share: share.partition or "unknown",
}


def grid(usages: Iterable[Usage], by: str) -> Grid:
    """A row per user or job and cluster, those that held most first; clusters are never summed."""
    rows: list[tuple[Value, ...]] = []
    head = []
    for usage in usages:
        rows += _rows(usage, BY[by])
        head.append(sentence(usage))
    titled = [Column(key=by, title=by.upper(), flexible=True), *COLUMNS[1:]]
    return Grid(columns=titled, rows=rows, head=head, empty="Nobody held a GPU in this span.")


def sentence(usage: Usage) -> str:
    """The states of all installed GPU-hours, which add up."""
    seconds, marked = usage.seconds, " (simulated)" if usage.simulated else ""
    states = ", ".join(
        f"{getattr(seconds, state) / _HOUR:,.1f} {state}"
        for state in ("active", "idle", "free", "unavailable", "unknown")
    )
    return f"{usage.cluster}{marked}: {seconds.installed / _HOUR:,.1f} GPU-hours: {states}"


def _rows(usage: Usage, name_of: Callable[[Share], str]) -> list[tuple[Value, ...]]:
    groups: defaultdict[str, list[Share]] = defaultdict(list)
    for share in usage.shares:
        groups[name_of(share)].append(share)
    held = sum(share.allocated for share in usage.shares)
    rows: list[tuple[Value, ...]] = [
        (
            name,
            (allocated := sum(one.allocated for one in group)) / _HOUR,
            share_percent(allocated, held),
            share_percent(sum(one.used for one in group), sum(one.measured for one in group)),
            sum(one.idle for one in group) / _HOUR,
            max(one.gpus for one in group),
            usage.cluster,
        )
        for name, group in groups.items()
    ]
    return sorted(rows, key=lambda row: (-float(row[1] or 0.0), str(row[0])))  # type: ignore[arg-type]
