"""The pages of a GPU and of a node, and the search that leads to them, in a real browser."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.store.hub import HubStore
from gpuvigil.web import page_links
from tests.dashboard.device_past import NODE, SPAN, TICK, gpu_line, known, write_past
from tests.dashboard.scene import gpu, node
from tests.dashboard.servers import GPUS, DashboardProcess, Feed
from tests.servers import HubProcess

from .accessibility import violations
from .conftest import Visit

pytestmark = pytest.mark.server

# The page of GPU 1 has six charts, none of which is measured here but these.
MEASURED = 4
CHART = ".stMain [data-testid='stEChartsChart'] canvas"


@pytest.fixture(scope="module")
def start(hub: HubProcess, feed: Feed) -> datetime:
    """When the past began: it ended an hour ago."""
    assert feed.nodes
    begin = SystemClock().now().replace(second=0, microsecond=0) - timedelta(minutes=90)
    write_past(hub, begin)
    here = replace(known(SystemClock().now()), rack=None)
    hub.hub().write_records([here.to_record()])
    return begin


def query_of(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def past_of(index: int, start: datetime) -> str:
    return page_links.subject_page(gpu(index, NODE), start, start + SPAN)


def go(page: Page, dashboard: DashboardProcess, address: str) -> None:
    """Open an address, signed in."""
    path, _, query = address.partition("?")
    signed = parse_qs(urlsplit(dashboard.link()).query)["token"][0]
    page.goto(f"{dashboard.url}{path}?{query}&{urlencode({'token': signed})}")


def drawn(page: Page, count: int) -> list[str]:
    """The charts as they are drawn, once none of them changes any more."""
    expect(page.locator(CHART)).to_have_count(count)
    pictures = f"[...document.querySelectorAll({CHART!r})].map((it) => it.toDataURL())"
    before: list[str] = []
    for _ in range(40):
        page.wait_for_timeout(500)
        now: list[str] = page.evaluate(pictures)
        if now == before and len(set(now)) == count:
            return now
        before = now
    raise AssertionError("the charts never came to rest")


def test_a_link_shows_the_same_points_today_and_when_more_was_measured(
    visit: Visit, browser: Browser, dashboard: DashboardProcess, hub: HubProcess, start: datetime
) -> None:
    go(visit.page, dashboard, past_of(0, start))
    first = drawn(visit.page, MEASURED)
    later = [gpu_line(0, n, to_ns(start + SPAN + n * TICK), lost=False) for n in range(1, 60)]
    HubStore(hub.hub()).write("\n".join(later).encode())
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        again = context.new_page()
        go(again, dashboard, past_of(0, start))
        assert drawn(again, MEASURED) == first
    assert visit.hosts == {urlsplit(dashboard.url).netloc}
    assert visit.complaints == []


def test_the_window_is_changed_in_the_address_and_back_returns(
    visit: Visit, dashboard: DashboardProcess, start: datetime
) -> None:
    page = visit.page
    go(page, dashboard, past_of(0, start))
    said = page.locator(".gv-control .window")
    expect(said).to_contain_text("Fixed window: ")
    before = query_of(page)
    page.get_by_role("link", name="6 h", exact=True).click()
    expect(said).to_contain_text(", 6 h, ended")
    assert query_of(page) != before
    page.get_by_role("link", name="Live", exact=True).click()
    expect(said).to_contain_text("Live: the last 6 h")
    assert query_of(page)["last"] == "21600"
    assert "from" not in query_of(page)
    page.go_back()
    page.go_back()
    expect(said).to_contain_text(", 30 min, ended")
    assert query_of(page) == before


def test_the_map_leads_to_a_gpu_and_from_there_to_its_node_and_its_neighbour(opened: Visit) -> None:
    page = opened.page
    page.locator("canvas[data-cells]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("sim-001 · GPU 1")
    asked = query_of(page)
    assert {"from", "to"} <= asked.keys()
    assert not asked["gpu"].isdecimal(), "an index moves, the address must not"
    page.get_by_role("navigation", name="The node and its GPUs").get_by_role(
        "link", name="GPU 3"
    ).click()
    expect(heading).to_have_text("sim-001 · GPU 3")
    assert query_of(page)["from"] == asked["from"]
    page.get_by_role("link", name="sim-001", exact=True).click()
    expect(heading).to_have_text("sim-001")
    for label in ("sim-001 · GPU 3", "sim-001 · GPU 1"):
        page.go_back()
        expect(heading).to_have_text(label)
    page.go_back()
    opened.wait_for_map()
    assert opened.complaints == []


def search(page: Page, text: str) -> None:
    field = page.get_by_role("searchbox", name="Search")
    field.fill(text)
    field.press("Enter")


def test_the_search_leads_to_one_lists_several_and_explains_itself(opened: Visit) -> None:
    page = opened.page
    heading = page.get_by_role("heading", level=1)
    found = page.locator(".gv-found")
    search(page, "sim-0")
    expect(found).to_contain_text("4 hits")
    found.get_by_role("link", name="sim-003").click()
    expect(heading).to_have_text("sim-003")
    expect(found).to_have_count(0)
    search(page, "sim-002 4")
    expect(heading).to_have_text("sim-002 · GPU 4")
    search(page, (gpu(2, node("sim-004")).gpu or "")[4:])
    expect(heading).to_have_text("sim-004 · GPU 2")
    search(page, "nothing like it")
    expect(found).to_contain_text("What can be searched")
    assert opened.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [page_links.GPU, page_links.NODE])
def test_the_page_keeps_to_the_rules_of_accessibility(
    browser: Browser, dashboard: DashboardProcess, start: datetime, path: str, scheme: str
) -> None:
    subject = gpu(1, NODE) if path == page_links.GPU else NODE
    dark = scheme == "dark"
    with browser.new_context(color_scheme="dark" if dark else "light") as context:
        page = context.new_page()
        go(page, dashboard, page_links.subject_page(subject, start, start + SPAN))
        expect(page.locator(".gv-timeline .bar .span.unknown").first).to_be_visible()
        expect(page.locator(CHART).first).to_be_visible()
        assert violations(page) == []


def test_a_bar_of_the_timeline_says_its_exact_times_to_pointer_and_keyboard(
    visit: Visit, dashboard: DashboardProcess, start: datetime
) -> None:
    page = visit.page
    go(page, dashboard, past_of(1, start))
    bar = page.locator(".gv-timeline .bar .span.unknown").first
    expect(bar).to_be_visible()
    clock = r"\d\d:\d\d:\d\d( UTC on \d+ \w+)?"  # with days where midnight lies between
    times = re.compile(rf"unknown: no data · {clock} to {clock}( UTC)? · 5 min")
    expect(bar).to_have_attribute("aria-label", times)
    bar.focus()
    shown = "getComputedStyle(document.activeElement, '::after').content"
    assert times.search(page.evaluate(shown))


def test_a_live_page_goes_on_and_a_node_shows_all_of_its_gpus(
    visit: Visit, dashboard: DashboardProcess, start: datetime
) -> None:
    assert start
    page = visit.page
    go(page, dashboard, f"{page_links.NODE}?cluster={NODE.cluster}&node=sim-002&last=900")
    said = page.locator(".gv-control .window")
    expect(said).to_contain_text("Live: the last 15 min")
    before = said.text_content()
    expect(page.locator(".gv-timeline .row")).to_have_count(GPUS + 1)
    expect(said).not_to_have_text(before or "")
    assert visit.complaints == []
