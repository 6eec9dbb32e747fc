"""What is typed into the search while a page loads or is drawn anew, in a real browser: none of it is lost."""

import re

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.dashboard.servers import NODES, DashboardProcess, Feed

from .conftest import Visit

pytestmark = pytest.mark.server

PHONE = ViewportSize(width=390, height=844)
TIMES = 8
# Each stops the run of the script before it, with all that it was to say.
OVERTAKEN = """() => { let left = 25; const again = () => {
  dispatchEvent(new PopStateEvent("popstate"));
  if (--left) setTimeout(again, 40);
}; again(); }"""


def search(page: Page, text: str) -> None:
    field = page.get_by_role("searchbox", name="Search")
    field.fill(text)
    field.press("Enter")


def test_a_search_typed_while_the_page_loads_finds_its_page_every_time(
    browser: Browser, dashboard: DashboardProcess, feed: Feed
) -> None:
    for turn in range(TIMES):
        of = feed.nodes[turn % NODES]
        with browser.new_context(viewport=PHONE) as context:
            page = context.new_page()
            page.goto(dashboard.link(), wait_until="commit")
            search(page, of.node)
            expect(page).to_have_url(re.compile(rf"/node\?.*node={of.node}"))
            expect(page.get_by_role("heading", level=1)).to_have_text(of.node)


def test_a_search_is_answered_though_one_run_after_the_other_is_stopped(opened: Visit) -> None:
    page, found = opened.page, opened.page.locator(".gv-found")
    for of in ("sim-002", "sim-003"):
        page.evaluate(OVERTAKEN)
        search(page, of)
        expect(page).to_have_url(re.compile(rf"/node\?.*node={of}"), timeout=15_000)
        expect(page.get_by_role("heading", level=1)).to_have_text(of)
    page.evaluate(OVERTAKEN)
    search(page, "sim-0")
    expect(found).to_contain_text("4 hits")
    page.wait_for_timeout(1500)
    expect(found).to_contain_text("4 hits")
    search(page, "")
    expect(found).to_have_count(0)
    assert opened.complaints == []


def test_what_was_found_stands_on_no_other_page_and_back_is_one_step(opened: Visit) -> None:
    page, found = opened.page, opened.page.locator(".gv-found")
    search(page, "sim-0")
    expect(found).to_contain_text("4 hits")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Jobs")
    expect(found).to_have_count(0)
    search(page, "sim-004")
    expect(page.get_by_role("heading", level=1)).to_have_text("sim-004")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Jobs")
    page.wait_for_timeout(3000)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Jobs")
    assert opened.complaints == []
