"""Where every page is, for tests of all of them: a page that is new comes in by itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from playwright.sync_api import Page, expect

from dashboard.layout.frame import PAGES
from gpuvigil.clock import SystemClock
from gpuvigil.model import SWITCH_DEVICE, Holder, Subject
from gpuvigil.web import page_links

PATHS = [page.path for page in PAGES]
# The overview has a second layout, for a screen on the wall, and the network one for a single link.
LINK = f"{page_links.NETWORK}?link="
LAYOUTS = [*PATHS, f"{page_links.OVERVIEW}?wall=1", LINK]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What pages that are of one thing are opened with."""

    gpu: Subject
    incident: str = ""
    holder: Holder | None = None

    def address(self, path: str) -> str:
        """Path and query of a page of `LAYOUTS` that is of this GPU, its node, its incident or its job."""
        now = SystemClock().now()
        start = now - timedelta(minutes=30)
        known: Mapping[str, str] = {
            page_links.GPU: page_links.subject_page(self.gpu, start, now),
            LINK: page_links.link_page(
                Subject(cluster=self.gpu.cluster, node="leaf1", device=SWITCH_DEVICE, port="3")
            ),
            page_links.NODE: page_links.subject_page(self.gpu.of_node(), start, now),
            page_links.JOB: page_links.job_page(self.gpu.cluster, self.holder)
            if self.holder
            else path,
            page_links.INCIDENTS: page_links.incident_page(self.incident)
            if self.incident
            else path,
        }
        return known.get(path, path)

    def addresses(self) -> Iterator[str]:
        """Those of every page."""
        return map(self.address, LAYOUTS)


def wait_until_worn(page: Page) -> None:
    """Until the page has its colours: one that gets others, as a wall does, is loaded once more."""
    expect(page.locator("html[data-gv-theme]")).to_be_attached()


def wait_until_drawn(page: Page) -> None:
    """Until the page stands and its script rests."""
    wait_until_worn(page)
    app = page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]')
    expect(app).to_be_attached()
    expect(page.locator("[data-testid='stMain'] .stHtml, canvas").first).to_be_attached()
