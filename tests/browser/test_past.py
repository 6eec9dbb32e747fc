"""A moment of the past in a real browser: chosen, kept on the way to other pages, and left again."""

import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.lineprotocol import encode
from gpuvigil.store.hub import HubStore
from gpuvigil.web import page_links
from tests.dashboard.scene import gpu
from tests.dashboard.servers import GPUS, NODES, DashboardProcess, Feed

from .accessibility import violations
from .conftest import Visit
from .places import wait_until_drawn

pytestmark = pytest.mark.server


@pytest.fixture
def then(feed: Feed) -> str:
    """A moment an hour ago, at which every GPU was busy."""
    at = SystemClock().now().replace(microsecond=0) - timedelta(hours=1)
    tags = {"cluster": "simulated", "model": "H100"}
    fields = {"up": 1, "utilization_percent": 100, "compute_processes": 1}
    lines = [
        encode(
            "gpu",
            {**tags, "node": of.node, "uuid": gpu(index, of).gpu or ""},
            {**fields, "index": index},
            to_ns(at),
        )
        for of in feed.nodes
        for index in range(GPUS)
    ]
    HubStore(feed.process.hub()).write("\n".join(filter(None, lines)).encode())
    return page_links.stamp(at)


def asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def strip(page: Page) -> str:
    return page.locator(".gv-past time").inner_text()


def test_a_moment_is_chosen_goes_along_and_is_left(
    opened: Visit, dashboard: DashboardProcess, then: str
) -> None:
    page = opened.page
    page.get_by_role("button", name=re.compile("Now")).click()
    page.get_by_label("Time in UTC").fill(then.removesuffix("Z"))
    page.get_by_role("button", name="Go").click()
    expect(page.locator(".gv-past")).to_be_visible()
    assert asked(page)["at"] == [then]
    assert strip(page).startswith("The past: ")
    assert re.search(r"· (1 h|(60|61|62) min) ago$", strip(page))
    expect(page.locator("canvas[data-cells]")).to_have_attribute("data-cells", str(NODES * GPUS))
    expect(page.locator(".legend")).to_contain_text(f"busy 0 to 100 % {NODES * GPUS}")
    link = page.get_by_role("link", name="Incidents", exact=True)
    link.hover()  # as one does who opens it beside this page
    assert f"at={then.replace(':', '%3A')}" in (link.get_attribute("href") or "")
    link.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Incidents")
    assert asked(page)["at"] == [then]
    page.get_by_role("link", name="Back to now").click()
    expect(page.locator(".gv-past")).to_have_count(0)
    assert "at" not in asked(page)
    page.go_back()
    expect(page.locator(".gv-past")).to_be_visible()
    assert opened.complaints == []


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("query", ["?", "?wall=1&"])
def test_the_past_and_the_choice_of_it_break_no_rule_of_axe(
    opened: Visit, dashboard: DashboardProcess, then: str, width: int, query: str
) -> None:
    page = opened.page
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{dashboard.url}/{query}at={then}")
    expect(page.locator(".gv-past")).to_be_visible()
    wait_until_drawn(page)
    expect(page.locator("canvas[data-cells]")).to_be_attached()
    if "wall" in query:
        expect(page.get_by_role("search")).to_be_hidden()
    else:
        page.locator(".pick").click()
        expect(page.get_by_text("Look at another time")).to_be_visible()
        box = page.locator(".choose").bounding_box()
        assert box is not None
        assert 0 <= box["x"] < box["x"] + box["width"] <= width
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
