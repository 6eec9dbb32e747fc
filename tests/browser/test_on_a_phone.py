"""Pages on a phone: none is wider than the screen, and out of service scrolls only downwards."""

from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from gpuvigil.clock import SystemClock
from gpuvigil.model import (
    Allocation,
    Holder,
    Incident,
    RecordKind,
    ScheduledNode,
    Scheduler,
    Severity,
    Subject,
)
from gpuvigil.web import page_links
from tests.dashboard.scene import gpu, incident, node
from tests.dashboard.servers import DashboardProcess, Feed
from tests.servers import HubProcess

from .accessibility import violations
from .places import LINK, PATHS, Shown, wait_until_drawn

pytestmark = pytest.mark.server

WALL = f"{page_links.OVERVIEW}?wall=1"
PHONE = ViewportSize(width=390, height=844)
DRAINED = "fan tray is loud, waiting for parts OPS-1234 [ada.lovelace@2026-01-31T11:00:00]"
# Every number that is on another line than its unit.
BROKEN = r"""() => {
  const broken = [];
  const look = (text) => {
    for (const found of text.data.matchAll(/\d\s(?:%|[kM]?W)(?!\w)/g)) {
      const range = document.createRange();
      range.setStart(text, found.index);
      range.setEnd(text, found.index + found[0].length);
      if (new Set([...range.getClientRects()].map((it) => Math.round(it.top))).size > 1) broken.push(text.data);
    }
  };
  const walk = (of) => {
    for (const it of of.childNodes) {
      if (it.nodeType === 3) look(it);
      if (it.shadowRoot) walk(it.shadowRoot);
      walk(it);
    }
  };
  walk(document.querySelector("[data-testid=stMain]"));
  return broken;
}"""
OF_ONE = (
    page_links.GPU,
    page_links.NODE,
    page_links.JOB,
    page_links.JOBS,
    page_links.INCIDENTS,
    LINK,
)


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


@pytest.fixture(scope="module")
def shown(hub: HubProcess, feed: Feed) -> Shown:
    """A GPU with an incident, held by a job: what pages that are of one thing are opened with."""
    of, now = feed.nodes[1], SystemClock().now()
    since = now - timedelta(minutes=2)
    one = incident("gpu_lost", gpu(5, of), Severity.CRITICAL, action="Drain the node.")
    one = replace(one, since=since, updated_at=since)
    held = [
        Allocation(
            subject=gpu(index, of),
            holder=Holder.parse("job 7"),
            user="ann",
            command="train.py",
            started_at=now - timedelta(hours=1),
        )
        for index in range(6)
    ]
    hub.hub().write_records([one.to_record(), *(it.to_record() for it in held)])
    return Shown(gpu=gpu(5, of), incident=one.id, holder=held[0].holder)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", OF_ONE)
def test_a_page_of_one_thing_fits_a_phone_and_keeps_nobody_out(
    browser: Browser, dashboard: DashboardProcess, shown: Shown, path: str, scheme: str
) -> None:
    with browser.new_context(
        viewport=PHONE, color_scheme="dark" if scheme == "dark" else "light"
    ) as context:
        page = context.new_page()
        page.goto(dashboard.link())
        page.wait_for_selector("canvas[data-cells]")
        page.goto(dashboard.url + shown.address(path))
        wait_until_drawn(page)
        if path == page_links.JOB:
            bar = page.locator("svg.bounds")
            expect(bar.locator("rect").first).to_be_visible()
            box = bar.bounding_box()
            assert box is not None
            # It is wider than the screen, and begins at its newest end.
            assert box["x"] < 0 < box["x"] + box["width"] <= PHONE["width"]
        page.wait_for_timeout(1000)
        wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
        assert wide <= PHONE["width"]
        assert violations(page) == []


def test_on_a_phone_what_holds_a_job_up_stands_beside_it(
    browser: Browser, dashboard: DashboardProcess, feed: Feed, shown: Shown
) -> None:
    known = feed.hub.record(RecordKind.INCIDENT, shown.incident)
    assert known is not None
    one = Incident.from_record(known)
    long = replace(one, title="Memory of a GPU has more errors than it can correct", version=9)
    feed.hub.write_records([long.to_record()])
    with browser.new_context(viewport=PHONE) as context:
        page = context.new_page()
        page.goto(dashboard.link())
        page.wait_for_selector("canvas[data-cells]")
        page.goto(f"{dashboard.url}{page_links.JOBS}")
        why = page.get_by_role("group", name="Running").get_by_role("link", name=long.title)
        expect(why).to_be_visible()
        box = why.bounding_box()
        assert box is not None
        # What bounds other jobs has room beside it.
        assert box["x"] + box["width"] <= PHONE["width"] * 2 / 3


def test_on_a_phone_a_few_notes_stand_before_the_map_and_the_others_are_counted(
    browser: Browser, dashboard: DashboardProcess, feed: Feed
) -> None:
    of = feed.nodes[0]
    notes = [
        incident(f"gpu_idle_held_{at}", gpu(at % 8, of), Severity.INFO, label=f"job {at}")
        for at in range(12)
    ]
    bad = incident("gpu_lost_now", gpu(1, of), Severity.WARNING, action="Drain the node.")
    every = [bad, *notes]
    feed.hub.write_records([one.to_record() for one in every])
    with browser.new_context(viewport=PHONE) as context:
        page = context.new_page()
        page.goto(dashboard.link())
        page.wait_for_selector("canvas[data-cells]")
        rows = page.locator(".attention li:visible")
        expect(page.locator(".attention li.info:visible")).to_have_count(3)
        warned = page.locator(".attention li.warning, .attention li.critical").count()
        expect(rows).to_have_count(warned + 3)
        expect(page.locator(".attention .more")).to_have_text("and 9 more")
        expect(page.locator(".attention li.info .action:visible")).to_have_count(0)
        expect(page.locator(f'[data-incident="{bad.id}"] .action')).to_be_visible()
        page.set_viewport_size({"width": 1440, "height": 900})
        expect(page.locator(".attention li.info:visible")).to_have_count(len(notes))
    over = [replace(one, state="resolved", version=2) for one in every]
    feed.hub.write_records([one.to_record() for one in over])


def test_on_a_phone_a_finding_of_the_network_is_read_without_scrolling_sideways(
    browser: Browser, dashboard: DashboardProcess, feed: Feed
) -> None:
    of = Subject(cluster="simulated", node="sim-001", device="mlx5_0", port="1")
    slow = incident("port_degraded", of, Severity.WARNING, label="sim-001 mlx5_0")
    slow = replace(slow, title="Port runs below its speed")
    feed.hub.write_records([slow.to_record()])
    with browser.new_context(viewport=PHONE) as context:
        page = context.new_page()
        page.goto(dashboard.link())
        page.wait_for_selector("canvas[data-cells]")
        page.goto(f"{dashboard.url}{page_links.NETWORK}")
        table = page.get_by_role("group", name="Findings")
        verdict = table.get_by_role("link", name=slow.title)
        expect(verdict).to_be_visible()
        box = verdict.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["width"]
        assert table.evaluate("it => it.scrollWidth <= it.clientWidth")
        assert violations(page) == []
        page.set_viewport_size({"width": 1440, "height": 900})
        expect(table.get_by_role("columnheader", name="Verdict")).to_be_visible()
    feed.hub.write_records([replace(slow, state="resolved", version=2).to_record()])


@pytest.mark.parametrize("path", [page_links.OVERVIEW, page_links.PEOPLE])
def test_on_a_phone_a_number_and_its_unit_are_on_one_line(
    browser: Browser, dashboard: DashboardProcess, feed: Feed, path: str
) -> None:
    assert feed.nodes
    with browser.new_context(viewport=PHONE) as context:
        page = context.new_page()
        page.goto(dashboard.link())
        page.wait_for_selector("canvas[data-cells]")
        page.goto(f"{dashboard.url}{path}")
        wait_until_drawn(page)
        page.wait_for_timeout(1000)
        assert page.evaluate(BROKEN) == []
