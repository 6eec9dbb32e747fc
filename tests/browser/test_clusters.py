"""Simulated and real clusters side by side, in a real browser."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from gpuvigil.clock import SystemClock
from tests.dashboard.scene import inventory, node
from tests.dashboard.servers import GPUS, NODES, DashboardProcess, Feed

from .conftest import Visit

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def test_a_person_chooses_one_cluster_and_the_address_keeps_it(
    visit: Visit, dashboard: DashboardProcess, feed: Feed
) -> None:
    real = inventory(node("r1", "real"), gpus=3, at=SystemClock().now())
    feed.hub.write_records([real.to_record()])
    page = visit.page
    page.goto(dashboard.link())
    visit.wait_for_map()
    canvas = page.locator("canvas[data-cells]")
    expect(canvas).to_have_attribute("data-cells", "3")
    expect(page.get_by_text("SIMULATED: no real hardware")).to_be_hidden()
    expect(page.get_by_text("1 node has stopped reporting in cluster real")).to_be_visible()
    page.get_by_role("radio", name="simulated").click()
    expect(canvas).to_have_attribute("data-cells", str(NODES * GPUS))
    expect(page).to_have_url(re.compile("cluster=simulated"))
    expect(page.get_by_text("SIMULATED: no real hardware")).to_be_visible()
    page.get_by_role("radio", name="real").click()
    expect(canvas).to_have_attribute("data-cells", "3")
    page.wait_for_timeout(1500)
    expect(canvas).to_have_attribute("data-cells", "3")
    assert visit.hosts == {urlsplit(dashboard.url).netloc}
    assert visit.complaints == []
