"""Services of a small fleet: bound to who holds their GPUs, told in 80 columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.activity import activity, pieces
from dashboard.serving import Service, Told, services
from dashboard.terminal import inference
from dashboard.terminal.fleet import Moment, moment_of
from dashboard.terminal.grid import csv_text, json_text, text
from gpuvigil.clock import EPOCH
from gpuvigil.config import AnalyzerSettings, CostSettings, IdleSettings, PriceSettings
from gpuvigil.errors import StoreError
from gpuvigil.money import Prices
from tests.dashboard.scene import NOON, allocation, busy_fleet, gpu, node

FIRST = node("n-1", "prod")
SPAN = (NOON - timedelta(hours=1), NOON)
STEP = timedelta(minutes=1)
AT = [SPAN[0] + STEP * place for place in range(60)]
PRICES = Prices(
    settings=CostSettings(prices=(PriceSettings(model="H100", per_gpu_hour=2.0),), currency="EUR")
)


def moment() -> Moment:
    held = tuple(allocation(gpu(i, FIRST), "pod serve/llm", "ann") for i in range(4))
    return moment_of(replace(busy_fleet([FIRST], 4), allocations=held), AnalyzerSettings())


def told(**of_last: float | None) -> Told:
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
    active: dict[datetime, float] = dict.fromkeys(AT, 15.0)
    of_gpus = {gpu(place, FIRST).key: active for place in range(4)}
    return Told(span=SPAN, step=STEP, series=series, counted=counted, gpus=of_gpus)


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
    shown = text(grid, 80, quiet=False)
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
    assert "n-1 127.0.0.1:8003 has 25 requests at once and n-1 127.0.0.1:8000 2" in one.judged.said


def test_what_is_declared_to_stand_by_is_not_blamed() -> None:
    declared = (IdleSettings(match=('owner="ann"',), standby=True),)
    one = only(services(moment(), told(), declared))
    assert one.judged is None
    assert inference.verdict(one) == "standby"


def test_a_gap_of_one_replica_says_nothing_of_how_many_would_do() -> None:
    whole = told()
    kept = [row for row in whole.series if row["endpoint"] != "127.0.0.1:8002" or row["at"] < AT[9]]
    gpus = {key: dict.fromkeys(AT[:9], 15.0) for key in whole.gpus}
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
    assert found == {key: dict.fromkeys(AT, 15.0) for key in wanted}
    assert sum(store.answers) == count * 2 * len(AT)


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
