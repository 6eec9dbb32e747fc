"""The pages of a GPU and of a node as Streamlit runs them, on a real hub with a past."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.data import live
from dashboard.data.questions import QueryCache
from dashboard.data.snapshot import Snapshot
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import AnalyzerSettings, Config
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Severity
from gpuvigil.store.hub import HubStore
from gpuvigil.web import page_links
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess, QuickHub

from .device_past import GPUS, LOST_AT, NODE, SILENT, SPAN, TICK, gpu_line, known, write_past
from .scene import gpu, incident

pytestmark = pytest.mark.server


@dataclass
class World:
    """A node's past of half an hour that ended an hour ago, on a running hub."""

    hub: HubProcess
    snapshot: Snapshot
    start: datetime

    @property
    def end(self) -> datetime:
        return self.start + SPAN

    @property
    def window(self) -> dict[str, str]:
        return page_links.window(self.start, self.end)

    def open(self, page: str, **query: str) -> AppTest:
        test = AppTest.from_file(
            str(ROOT / "dashboard" / "pages" / f"{page}.py"), default_timeout=60
        )
        for name, value in query.items():
            test.query_params[name] = value
        test.run()
        assert not test.exception
        return test


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with QuickHub(tmp_path_factory.mktemp("world") / "hub") as process:
        now = SystemClock().now().replace(minute=0, second=0, microsecond=0)
        start = now - timedelta(minutes=90)
        write_past(process, start)
        process.hub().write_records([known(start).to_record()])
        snapshot = Snapshot(process.hub, SystemClock(), AnalyzerSettings(), 0.2)
        questions = QueryCache(process.hub, SystemClock())
        live.install(live.Shared(snapshot=snapshot, questions=questions, config=Config()))
        snapshot.start()
        wait_until("the inventory", lambda: NODE in snapshot.inventories())
        yield World(process, snapshot, start)
        snapshot.stop()
        live.shared().questions.close()


def said(test: AppTest) -> str:
    return "\n".join(
        one.proto.body for one in test.get("html") if not one.proto.body.startswith("<style")
    )


def charts(test: AppTest) -> dict[str, tuple[dict[str, Any], pa.Table]]:
    """Each chart's options and data, by the key that the page gave it."""
    found = {}
    for one in test.get("echarts_chart"):
        spec = json.loads(one.proto.spec)
        (data,) = (pa.ipc.open_stream(it.data.data).read_all() for it in one.proto.datasets)
        found[one.proto.id.rpartition("-gpu-")[2].rpartition("-node-")[2]] = (spec, data)
    return found


def points(data: pa.Table, column: str) -> dict[int, float | None]:
    """The values of a line by the second after the data's first point."""
    at, values = data["at"].to_pylist(), data[column].to_pylist()
    return {round((moment - at[0]) / 1000): value for moment, value in zip(at, values, strict=True)}


def column(spec: dict[str, Any], name: str) -> str:
    (series,) = [one for one in spec["series"] if one["name"] == name]
    return str(series["encode"]["y"])


def test_a_gpu_has_its_past_in_a_fixed_window_with_the_gap_in_it(world: World) -> None:
    test = world.open(
        "gpu", cluster=NODE.cluster, node=NODE.node, gpu=gpu(0, NODE).gpu or "", **world.window
    )
    text = said(test)
    assert "Fixed window: " in text
    assert "30 min, ended" in text
    spec, data = charts(test)["power"]
    step = 20  # two ticks
    line = points(data, column(spec, "power"))
    assert len(line) == SPAN.total_seconds() / step
    for second, value in line.items():
        number = second / TICK.total_seconds()
        gap = SILENT[0].total_seconds() <= second < SILENT[1].total_seconds()
        assert value == (None if gap else 400 + number + 0.5)
    assert spec["series"][-1]["connectNulls"] is False
    assert spec["xAxis"]["min"] == world.start.timestamp() * 1000
    assert spec["xAxis"]["max"] == world.end.timestamp() * 1000


def test_a_counter_is_a_rate_without_a_spike_over_the_gap(world: World) -> None:
    test = world.open("gpu", cluster=NODE.cluster, node=NODE.node, gpu="0", **world.window)
    spec, data = charts(test)["nvlink"]
    line = points(data, column(spec, "received"))
    step = 2 * TICK
    # The step after the gap follows on none, and those at its edges may be measured in part only.
    inside, edges = (SILENT[0] + step, SILENT[1] - step), (SILENT[0] - step, SILENT[1] + step)
    for second, value in line.items():
        at = timedelta(seconds=second)
        if inside[0] <= at <= inside[1] or second == 0:
            assert value is None
        elif not edges[0] <= at <= edges[1]:
            assert value == pytest.approx(2.0)
        assert value is None or value == pytest.approx(2.0)


def test_the_page_of_a_gpu_says_who_held_it_what_happened_and_what_it_is(world: World) -> None:
    test = world.open("gpu", cluster=NODE.cluster, node=NODE.node, gpu="1", **world.window)
    text = said(test)
    lost = incident("gpu_lost", gpu(1, NODE), Severity.CRITICAL)
    assert f'href="/incidents?incident={lost.id}"' in text
    assert "Xid 79" in text
    assert "&lt;b&gt;gone" in text
    assert "<b>gone" not in text
    assert "No errors in this window: corrected ECC errors did not grow." in text
    assert "<dt>Driver</dt><dd>580.95.05</dd>" in text
    spec, _ = charts(test)["power"]
    (mark,) = spec["series"][-1]["markLine"]["data"]
    assert mark["xAxis"] == (world.start + LOST_AT).timestamp() * 1000
    assert mark["label"]["formatter"] == "Xid 79"
    (shade,) = spec["series"][-1]["markArea"]["data"]
    assert shade[0]["xAxis"] == mark["xAxis"]
    held = said(world.open("gpu", cluster=NODE.cluster, node=NODE.node, gpu="0", **world.window))
    assert "job 77 (zoe): &lt;i&gt;train" in held


def test_the_peers_of_a_gpu_are_drawn_on_its_scale_with_their_median(world: World) -> None:
    test = world.open("gpu", cluster=NODE.cluster, node=NODE.node, gpu="2", **world.window)
    spec, data = charts(test)["utilization"]
    looks = [one["name"] for one in spec["series"]]
    assert looks.count("another GPU") == GPUS - 1
    middle = points(data, column(spec, "median of the others"))
    assert middle[0] == 50.5
    assert middle[round(LOST_AT.total_seconds())] == 50
    assert points(data, column(spec, "GPU"))[0] == 52


def test_the_same_link_draws_the_same_points_when_more_was_measured_since(world: World) -> None:
    query = {"cluster": NODE.cluster, "node": NODE.node, "gpu": "0", **world.window}
    before = charts(world.open("gpu", **query))
    later = [
        gpu_line(0, number, to_ns(world.end + number * TICK), lost=False) for number in range(1, 9)
    ]
    HubStore(world.hub.hub()).write("\n".join(later).encode())
    live.shared().questions.close()
    live.install(replace(live.shared(), questions=QueryCache(world.hub.hub, SystemClock())))
    after = charts(world.open("gpu", **query))
    assert before.keys() == after.keys()
    for key, (spec, data) in before.items():
        assert data.equals(after[key][1])
        assert spec == after[key][0]


def test_a_node_has_its_gpus_side_by_side_on_one_scale_and_its_ports(world: World) -> None:
    test = world.open("node", cluster=NODE.cluster, node=NODE.node, port="mlx5_0/1", **world.window)
    text = said(test)
    drawn = charts(test)
    spec, data = drawn["power-0"]
    assert len(spec["grid"]) == GPUS
    assert len({axis["max"] for axis in spec["yAxis"]}) == 1
    assert data["line0_1"].null_count == (SILENT[1] - SILENT[0]) / TICK / 2
    spec, data = drawn["traffic-0"]
    assert points(data, "line0_1")[20] == pytest.approx(1.0)
    assert 'class="port asked">mlx5_0/1' in text
    assert "1 receive error" in text
    assert "rack-7" in text
    assert "Collector: 3 of 3 GPUs answer, nothing was dropped." in text
    for index in range(GPUS):
        assert f"gpu={gpu(index, NODE).gpu}" in text
    # What was not measured has no empty boxes.
    assert "Not measured in this window: Processors, " in text
    loads = drawn["load"]
    assert points(loads[1], column(loads[0], "load, 1 min"))[0] == 2.0


def test_a_gpu_that_is_gone_is_shown_as_the_store_remembers_it(world: World) -> None:
    uuid = "GPU-moved-away"
    tags = {"cluster": NODE.cluster, "node": "sim-099", "uuid": uuid, "model": "H100"}
    lines = [
        encode("gpu", tags, {"up": 1, "power_watts": 333.0}, to_ns(world.start + number * TICK))
        or ""
        for number in range(20)
    ]
    HubStore(world.hub.hub()).write("\n".join(lines).encode())
    for of in ("sim-001", "sim-099"):
        test = world.open("gpu", cluster=NODE.cluster, node=of, gpu=uuid, **world.window)
        assert "not known" in said(test)
        spec, data = charts(test)["power"]
        assert points(data, column(spec, "power"))[0] == 333.0


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ({"from": "x", "to": "y"}, "cannot be read"),
        ({"from": "2026-01-31T11:00:00Z", "to": "2026-01-31T10:00:00Z"}, "ends before it begins"),
        ({"from": "2199-01-01T00:00:00Z", "to": "2199-01-01T01:00:00Z"}, "lies in the future"),
        ({"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T01:00:00Z"}, "this is older"),
    ],
)
def test_a_window_that_cannot_be_shown_is_said_and_the_page_stands(
    world: World, query: dict[str, str], line: str
) -> None:
    for page in ("gpu", "node"):
        text = said(world.open(page, cluster=NODE.cluster, node=NODE.node, gpu="0", **query))
        assert text.count(line) == 1


@pytest.mark.parametrize("page", ["gpu", "node"])
def test_an_address_that_names_nothing_says_what_to_do(world: World, page: str) -> None:
    assert "search for a node" in said(world.open(page))
    text = said(world.open(page, cluster="nowhere", node="<b>", gpu="7"))
    assert "is not known in cluster" in text
    assert "<b>" not in text.replace("<b>Do now", "")


def test_a_hub_that_went_away_leaves_the_page_with_what_was_known(world: World) -> None:
    query = {"cluster": NODE.cluster, "node": NODE.node, "gpu": "0", **world.window}
    before = charts(world.open("gpu", **query))
    world.hub.stop()
    try:
        after = charts(world.open("gpu", **query))
        assert after["power"][1].equals(before["power"][1])
        never = said(world.open("node", cluster=NODE.cluster, node=NODE.node, last="900"))
        assert "What happened in this window is not known" in never
    finally:
        world.hub.start()
