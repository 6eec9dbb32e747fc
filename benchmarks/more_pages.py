"""More figures of the pages: each other page's first chart, a day in the store, and 100,000 GPUs.

`python -m benchmarks.more_pages --only day` measures one part and writes it into `benchmarks/more_pages.json`
beside those measured before; each takes ten minutes at most on a quiet machine with two CPUs. The machinery and the
faults that stand are those of `benchmarks.pages`.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import Page

from benchmarks.pages import (
    CHART,
    COARSE_TICK_SECONDS,
    GPUS_PER_NODE,
    OPENED,
    RECENT,
    REFRESH_SECONDS,
    SEED_OF_CLICKS,
    STRETCH_SECONDS,
    TICK_SECONDS,
    first_sight,
    press,
    refresh,
    report,
    said_of,
    settled,
    spread,
)
from benchmarks.spine import about, say
from benchmarks.stage import (
    PATIENCE_MS,
    Prepared,
    Scale,
    Site,
    aim,
    hub_of,
    visit,
    wait_for_answer,
)
from benchmarks.viewers import crowd
from gpuvigil.clock import SystemClock
from gpuvigil.model import SIMULATED_CLUSTER, RecordKind
from gpuvigil.web import page_links

RESULT = Path(__file__).with_suffix(".json")
QUARTER = timedelta(minutes=15)
# Usage of the past is counted after the start; what is not counted by then is said.
COUNTED_SECONDS = 120.0
# A node is read once a minute then, and a fault waits for that, for the analyzer's pass and for a busy machine.
LARGE_TICK_SECONDS, LARGE_PATIENCE_MS = 60.0, 300_000
# One line of each GPU in this time is what a day of 10,000 GPUs can be written of in three minutes.
DAY_TICK_SECONDS = 300.0
DAY = timedelta(days=1)

# What is clicked on the way to a page of one thing.
OF_FAULT = "a[href*='incident=']:has-text('sim-003 GPU 5')"
OF_JOB = ".st-key-jobs a[href*='/job?']"
OF_NODE = ".st-key-hardware a[href*='/node?']"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a page is opened: from an address where `click` can be clicked, until `seen` is seen."""

    start: str
    click: str
    seen: str


def _from_bar(path: str, seen: str) -> Way:
    return Way(start=page_links.OVERVIEW, click=f"nav a[href='{path}']", seen=seen)


# The first chart; of a page without a curve the first row of its table or list, which comes with its heat map and bars.
WAYS = {
    "incidents": _from_bar(page_links.INCIDENTS, "a[href*='incident=']"),
    "incident": Way(start=page_links.INCIDENTS, click=OF_FAULT, seen=CHART),
    "jobs": _from_bar(page_links.JOBS, OF_JOB),
    "job": Way(start=page_links.JOBS, click=OF_JOB, seen=CHART),
    "network": _from_bar(page_links.NETWORK, ".st-key-network td"),
    "hardware": _from_bar(page_links.HARDWARE, ".st-key-hardware td"),
    "people": _from_bar(page_links.PEOPLE, ".st-key-people td"),
    "node": Way(
        start=page_links.rack_page(SIMULATED_CLUSTER, "rack-02"), click=OF_NODE, seen=CHART
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is measured by itself: of clusters of these sizes, on such a past."""

    gpus: tuple[int, ...]
    span: timedelta
    coarse_tick_seconds: float
    measure: Callable[[Prepared, Site, int], dict[str, Any]]
    runs: int
    recent: timedelta | None = RECENT
    tick_seconds: float = TICK_SECONDS
    patience_ms: float = PATIENCE_MS

    def scale(self, gpus: int) -> Scale:
        return Scale(
            nodes=gpus // GPUS_PER_NODE,
            span=self.span,
            recent=self.recent,
            coarse_tick_seconds=self.coarse_tick_seconds,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts and write each as soon as it is known."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.more_pages")
    options.add_argument("--only", choices=sorted(PARTS))
    options.add_argument("--gpus", type=int, nargs="*", help="other sizes, whose result is printed")
    chosen = options.parse_args(arguments)
    for name in [chosen.only] if chosen.only else PARTS:
        found = measured(name, PARTS[name], chosen.gpus or PARTS[name].gpus)
        if chosen.gpus:
            sys.stdout.write(json.dumps(found, indent=2) + "\n")
            continue
        known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        known[name] = found
        kept = {it: known[it] for it in PARTS if it in known}
        RESULT.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        say(f"wrote {name} into {RESULT}")
    return 0


def measured(name: str, part: Part, sizes: Sequence[int]) -> dict[str, Any]:
    """One part, with what its figures belong to."""
    said = {
        **about(),
        "command": f"python -m benchmarks.more_pages --only {name}",
        "tick_seconds": part.tick_seconds,
        "refresh_seconds": REFRESH_SECONDS,
        "hours": part.span / timedelta(hours=1),
        "recent_minutes": None if part.recent is None else part.recent / timedelta(minutes=1),
        "coarse_tick_seconds": part.coarse_tick_seconds,
        "stretch_seconds": STRETCH_SECONDS,
        "load_average": round(os.getloadavg()[0], 1),
    }
    return {"about": said, "sizes": [of_size(part, gpus) for gpus in sizes]}


def of_size(part: Part, gpus: int) -> dict[str, Any]:
    """The figures of one size of cluster."""
    with settled(part.scale(gpus), part.tick_seconds, part.patience_ms) as (prepared, site):
        found = part.measure(prepared, site, part.runs)
        return {"gpus": gpus, "past": said_of(prepared), **found}


def others(prepared: Prepared, site: Site, runs: int) -> dict[str, Any]:
    """Seconds from a click to the first chart of each page; the first time nobody has asked before."""
    counted(prepared, site, timedelta(hours=1))
    chance = random.Random(SEED_OF_CLICKS)
    with visit(site) as page:
        return {
            name: spread(name, [opened(page, site, way, chance) for _ in range(runs)])
            for name, way in WAYS.items()
        }


def opened(page: Page, site: Site, way: Way, chance: random.Random) -> float:
    """Seconds of one way; of several links some is clicked."""
    page.goto(site.address + way.start)
    if way.start == page_links.OVERVIEW:
        wait_for_answer(page)
    links = page.locator(way.click)
    links.first.wait_for(timeout=PATIENCE_MS)
    page.wait_for_timeout(1000)
    link = links.nth(chance.randrange(links.count()))
    link.scroll_into_view_if_needed()
    began = time.monotonic()
    link.click()
    page.locator(way.seen).first.wait_for(timeout=PATIENCE_MS)
    return time.monotonic() - began


def day(prepared: Prepared, site: Site, runs: int) -> dict[str, Any]:
    """First sight, a GPU's whole day, the overview of half a day ago, a renewal, and the report."""
    usage = counted(prepared, site, DAY)
    chance = random.Random(SEED_OF_CLICKS)
    with visit(site) as page:
        charts = [day_of_gpu(page, site, chance) for _ in range(runs)]
    return {
        "usage": usage,
        **first_sight(site, runs),
        "gpu_day": spread("a GPU's last 24 h, to the first chart", charts),
        "overview_then": spread(
            "the overview of some time today", [past(site, it) for it in range(runs)]
        ),
        "refresh": {"overview": refresh(site, "overview")},
        "report": report(site, runs),
    }


def counted(prepared: Prepared, site: Site, span: timedelta) -> dict[str, Any]:
    """Wait until the past's usage is counted, and say how much of it is."""
    wanted = span // QUARTER - 2  # the oldest may be cut, the newest is not over
    hub, began, found = hub_of(prepared, site), time.monotonic(), 0
    while found < wanted and time.monotonic() - began < COUNTED_SECONDS:
        found = len(hub.records(RecordKind.USAGE, limit=2000))
        time.sleep(1.0)
    hub.close()
    said = {"quarters": found, "seconds": round(time.monotonic() - began, 1)}
    say(f"  usage: {said}")
    return said


def day_of_gpu(page: Page, site: Site, chance: random.Random) -> float:
    """Seconds from the address of some GPU's last day to its first chart."""
    page.goto(site.address)
    wait_for_answer(page)
    aim(page, chance)
    press(page)
    page.wait_for_url("**/gpu?**", timeout=PATIENCE_MS)
    place = parse_qs(urlsplit(page.url).query)
    asked = {name: place[name][0] for name in ("cluster", "node", "gpu")}
    began = time.monotonic()
    page.goto(
        f"{site.address}{page_links.GPU}?{urlencode({**asked, 'last': '86400'})}",
        wait_until="commit",
    )
    page.locator(CHART).first.wait_for(timeout=PATIENCE_MS)
    return time.monotonic() - began


def past(site: Site, number: int) -> float:
    """Seconds from the address of a moment that nobody looked at yet to a map that responds."""
    at = SystemClock().now() - DAY / 2 - number * timedelta(hours=1)
    with visit(site) as page:
        began = time.monotonic()
        page.goto(site.address + page_links.overview_at(at), wait_until="commit")
        wait_for_answer(page)
        return time.monotonic() - began


def hundred_thousand(_prepared: Prepared, site: Site, runs: int) -> dict[str, Any]:
    """First sight, renewals, and fifty viewers."""
    return {
        **first_sight(site, runs),
        "refresh": {name: refresh(site, name) for name in OPENED},
        "viewers": crowd(site),
    }


PARTS = {
    "others": Part(
        gpus=(10_000,),
        span=timedelta(hours=1),
        coarse_tick_seconds=COARSE_TICK_SECONDS,
        measure=others,
        runs=5,
    ),
    "day": Part(
        gpus=(10_000,), span=DAY, coarse_tick_seconds=DAY_TICK_SECONDS, measure=day, runs=3
    ),
    "hundred_thousand": Part(
        gpus=(100_000,),
        span=timedelta(minutes=5),
        coarse_tick_seconds=LARGE_TICK_SECONDS,
        measure=hundred_thousand,
        runs=3,
        recent=None,
        tick_seconds=LARGE_TICK_SECONDS,
        patience_ms=LARGE_PATIENCE_MS,
    ),
}

if __name__ == "__main__":
    sys.exit(main())
