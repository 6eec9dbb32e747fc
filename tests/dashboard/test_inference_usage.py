"""Services of a small fleet: bound to who holds their GPUs, told in 80 columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.cost.money import Prices
from dashboard.data.activity import ACTIVITY, activity, pieces
from dashboard.data.series import TimeSeries, time_series
from dashboard.lists import inference
from dashboard.lists.fleet_now import FleetNow, moment_of
from dashboard.lists.inference_usage import (
    GAUGES,
    PLACE,
    InferenceTelemetry,
    Service,
    query_telemetry,
    services,
)
from dashboard.lists.table import csv_text, json_text, text
from gpuvigil.clock import EPOCH, SystemClock, micros, to_ns
from gpuvigil.config import AnalyzerSettings, CostSettings, IdleSettings, PriceSettings
from gpuvigil.errors import StoreError
from gpuvigil.lineprotocol import encode
from gpuvigil.store.hub import HubStore
from tests.dashboard.scene import NOON, allocation, busy_fleet, gpu, node
from tests.servers import QuickHub

FIRST = node("n-1", "prod")
SPAN = (NOON - timedelta(hours=1), NOON)
STEP = timedelta(minutes=1)
AT = [SPAN[0] + STEP * place for place in range(60)]
_SERIES = pa.schema(
    [*((name, pa.string()) for name in (*PLACE, "uuid")), ("at", pa.timestamp("us", "UTC"))]
    + [(name, pa.float64()) for name in GAUGES]
)
PRICES = Prices(
    settings=CostSettings(prices=(PriceSettings(model="H100", per_gpu_hour=2.0),), currency="EUR")
)


def moment() -> FleetNow:
    held = tuple(allocation(gpu(i, FIRST), "pod serve/llm", "ann") for i in range(4))
    return moment_of(replace(busy_fleet([FIRST], 4), allocations=held), AnalyzerSettings())


def told(**of_last: float | None) -> InferenceTelemetry:
    """Four replicas of a model with little to do; `of_last` is of the fourth."""
    series, counted = [], []
    for place in range(4):
        numbers: dict[str, Any] = {
            "requests_running": 2.0,
            "requests_waiting": 0.0,
            "kv_cache_percent": 5.0,
            **(of_last if place == 3 else {}),
        }
        tags = {
            "cluster": "prod",
            "node": "n-1",
            "uuid": gpu(place, FIRST).gpu,
            "server": "vllm",
            "endpoint": f"127.0.0.1:800{place}",
            "model": "qwen",
            "engine": "0",
        }
        series += [{**tags, "at": at, "offset_seconds": 0.0, **numbers} for at in AT]
        amounts = {"requests_increase": 100.0, "preemptions_increase": 0.0}
        counted.append({**tags, **amounts, "queue_seconds_increase": 50.0})
    of_gpus = {gpu(place, FIRST).key: active(AT) for place in range(4)}
    found = time_series([pa.Table.from_pylist(series, _SERIES)], PLACE, GAUGES)
    return InferenceTelemetry(span=SPAN, step=STEP, series=found, counted=counted, gpus=of_gpus)


def active(steps: Sequence[datetime]) -> TimeSeries:
    at = np.array([micros(one) for one in steps], np.int64)
    return TimeSeries(at=at, values={ACTIVITY: np.full(len(at), 15.0)})


def only(found: list[Service]) -> Service:
    (one,) = found
    return one


def test_what_would_carry_it_is_told_with_hours_money_and_whose_it_is() -> None:
    found = services(moment(), told(), (), PRICES)
    one = only(found)
    assert one.judged is not None
    assert (one.judged.verdict.value, one.judged.needed, len(one.replicas)) == (
        "over-provisioned",
        1,
        4,
    )
    assert (one.spare_gpu_hours, one.spare_cost, one.queue_seconds) == (3.0, 6.0, 0.5)
    assert (one.holders, one.users, one.gpus) == (("pod serve/llm",), ("ann",), 4)
    grid = inference.grid(found, SPAN, PRICES)
    shown = text(grid, 80)
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "over-provisioned  qwen    4       1  8.0   0.0    5 %    15 %      3.0" in shown
    assert "qwen: 8 requests at the p95, the fullest cache 5 %; 1 of 4 replicas" in shown
    assert '"spare_cost": 6.0' in json_text(grid)
    assert csv_text(grid).splitlines()[0].startswith("verdict,model,replicas,replicas_needed")
    free = inference.grid(services(moment(), told()), SPAN)
    assert "cost" not in csv_text(free)  # without a price no money


def test_only_of_the_time_in_which_servers_were_heard_anything_is_spare() -> None:
    whole = told()
    day = replace(whole, span=(NOON - timedelta(hours=24), NOON))
    one = only(services(moment(), day, (), PRICES))
    assert (one.spare_gpu_hours, one.spare_cost) == (3.0, 6.0)


def test_the_busy_one_of_four_is_named_with_its_node_and_address() -> None:
    one = only(services(moment(), told(requests_running=20.0, requests_waiting=5.0)))
    assert one.judged is not None
    assert one.judged.verdict.value == "unbalanced"
    assert "n-1 127.0.0.1:8003 has 25 requests at once and n-1 127.0.0.1:8000 2" in one.judged.text


def test_what_is_declared_to_stand_by_is_not_blamed() -> None:
    declared = (IdleSettings(match=('owner="ann"',), standby=True),)
    one = only(services(moment(), told(), declared))
    assert one.judged is None
    assert inference.verdict(one) == "standby"


def test_a_gap_of_one_replica_says_nothing_of_how_many_would_do() -> None:
    whole = told()
    kept = {
        key: TimeSeries(one.at[:9], {name: it[:9] for name, it in one.values.items()})
        if "127.0.0.1:8002" in key
        else one
        for key, one in whole.series.items()
    }
    gpus = dict.fromkeys(whole.gpus, active(AT[:9]))
    one = only(services(moment(), replace(whole, series=kept, gpus=gpus)))
    assert one.judged is None
    assert inference.verdict(one) == "-"


NODES = [node(f"n-{number}", "prod") for number in range(260)]


class Small:
    """A store that refuses answers above its bound, as the hub does, of GPUs with one line a step."""

    def __init__(self, most_rows: int) -> None:
        self.most_rows = most_rows
        self.answers: list[int] = []

    def series(
        self,
        measurement: str,
        fields: Sequence[str],
        where: Mapping[str, str],
        span: tuple[datetime, datetime],
        step: timedelta,
    ) -> pa.Table:
        """Means of all GPUs of `NODES`; of those of the first index alone there is a server."""
        first = EPOCH + (span[0] - EPOCH) // step * step
        count = -((first - span[1]) // step)
        steps = [first + step * place for place in range(count)]
        nodes = [one for one in NODES if where.get("node", one.node) == one.node]
        gpus = [gpu(index, one) for one in nodes for index in range(2)]
        self.answers.append(len(gpus) * len(steps))
        if self.answers[-1] > self.most_rows:
            raise StoreError("the answer has more bytes than that")
        both = [(one, at) for one in gpus for at in steps]
        return pa.table(
            {
                "cluster": [one.cluster for one, _ in both],
                "node": [one.node for one, _ in both],
                "uuid": [one.gpu for one, _ in both],
                "model": ["H100"] * len(both),
                "at": [at for _, at in both],
                "sm_activity_percent": pa.array([15.0] * len(both)),
                "utilization_percent": pa.array([None] * len(both), pa.float64()),
            }
        )


@pytest.mark.parametrize("count", [2, 260])
def test_the_activity_of_any_number_of_gpus_is_asked_for_in_answers_that_are_small(
    count: int,
) -> None:
    wanted = {gpu(0, one).key for one in NODES[:count]}
    nodes = {("prod", one.node) for one in NODES[:count]}
    store = Small(520 * 12)
    found = activity(store, nodes, wanted, SPAN, STEP)
    assert set(found) == wanted
    for one in found.values():
        assert one.at.tolist() == [micros(at) for at in AT]
        assert one.values[ACTIVITY].tolist() == [15.0] * len(AT)
    assert sum(store.answers) == count * 2 * len(AT)


@pytest.mark.medium
@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 5000), st.integers(1, 50))
@settings(max_examples=30)
def test_pieces_are_the_span_and_cut_no_step_in_two(
    after: int, seconds: int, of_step: int, steps: int
) -> None:
    start, step = NOON + timedelta(seconds=after), timedelta(seconds=of_step)
    span = start, start + timedelta(seconds=seconds)
    found = list(pieces(span, step, steps))
    assert [one[1] for one in found[:-1]] == [one[0] for one in found[1:]]
    assert not found or (found[0][0], found[-1][1]) == span
    for begin, end in found:
        assert begin < end <= begin + steps * step
        assert end == span[1] or not (end - EPOCH) % step


_LINE = st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from(["GPU-1", "GPU-2", ""]),
    st.integers(0, 5),
    st.sampled_from([None, 1.0, 2.0]),
)


@given(st.lists(_LINE, max_size=30, unique_by=lambda one: one[:3]), st.integers(0, 6))
def test_courses_are_the_same_as_row_by_row(
    lines: list[tuple[str, str, int, float | None]], cut: int
) -> None:
    def rows(of: list[tuple[str, str, int, float | None]]) -> pa.Table:
        columns = zip(*of, strict=True) if of else ((), (), (), ())
        nodes, uuids, at, values = columns
        return pa.table(
            {
                "node": pa.array(nodes, pa.string()),
                "uuid": pa.array(uuids, pa.string()),
                "at": pa.array([AT[one] for one in at], pa.timestamp("us", "UTC")),
                "x": pa.array(values, pa.float64()),
            }
        )

    ordered = sorted(lines, key=lambda one: one[:3])
    pieces_of = [[one for one in ordered if (one[2] < cut) is early] for early in (True, False)]
    found = time_series(map(rows, pieces_of), ("node",), ("x",))
    steps = np.array([micros(at) for at in AT[:6]], np.int64)
    assert {key for (key,) in found} == {node for node, *_ in lines}
    for (name,), one in found.items():
        plain: dict[int, float] = {}
        for node_, _, at, value in ordered:
            if node_ == name and value is not None:
                plain[at] = value
        assert one.measured("x") is bool(plain)
        told = one.on(steps, "x").tolist()
        assert {n: value for n, value in enumerate(told) if not isnan(value)} == plain


@pytest.mark.server
def test_a_real_hub_tells_of_servers_and_of_the_activity_of_their_gpus(tmp_path: Path) -> None:
    """Two GPUs behind one address, and a server without any; by the clock, since a hub takes nothing of long ago."""
    now = SystemClock().now()
    minutes = [now - timedelta(minutes=ago) for ago in (3, 2, 1)]
    place = {"cluster": "prod", "node": "n-1", "server": "vllm", "model": "qwen", "engine": "0"}
    rows = []
    for at in minutes:
        for uuid in ("GPU-a", "GPU-b"):
            numbers = {"requests_running": 2.0, "requests": 10}
            tags = {**place, "endpoint": "127.0.0.1:8000", "uuid": uuid}
            rows.append(encode("inference", tags, numbers, to_ns(at)))
            tags = {"cluster": "prod", "node": "n-1", "uuid": uuid, "model": "H100"}
            rows.append(encode("gpu", tags, {"up": 1, "utilization_percent": 40}, to_ns(at)))
        tags = {**place, "endpoint": "127.0.0.1:8001", "uuid": ""}
        rows.append(encode("inference", tags, {"requests_waiting": 1.0}, to_ns(at)))
    with QuickHub(tmp_path / "hub") as process:
        hub = process.hub()
        HubStore(hub).write("\n".join(row for row in rows if row).encode())
        told = query_telemetry(hub, ["prod"], (now - timedelta(minutes=10), now))
    by_address = {key[PLACE.index("endpoint")]: one for key, one in told.series.items()}
    assert set(by_address) == {"127.0.0.1:8000", "127.0.0.1:8001"}
    both, none = by_address["127.0.0.1:8000"], by_address["127.0.0.1:8001"]
    assert set(both.values["requests_running"].tolist()) == {2.0}
    assert (both.measured("requests_waiting"), none.measured("requests_waiting")) == (False, True)
    assert len(told.gpus) == 2
    assert all(set(one.values[ACTIVITY].tolist()) == {40.0} for one in told.gpus.values())
    (found,) = services(moment(), told)
    assert (len(found.replicas), found.gpus, found.numbers.running_p95) == (2, 2, 2.0)
