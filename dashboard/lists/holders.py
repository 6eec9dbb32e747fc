"""`gpuvigil top` and `gpuvigil idle`: who holds GPUs now, and who leaves them idle."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from accounting.cost.money import Prices, models_of
from accounting.efficiency.idle_reason import Idleness, gpus_idle_since
from accounting.usage.ownership import NOBODY_KNOWN, holder_of
from gpuvigil.faults.gpu_states import NO_PROCESSES, NO_UTILIZATION
from gpuvigil.model import Allocation, GpuState
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN, holders_unknown, natural

from ..model.gpus import Cell
from .fleet_now import FleetNow
from .table import Column, Grid, Value, held_for, length, percents, whole, yes_or_no

Bill = tuple[Prices, Mapping[str, str]]  # prices, and the model of each GPU by its key


@dataclass(slots=True)
class _Holding:
    cluster: str
    holder: str
    user: str | None
    command: str | None
    since: datetime | None
    partition: str | None
    account: str | None
    began_before: bool = False  # whether one of its allocations may be older than `since`
    gpus: int = 0
    idle: int = 0
    used: list[float] = field(default_factory=list)  # percent, of measured GPUs
    watts: list[float] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    idle_since: datetime | None = None  # from an incident
    idle_cost: float | None = None  # since then, of GPUs with a price
    why: list[Idleness] = field(default_factory=list)


_WHO = (
    Column(key="user", title="USER", flexible=True),
    Column(key="holder", title="HOLDER", flexible=True),
)


def _first(nodes: str) -> str:
    """Return the first node and how many more there are."""
    first, *more = nodes.split(" ")
    return f"{first} +{len(more)}" if more else first


_WHERE = (
    Column(key="nodes", title="NODES", short=_first, flexible=True),
    Column(key="partition", title="PARTITION", flexible=True),
    Column(key="account", title="ACCOUNT", flexible=True),
    Column(key="command", title="COMMAND", flexible=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
    Column(key="began_before", title="BEGAN BEFORE", show=yes_or_no),
)
TOP = (
    Column(key="gpus", title="GPUS", show=whole, right=True),
    Column(key="idle_gpus", title="IDLE NOW", show=whole, right=True),
    Column(key="used_percent", title="USED", show=percents, right=True),
    Column(key="power_watts", title="WATTS", show=whole, right=True),
    *_WHO,
    Column(key="held_for_seconds", title="FOR", show=length, right=True),
    *_WHERE,
)
_TOP_FOR_PEOPLE = 8
IDLE = (
    Column(key="idle_gpus", title="IDLE GPUS", show=whole, right=True),
    Column(key="gpus", title="OF", show=whole, right=True),
    Column(key="idle_for_seconds", title="IDLE FOR", show=length, right=True),
    Column(key="why", title="WHY", flexible=True),
    Column(key="idle_cost", title="COST", show=whole, right=True),
    *_WHO,
    Column(key="held_for_seconds", title="HELD FOR", show=length, right=True),
    *_WHERE,
)
_IDLE_FOR_PEOPLE = 8
SERVING = (
    *_WHO,
    Column(key="known_by", title="KNOWN BY", flexible=True),
    Column(key="gpus", title="GPUS", show=whole, right=True),
    Column(key="idle_gpus", title="IDLE NOW", show=whole, right=True),
    Column(key="unmeasured_gpus", title="NOT MEASURED", show=whole, right=True),
    Column(key="idle_for_seconds", title="IDLE FOR", show=length, right=True),
    Column(key="used_percent", title="USED", show=percents, right=True),
    Column(key="power_watts", title="WATTS", show=whole, right=True),
    Column(key="held_for_seconds", title="HELD FOR", show=length, right=True),
    *_WHERE,
)
HolderKey = tuple[str, str, str]  # cluster, holder, user


def _where(one: _Holding, now: datetime) -> tuple[Value, ...]:
    """Return the cells under HELD FOR and `_WHERE`."""
    held = _held_for(one, now), _nodes(one.nodes)
    return (*held, one.partition, one.account, one.command, one.cluster, one.began_before)


def top(moment: FleetNow) -> Grid:
    """Return a row per holder, those with most GPUs first."""
    found = sorted(
        _holdings(moment), key=lambda one: (-one.gpus, natural(one.holder), one.user or "")
    )
    rows = [
        (
            one.gpus,
            _idle_now(one),
            _mean(one.used),
            sum(one.watts) if one.watts else None,
            one.user,
            one.holder,
            *_where(one, moment.now),
        )
        for one in found
    ]
    return Grid(
        columns=TOP,
        rows=rows,
        for_people=_TOP_FOR_PEOPLE,
        empty=_empty(moment, "No GPU is allocated."),
    )


def idle(
    moment: FleetNow,
    reasons: Mapping[str, Idleness],
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
) -> Grid:
    """Return a row per holder of GPUs at 0 %, longest idle first; `reasons` by GPU key.

    `IDLE FOR` counts from when an incident says that the GPUs are idle. Without one they are at 0 % at
    this moment, which may be a gap of seconds.
    """
    bill = (prices, models_of(moment.inventories)) if prices else None
    found = [one for one in _holdings(moment, reasons, bill) if one.idle]
    found.sort(key=lambda one: (one.idle_since or moment.now, -one.idle, natural(one.holder)))
    rows: list[tuple[Value, ...]] = [
        (
            one.idle,
            one.gpus,
            _since(one.idle_since, moment.now),
            _why(one.why),
            one.idle_cost,
            one.user,
            one.holder,
            *_where(one, moment.now),
        )
        for one in found
    ]
    young = any(one.idle_since is None for one in found)
    said = "IDLE FOR -: at 0 % now, but not for long enough to count as idle."
    columns, people = list(IDLE), _IDLE_FOR_PEOPLE
    place = [column.key for column in IDLE].index("idle_cost")
    if prices and not all(cluster.simulated for cluster in moment.clusters):
        columns[place] = replace(columns[place], title=f"COST {prices.currency}")
    else:
        del columns[place]
        people -= 1
        rows = [(*row[:place], *row[place + 1 :]) for row in rows]
    return Grid(
        columns=columns,
        rows=rows,
        for_people=people,
        empty=_empty(moment, "No allocated GPU is idle now."),
        notes=[*([said] if young else []), *_cannot_judge(moment)],
    )


def key_of(held: Allocation) -> HolderKey:
    """Return the key by which a table distinguishes holders."""
    return held.subject.cluster, holder_of(held), held.user or ""


def serving(moment: FleetNow, known_by: Mapping[HolderKey, str], notes: Sequence[str] = ()) -> Grid:
    """Return a row per holder that serves inference, those with most GPUs at 0 % first."""
    mine = [(it, (it.cluster, it.holder, it.user or "")) for it in _holdings(moment)]
    found = [(it, known_by[key]) for it, key in mine if key in known_by]
    found.sort(key=lambda pair: (-pair[0].idle, -pair[0].gpus, natural(pair[0].holder)))
    rows = [
        (
            one.user,
            one.holder,
            by,
            one.gpus,
            _idle_now(one),
            one.gpus - len(one.used),
            _since(one.idle_since, moment.now),
            _mean(one.used),
            sum(one.watts) if one.watts else None,
            *_where(one, moment.now),
        )
        for one, by in found
    ]
    nothing = "No inference server is known, by its command or from Kubernetes."
    return Grid(columns=SERVING, rows=rows, empty=_empty(moment, nothing), notes=notes)


def _empty(moment: FleetNow, nothing: str) -> str:
    """Return the text for an empty table: `nothing`, with a caveat if holders are not all known."""
    strips = [one.strip for one in moment.clusters]
    unknown = sum(one.unattributed for one in strips)
    if not unknown:
        return nothing
    if not any(one.known for one in strips):
        return HOLDERS_UNKNOWN
    return f"{nothing} {holders_unknown(f'{unknown:,} of {sum(it.gpus for it in strips):,} GPUs')}"


def _cannot_judge(moment: FleetNow) -> Iterator[str]:
    """Yield a line for each reason why some GPUs cannot be judged idle or not."""
    cells = [cell for one in moment.clusters for cell in one.cells]
    unknown = Counter(cell.reason for cell in cells if cell.state is GpuState.UNKNOWN)
    for reason in (NO_UTILIZATION, NO_PROCESSES):
        if count := unknown[reason]:
            gpus = "1 GPU" if count == 1 else f"{count} GPUs"
            yield f"Cannot judge {gpus}: {reason}."


def _holdings(
    moment: FleetNow, reasons: Mapping[str, Idleness] | None = None, bill: Bill | None = None
) -> Iterable[_Holding]:
    found: dict[tuple[str, str, str], _Holding] = {}
    idle_since = gpus_idle_since(one.incident for one in moment.view.attention)
    for cell in _held(moment):
        for held in moment.of(cell.subject) or (None,):
            one = _entry(found, cell, held)
            one.gpus += 1
            one.nodes.add(cell.subject.node)
            if cell.utilization_percent is not None:
                one.used.append(cell.utilization_percent)
            if cell.power_watts is not None:
                one.watts.append(cell.power_watts)
            if cell.state is GpuState.IDLE:
                since = _while_held(idle_since.get(cell.subject.key), held)
                _idles(one, since, (reasons or {}).get(cell.subject.key))
                cost = _wasted(cell, since, moment, bill)
                if cost is not None:
                    one.idle_cost = (one.idle_cost or 0.0) + cost
    return found.values()


def _while_held(since: datetime | None, held: Allocation | None) -> datetime | None:
    """Return since when a GPU is idle under this holder, who may have taken over an idle one."""
    return since if since is None or held is None else max(since, held.started_at)


def _idle_now(one: _Holding) -> int | None:
    """Return the number of idle GPUs; None if none was measured, as on a silent node."""
    return one.idle if one.used else None


def _idles(one: _Holding, since: datetime | None, why: Idleness | None) -> None:
    one.idle += 1
    if why is not None:
        one.why.append(why)
    if since is not None:
        one.idle_since = min(since, one.idle_since or since)


def _wasted(
    cell: Cell, since: datetime | None, moment: FleetNow, bill: Bill | None
) -> float | None:
    """Return what a GPU has cost each of its holders since then; None without a price."""
    if bill is None or since is None:
        return None
    prices, models = bill
    model = models.get(cell.subject.key)
    cost = prices.cost(cell.subject.cluster, model, since, moment.now)
    return None if cost is None else cost / max(len(moment.of(cell.subject)), 1)


def _held(moment: FleetNow) -> Iterator[Cell]:
    for cluster in moment.clusters:
        yield from (cell for cell in cluster.cells if cell.held or moment.of(cell.subject))


def _entry(
    found: dict[tuple[str, str, str], _Holding], cell: Cell, held: Allocation | None
) -> _Holding:
    """Return the entry of a holder: a job, a pod, or all processes of one user, as in usage."""
    holder = NOBODY_KNOWN if held is None else holder_of(held)
    user = None if held is None else held.user
    one = found.setdefault(
        (cell.subject.cluster, holder, user or ""),
        _Holding(
            cluster=cell.subject.cluster,
            holder=holder,
            user=user,
            command=held.command if held else None,
            since=held.started_at if held else None,
            partition=held.partition if held else None,
            account=held.account if held else None,
        ),
    )
    if held is not None:
        one.since = min(held.started_at, one.since or held.started_at)
        one.began_before |= held.began_before
    return one


def _why(reasons: Sequence[Idleness]) -> str | None:
    """Return the reason of most of a holder's GPUs, but reasons that excuse the holder go first."""
    ranked = sorted(set(reasons), key=lambda one: (one.blames, -reasons.count(one), one.value))
    return ranked[0].value if ranked else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _since(at: datetime | None, now: datetime) -> timedelta | None:
    return None if at is None else now - at


def _held_for(one: _Holding, now: datetime) -> timedelta | None:
    return None if one.since is None else held_for(one.since, now, began_before=one.began_before)


def _nodes(names: set[str]) -> str:
    """Return all node names for programs, separated by blanks, which names do not contain."""
    return " ".join(sorted(names, key=natural))
