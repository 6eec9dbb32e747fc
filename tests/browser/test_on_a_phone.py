"""Pages on a phone: none is wider than the screen, and out of service scrolls only downwards."""

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from gpuvigil.clock import SystemClock
from gpuvigil.model import ScheduledNode, Scheduler
from gpuvigil.web import page_links
from tests.dashboard.scene import node
from tests.dashboard.servers import DashboardProcess, Feed
from tests.servers import HubProcess

from .accessibility import violations
from .places import PATHS, wait_until_drawn

pytestmark = pytest.mark.server

WALL = f"{page_links.OVERVIEW}?wall=1"
PHONE = ViewportSize(width=390, height=844)
DRAINED = "fan tray is loud, waiting for parts OPS-1234 [ada.lovelace@2026-01-31T11:00:00]"


def test_no_page_is_wider_than_a_phone_or_keeps_anybody_out_and_a_node_out_of_service_is_a_block(
    browser: Browser, dashboard: DashboardProcess, hub: HubProcess, feed: Feed
) -> None:
    assert feed.nodes
    told = Scheduler(
        told_by=node("ctl"),
        at=SystemClock().now(),
        nodes=(ScheduledNode(name="sim-001", states=("IDLE", "DRAIN"), reason=DRAINED),),
    )
    hub.hub().write_records([told.to_record()])
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    page.goto(dashboard.link())
    page.wait_for_selector("canvas[data-cells]")
    for path in [*PATHS, WALL]:
        page.goto(f"{dashboard.url}{path}")
        wait_until_drawn(page)
        wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
        assert wide <= PHONE["width"], path
        assert violations(page) == [], path
    page.goto(f"{dashboard.url}{page_links.OUT_OF_SERVICE}")
    table = page.get_by_role("group", name="Nodes out of service")
    expect(table.get_by_text("OPS-1234").first).to_be_visible()
    assert table.evaluate("it => it.scrollWidth <= it.clientWidth")
    assert table.locator("td").first.evaluate("it => getComputedStyle(it).display") == "block"
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(table.get_by_role("columnheader", name="Ticket")).to_be_visible()
    assert table.locator("td").first.evaluate("it => getComputedStyle(it).display") == "table-cell"
    context.close()
