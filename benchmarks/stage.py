"""The product as it runs for figures and pictures: a written past, `up` on top of it, Chromium."""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from benchmarks.history import Target, Written, write
from benchmarks.past import begin
from benchmarks.spine import command_of, descendants
from dashboard.auth.auth_middleware import new_link
from gpuvigil.hub_client import Hub
from tests.polling import wait_until
from tests.product import Product, clean_environment
from tests.servers import HubProcess

ROOT = Path(__file__).parent.parent
SEED = 1
PATIENCE_MS = 60_000
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}

# What is on a page when it can be used.
MAP = "canvas[data-cells]"
TIP = ".tip"

_SETTINGS = """
[hub]
data_directory = "{data}"
service_token_file = "{service_token}"
collector_token_file = "{collector_token}"
telemetry_days = {telemetry_days}
[collector]
tick_seconds = {tick_seconds}
[simulator]
tick_seconds = {tick_seconds}
nodes = {nodes}
seed = {seed}
[analyzer]
tick_seconds = {tick_seconds}
[dashboard]
port = 0
refresh_seconds = {refresh_seconds}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What was before the product starts: so many nodes, for so long.

    The last part of it was read as often as the product does now, all before that every
    `coarse_tick_seconds`; no `recent` means all of it.
    """

    nodes: int
    span: timedelta
    recent: timedelta | None = None
    coarse_tick_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A state directory with a past in it, and the configuration of an `up` that goes on with it."""

    state: Path
    config: Path
    written: Written
    store_bytes: int

    def product(self) -> Product:
        """`up`, to be entered."""
        command = [sys.executable, "-m", "gpuvigil", "up", "--config", str(self.config)]
        # The services are this tree's, whatever is installed.
        return Product(command, ROOT, self.state, {"PYTHONPATH": str(ROOT)})


def prepare(
    folder: Path, past: Scale, *, tick_seconds: float, refresh_seconds: float, more: str = ""
) -> Prepared:
    """Write the past through a hub; the tick is the product's, `more` is TOML."""
    with HubProcess(folder / "hub", {"commit_seconds": 1.0}) as hub:
        target = Target(url=hub.url, token_file=hub.collector_token_file)
        fine = begin(past.nodes, past.span, tick_seconds, SEED)
        before = None
        if past.recent is not None:
            coarse = replace(fine, tick_seconds=past.coarse_tick_seconds)
            before = write(coarse, target, until=fine.origin + past.span - past.recent)
        simulator = folder / "gpuvigil" / "simulator"
        written = write(
            fine, target, start=None if before is None else before.until, simulator=simulator
        )
        if before is not None:
            written = written.after(before)
        hub.stop()
        store_bytes = sum(file.stat().st_size for file in hub.data.iterdir())
    config = folder / "gpuvigil.toml"
    text = _SETTINGS.format(
        data=hub.data,
        service_token=hub.service_token_file,
        collector_token=hub.collector_token_file,
        telemetry_days=max(14.0, past.span.total_seconds() / 86400 + 1),
        nodes=past.nodes,
        seed=SEED,
        tick_seconds=tick_seconds,
        refresh_seconds=refresh_seconds,
    )
    config.write_text(text + more, encoding="utf-8")
    return Prepared(state=folder, config=config, written=written, store_bytes=store_bytes)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium, headless, without a GPU to draw with."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@dataclass(slots=True)
class Site:
    """The running product, and what people do with it."""

    product: Product
    browser: Browser

    @property
    def server(self) -> int:
        """The process that serves the pages."""
        for pid in descendants(self.product.process.pid):
            words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
            if command_of(words) == "dashboard":
                return pid
        raise AssertionError("there is no dashboard")

    @property
    def address(self) -> str:
        return self.product.url().partition("/?")[0]

    def link(self) -> str:
        """A fresh address that signs its opener in to the overview."""
        return new_link(self.product.state / "secrets", self.address)

    def run(self, *arguments: str) -> str:
        """What one of our commands prints, beside the running product."""
        environment = {**clean_environment(), "XDG_STATE_HOME": str(self.product.state.parent)}
        command = [sys.executable, "-m", "gpuvigil", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    def visitor(
        self, size: ViewportSize = VIEWPORT, scheme: Literal["dark", "light"] = "dark"
    ) -> BrowserContext:
        """A fresh browser profile."""
        return self.browser.new_context(viewport=size, color_scheme=scheme)

    def sign_in(self, page: Page) -> None:
        """Open the overview by a link that signs in."""
        page.goto(self.link())
        wait_for_answer(page)


def hub_of(prepared: Prepared, site: Site) -> Hub:
    """A client with the service's token."""
    text = (site.product.state / "gpuvigil.toml").read_text(encoding="utf-8")
    found = re.search(r'^url = "(.*)"$', text, re.MULTILINE)
    assert found is not None
    token = prepared.state / "hub" / "service-token"
    return Hub(found[1], lambda: token.read_text(encoding="utf-8").strip())


@contextmanager
def visit(site: Site) -> Iterator[Page]:
    """The overview, in a fresh profile that is closed at the end."""
    context = site.visitor()
    page = context.new_page()
    site.sign_in(page)
    yield page
    context.close()


def wait_for_answer(page: Page) -> None:
    """Until the map has its cells and answers a key."""
    page.locator(f"{MAP}:not([data-cells='0'])").wait_for(timeout=PATIENCE_MS)
    page.locator(MAP).focus()
    page.keyboard.press("ArrowRight")
    page.locator(TIP).wait_for(timeout=PATIENCE_MS)


def aim(page: Page, chance: random.Random) -> None:
    """Put the pointer on some GPU of the map that reports."""
    box = page.locator(MAP).bounding_box()
    assert box is not None
    height = min(box["height"], VIEWPORT["height"] - box["y"])

    def on_a_cell() -> bool:
        x = box["x"] + chance.uniform(0.0, box["width"])
        y = box["y"] + chance.uniform(0.0, height)
        page.mouse.move(x, y)
        said = page.locator(TIP)
        return said.is_visible() and "GPU" in said.inner_text()

    wait_until("the pointer is on a GPU", on_a_cell)
