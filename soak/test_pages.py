"""An hour in which somebody reads page after page: what the dashboard and an open tab take of memory."""

import os
import random
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.footprint import memory
from benchmarks.stage import Site, wait_for_answer
from dashboard.layout.frame import PAGES
from soak.results import recorded
from tests.browser.places import wait_until_drawn
from tests.product import Product
from tests.servers import ROOT

pytestmark = pytest.mark.timeout(3 * 3600)

MINUTES = float(os.environ.get("SOAK_MINUTES") or 60.0)
NODES = 16
SAMPLE_SECONDS, READ_SECONDS = 60.0, 3.0
# The last third of the time may take so much more than the middle one (ours): caches still fill, the fleet's faults come
# and go, and a page that leaked its session would take more at each of some thousand readings.
MOST_GROWTH = 0.1
SETTINGS = "[dashboard]\nport = 0\n"
PATHS = frozenset(page.path for page in PAGES)


def test_an_hour_of_pages_leaves_memory_flat(tmp_path: Path, browser: Browser) -> None:
    seed = int(os.environ.get("SOAK_SEED") or secrets.randbelow(2**31))
    sys.stdout.write(f"\nSOAK_SEED={seed}\n")
    expect.set_options(timeout=60_000)  # a busy machine is slow, and no fault of the pages
    config = tmp_path / "my.toml"
    config.write_text(SETTINGS, encoding="utf-8")
    start = [sys.executable, "-m", "gpuvigil", "up", "--simulate-fleet", str(NODES)]
    command = [*start, "--config", str(config)]
    with (
        recorded("pages", seed=seed, minutes=MINUTES, nodes=NODES) as result,
        # The services are this tree's, whatever is installed.
        Product(command, ROOT, tmp_path, {"PYTHONPATH": str(ROOT)}) as product,
    ):
        product.url(120.0)
        site = Site(product, browser)
        left_open = site.visitor().new_page()
        site.sign_in(left_open)
        reading = read(site, random.Random(seed))
        samples: list[dict[str, float]] = []
        until = time.monotonic() + 60.0 * MINUTES
        while time.monotonic() < until:
            due = time.monotonic() + SAMPLE_SECONDS
            while time.monotonic() < due:
                next(reading)
                left_open.wait_for_timeout(READ_SECONDS * 1000)
            samples.append({**sample(site.server, left_open), "pages": next(reading)})
            sys.stdout.write(f"{len(samples)} {samples[-1]}\n")
            sys.stdout.flush()
            result.tells(**told(samples))
        wait_for_answer(left_open)
        grown = {key: it for key, it in told(samples)["growth"].items() if it > MOST_GROWTH}
        assert not grown


def read(site: Site, chance: random.Random) -> Iterator[int]:
    """Open page after page and, from each, one of what it links to; how many so far. A round is a session."""
    many = 0
    while True:
        context = site.visitor()
        page = context.new_page()
        site.sign_in(page)
        for path in chance.sample([it.path for it in PAGES if it.listed], k=8):
            for address in (path, None):
                chosen = address or linked(page, chance)
                page.goto(site.address + chosen)
                wait_until_drawn(page)
                many += 1
                yield many
        context.close()


def linked(page: Page, chance: random.Random) -> str:
    """The address of some page that the open one links to."""
    found = page.locator("[data-testid='stMain'] a[href^='/']").evaluate_all(
        "links => links.map(it => it.getAttribute('href'))"
    )
    within = [it for it in found if it.partition("?")[0] in PATHS]
    return chance.choice(sorted(within)) if within else "/"


def sample(server: int, page: Page) -> dict[str, float]:
    """MiB of the dashboard (proportional set size), and of what scripts hold in the tab that stays open."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return {
        "dashboard_mib": round(memory([server], "-").pss, 1),
        "tab_mib": round(heap / 2**20, 1),
    }


def told(samples: Sequence[dict[str, float]]) -> dict[str, Any]:
    """All samples, and how much more the last third takes than the middle one."""
    third = len(samples) // 3
    growth = {}
    for key in ("dashboard_mib", "tab_mib"):
        middle, last = (
            median(it[key] for it in part) if part else samples[-1][key]
            for part in (samples[third : 2 * third], samples[2 * third :])
        )
        growth[key] = round(last / middle - 1.0, 3)
    return {"samples": list(samples), "growth": growth}
