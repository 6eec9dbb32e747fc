"""The overview in a real browser."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.model.cluster import DisplayState
from gpuvigil.clock import from_text
from gpuvigil.model import Severity
from gpuvigil.web import page_links
from tests.dashboard.scene import gpu, incident, node
from tests.dashboard.servers import GPUS, LOOKS, NODES, DashboardProcess, Feed

from .accessibility import violations
from .conftest import Visit

pytestmark = pytest.mark.server

# What is said of every state when the pointer is on it.
SAID = {
    DisplayState.ACTIVE: "busy",
    DisplayState.IDLE: "allocated but idle: allocated, 0 % now",
    DisplayState.FAILED: "UNAVAILABLE: missing: lost",
    DisplayState.FREE: "free: not allocated",
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
    page.goto(f"{dashboard.url}/?cluster=simulated&metric=power")
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
    assert parse_qs(urlsplit(page.url).query) == {"cluster": ["simulated"], "metric": ["power"]}


def test_an_incident_shows_and_goes_when_it_is_resolved(opened: Visit, feed: Feed) -> None:
    one = replace(
        incident("gpu_lost", gpu(3, node("sim-002")), Severity.CRITICAL, label="sim-002 GPU 3"),
        title="GPU fell off the bus <img src=x onerror='hit = 1'>",
        action="Drain the node and reboot it.",
    )
    feed.hub.write_records([one.to_record()])
    entry = opened.page.locator("li", has_text="sim-002 GPU 3")
    expect(entry).to_be_visible()
    expect(entry).to_contain_text("critical")
    expect(entry).to_contain_text("Drain the node and reboot it.")
    expect(entry).to_contain_text("<img src=x")
    assert opened.page.evaluate("typeof hit") == "undefined"
    feed.hub.write_records([replace(one, state="resolved", version=2).to_record()])
    expect(entry).to_be_hidden()
    assert opened.complaints == []


def test_an_incident_leads_to_its_page_and_to_its_subject_around_its_time(
    opened: Visit, feed: Feed
) -> None:
    one = incident("gpu_lost", gpu(1, node("sim-001")), Severity.WARNING, label="sim-001 GPU 1")
    feed.hub.write_records([one.to_record()])
    entry = opened.page.locator("li", has_text="sim-001 GPU 1")
    expect(entry.locator(".title")).to_have_attribute("href", f"/incidents?incident={one.id}")
    place = entry.locator(".where").get_attribute("href") or ""
    asked = parse_qs(urlsplit(place).query)
    assert urlsplit(place).path == "/gpu"
    assert asked["gpu"] == [one.subject.gpu]
    assert asked["from"] == [f"{one.since - page_links.MARGIN:%Y-%m-%dT%H:%M:%SZ}"]
    feed.hub.write_records([replace(one, state="resolved", version=2).to_record()])
    expect(entry).to_be_hidden()


def test_what_a_link_names_and_is_not_known_is_said(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    page = opened.page
    page.goto(f"{dashboard.url}/?node=sim-001&gpu=99")
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


def went(page: Page, path: str) -> dict[str, str]:
    """What the address says once the page has that path."""
    page.wait_for_url(lambda address: urlsplit(address).path == path)
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def test_the_map_is_walked_and_opened_with_the_keyboard(opened: Visit) -> None:
    page = opened.page
    walk_to(page, 4)
    expect(tip(page)).to_contain_text("sim-001 · GPU 4")
    expect(page.locator(".live")).to_contain_text("allocated but idle")
    label = canvas(page).get_attribute("aria-label") or ""
    assert f"{NODES} UNAVAILABLE" in label
    page.keyboard.press("Enter")
    asked = went(page, "/gpu")
    assert (asked["cluster"], asked["node"]) == ("simulated", "sim-001")
    start, end = from_text(asked["from"]), from_text(asked["to"])
    assert end - start == timedelta(hours=1)
    expect(page.get_by_role("heading", level=1)).to_contain_text("sim-001")
    page.go_back()
    opened.wait_for_map()
    walk_to(page, 8)
    page.keyboard.press("n")
    assert went(page, "/node")["node"] == "sim-002"


def test_a_click_leads_to_the_gpu_and_on_a_node_s_name_to_the_node(opened: Visit) -> None:
    page = opened.page
    canvas(page).click(position={"x": 20, "y": 30})
    assert went(page, "/gpu")["node"] == "sim-001"
    page.go_back()
    opened.wait_for_map()
    canvas(page).click(position={"x": 20, "y": 8})
    assert went(page, "/node")["node"] == "sim-001"
    assert opened.complaints == []


def test_a_link_of_an_earlier_message_leads_to_the_page_of_its_gpu_or_incident(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    page = opened.page
    page.goto(
        f"{dashboard.url}/?node=sim-002&gpu=3&from=2026-01-31T11:30:00Z&to=2026-01-31T12:00:00Z"
    )
    asked = went(page, "/gpu")
    assert (asked["gpu"], asked["from"]) == (gpu(3, node("sim-002")).gpu, "2026-01-31T11:30:00Z")
    page.goto(f"{dashboard.url}/?incident=0123")
    assert went(page, "/incidents") == {"incident": "0123"}


def test_what_the_map_shows_is_chosen_by_keyboard_and_kept_in_the_address(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    page = opened.page
    page.get_by_role("radio", name="State").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    legend = page.get_by_role("list", name="Legend")
    expect(legend).to_contain_text("20 °C")
    expect(legend).to_contain_text("90 °C")
    expect(legend).to_contain_text(f"unavailable or failing {NODES}")
    expect(page).to_have_url(re.compile("metric=temperature"))
    page.goto(f"{dashboard.url}/?metric=power")
    opened.wait_for_map()
    expect(page.get_by_role("radio", name="Power")).to_be_checked()
    expect(legend).to_contain_text("400 W")
    expect(canvas(page)).to_have_attribute("aria-label", re.compile("Cells show power"))
    page.goto(f"{dashboard.url}/?metric=nonsense")
    opened.wait_for_map()
    expect(page.get_by_role("radio", name="State")).to_be_checked()


def test_a_person_chooses_dark_or_light_and_the_browser_keeps_it(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    page = opened.page
    ground = "getComputedStyle(document.querySelector('.stApp')).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"  # what this browser wishes for
    page.get_by_label("Colours").select_option("dark")
    expect(page.locator(".stApp")).to_have_css("background-color", "rgb(13, 17, 23)")
    opened.wait_for_map()
    page.goto(f"{dashboard.url}/?metric=power")
    opened.wait_for_map()
    assert page.evaluate(ground) == "rgb(13, 17, 23)"
    expect(page.get_by_label("Colours")).to_have_value("dark")
    page.get_by_label("Colours").select_option("auto")
    expect(page.locator(".stApp")).to_have_css("background-color", "rgb(255, 255, 255)")
    assert opened.complaints == []


def test_the_map_is_redrawn_when_the_screen_turns_dark(opened: Visit) -> None:
    page = opened.page
    free = "c => [...c.getContext('2d').getImageData(c.width - 8, c.height - 8, 1, 1).data]"
    assert canvas(page).evaluate(free) == [227, 232, 238, 255]
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(1500)
    assert canvas(page).evaluate(free) == [36, 44, 55, 255]


@pytest.mark.parametrize("steps", [0, 7])
def test_a_map_of_which_only_what_changed_was_painted_is_as_if_all_were(
    opened: Visit, steps: int
) -> None:
    page = opened.page
    if steps:
        walk_to(page, steps)
    page.wait_for_timeout(2500)  # two renewals
    both = """canvas => {
        const map = canvas.closest(".map").fleetMap, now = canvas.toDataURL();
        map.ground = "";
        map.draw();
        return [now, canvas.toDataURL()];
    }"""
    now, anew = canvas(page).evaluate(both)
    assert now == anew


def test_a_first_stop_of_the_keyboard_leads_past_the_line_with_the_pages(opened: Visit) -> None:
    page = opened.page
    page.keyboard.press("Tab")  # what scrolls, so that a keyboard can scroll it
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Skip to the content")).to_be_focused()
    heading = page.get_by_role("heading", level=1)

    def leads_there() -> bool:
        # A page that renews itself in this moment takes the key for nobody's.
        page.get_by_role("button", name="Skip to the content").press("Enter")
        page.wait_for_timeout(300)
        return bool(heading.evaluate("it => it === document.activeElement"))

    assert any(leads_there() for _ in range(5))
    page.keyboard.press("Tab")
    expect(page.get_by_role("radio", name="State")).to_be_focused()
    page.keyboard.press("Tab")
    expect(canvas(page)).to_be_focused()


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("query", ["", "wall=1", "metric=temperature"])
def test_nothing_on_the_page_is_closed_to_anybody(
    visit: Visit, dashboard: DashboardProcess, feed: Feed, scheme: str, query: str
) -> None:
    # A fault of its own each time: what was resolved does not come back as it was.
    one = incident(f"{scheme}{query}", gpu(2, node("sim-003")), Severity.CRITICAL, action="Drain.")
    feed.hub.write_records([one.to_record()])
    page = visit.page
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(dashboard.link(query))
    visit.wait_for_map()
    expect(page.get_by_role("heading", name="What changed")).to_be_visible()
    expect(page.locator(".attention li").first).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert violations(page) == []
    feed.hub.write_records([replace(one, state="resolved", version=2).to_record()])


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1920, 1080), (900, 1200), (390, 844)])
def test_the_page_fits_its_width(opened: Visit, picture: Path, width: int, height: int) -> None:
    page = opened.page
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(300)
    page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    line = page.get_by_role("navigation").bounding_box()
    assert line is not None
    assert line["height"] < 50  # one row; a narrow screen has the pages behind a button


def test_on_a_phone_one_button_unfolds_the_pages_and_a_link_leads_to_one(opened: Visit) -> None:
    page = opened.page
    page.set_viewport_size({"width": 390, "height": 844})
    line = page.get_by_role("navigation")
    menu, network = (
        line.get_by_role("button", name="Pages, now Overview"),
        line.get_by_role("link", name="Network", exact=True),
    )
    expect(network).to_be_hidden()
    expect(menu).to_have_text("☰ Overview")
    menu.click()
    expect(line.get_by_role("combobox", name="Colours")).to_be_visible()
    assert violations(page) == []
    network.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Network")
    expect(line.get_by_role("button", name="Pages, now Network")).to_be_visible()
    expect(network).to_be_hidden()


def test_a_page_tells_that_the_hub_went_away_and_recovers(opened: Visit, feed: Feed) -> None:
    page, hub = opened.page, feed.process
    hub.stop()
    expect(page.get_by_text("No answer from the hub")).to_be_visible()
    expect(canvas(page)).to_have_attribute("data-cells", str(NODES * GPUS))
    hub.start()
    expect(page.get_by_text("No answer from the hub")).to_be_hidden()


def test_a_demo_says_once_what_to_try_until_it_is_closed(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    page = opened.page
    line = page.get_by_role("complementary", name="Try this")
    expect(line.get_by_role("link")).to_have_count(4)
    assert violations(page) == []
    line.get_by_role("link", name="What idle GPUs cost, by team").click()
    expect(page).to_have_url(re.compile(r"/people$"))
    page.go_back()
    expect(line).to_be_visible()
    line.get_by_role("button", name="Close").click()
    expect(line).to_be_hidden()
    page.goto(dashboard.url)
    opened.wait_for_map()
    page.wait_for_timeout(2500)
    expect(line).to_be_hidden()
    assert opened.complaints == []


def test_each_incident_is_one_click_away_and_a_wall_counts_what_has_no_room(
    opened: Visit, dashboard: DashboardProcess, feed: Feed
) -> None:
    many = [
        incident(
            f"gpu_lost_{at}",
            gpu(at % GPUS, node("sim-002")),
            Severity.WARNING,
            label=f"it {at}",
            action="Drain it.",
        )
        for at in range(12)
    ]
    feed.hub.write_records([one.to_record() for one in many])
    page, rows = opened.page, opened.page.locator(".attention li")
    expect(rows).to_have_count(len(many))
    expect(rows.first.locator(".action")).to_be_visible()  # the first one in full
    bottom = page.locator(".attention ol").evaluate("list => list.getBoundingClientRect().bottom")
    assert bottom <= 900
    assert violations(page) == []
    for row in rows.all():
        expect(row).to_be_visible()
    page.goto(f"{dashboard.url}/?wall=1")
    opened.wait_for_map()
    expect(page.get_by_text(re.compile(r"^and \d+ more$"))).to_be_visible()
    page.goto(dashboard.url)
    rows.last.locator(".title").click()
    expect(page.get_by_role("button", name="Acknowledge", exact=True)).to_be_visible()
    feed.hub.write_records([replace(one, state="resolved", version=2).to_record() for one in many])
