"""A screen on a wall: readable from afar, nobody scrolls it, nobody reloads it."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.servers import GPUS, NODES, DashboardProcess, Feed
from tests.servers import HubProcess

from .conftest import Visit
from .places import wait_until_worn

pytestmark = pytest.mark.server

SIZES = """() => ({
  root: getComputedStyle(document.documentElement).fontSize,
  value: getComputedStyle(document.querySelector('.gv-strip .value')).fontSize,
  high: document.querySelector('.stMain').scrollHeight,
  wide: document.querySelector('.stMain').scrollWidth,
})"""


def hang(visit: Visit, dashboard: DashboardProcess) -> Page:
    page = visit.page
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.goto(dashboard.link("wall=1"))
    wait_until_worn(page)
    expect(page.locator(".stApp")).to_have_css("background-color", "rgb(13, 17, 23)")
    visit.wait_for_map()
    return page


def is_renewed(page: Page) -> None:
    """Data younger than what is shown now come, without anybody's doing."""
    before = page.locator("time[data-drawn]").inner_text()
    page.wait_for_function(
        "before => document.querySelector('time[data-drawn]').innerText > before",
        arg=before,
    )


def test_a_wall_is_dark_large_and_fits_without_scrolling(
    visit: Visit, dashboard: DashboardProcess
) -> None:
    # What the overview says below its chart once a minute is counted has no room on a wall.
    visit.page.goto(dashboard.link())
    expect(visit.page.get_by_text("In this time: ").first).to_be_visible()
    page = hang(visit, dashboard)
    expect(page.get_by_role("heading", name="What changed")).to_be_visible()
    expect(page.locator("canvas[data-cells]")).to_have_attribute("data-cells", str(NODES * GPUS))
    assert page.evaluate(SIZES) == {"root": "18px", "value": "54px", "high": 1080, "wide": 1920}
    expect(page.get_by_role("navigation")).to_be_hidden()
    expect(page.locator("time[data-drawn]")).to_contain_text("data of ")
    assert visit.complaints == []


def test_a_wall_that_is_not_renewed_any_more_says_so_by_itself(
    visit: Visit, hub: HubProcess, feed: Feed, tmp_path: Path
) -> None:
    assert feed.nodes
    process = DashboardProcess(tmp_path, hub)
    process.__enter__()
    page = hang(visit, process)
    is_renewed(page)
    process.process.kill()
    process.process.wait(15)
    said = page.get_by_text("No answer from the dashboard")
    expect(said).to_be_visible()
    expect(said).to_contain_text("everything below is as it was then (data of ")
    # Streamlit's own words about it would cover the numbers.
    page.locator("[data-testid='stDialog']").first.wait_for(state="attached")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("canvas[data-cells]")).to_have_attribute("data-cells", str(NODES * GPUS))
