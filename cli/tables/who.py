"""`gpuvigil who NODE[:GPU]`: who holds a node's GPUs, and the state of the GPUs."""

from dashboard.lists.fleet_now import FleetNow
from dashboard.lists.table import Column, Grid, Value, held_for, length, percents, whole, yes_or_no
from dashboard.model.gpus import Cell
from gpuvigil.errors import ConfigError
from gpuvigil.model import Allocation, GpuState
from gpuvigil.numbers_in_words import counted
from gpuvigil.schedulers.jobs import scheduler_disagreements

COLUMNS = (
    Column(key="gpu", title="GPU", right=True),
    Column(key="state", title="STATE", toned=True),
    Column(key="used_percent", title="USED", show=percents, right=True),
    Column(key="user", title="USER", flexible=True),
    Column(key="holder", title="HOLDER", flexible=True),
    Column(key="held_for_seconds", title="FOR", show=length, right=True),
    Column(key="command", title="COMMAND", flexible=True),
    Column(key="why", title="WHY", flexible=True),
    Column(key="partition", title="PARTITION", flexible=True),
    Column(key="account", title="ACCOUNT", flexible=True),
    Column(key="power_watts", title="WATTS", show=whole, right=True),
    Column(key="uuid", title="UUID", flexible=True),
    Column(key="node", title="NODE", flexible=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
    Column(key="began_before", title="BEGAN BEFORE", show=yes_or_no),
)
_FOR_PEOPLE = 8


def grid(moment: FleetNow, wanted: str) -> Grid:
    """Return a row per GPU and holder. ConfigError if there is no such node or GPU."""
    name, _, gpu = wanted.partition(":")
    nodes = [view for cluster in moment.clusters if (view := cluster.node(name)) is not None]
    if not nodes:
        raise ConfigError(f"there is no node {name!r}; 'gpuvigil top' names those in use")
    if len(nodes) > 1:
        where = ", ".join(view.subject.cluster for view in nodes)
        raise ConfigError(f"clusters {where} have a node {name!r} each: add --cluster NAME")
    cells = [cell for cell in nodes[0].cells if not gpu or gpu in {cell.address, cell.subject.gpu}]
    if gpu and not cells:
        has = counted(nodes[0].gpu_count, "GPU")
        raise ConfigError(f"node {name} has no GPU {gpu!r}; it has {has}")
    rows = [
        row
        for cell in cells
        for row in (_row(cell, held, moment) for held in moment.of(cell.subject) or (None,))
    ]
    held = [one for cell in nodes[0].cells for one in moment.of(cell.subject)]
    apart = scheduler_disagreements(nodes[0].subject, held, moment.jobs, moment.now)
    silent = (
        f"{name} has stopped reporting: this is its last known state." if nodes[0].silent else ""
    )
    return Grid(
        columns=COLUMNS,
        rows=rows,
        for_people=_FOR_PEOPLE,
        head=[silent] if silent else [],
        notes=[f"Sources disagree on {holder}: {why}." for holder, why in sorted(apart.items())],
        empty=f"Node {name} has no GPUs.",
    )


def _row(cell: Cell, held: Allocation | None, moment: FleetNow) -> tuple[Value, ...]:
    return (
        cell.address,
        cell.state.value,
        cell.utilization_percent,
        held.user if held else None,
        str(held.holder) if held else None,
        None
        if held is None
        else held_for(held.started_at, moment.now, began_before=held.began_before),
        held.command if held else None,
        None
        if cell.state is GpuState.ACTIVE
        else cell.reason,  # for an active GPU the reason only repeats its utilization
        held.partition if held else None,
        held.account if held else None,
        cell.power_watts,
        cell.subject.gpu,
        cell.subject.node,
        cell.subject.cluster,
        None if held is None else held.began_before,
    )
