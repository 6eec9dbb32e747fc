"""A person on a phone: from a message's link through the sign-in to what it named, and what they then see."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from accounting.people.roles import Role
from dashboard.auth.accounts import Accounts, new_person
from gpuvigil.clock import SystemClock
from gpuvigil.model import (
    Allocation,
    Audit,
    AuditedAction,
    Holder,
    Impact,
    Incident,
    RecordKind,
    Severity,
)
from gpuvigil.web.signed_links import PATH, Seal
from tests.dashboard.scene import gpu, incident, node
from tests.dashboard.servers import DashboardProcess, Feed
from tests.polling import wait_until
from tests.servers import HubProcess

pytestmark = [pytest.mark.server, pytest.mark.site]

PASSWORD = "correct horse battery"
STRANGER = "quentin-zorn"
PHONE = ViewportSize(width=390, height=844)


def stood() -> Incident:
    since = SystemClock().now() - timedelta(minutes=3)
    hit = Impact(gpus=1, holders=("job 7",), users=(STRANGER,), text=f"job 7 of {STRANGER}")
    return replace(
        incident("gpu_lost", gpu(5, node("sim-001")), Severity.CRITICAL),
        title="GPU fell off the bus",
        since=since,
        updated_at=since,
        impact=hit,
    )


@pytest.fixture(scope="module")
def told(hub: HubProcess, feed: Feed, dashboard: DashboardProcess) -> Incident:
    found = stood()
    held = Allocation(
        subject=gpu(1, node("sim-001")),
        holder=Holder.parse("job 7"),
        user=STRANGER,
        command="train.py",
        started_at=found.since,
    )
    hub.hub().write_records([found.to_record(), held.to_record()])
    people = Accounts(dashboard.secrets)
    people.add(new_person("olga", Role.OPERATOR, [], []), PASSWORD)
    people.add(new_person("mira", Role.OWN, [], []), PASSWORD)
    return found


def sign_in(page: Page, name: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").first.click()


def test_from_a_message_on_a_phone_to_the_incident_and_an_acknowledgement_in_the_own_name(
    browser: Browser, hub: HubProcess, dashboard: DashboardProcess, told: Incident
) -> None:
    context = browser.new_context(viewport=PHONE, is_mobile=True)
    page = context.new_page()
    page.goto(f"{dashboard.url}/incidents?incident={told.id}")
    sign_in(page, "olga")
    page.wait_for_url(re.compile(r"/incidents\?incident="))
    expect(page.locator("p", has_text=STRANGER).first).to_be_visible(timeout=30_000)
    pages = page.get_by_role("button", name="Pages, now Incidents")
    pages.click()
    expect(page.get_by_role("link", name="olga")).to_be_visible()
    pages.click()
    expect(page.get_by_label("Your name")).to_have_count(0)
    page.get_by_label("What you know or are doing about it").fill("on my way")
    page.get_by_role("button", name="Acknowledge", exact=True).click()
    client = hub.hub()
    wait_until(
        "the acknowledgement",
        lambda: client.records(RecordKind.ACKNOWLEDGEMENT, parent=told.id),
    )
    (kept,) = client.records(RecordKind.ACKNOWLEDGEMENT, parent=told.id)
    assert kept.body == {"by": "olga", "note": "on my way"}
    deeds = [Audit.from_record(one) for one in client.records(RecordKind.AUDIT)]
    assert {(one.deed, one.person) for one in deeds} >= {
        (AuditedAction.SIGN_IN, "olga"),
        (AuditedAction.ACKNOWLEDGE, "olga"),
    }
    context.close()


def test_who_sees_own_jobs_reads_no_name_in_anything_that_a_browser_is_sent(
    browser: Browser, dashboard: DashboardProcess, told: Incident
) -> None:
    context = browser.new_context(viewport=PHONE)
    page, sent = context.new_page(), bytearray()

    def keep(payload: str | bytes) -> None:
        sent.extend(payload.encode() if isinstance(payload, str) else payload)

    page.on("websocket", lambda socket: socket.on("framereceived", keep))
    page.goto(f"{dashboard.url}/incidents?incident={told.id}")
    sign_in(page, "mira")
    expect(page.get_by_role("heading", name="GPU fell off the bus")).to_be_visible(timeout=30_000)
    for path in (
        "/",
        "/jobs",
        "/job?job=job%207",
        "/inference",
        "/efficiency",
        "/silences",
        "/node?cluster=simulated&node=sim-001",
    ):
        page.goto(dashboard.url + path)
        page.wait_for_selector("[data-drawn], h1", timeout=30_000)
        page.wait_for_timeout(2500)
    assert b"gpu_lost" in bytes(sent) or b"fell off" in bytes(sent)
    assert STRANGER.encode() not in bytes(sent)
    assert page.get_by_role("button", name="Acknowledge").count() == 0
    page.goto(f"{dashboard.url}/sign-out")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    context.close()


def test_an_open_page_shows_nothing_new_once_its_session_is_over(
    browser: Browser, dashboard: DashboardProcess, told: Incident
) -> None:
    context = browser.new_context(viewport=PHONE)
    page = context.new_page()
    page.goto(f"{dashboard.url}/incidents?incident={told.id}")
    sign_in(page, "mira")
    expect(page.get_by_role("heading", name="GPU fell off the bus")).to_be_visible(timeout=30_000)
    Accounts(dashboard.secrets).change_password("mira", f"{PASSWORD}!")
    expect(page.get_by_text("You are signed out").first).to_be_visible(timeout=30_000)
    Accounts(dashboard.secrets).change_password("mira", PASSWORD)
    context.close()


def test_a_signed_link_asks_who_it_is_and_only_operators_answer(
    browser: Browser, hub: HubProcess, feed: Feed, told: Incident, tmp_path: Path
) -> None:
    key = tmp_path / "link-key"
    key.write_text("k" * 40 + "\n")
    assert feed.nodes
    with DashboardProcess(tmp_path, hub, f'[alerts]\nlink_key_file = "{key}"') as site:
        for name, role in (("olga", Role.OPERATOR), ("mira", Role.VIEWER)):
            Accounts(site.secrets).add(new_person(name, role, [], []), PASSWORD)
        token = Seal(lambda: "k" * 40).token(told.id, SystemClock().now())
        path = f"{site.url}{PATH}{token}"
        for name, allowed in (("mira", False), ("olga", True)):
            context = browser.new_context(viewport=PHONE)
            page = context.new_page()
            page.goto(f"{path}?do=silence")
            sign_in(page, name)
            said = page.locator("main")
            expect(said).to_contain_text("As olga" if allowed else "Only operators")
            if allowed:
                page.get_by_role("button", name="Silence for 4 h").click()
                expect(said).to_contain_text("Silenced for 4 h")
            context.close()
    assert "olga" in {one.body["by"] for one in hub.hub().records(RecordKind.SILENCE)}
