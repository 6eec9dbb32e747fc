"""The overview in a real browser."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.cluster import Look
from gpuvigil.model import Severity
from tests.dashboard.scene import gpu, incident, node
from tests.dashboard.servers import GPUS, LOOKS, NODES, DashboardProcess, Feed

from .conftest import Visit

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]

# What is said of every state when the pointer is on it.
SAID = {
    Look.ACTIVE: "busy",
    Look.IDLE: "held, idle now: held, 0 % now",
    Look.FAILED: "FAILED: missing: lost",
    Look.FREE: "free: held by nobody",
}


def canvas(page: Page) -> Locator:
    return page.locator("canvas[data-cells]")


def tip(page: Page) -> Locator:
    return page.locator(".tip")


def walk_to(page: Page, steps: int) -> None:
    canvas(page).focus()
    page.keyboard.press("Home")
    for _ in range(steps):
        page.keyboard.press("ArrowRight")


def test_the_first_page_shows_the_fleet_and_nothing_leaves_the_machine(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    page = opened.page
    expect(canvas(page)).to_have_attribute("data-cells", str(NODES * GPUS))
    expect(page.get_by_text("SIMULATED: no real hardware")).to_be_visible()
    expect(page.get_by_text(re.compile(r"data of \d\d:\d\d:\d\d UTC")).first).to_be_visible()
    expect(page.get_by_text("Needs attention")).to_be_visible()
    expect(page.get_by_text("Network ports of local")).to_be_visible()
    page.wait_for_timeout(2500)  # two renewals
    assert opened.hosts == {urlsplit(dashboard.url).netloc}
    assert opened.complaints == []


def test_the_address_holds_no_token_and_the_cookie_is_out_of_scripts_reach(opened: Visit) -> None:
    assert "token" not in opened.page.url
    (cookie,) = [c for c in opened.page.context.cookies() if c["name"].startswith("gpuvigil-")]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    assert "gpuvigil-" not in opened.page.evaluate("document.cookie")


def test_scripts_that_are_not_ours_are_refused_by_policy(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    answer = opened.page.request.get(dashboard.url)
    policy = answer.headers["content-security-policy"]
    scripts = next(part for part in policy.split(";") if part.strip().startswith("script-src"))
    assert "unsafe" not in scripts
    assert answer.headers["x-frame-options"] == "DENY"
    run = "document.body.append(Object.assign(document.createElement('script'), {text: 'hit = 1'}))"
    opened.page.evaluate(run)
    assert opened.page.evaluate("typeof hit") == "undefined"


def test_without_a_session_there_is_a_sign_in_page_and_no_websocket(
    visit: Visit, dashboard: DashboardProcess
) -> None:
    page = visit.page
    page.goto(f"{dashboard.url}/?node=sim-002&gpu=3")
    expect(page.get_by_label("Access token")).to_be_focused()
    address = dashboard.url.replace("http", "ws") + "/_stcore/stream"
    outcome = page.context.new_page()
    outcome.goto(f"{dashboard.url}/healthz")
    assert (
        outcome.evaluate(
            "url => new Promise(done => { const s = new WebSocket(url);"
            " s.onopen = () => done('open'); s.onerror = () => done('refused') })",
            address,
        )
        == "refused"
    )
    token = (dashboard.secrets / "access-token").read_text(encoding="utf-8").strip()
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    visit.wait_for_map()
    assert parse_qs(urlsplit(page.url).query) == {"node": ["sim-002"], "gpu": ["3"]}
    expect(page.get_by_role("heading", name="sim-002 · GPU 3")).to_be_visible()


def test_an_incident_shows_within_three_seconds_and_goes_when_it_is_resolved(
    opened: Visit, feed: Feed
) -> None:
    one = replace(
        incident("gpu_lost", gpu(3, node("sim-002")), Severity.CRITICAL, label="sim-002 GPU 3"),
        title="GPU fell off the bus <img src=x onerror='hit = 1'>",
        action="Drain the node and reboot it.",
    )
    feed.hub.write_records([one.to_record()])
    entry = opened.page.locator("li", has_text="sim-002 GPU 3")
    expect(entry).to_be_visible(timeout=3000)
    expect(entry).to_contain_text("critical")
    expect(entry).to_contain_text("Drain the node and reboot it.")
    expect(entry).to_contain_text("<img src=x")
    assert opened.page.evaluate("typeof hit") == "undefined"
    feed.hub.write_records([replace(one, state="resolved", version=2).to_record()])
    expect(entry).to_be_hidden(timeout=3000)
    assert opened.complaints == []


def test_an_incident_opens_with_its_evidence_and_its_link_opens_it_again(
    opened: Visit, feed: Feed, dashboard: DashboardProcess
) -> None:
    one = incident("port_down", gpu(1, node("sim-001")), Severity.WARNING, source="the rule book")
    feed.hub.write_records([one.to_record()])
    page = opened.page
    page.locator("li .head").click()
    expect(page.get_by_text("the rule book")).to_be_visible()
    expect(page).to_have_url(re.compile(f"incident={one.id}"))
    page.goto(f"{dashboard.url}/?incident={one.id}")
    expect(page.get_by_text("the rule book")).to_be_visible(timeout=15_000)
    page.locator("li .head").click()
    expect(page.get_by_text("the rule book")).to_be_hidden()
    ended = replace(one, state="resolved", version=2, resolved_at=one.since + timedelta(minutes=7))
    feed.hub.write_records([ended.to_record()])
    expect(page.locator("li .head")).to_be_hidden(timeout=3000)
    page.goto(f"{dashboard.url}/?incident={one.id}&from=2026-01-31T11:30:00Z")
    entry = page.locator("li.over")
    expect(entry).to_contain_text("resolved at", timeout=15_000)
    expect(entry).to_contain_text("lasted 7 min")
    expect(entry).to_contain_text("the rule book")
    entry.locator(".head").click()
    expect(entry).to_be_hidden()
    page.goto(f"{dashboard.url}/?incident=none&node=sim-001&gpu=99")
    expect(page.get_by_text("incident 'none' is not known")).to_be_visible(timeout=15_000)
    expect(page.get_by_text("GPU '99' is not known on node sim-001")).to_be_visible()


def test_every_cell_tells_its_state_to_the_pointer(opened: Visit) -> None:
    page = opened.page
    box = canvas(page).bounding_box()
    assert box is not None
    seen: dict[str, str] = {}
    for x in range(10, int(box["width"]), 20):
        for y in (30, 70):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if tip(page).is_visible():
                first, *rest = tip(page).locator("div").all_inner_texts()
                seen[first] = rest[0]
    for index, look in enumerate(LOOKS):
        assert seen[f"sim-001 · GPU {index}"] == SAID[look]


def test_the_map_is_walked_and_opened_with_the_keyboard(opened: Visit) -> None:
    page = opened.page
    walk_to(page, 4)
    expect(tip(page)).to_contain_text("sim-001 · GPU 4")
    expect(page.locator(".live")).to_contain_text("held, idle now")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="sim-001 · GPU 4")).to_be_visible()
    expect(page).to_have_url(re.compile(r"node=sim-001&gpu=4"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="sim-001 · GPU 4")).to_be_hidden()
    label = canvas(page).get_attribute("aria-label") or ""
    assert f"{NODES} FAILED" in label


def test_a_click_opens_a_gpu_below_the_map(opened: Visit) -> None:
    page = opened.page
    canvas(page).click(position={"x": 20, "y": 30})
    details = page.locator(".gv-details")
    expect(details).to_contain_text("sim-001 · GPU 0")
    expect(details).to_contain_text("1,980 MHz")
    expect(details).to_be_in_viewport()


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1920, 1080), (900, 1200)])
def test_the_page_fits_its_width(opened: Visit, picture: Path, width: int, height: int) -> None:
    page = opened.page
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(300)
    page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_tells_that_the_hub_went_away_and_recovers(opened: Visit, feed: Feed) -> None:
    page, hub = opened.page, feed.process
    hub.stop()
    expect(page.get_by_text("No answer from the hub")).to_be_visible(timeout=8000)
    expect(canvas(page)).to_have_attribute("data-cells", str(NODES * GPUS))
    hub.start()
    expect(page.get_by_text("No answer from the hub")).to_be_hidden(timeout=10_000)
