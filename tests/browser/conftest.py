"""A real Chromium on a real dashboard, hub and feed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, WebSocket

from tests.dashboard.servers import DashboardProcess, Feed
from tests.servers import HubProcess

from .places import wait_until_worn


@dataclass
class Visit:
    """An open page, with everything it asked for and complained about."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", self._websocket)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda said: self._console(said.type, said.text, said.location["url"])
        )

    def _websocket(self, websocket: WebSocket) -> None:
        self.requests.append(websocket.url)

    def _console(self, kind: str, text: str, url: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(f"{text} ({url})")

    @property
    def hosts(self) -> set[str]:
        """Every host that was asked; `data:` and `blob:` stay in the browser."""
        return {urlsplit(url).netloc for url in self.requests if urlsplit(url).netloc}

    def wait_for_map(self) -> None:
        wait_until_worn(self.page)
        self.page.wait_for_selector("canvas[data-cells]")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub")) as process:
        yield process


@pytest.fixture(scope="module")
def feed(hub: HubProcess) -> Iterator[Feed]:
    with Feed(hub) as feeding:
        yield feeding


@pytest.fixture(scope="module")
def dashboard(
    hub: HubProcess, feed: Feed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DashboardProcess]:
    assert feed.nodes
    with DashboardProcess(tmp_path_factory.mktemp("dashboard"), hub) as process:
        yield process


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """A fresh browser profile without a session."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield Visit(context.new_page())
    context.close()


@pytest.fixture
def opened(visit: Visit, dashboard: DashboardProcess) -> Visit:
    """The overview, signed in."""
    visit.page.goto(dashboard.link())
    visit.wait_for_map()
    return visit


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    return tmp_path / "page.png"
