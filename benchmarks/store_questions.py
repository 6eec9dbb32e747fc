"""What is asked of a week: of the engine, of the hub, and of VictoriaMetrics.

The same six questions each: the newest ten metrics of all GPUs; six hours of one GPU at a minute;
the mean utilisation of every node over the week, from roll-ups where there are any and from the
lines; mean and maximum of ten metrics of every GPU over the week, the same two ways.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb  # noqa: TID251 - reads the sealed lines as they lie, for the time of the engine alone
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.victoria import Victoria
from gpuvigil.clock import to_ns
from gpuvigil.config import HubSettings
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.hub import HubStore
from hub.embedded import Embedded, Latest, Series, Window

STEP = timedelta(minutes=1)
DAY = timedelta(days=1)
TEN = (
    "utilization_percent",
    "memory_used_bytes",
    "power_watts",
    "energy_joules",
    "temperature_celsius",
    "memory_temperature_celsius",
    "sm_clock_hertz",
    "sm_activity_percent",
    "nvlink_receive_bytes",
    "ecc_corrected_errors",
)
_GPU = MEASUREMENTS["gpu"]
_UTILIZATION = Aggregate(function=Function.MEAN, field="utilization_percent")
_REPORT = tuple(
    Aggregate(function=function, field=field)
    for field in TEN
    for function in (Function.MEAN, Function.MAX)
)
_NAMES = "|".join(f"gpu_{name}" for name in TEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What was loaded, and where it lies."""

    folder: Path
    gpus: int
    start: datetime
    end: datetime
    samples: int
    gpu: Mapping[str, str]  # the tags of one of them, as a page asks for it
    said: Mapping[str, Any]  # what the loading took

    @property
    def days(self) -> list[tuple[datetime, datetime]]:
        """The span, day by day."""
        count = (self.end - self.start) // DAY
        return [(self.start + n * DAY, self.start + (n + 1) * DAY) for n in range(count)]


def of_engine(week: Week, store: Embedded) -> dict[str, Callable[[], Any]]:
    """Without HTTP; what is raw reads the sealed lines as they lie, with the store's two threads."""
    span = {"start_ns": to_ns(week.start), "end_ns": to_ns(week.end)}
    start, end = _six_hours(week)
    files = [
        str(unit.lines_file(store.folder)) for unit in store.units() if unit.measurement == "gpu"
    ]
    raw = duckdb.connect(config={"threads": HubSettings().threads})
    lines = f"read_parquet({files!r})"
    report = ", ".join(f"avg({name}), max({name})" for name in TEN)
    by_node = f"SELECT node, avg(utilization_percent) FROM {lines} GROUP BY node"
    by_gpu = f"SELECT uuid, {report} FROM {lines} GROUP BY uuid"
    return {
        "latest": lambda: store.answer(
            Latest(measurement=_GPU, fields=TEN, since_ns=to_ns(week.end - 5 * STEP))
        ),
        "six_hours": lambda: store.answer(
            Series(
                measurement=_GPU,
                fields=TEN,
                where=tuple(week.gpu.items()),
                start_ns=to_ns(start),
                end_ns=to_ns(end),
                step_ns=60_000_000_000,
            )
        ),
        "mean_by_node": lambda: _by_node(
            [store.answer(Window(measurement=_GPU, aggregates=(_UTILIZATION,), **span))]
        ),
        "mean_by_node_raw": lambda: raw.execute(by_node).fetchall(),
        "report": lambda: store.answer(Window(measurement=_GPU, aggregates=_REPORT, **span)),
        "report_raw": lambda: raw.execute(by_gpu).fetchall(),
    }


def of_hub(week: Week, store: HubStore) -> dict[str, Callable[[], Any]]:
    """Over HTTP; a day at most is always read line by line, so what is raw goes day by day."""

    def daily(aggregates: tuple[Aggregate, ...]) -> list[pa.Table]:
        return [store.window("gpu", aggregates, *day) for day in week.days]

    whole = (week.start, week.end)
    return {
        "latest": lambda: store.latest("gpu", TEN, week.end - 5 * STEP),
        "six_hours": lambda: store.series("gpu", TEN, week.gpu, _six_hours(week), STEP),
        "mean_by_node": lambda: _by_node([store.window("gpu", (_UTILIZATION,), *whole)]),
        "mean_by_node_raw": lambda: _by_node(daily((_UTILIZATION,))),
        "report": lambda: store.window("gpu", _REPORT, *whole),
        "report_raw": lambda: pa.concat_tables(daily(_REPORT)),
    }


def of_victoria(week: Week, victoria: Victoria) -> dict[str, Callable[[], Any]]:
    """MetricsQL, each question as its documentation would ask it.

    Without its cache of answers, which would measure nothing but itself in the repetitions; with it
    again under names of their own.
    """
    start, end = _six_hours(week)
    length = f"{(week.end - week.start) // STEP}m"
    both = '("avg_over_time", "max_over_time")'
    at = {"time": str(week.end.timestamp())}
    mean = {"query": f"avg by (node)(avg_over_time(gpu_utilization_percent[{length}]))", **at}
    report = {
        "query": f'aggr_over_time({both}, {{__name__=~"{_NAMES}"}}[{length}]) keep_metric_names',
        **at,
    }
    tags = ",".join(f'{name}="{value}"' for name, value in week.gpu.items())
    ranged = {
        "query": f'{{__name__=~"{_NAMES}",{tags}}}',
        "start": str(start.timestamp()),
        "end": str(end.timestamp()),
        "step": "60s",
    }
    questions = {
        "latest": ("/api/v1/query", {"query": f'{{__name__=~"{_NAMES}"}}', **at}),
        "six_hours": ("/api/v1/query_range", ranged),
        "mean_by_node": ("/api/v1/query", mean),
        "mean_by_node_raw": ("/api/v1/query", mean),
        "report": ("/api/v1/query", report),
        "report_raw": ("/api/v1/query", report),
    }
    cached = ("six_hours", "mean_by_node", "report")
    fresh = {
        name: partial(victoria.ask, path, {**parameters, "nocache": "1"})
        for name, (path, parameters) in questions.items()
    }
    return fresh | {f"{name}_cached": partial(victoria.ask, *questions[name]) for name in cached}


def _six_hours(week: Week) -> tuple[datetime, datetime]:
    """In the middle of the week, where all is sealed."""
    middle = week.start + (week.end - week.start) // DAY // 2 * DAY
    return middle + timedelta(hours=9), middle + timedelta(hours=15)


def _by_node(windows: list[pa.Table]) -> dict[str, float]:
    """Mean utilisation of every node, from sums and counts of its GPUs."""
    found = pa.concat_tables(windows)
    weighted = pc.multiply(found["utilization_percent_mean"], found["samples"])
    table = pa.table({"node": found["node"], "sum": weighted, "lines": found["samples"]})
    grouped = table.group_by("node").aggregate([("sum", "sum"), ("lines", "sum")])
    means = pc.divide(grouped["sum_sum"], grouped["lines_sum"])
    return dict(zip(grouped["node"].to_pylist(), means.to_pylist(), strict=True))


def agree(ours: Mapping[str, float], theirs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether both say the same mean of every node, to a thousandth of a percent."""
    said = {one["metric"]["node"]: float(one["value"][1]) for one in theirs}
    return said.keys() == ours.keys() and all(abs(said[n] - ours[n]) < 1e-3 for n in ours)
