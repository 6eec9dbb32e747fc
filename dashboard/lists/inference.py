"""`gpuvigil inference`: the load on each model's replicas, and how many replicas would carry it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from accounting.cost.money import Prices
from gpuvigil.clock import duration

from .inference_usage import Service
from .table import Column, Grid, Value, percents, tenths, whole


def _few(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


COLUMNS = (
    Column(key="verdict", title="VERDICT"),
    Column(key="model", title="MODEL", flexible=True),
    Column(key="replicas", title="OF", show=whole, right=True),
    Column(key="replicas_needed", title="NEEDED", show=whole, right=True),
    Column(key="requests_running_p95", title="RUN", show=_few, right=True),
    Column(key="requests_waiting_p95", title="WAIT", show=_few, right=True),
    Column(key="kv_cache_p95_percent", title="CACHE", show=percents, right=True),
    Column(key="activity_percent", title="ACTIVE", show=percents, right=True),
    Column(key="spare_gpu_hours", title="SPARE H", show=tenths, right=True),
    Column(key="spare_cost", title="COST", show=whole, right=True),
    Column(key="user", title="USER", flexible=True),
    Column(key="holder", title="HOLDER", flexible=True),
    Column(key="gpus", title="GPUS", show=whole, right=True),
    Column(key="requests", title="ANSWERED", show=whole, right=True),
    Column(key="queue_seconds_per_request", title="QUEUED S", show=tenths, right=True),
    Column(key="server", title="SERVER", flexible=True),
    Column(key="said", title="BECAUSE", flexible=True),
    Column(key="advice", title="ADVICE", flexible=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_FOR_PEOPLE = 9
STANDBY = "standby"


def grid(
    found: Sequence[Service],
    span: tuple[datetime, datetime],
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
) -> Grid:
    """Return a row for each model of each cluster, with verdicts explained below the table."""
    rows: list[tuple[Value, ...]] = [
        (
            verdict(one),
            one.model,
            len(one.replicas),
            one.judged.needed if one.judged else one.numbers.needed,
            one.numbers.running_p95,
            one.numbers.waiting_p95,
            one.numbers.cache_p95_percent,
            one.numbers.activity_percent,
            one.spare_gpu_hours if one.judged else None,
            one.spare_cost,
            ", ".join(one.users) or None,
            ", ".join(one.holders) or None,
            one.gpus or None,
            one.numbers.answered,
            one.queue_seconds,
            one.server,
            one.judged.text if one.judged else None,
            one.judged.advice if one.judged else None,
            one.cluster,
        )
        for one in found
    ]
    columns, place = list(COLUMNS), [column.key for column in COLUMNS].index("spare_cost")
    if prices:
        columns[place] = replace(columns[place], title=f"COST {prices.currency}")
    else:
        del columns[place]
        rows = [(*row[:place], *row[place + 1 :]) for row in rows]
    length = duration(span[1] - span[0])
    return Grid(
        columns=columns,
        rows=rows,
        for_people=_FOR_PEOPLE,
        notes=[
            *(
                f"{one.model}: {one.judged.text}. To do: {one.judged.advice}."
                for one in found
                if one.judged
            ),
            f"The last {length}. NEEDED: replicas that carry the load 95 % of the time, none over 80 %"
            " of its cache or activity. RUN, WAIT: requests of all replicas; CACHE: of the fullest; each"
            " the p95. SPARE H: GPU-hours of the replicas that are not needed.",
        ],
        empty="No inference server is scraped; see collector.inference_urls.",
    )


def verdict(one: Service) -> str:
    """Return the verdict in a word or two: `fine` without findings, a dash if too little is known."""
    if one.standby:
        return STANDBY
    if one.judged is not None:
        return one.judged.verdict.value
    return "fine" if one.numbers.needed is not None else "-"
