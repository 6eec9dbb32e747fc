"""The hub or the store goes away while nobody looks, and is back when somebody does."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from datetime import time as clock_time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from dashboard.data.snapshot import UNWATCHED_AFTER_SECONDS
from gpuvigil.config import load
from gpuvigil.model import Severity, Silence
from gpuvigil.store.configured import hubs
from gpuvigil.store.external import store_of
from gpuvigil.web import page_links
from simulator.cluster import build, gpu_subject
from tests.browser.places import LAYOUTS, LINK, Shown, wait_until_drawn
from tests.dashboard.scene import incident
from tests.dashboard.servers import DashboardProcess
from tests.polling import wait_until
from tests.servers import HubProcess
from tests.services import commands, running, simulated
from tests.timeseries import VictoriaMetrics

pytestmark = [pytest.mark.site, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

NODES, SEED, TICK_SECONDS = 2, 1, 1.0
FRESH_SECONDS = 5.0
# Of a store that is away one page of each kind of question tells; every page without its hub.
OF_THE_STORE = (
    page_links.OVERVIEW,
    page_links.NODE,
    page_links.GPU,
    page_links.JOB,
    page_links.EFFICIENCY,
    LINK,
)
AWAY = re.compile(r"No answer|as it was|As of|not known|not heard yet|stopped reporting|no data")
MOMENT = re.compile(r"\d\d:\d\d:\d\d")
# What says from when a page is: the line over it, banners, notes, and lines in the place of content.
CLOCKS = ".gv-head .data, .gv-banner, .gv-note, .lost, [role=status]"


@dataclass
class Site:
    """A simulated cluster with a dashboard for each of these pages: every one of them is opened first."""

    hub: HubProcess
    config: Path
    dashboards: Mapping[str, DashboardProcess]
    stop: Callable[[], object]
    start: Callable[[], None]

    def rows_at(self) -> datetime:
        """When the newest row was measured."""
        client = hubs(load(self.config))()
        try:
            since = datetime.now(timezone.utc) - timedelta(seconds=10)
            rows = store_of(client).latest("gpu", ["up"], since)
            return max(rows["at"].to_pylist(), default=since)
        finally:
            client.close()


@pytest.fixture(params=["hub", "victoriametrics"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        hub = stack.enter_context(HubProcess(tmp_path / "hub"))
        config = simulated(tmp_path, hub, NODES, TICK_SECONDS, SEED)
        server: HubProcess | VictoriaMetrics = hub
        store, pages = "", tuple(LAYOUTS)
        if request.param == "victoriametrics":
            server = stack.enter_context(VictoriaMetrics(tmp_path / "vm"))
            store = f'[store]\nkind = "victoriametrics"\nurl = "{server.url}"\n'
            config.write_text(config.read_text() + store)
            pages = OF_THE_STORE
        stack.enter_context(running(tmp_path, config, commands("simulate")))
        dashboards = {}
        for number, path in enumerate(pages):
            folder = tmp_path / f"dashboard-{number}"
            folder.mkdir()
            process = DashboardProcess(folder, hub, store)
            # One sign-in for all: to a browser they are one host.
            process.secrets = tmp_path / "secrets"
            dashboards[path] = stack.enter_context(process)
        stop = hub.kill if isinstance(server, HubProcess) else server.stop
        yield Site(hub=hub, config=config, dashboards=dashboards, stop=stop, start=server.start)


@pytest.fixture
def screen(browser: Browser, site: Site) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(site.dashboards[page_links.OVERVIEW].link())
    wait_until_drawn(page)
    page.close()
    yield context
    context.close()


def said(page: Page) -> list[str]:
    """What the page says of from when it is."""
    shown = page.locator(CLOCKS).filter(visible=True).all_inner_texts()
    inside = page.get_by_text(AWAY).filter(visible=True).all_inner_texts()
    return [*shown, *inside]


def moments(page: Page) -> set[str]:
    return {found for text in said(page) for found in MOMENT.findall(text)}


def one_clock(pages: Mapping[str, Page]) -> bool:
    """Whether every page says since when it is old, and names no other moment as its own."""
    return all(
        len(moments(page)) == 1 and "No answer" in "".join(said(page)) for page in pages.values()
    )


def is_fresh(page: Page, wanted: str) -> bool:
    """Whether the page has what happened since, no old number, and nothing that excuses one."""
    text = page.locator("body").inner_text()
    stamp = re.search(r"data of (\S+ )?(\d\d:\d\d:\d\d)", text)
    if stamp is not None:
        now = datetime.now(timezone.utc)
        at = datetime.combine(now.date(), clock_time.fromisoformat(stamp[2]), now.tzinfo)
        if now - at > timedelta(seconds=FRESH_SECONDS):
            return False
    if wanted and not page.get_by_text(wanted).filter(visible=True).count():
        return False
    return not page.get_by_text(AWAY).filter(visible=True).count()


def test_every_page_is_fresh_when_it_is_opened_after_an_outage_that_nobody_saw(
    site: Site, screen: BrowserContext
) -> None:
    node = build(NODES, 8, seed=SEED).nodes[0]
    gpu = gpu_subject(node, 0)
    shown = Shown(gpu=gpu)
    usual = {}
    for path, dashboard in site.dashboards.items():
        page = screen.new_page()
        page.goto(dashboard.url + shown.address(path))
        opened = time.monotonic()
        wait_until_drawn(page)
        usual[path] = time.monotonic() - opened
        page.close()
    site.stop()
    time.sleep(UNWATCHED_AFTER_SECONDS + 5)
    site.start()
    back = datetime.now(timezone.utc)
    wait_until("numbers come again", lambda: site.rows_at() > back, 60)
    now = datetime.now(timezone.utc)
    lost = incident("gpu_lost", gpu, Severity.CRITICAL, since=now)
    end = now + timedelta(hours=1)
    silence = Silence(
        id="1", matchers=(), by="alice", reason="a new riser", at=now, starts_at=now, ends_at=end
    )
    site.hub.hub().write_records([lost.to_record(), silence.to_record()])
    only_now = {page_links.INCIDENTS: lost.title, page_links.SILENCES: silence.reason}
    late, pages = {}, {}
    for path, dashboard in site.dashboards.items():
        page = screen.new_page()
        page.goto(dashboard.url + shown.address(path))
        opened = time.monotonic()
        wanted = only_now.get(path, "")
        while not is_fresh(page, wanted) and time.monotonic() - opened < 30:
            time.sleep(0.1)
        took = time.monotonic() - opened
        if took > FRESH_SECONDS + usual[path]:  # what it takes on this machine, however busy
            late[path] = (took, said(page))
        pages[path] = page
    assert not late
    site.stop()
    wait_until("one clock on every page", lambda: one_clock(pages), 30)
