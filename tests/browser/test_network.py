"""The drawing of leaves and spines in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from gpuvigil.web import page_links
from tests.dashboard.servers import DashboardProcess

from .accessibility import violations
from .conftest import Visit

pytestmark = pytest.mark.server


def test_a_switch_in_the_drawing_leads_to_its_page_by_pointer_and_keyboard(
    opened: Visit, dashboard: DashboardProcess
) -> None:
    page = opened.page
    page.goto(f"{dashboard.url}{page_links.NETWORK}")
    drawing = page.get_by_role("group", name=re.compile("^Drawing of"))
    drawing.get_by_role("link", name="spine2").click()
    expect(page).to_have_url(re.compile(r"/network\?link="))
    expect(page.get_by_role("heading", name=re.compile("^spine2 ")).first).to_be_visible()
    page.go_back()
    drawing.get_by_role("link", name="leaf1").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^leaf1 ")).first).to_be_visible()
    page.go_back()
    expect(drawing).to_be_visible()
    assert violations(page) == []
    assert opened.complaints == []
