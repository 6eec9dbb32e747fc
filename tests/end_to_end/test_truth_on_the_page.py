"""What the driver does is what the page says: lost, one hung, all hung, and back again."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.dashboard.servers import DashboardProcess
from tests.end_to_end.conftest import Site

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def dashboard(
    shared_site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DashboardProcess]:
    with DashboardProcess(tmp_path_factory.mktemp("dashboard"), shared_site.hub) as process:
        yield process


@pytest.fixture
def page(site: Site, dashboard: DashboardProcess, browser: Browser) -> Iterator[Page]:
    """Of a site without a fault."""
    assert site.processes
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(dashboard.link())
    expect(page.locator("canvas[data-cells='8']")).to_be_visible()
    yield page
    page.close()


def said_of(page: Page, index: int) -> str:
    """What the map says of a GPU, as somebody hears it who walks there by keyboard."""
    page.locator("canvas[data-cells]").focus()
    page.keyboard.press("Home")
    for _ in range(index):
        page.keyboard.press("ArrowRight")
    return page.locator(".tip").inner_text()


def attention(page: Page, text: str) -> Locator:
    """What needs attention now; the feed of changes beside it goes on to name what is over."""
    return page.locator(".attention li", has_text=text)


def test_a_lost_gpu_is_failed_on_the_page_and_its_neighbours_are_not(
    site: Site, page: Page
) -> None:
    site.driver.lose(6)
    expect(attention(page, "GPU fell off the bus").first).to_be_visible()
    assert "UNAVAILABLE" in said_of(page, 6)
    assert "UNAVAILABLE" not in said_of(page, 5)
    site.driver.restore(6)
    expect(attention(page, "GPU fell off the bus")).to_have_count(0)


def test_a_hung_gpu_is_unknown_on_the_page_and_its_neighbours_are_not(
    site: Site, page: Page
) -> None:
    site.driver.hang(2)
    expect(attention(page, "GPU does not answer").first).to_be_visible()
    assert "unknown: GPU does not answer" in said_of(page, 2)
    assert "does not answer" not in said_of(page, 3)


def test_a_hung_driver_makes_every_gpu_of_the_node_unknown_on_the_page(
    site: Site, page: Page
) -> None:
    site.driver.hang_all()
    expect(attention(page, "NVIDIA driver does not answer").first).to_be_visible()
    for index in (0, 7):
        assert "unknown: NVIDIA driver does not answer" in said_of(page, index)
    site.driver.release()
    expect(attention(page, "NVIDIA driver does not answer")).to_have_count(0)
