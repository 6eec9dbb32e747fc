"""The pages of incidents and of the pipeline in a real browser."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from gpuvigil.clock import SystemClock
from gpuvigil.model import Acknowledgement, Impact, Incident, RecordKind, Severity
from tests.dashboard.scene import gpu, incident, node, notice
from tests.dashboard.servers import DashboardProcess, Feed

from .accessibility import violations
from .conftest import Visit

pytestmark = pytest.mark.server

HOSTILE = "GPU fell off the bus <img src=x onerror='hit = 1'>"
FOCUSED = """() => {
  let it = document.activeElement;
  while (it?.shadowRoot?.activeElement) it = it.shadowRoot.activeElement;
  return it?.getAttribute("href") ?? it?.getAttribute("aria-label") ?? it?.localName;
}"""


def written(feed: Feed) -> tuple[Incident, Incident]:
    """One that stands, of which a message was held, and one that is over."""
    now = SystemClock().now()
    lost = replace(
        incident("gpu_lost", gpu(3, node("sim-002")), Severity.CRITICAL, label="sim-002 GPU 3"),
        title=HOSTILE,
        since=now - timedelta(minutes=9),
        action="Drain the node.",
    )
    down = replace(
        incident("port_down", node("sim-004"), Severity.WARNING, state="resolved"),
        since=now - timedelta(hours=3),
        resolved_at=now - timedelta(hours=2),
    )
    held = notice(lost, at=now, state="held", verdict="below_minimum", reason="ops wants worse")
    feed.hub.write_records([lost.to_record(), down.to_record(), held])
    return lost, down


@pytest.fixture
def page(visit: Visit, dashboard: DashboardProcess) -> Iterator[Page]:
    """The list, signed in."""
    visit.page.goto(dashboard.link())
    visit.page.get_by_role("link", name="Incidents").click()
    expect(visit.page.get_by_role("heading", name=re.compile("^Open"))).to_be_visible()
    yield visit.page
    assert visit.hosts == {urlsplit(dashboard.url).netloc}
    assert visit.complaints == []


def tab_to(page: Page, wanted: str) -> None:
    """Go on with the Tab key until what has the focus says `wanted`."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if wanted in page.evaluate(FOCUSED):
            return
    raise AssertionError(f"the Tab key never came to {wanted!r}")


def test_an_incident_is_opened_and_acknowledged_with_the_keyboard_alone(
    page: Page, feed: Feed
) -> None:
    lost, _ = written(feed)
    expect(page.locator("strong", has_text=HOSTILE)).to_be_visible()
    tab_to(page, lost.id)
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nobody has taken it.")).to_be_visible()
    expect(page.get_by_text("ops wants worse").first).to_be_visible()
    assert page.evaluate(FOCUSED) == "h2"
    expect(page.get_by_role("button", name="Acknowledge", exact=True)).to_be_visible()
    tab_to(page, "Your name")
    page.keyboard.type("Ann <b>")
    page.wait_for_timeout(2500)  # the page renews itself while one types
    page.keyboard.press("Tab")
    page.keyboard.type("driving there")
    tab_to(page, "button")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Taken by Ann <b>. Reminders end")).to_be_visible()
    expect(page.get_by_label("Your name")).to_have_value("Ann <b>")
    expect(page.get_by_label("What you know or are doing about it").first).to_have_value("")
    (kept,) = feed.process.hub().records(RecordKind.ACKNOWLEDGEMENT, parent=lost.id)
    assert Acknowledgement.from_record(kept).note == "driving there"
    assert page.evaluate("typeof hit") == "undefined"


def test_filters_are_in_the_address_and_back_leads_to_the_list_before(
    page: Page, feed: Feed
) -> None:
    lost, down = written(feed)
    active = page.locator("li", has_text="sim-002 GPU 3")
    over = page.locator("li", has_text="sim-004")
    expect(active).to_be_visible()
    expect(over).to_be_visible()
    page.get_by_role("link", name=re.compile(r"^Resolved \d")).click()
    expect(page).to_have_url(re.compile(r"/incidents\?show=past$"))
    expect(active).to_be_hidden()
    page.get_by_label("Text in incidents").fill("sim-004")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"show=past&q=sim-004|q=sim-004&show=past"))
    expect(over).to_be_visible()
    over.get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"incident={down.id}"))
    expect(page.get_by_text("It is over: there is nothing to acknowledge.")).to_be_visible()
    expect(page.get_by_label("Your name")).to_be_hidden()
    # One page after the other, as a person does: a page that is left before it is connected is
    # shown with the address of another.
    page.go_back()
    expect(page.get_by_label("Text in incidents")).to_have_value("sim-004")
    expect(over).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"/incidents\?show=past$"))
    expect(page.get_by_label("Text in incidents")).to_have_value("")
    expect(active).to_be_hidden()
    page.go_back()
    expect(page).to_have_url(re.compile(r"/incidents$"))
    expect(active).to_be_visible()
    address = page.url
    page.goto(f"{address}?incident={lost.id}&show=past")
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()


def test_an_entry_keeps_the_focus_while_the_list_renews_itself(page: Page, feed: Feed) -> None:
    lost, _ = written(feed)
    expect(page.locator("strong", has_text=HOSTILE)).to_be_visible()
    tab_to(page, lost.id)
    other = replace(
        incident("driver_silent", node("sim-001"), Severity.CRITICAL, gpus=8),
        since=SystemClock().now(),
    )
    feed.hub.write_records([other.to_record()])
    expect(page.locator("li", has_text="driver_silent")).to_be_visible()
    assert lost.id in page.evaluate(FOCUSED)
    ended = replace(other, state="resolved", version=2, resolved_at=SystemClock().now())
    feed.hub.write_records([ended.to_record()])
    expect(page.locator("li.critical", has_text="driver_silent")).to_be_hidden()
    assert lost.id in page.evaluate(FOCUSED)


def test_idle_gpus_of_one_user_are_one_row_which_leads_to_each_of_them(
    page: Page, feed: Feed
) -> None:
    impact = Impact(gpus=1, holders=("job 9",), users=("ann",), text="1 GPU of job 9")
    idle = [
        replace(incident("gpu_idle_held", gpu(at, node("sim-003")), Severity.INFO), impact=impact)
        for at in range(4)
    ]
    feed.hub.write_records([one.to_record() for one in idle])
    row = page.locator("li.info", has_text="4 GPUs of job 9 of ann")
    expect(row).to_be_visible()
    page.get_by_role("link", name="Overview").first.click()
    of_all = page.locator(".attention li.info", has_text="4 GPUs of job 9 of ann")
    expect(of_all).to_be_visible()
    of_all.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/incidents\?show=active&fault=gpu_idle_held$"))
    expect(page.locator("li.info")).to_have_count(len(idle))
    expect(row).to_be_hidden()
    over = [replace(one, state="resolved", version=2) for one in idle]
    feed.hub.write_records([one.to_record() for one in over])


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_nobody_is_shut_out_of_the_incidents_or_the_pipeline(
    page: Page, feed: Feed, scheme: Literal["dark", "light"]
) -> None:
    lost, _ = written(feed)
    page.emulate_media(color_scheme=scheme)
    base = page.url
    expect(page.locator("strong", has_text=HOSTILE)).to_be_visible()
    page.wait_for_timeout(500)
    assert violations(page) == []
    page.goto(f"{base}?incident={lost.id}")
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(page.get_by_label("Your name")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("link", name="Monitoring").click()
    expect(page.get_by_role("heading", name="Collectors of simulated")).to_be_visible()
    assert violations(page) == []


def test_the_pipeline_says_that_the_hub_is_away_and_keeps_what_it_knew(
    page: Page, feed: Feed
) -> None:
    page.get_by_role("link", name="Monitoring").click()
    expect(page.get_by_role("heading", name="Collectors of simulated")).to_be_visible()
    feed.process.stop()
    expect(page.get_by_text("No answer from the hub")).to_be_visible()
    expect(page.get_by_role("heading", name="Collectors of simulated")).to_be_visible()
    feed.process.start()
    expect(page.get_by_text("No answer from the hub")).to_be_hidden()
