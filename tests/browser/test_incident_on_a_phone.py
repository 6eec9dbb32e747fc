"""The page of an incident on a phone: what is first fits two screens, and the rest opens where it stands."""

import sys
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from gpuvigil.clock import SystemClock
from gpuvigil.model import (
    Evidence,
    Impact,
    Incident,
    OutOfService,
    Record,
    Severity,
    Silence,
    Transition,
)
from tests.dashboard.scene import gpu, incident, node, notice
from tests.dashboard.servers import DashboardProcess, Feed

from .accessibility import violations

pytestmark = pytest.mark.server

PHONE = ViewportSize(width=390, height=844)
DESK = ViewportSize(width=1440, height=900)
FOLDED = ("Evidence", "What changed", "What happened", "What it covers", "Similar before")
NODES, GPUS, STEPS, LETTERS = 24, 8, 12, 9
HEIGHT = "document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight"


def worst(now: datetime) -> Incident:
    """Of half of a cluster, with everything that an incident can say, and a long sentence for each."""
    users = tuple(f"a-user-with-a-long-name-{number}" for number in range(6))
    holders = tuple(f"job {10_000 + number}" for number in range(6))
    named = ", ".join(f"{job} of {user}" for job, user in zip(holders, users, strict=True))
    facts = [
        Evidence(
            name=f"what was measured {number}",
            value="12.5 Gbit/s for 4 min 30 s",
            limit="at least 90 Gbit/s",
            peers="97.5 Gbit/s",
            detail=number > 6,
        )
        for number in range(14)
    ]
    return replace(
        incident("gpu_lost", gpu(3, node("sim-002")), Severity.CRITICAL),
        title="Most GPUs of a rack fell off the bus at once <b>and did not come back",
        label="rack rack-0017 (24 nodes sim-002 to sim-025)",
        since=now - timedelta(hours=3),
        impact=Impact(
            gpus=192, holders=holders, users=users, text=f"{named} and 11 more cannot go on"
        ),
        action="Drain the nodes, look for what they share (power supply, cooling, switch), read the "
        "kernel log of one of them, and power-cycle one node before all others; if it comes back, go on "
        "with the rest, else call whoever runs the room.",
        evidence=tuple(facts),
        members=tuple(
            gpu(at, node(f"sim-{n:03d}")).key for n in range(NODES) for at in range(GPUS)
        ),
        covers=tuple(f"sim-{n:03d}: Collector stopped reporting" for n in range(NODES)),
        source="NVIDIA, Xid catalogue: GPU has fallen off the bus",
        out_of_service=OutOfService(
            "DRAIN", "drained in Slurm: replacing the power shelf of the rack"
        ),
    )


def told_of(one: Incident, now: datetime) -> list[Record]:
    """The incident with all that can be told beside it: how it spread, messages, others, a silence."""
    told = [
        Transition(
            incident=one.id,
            number=number,
            from_state="open",
            to_state="open",
            signal="changed",
            at=now - timedelta(minutes=3 * (STEPS - number)),
            reason=f"it spread to sim-{number:03d} and seven of its GPUs do not answer any more",
            subject=one.subject,
            snapshot=one.to_record().to_json(),
        ).to_record()
        for number in range(1, STEPS)
    ]
    told += [
        notice(one, at=now - timedelta(minutes=n), channel=f"channel {n}", reason="it came again")
        for n in range(LETTERS)
    ]
    others = [
        replace(incident(f"port_{n}", node("sim-002"), Severity.WARNING), since=one.since)
        for n in range(7)
    ]
    silence = Silence(
        id="s-worst",
        matchers=('fault="gpu_lost"',),
        by="somebody with a long name",
        reason="the room is being looked at, and the vendor is on the way with a power shelf",
        at=now,
        starts_at=now - timedelta(minutes=5),
        ends_at=now + timedelta(hours=4),
    )
    return [one.to_record(), *told, *(it.to_record() for it in others), silence.to_record()]


def opened(page: Page, dashboard: DashboardProcess, feed: Feed) -> Incident:
    now = SystemClock().now()
    one = worst(now)
    feed.hub.write_records(told_of(one, now))
    page.goto(dashboard.link())
    page.wait_for_selector("canvas[data-cells]")
    page.goto(f"{dashboard.url}/incidents?incident={one.id}")
    expect(page.get_by_role("heading", name=one.title)).to_be_visible()
    expect(page.get_by_text("Hand over, close as false")).to_be_visible()
    page.wait_for_timeout(2500)  # a renewal moves nothing
    return one


def test_the_worst_incident_fits_two_screens_of_a_phone_and_each_part_opens_there(
    browser: Browser, dashboard: DashboardProcess, feed: Feed
) -> None:
    context = browser.new_context(viewport=PHONE, is_mobile=True, has_touch=True)
    page = context.new_page()
    opened(page, dashboard, feed)
    height = page.evaluate(HEIGHT)
    sys.stdout.write(f"the worst incident: {height} px at {PHONE['width']} px\n")
    assert height <= 2 * PHONE["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    tops = [page.locator("details", has_text=text).first.bounding_box() for text in FOLDED]
    boxes = [box for box in tops if box]
    gaps = [below["y"] - above["y"] - above["height"] for above, below in pairwise(boxes)]
    assert len(gaps) == len(FOLDED) - 1
    assert max(gaps) < 8, gaps
    button = page.get_by_role("button", name="Acknowledge", exact=True)
    expect(button).to_be_visible()
    assert violations(page) == []
    step = page.get_by_text("it spread to sim-011")
    expect(step).to_be_hidden()
    page.locator("summary", has_text="What happened").tap()
    expect(step).to_be_visible()
    page.wait_for_timeout(2500)
    expect(step).to_be_visible()  # it stays open while the page renews itself
    page.set_viewport_size(DESK)
    expect(page.get_by_text("what was measured 2")).to_be_visible()
    context.close()


def test_on_a_desk_nothing_is_folded_that_was_open(
    browser: Browser, dashboard: DashboardProcess, feed: Feed
) -> None:
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    opened(page, dashboard, feed)
    for text in ("it spread to sim-011", "what was measured 2", "Explains 24 other findings"):
        expect(page.get_by_text(text).first).to_be_visible()
    assert violations(page) == []
    context.close()
