"""Pages that nobody touches: what they say while the hub, the dashboard or a node is away, and after."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, WebSocket, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from benchmarks.history import Target, write
from benchmarks.past import begin
from gpuvigil.web import page_links
from simulator.cluster import build, gpu_subject
from tests.browser.places import LAYOUTS, Shown, wait_until_drawn
from tests.dashboard.scene import gpu
from tests.dashboard.servers import GPUS, NODES, DashboardProcess, Feed
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = pytest.mark.server

WALL = f"{page_links.OVERVIEW}?wall=1"
PATIENCE_SECONDS = 60.0
STALE = re.compile(r"not reporting|stopped reporting|no data since|silent for")
AWAY = re.compile("No answer from|Connection error")
SINCE = re.compile(r"No answer from the hub for .* since \d\d:\d\d:\d\d UTC")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub") as process:
        yield process


@pytest.fixture
def dashboard(hub: HubProcess, tmp_path: Path) -> Iterator[DashboardProcess]:
    with DashboardProcess(tmp_path, hub) as process:
        yield process


@pytest.fixture
def screen(browser: Browser, dashboard: DashboardProcess) -> Iterator[BrowserContext]:
    """A browser that is signed in."""
    context = browser.new_context(viewport={"width": 1920, "height": 1080})
    page = context.new_page()
    page.goto(dashboard.link())
    wait_until_drawn(page)
    page.close()
    yield context
    context.close()


def opened(screen: BrowserContext, dashboard: DashboardProcess, address: str) -> Page:
    page = screen.new_page()
    page.goto(dashboard.url + address)
    wait_until_drawn(page)
    return page


def seen(pages: Mapping[str, Page], text: re.Pattern[str]) -> set[str]:
    """The pages on which the text can be read now."""
    return {
        path for path, page in pages.items() if page.get_by_text(text).filter(visible=True).count()
    }


def in_time(pages: Mapping[str, Page], text: re.Pattern[str], wanted: set[str]) -> set[str]:
    """The pages on which the text can be read: as soon as they are `wanted`, or after a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := seen(pages, text)) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_every_page_says_since_when_the_hub_is_away_and_goes_on_when_it_is_back(
    hub: HubProcess, dashboard: DashboardProcess, screen: BrowserContext
) -> None:
    with Feed(hub) as feed:
        shown = Shown(gpu=gpu(0, feed.nodes[1]))
        pages = {path: opened(screen, dashboard, shown.address(path)) for path in LAYOUTS}
        hub.kill()
        everywhere = set(pages)
        assert in_time(pages, SINCE, everywhere) == everywhere
        hub.start()
        assert in_time(pages, SINCE, set()) == set()


def test_a_wall_recovers_by_itself_when_hub_and_dashboard_were_killed(
    hub: HubProcess, dashboard: DashboardProcess, screen: BrowserContext
) -> None:
    with Feed(hub):
        page = opened(screen, dashboard, WALL)
        cells = page.locator("canvas[data-cells]")
        expect(cells).to_have_attribute("data-cells", str(NODES * GPUS))
        page.evaluate("window.stays = true")
        hub.kill()
        dashboard.kill()
        alone = {WALL: page}
        assert in_time(alone, AWAY, {WALL}) == {WALL}
        hub.start()
        dashboard.start()
        assert in_time(alone, AWAY, set()) == set()
        expect(cells).to_have_attribute("data-cells", str(NODES * GPUS))
        before = page.locator(".data, [class*=data]").get_by_text("data of").first.inner_text()
        expect(page.get_by_text(before)).to_have_count(0)
        assert page.evaluate("window.stays") is True


def gpuvigil(command: str, *arguments: str, config: Path) -> list[str]:
    return [sys.executable, "-m", "gpuvigil", command, *arguments, "--config", str(config)]


@pytest.fixture
def simulator(hub: HubProcess, tmp_path: Path) -> Iterator[Path]:
    """The configuration of a simulated cluster that runs."""
    config = tmp_path / "simulator.toml"
    config.write_text(
        f'[hub]\nurl = "{hub.url}"\ncollector_token_file = "{hub.collector_token_file}"\n'
        f'[simulator]\nnodes = 4\nspool_directory = "{tmp_path}/spool"\n'
        f'faults_file = "{tmp_path}/faults.json"\n',
        encoding="utf-8",
    )
    process = subprocess.Popen(gpuvigil("simulate", config=config))
    client = hub.hub()
    wait_until("every node is heard", lambda: len(client.status()["nodes"]) == 4, 60)
    yield config
    process.terminate()
    process.wait(20)


def test_a_silent_node_is_named_as_stale_on_every_page_that_shows_it(
    simulator: Path, dashboard: DashboardProcess, screen: BrowserContext
) -> None:
    node = build(4, 8, seed=1).nodes[2]
    shown = Shown(gpu=gpu_subject(node, 0))
    paths = set(LAYOUTS) - {
        page_links.INCIDENTS,
        page_links.SILENCES,
        page_links.REPORTS,
    }  # which show no number of a node
    pages = {path: opened(screen, dashboard, shown.address(path)) for path in paths}
    assert in_time(pages, STALE, set()) == set()
    silence = gpuvigil("inject", "node-silent", "--node", node.subject.node, config=simulator)
    subprocess.run(silence, check=True, capture_output=True)
    assert in_time(pages, STALE, paths) == paths


class Charts:
    """Every chart's data as it was sent to a page."""

    def __init__(self, page: Page) -> None:
        self.tables: list[pa.Table] = []
        page.on("websocket", self._follow)

    def _follow(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: self._read(payload))  # noqa: PLW0108 - it marks what it calls

    def _read(self, payload: bytes | str) -> None:
        if isinstance(payload, str):
            return
        message = ForwardMsg.FromString(payload)
        if message.WhichOneof("type") == "delta":
            for dataset in message.delta.new_element.echarts_chart.datasets:
                with pa.ipc.open_stream(dataset.data.data) as reader:
                    self.tables.append(reader.read_all())


def test_what_was_lost_is_a_gap_in_every_chart_and_never_0(
    hub: HubProcess, dashboard: DashboardProcess, screen: BrowserContext
) -> None:
    past = begin(8, timedelta(hours=1), tick_seconds=10.0)
    target = Target(url=hub.url, token_file=hub.collector_token_file)
    done = write(past, target, processes=1)
    (silent,) = [fault for fault in past.faults if fault.name == "node-silent"]
    node = next(it for it in past.cluster().nodes if it.subject.node == silent.node)
    page = screen.new_page()
    charts = Charts(page)
    page.goto(
        dashboard.url + page_links.subject_page(gpu_subject(node, 0), past.origin, done.until)
    )
    expect(page.locator("[data-testid='stEChartsChart'] canvas").first).to_be_visible()
    wait_until_drawn(page)
    assert silent.cleared_at is not None
    step = timedelta(seconds=30)
    first, last = silent.at + step, silent.cleared_at - 2 * step
    assert len(charts.tables) >= 3
    for table in charts.tables:
        inside = [
            row
            for row in table.to_pylist()
            if first.timestamp() * 1000 <= row["at"] <= last.timestamp() * 1000
        ]
        assert inside
        for row in inside:
            assert {value for name, value in row.items() if name != "at"} == {None}
        assert any(table.column(name).null_count < len(table) for name in table.column_names[1:])
