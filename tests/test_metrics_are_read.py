"""A metric that nobody reads is not collected: each one changes a page, or is asked for by a rule."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

import numpy as np
import pytest

from accounting.usage.grid import FIELDS
from accounting.usage.slices import SLICE_FIELDS
from analyzer.correlation.all_detectors import DETECTORS, questions
from dashboard.device import host, parts, ports
from dashboard.device.grid import grid
from dashboard.device.hub_queries import OFFSETS, Fields, Numbers
from dashboard.layout import details
from dashboard.lists import inference_usage
from dashboard.model.cluster import PortView
from dashboard.model.newest_rows import CELL_FIELDS
from dashboard.pipeline import hub_queries as pipeline
from gpuvigil.metrics import GPU, MEASUREMENTS, MIG, NODE, NVLINK, PORT, Measurement, Metric

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def asked_for() -> set[tuple[str, str]]:
    """What detectors, usage, the map and the page of the pipeline ask the store for."""
    found = {("gpu", name) for name in (*FIELDS, *CELL_FIELDS)}
    found |= {("mig", name) for name in SLICE_FIELDS}
    found |= {("node", name) for name in pipeline.FIELDS}
    found |= {("inference", name) for name in inference_usage.FIELDS}
    for need in questions(DETECTORS).values():
        names = {*need.fields, *(aggregate.field for aggregate in need.aggregates)}
        found |= {(need.measurement, name) for name in names}
    return found


ASKED_FOR = asked_for()


def line(of: Measurement, changed: str = "", by: float = 1.0) -> dict[str, Any]:
    """A line with every metric, one of which is another than usual."""
    values: dict[str, Any] = dict.fromkeys(of.tags, "1")
    for number, metric in enumerate(of.metrics):
        usual = 1 if metric.name == "up" else 2 + number % 3
        values[metric.name] = usual + (by if metric.name == changed else 0)
    return {**values, "at": NOON}


def of_gpu(changed: str) -> object:
    # Numbers of bytes, hertz and joules are as large as they are.
    newest = line(GPU, changed, by=1e12 if "_" in changed else 1.0)
    if changed == "fabric_health_mask":
        newest[changed] = 0b01  # a pair of bits says yes by this alone
    return details.numbers(None, newest)


def of_link(changed: str) -> object:
    before = {**line(NVLINK), "at": NOON - MINUTE}
    # Counters of bytes, as large as they are.
    newest = line(NVLINK, changed, by=-1.0 if changed in {"up", "version"} else 1e12)
    return parts.drawn(parts.Parts(links=(newest,), slices=(), before={"1": before}))


def of_slice(changed: str) -> object:
    by = 2.0**31 if changed.endswith("_bytes") else 1.0
    return parts.drawn(parts.Parts(links=(), slices=(line(MIG, changed, by),)))


def numbers(fields: Fields, port: Fields) -> Numbers:
    return Numbers(
        grid=grid(NOON - 10 * MINUTE, NOON, MINUTE), node=fields, ports={("mlx5_0", "1"): port}
    )


def series(of: Measurement, changed: str) -> Fields:
    """Every metric over ten minutes, one of which has moved."""
    count = len(numbers({}, {}).nothing)
    moved = {name: np.full(count, 2.0) for name in (*(m.name for m in of.metrics), OFFSETS)}
    moved[OFFSETS] = np.zeros(count)
    if changed:
        moved[changed] = np.linspace(2.0, 1e9, count)
    return moved


def of_node(changed: str) -> object:
    shown = numbers(series(NODE, changed), {})
    return [repr(host.charts(shown)), host.health(shown)]


def of_port(changed: str) -> object:
    shown = numbers({}, series(PORT, changed))
    views: list[PortView] = []
    return ports.rows([("mlx5_0", "1")], views, shown, "")


PAGES = {"gpu": of_gpu, "nvlink": of_link, "mig": of_slice, "node": of_node, "port": of_port}


@cache
def usual(measurement: str) -> object:
    """The page where nothing is out of the ordinary."""
    return PAGES[measurement]("")


EVERY: Mapping[str, Metric] = {
    f"{of.name}.{metric.name}": metric for of in MEASUREMENTS.values() for metric in of.metrics
}


@pytest.mark.medium
@pytest.mark.parametrize("name", EVERY)
def test_a_metric_is_read_by_a_rule_or_shown_on_a_page(name: str) -> None:
    metric = EVERY[name]
    if (metric.measurement, metric.name) in ASKED_FOR:
        return
    page = PAGES[metric.measurement]
    assert page(metric.name) != usual(metric.measurement), (
        f"nobody reads {name}: show it, or do not collect it"
    )


def test_no_metric_waits_for_somebody_to_read_it() -> None:
    assert [name for name, metric in EVERY.items() if "to come" in metric.used_by] == []
