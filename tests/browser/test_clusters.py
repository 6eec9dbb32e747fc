"""Simulated and real clusters side by side, in a real browser."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.store.hub import HubStore
from tests.dashboard.scene import gpu, inventory, node
from tests.dashboard.servers import GPUS, NODES, DashboardProcess, Feed

from .conftest import Visit

pytestmark = pytest.mark.server


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
    expect(page.get_by_text("1 node is not reporting in cluster real")).to_be_visible()
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


def test_where_nobody_says_who_holds_gpus_the_legend_counts_neither_free_nor_held_ones(
    visit: Visit, dashboard: DashboardProcess, feed: Feed
) -> None:
    """As a cluster that only an exporter without labels tells of."""
    of, now = node("x1", "exported"), SystemClock().now()
    feed.hub.write_records([inventory(of, gpus=2, at=now).to_record()])
    for index in range(2):
        tags = {"cluster": of.cluster, "node": of.node, "uuid": gpu(index, of).gpu or ""}
        fields = {"up": 1, "index": index, "utilization_percent": 97 * index}
        HubStore(feed.hub).write((encode("gpu", tags, fields, to_ns(now)) or "").encode())
    visit.page.goto(dashboard.link())
    visit.wait_for_map()
    visit.page.get_by_role("radio", name="exported").click()
    legend = visit.page.get_by_role("list", name="Legend")
    expect(legend).to_contain_text("unknown 1")
    for said in ("free –", "allocated but idle –", "unavailable or failing 0"):
        expect(legend).to_contain_text(said)
    visit.page.get_by_role("radio", name="simulated").click()
    expect(legend).to_contain_text(re.compile(r"free [1-9]"))


def test_the_name_of_a_rack_on_the_map_leads_to_the_rack_as_its_letter_does(
    visit: Visit, dashboard: DashboardProcess, feed: Feed
) -> None:
    nodes, now = [node(f"k{number}", "racked") for number in (1, 2)], SystemClock().now()
    feed.hub.write_records([inventory(it, rack="rack-7", at=now).to_record() for it in nodes])
    page = visit.page
    page.goto(dashboard.link())
    visit.wait_for_map()
    page.get_by_role("radio", name="racked").click()
    canvas = page.locator("canvas[data-cells]")
    expect(canvas).to_have_attribute("data-cells", "16")
    canvas.click(position={"x": 80, "y": 6})
    page.wait_for_url(re.compile("/hardware.*rack=rack-7"))
    expect(page.get_by_role("heading", level=1)).to_have_text("rack-7")
    page.go_back()
    visit.wait_for_map()
    canvas.focus()
    page.keyboard.press("r")
    page.wait_for_url(re.compile("/hardware.*rack=rack-7"))
    assert visit.complaints == []
