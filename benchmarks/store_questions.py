"""What is asked of a week: of the engine, of the hub, and of VictoriaMetrics.

The same six questions each: the newest ten metrics of all GPUs; six hours of one GPU at a minute;
the mean utilisation of every node over the week, from roll-ups where there are any and from the
lines; mean and maximum of ten metrics of every GPU over the week, the same two ways.

A fresh question is the first that a process just started is asked: `benchmarks.store_week` opens the
store, or starts the server, for each. All remember answers, and the engine footers and places of
lines as well, so that asked in a process that has answered it, a question is a repeated one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.victoria import Victoria
from gpuvigil.clock import to_ns
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.store import Aggregate, Function
from gpuvigil.store.hub import HubStore
from hub.embedded import Embedded, Latest, Series, Window

Span = tuple[datetime, datetime]

STEP = timedelta(minutes=1)
DAY = timedelta(days=1)
# Shorter than a day by this, so that its lines are read and no roll-ups.
_NO_DAY = timedelta(microseconds=1)
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
    def days(self) -> list[Span]:
        """The span, day by day."""
        count = (self.end - self.start) // DAY
        return [(self.start + n * DAY, self.start + (n + 1) * DAY) for n in range(count)]


def of_engine(week: Week, store: Embedded) -> dict[str, Callable[[], Any]]:
    """Without HTTP."""

    def window(aggregates: tuple[Aggregate, ...], span: Span) -> pa.Table:
        start_ns, end_ns = map(to_ns, span)
        return store.answer(
            Window(measurement=_GPU, aggregates=aggregates, start_ns=start_ns, end_ns=end_ns)
        )

    def series(span: Span) -> pa.Table:
        return store.answer(
            Series(
                measurement=_GPU,
                fields=TEN,
                where=tuple(week.gpu.items()),
                start_ns=to_ns(span[0]),
                end_ns=to_ns(span[1]),
                step_ns=60_000_000_000,
            )
        )

    latest = Latest(measurement=_GPU, fields=TEN, since_ns=to_ns(week.end - 5 * STEP))
    return _questions(week, lambda: store.answer(latest), series, window)


def of_hub(week: Week, store: HubStore) -> dict[str, Callable[[], Any]]:
    """Over HTTP."""
    return _questions(
        week,
        lambda: store.latest("gpu", TEN, week.end - 5 * STEP),
        lambda span: store.series("gpu", TEN, week.gpu, span, STEP),
        lambda aggregates, span: store.window("gpu", aggregates, *span),
    )


def _questions(
    week: Week,
    latest: Callable[[], Any],
    series: Callable[[Span], Any],
    window: Callable[[tuple[Aggregate, ...], Span], pa.Table],
) -> dict[str, Callable[[], Any]]:
    """Ours. A day at most is always read line by line, so what is raw goes day by day."""

    def daily(aggregates: tuple[Aggregate, ...]) -> list[pa.Table]:
        return [window(aggregates, (start, end - _NO_DAY)) for start, end in week.days]

    whole, six = (week.start, week.end), _six_hours(week)
    mean = (_UTILIZATION,)
    return {
        "latest": latest,
        "six_hours": lambda: series(six),
        "mean_by_node": lambda: _by_node([window(mean, whole)]),
        "mean_by_node_raw": lambda: _by_node(daily(mean)),
        "report": lambda: window(_REPORT, whole),
        "report_raw": lambda: pa.concat_tables(daily(_REPORT)),
    }


def of_victoria(
    week: Week, victoria: Victoria, *, remembered: bool = False
) -> dict[str, Callable[[], Any]]:
    """MetricsQL, each question as its documentation would ask it.

    Its answers outlive a restart on disk: a fresh question says that it wants none of them.
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
    said = {} if remembered else {"nocache": "1"}
    return {
        name: partial(victoria.ask, path, {**parameters, **said})
        for name, (path, parameters) in questions.items()
    }


def _six_hours(week: Week) -> Span:
    """In the middle of the week, where all is sealed."""
    middle = week.start + (week.end - week.start) // DAY // 2 * DAY
    return middle + timedelta(hours=9), middle + timedelta(hours=15)


def _by_node(windows: list[pa.Table]) -> dict[str, float]:
    """Mean utilisation of every node, from sums and counts of its GPUs."""
    found = pa.concat_tables(windows)
    node = found["node"].combine_chunks().dictionary_encode()
    of = node.indices.to_numpy()
    lines = found["samples"].to_numpy()
    sums = np.bincount(of, found["utilization_percent_mean"].to_numpy() * lines)
    means = sums / np.bincount(of, lines)
    return dict(zip(node.dictionary.to_pylist(), means.tolist(), strict=True))


def agree(ours: Mapping[str, float], theirs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether both say the same mean of every node, to a thousandth of a percent."""
    said = {one["metric"]["node"]: float(one["value"][1]) for one in theirs}
    return said.keys() == ours.keys() and all(abs(said[n] - ours[n]) < 1e-3 for n in ours)
