"""The pages' figures: first sight, clicks, renewals, the report and fifty viewers, on 1,000 and 10,000 GPUs.

`make bench` runs it: writes an hour of a simulated cluster's past through the hub, a line a minute
until two minutes ago and from then on as the simulator goes on, starts the product on it, reads the
pages in Chromium, and writes `benchmarks/pages.json`. `python -m benchmarks.pages --gpus 1000 --runs 3` tries it small, and keeps
nothing unless `--out` names a file.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from benchmarks.spine import about, rounded, say, summary
from benchmarks.stage import (
    PATIENCE_MS,
    Prepared,
    Scale,
    Site,
    aim,
    chromium,
    prepare,
    visit,
    wait_for_answer,
)
from benchmarks.viewers import crowd
from benchmarks.watching import Stretch, Watch, in_milliseconds
from gpuvigil.web import page_links

RESULT = Path(__file__).with_suffix(".json")
SIZES = (1_000, 10_000)
GPUS_PER_NODE = 8
RUNS = 5
SEED_OF_CLICKS = 1
TICK_SECONDS, REFRESH_SECONDS = 10.0, 2.0
STRETCHES, STRETCH_SECONDS = 2, 10.0
SETTLE_SECONDS = 5.0
# In its first minute the analyzer tells of all that idles at once, as no cluster does that it has watched.
BEGUN_SECONDS = 90.0
# Of the past, what is as fine as what comes; a cluster's whole hour would take longer to write.
RECENT, COARSE_TICK_SECONDS = timedelta(minutes=2), 60.0

GPU_HEAD = ".gv-device-head"
CHART = "[data-testid='stEChartsChart'] canvas"
INCIDENT = "a[href*='incident=']"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every size and write the result."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.pages")
    options.add_argument("--gpus", type=int, nargs="*", default=SIZES, help="sizes of clusters")
    options.add_argument("--runs", type=int, default=RUNS, help="of each figure")
    options.add_argument("--hours", type=float, default=1.0, help="how much past is written")
    options.add_argument("--out", type=Path, help="where the result goes")
    chosen = options.parse_args(arguments)
    whole = (tuple(chosen.gpus), chosen.runs, chosen.hours) == (SIZES, RUNS, 1.0)
    out = chosen.out or (RESULT if whole else None)
    result = {
        "about": {
            **about(),
            "command": "python -m benchmarks.pages",
            "tick_seconds": TICK_SECONDS,
            "refresh_seconds": REFRESH_SECONDS,
            "hours": chosen.hours,
            "recent_minutes": RECENT.total_seconds() / 60,
            "coarse_tick_seconds": COARSE_TICK_SECONDS,
            "stretch_seconds": STRETCH_SECONDS,
            "begun_seconds": BEGUN_SECONDS,
            "load_average": round(os.getloadavg()[0], 1),
        },
        "sizes": [
            measured(gpus, chosen.runs, timedelta(hours=chosen.hours)) for gpus in chosen.gpus
        ],
    }
    text = json.dumps(result, indent=2) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")
        say(f"wrote {out}")
    return 0


def measured(gpus: int, runs: int, span: timedelta) -> dict[str, Any]:
    """Every figure of one size of cluster."""
    past = Scale(
        nodes=gpus // GPUS_PER_NODE,
        span=span,
        recent=RECENT,
        coarse_tick_seconds=COARSE_TICK_SECONDS,
    )
    with settled(past) as (prepared, site):
        return {"gpus": gpus, "past": said_of(prepared), **figures(site, runs)}


@contextmanager
def settled(
    past: Scale, tick_seconds: float = TICK_SECONDS, patience_ms: float = PATIENCE_MS
) -> Iterator[tuple[Prepared, Site]]:
    """The product on such a past, with faults that are told."""
    with tempfile.TemporaryDirectory(prefix="gpuvigil-pages-") as name:
        say(f"{past.nodes * GPUS_PER_NODE} GPUs: writing their past")
        prepared = prepare(
            Path(name), past, tick_seconds=tick_seconds, refresh_seconds=REFRESH_SECONDS
        )
        say(f"  {prepared.written.gpu_rows} rows in {prepared.written.seconds:.0f} s")
        with prepared.product() as product, chromium() as browser:
            product.url(patience_ms / 1000)
            site = Site(product, browser)
            break_something(site)
            settle(site, patience_ms)
            yield prepared, site


def said_of(prepared: Prepared) -> dict[str, Any]:
    """What was written before the start."""
    return {
        "gpu_rows": prepared.written.gpu_rows,
        "seconds": round(prepared.written.seconds, 1),
        "store_bytes": prepared.store_bytes,
    }


def break_something(site: Site) -> None:
    """Faults that stand: pages without an incident would be too light."""
    site.run("inject", "xid79", "--node", "sim-003", "--gpu", "5")
    site.run("inject", "port-down", "--node", "sim-008")
    site.run("inject", "node-silent", "--node", "sim-010")


def settle(site: Site, patience_ms: float) -> None:
    """Until the map is whole, and what stood at the start has been told."""
    with visit(site) as page:
        page.get_by_text("sim-003 GPU 5").first.wait_for(timeout=patience_ms)
    time.sleep(BEGUN_SECONDS)


def figures(site: Site, runs: int) -> dict[str, Any]:
    """First sight, clicks, renewals, the report, and many who look at once."""
    return {
        **first_sight(site, runs),
        "refresh": {name: refresh(site, name) for name in OPENED},
        "report": report(site, runs),
        "viewers": crowd(site),
    }


def first_sight(site: Site, runs: int) -> dict[str, Any]:
    """From the link or a click until something can be seen."""
    heads, charts = clicks(site, runs)
    return {
        "cold": spread("first page, cold", [cold(site) for _ in range(runs)]),
        "warm": spread("first page, warm", [warm(site) for _ in range(runs)]),
        "gpu_page": spread("click to the GPU's page", heads),
        "gpu_chart": spread("click to its first chart", charts),
    }


def spread(name: str, seconds: list[float]) -> dict[str, Any]:
    """Median, best and worst."""
    say(f"  {name}: {summary(seconds)}")
    return {"runs": len(seconds), "seconds": summary(seconds), "all_seconds": rounded(seconds)}


def cold(site: Site) -> float:
    """Seconds from the sign-in link to a map that answers, in a fresh profile."""
    context = site.visitor()
    page = context.new_page()
    link = site.link()
    began = time.monotonic()
    page.goto(link, wait_until="commit")
    wait_for_answer(page)
    took = time.monotonic() - began
    context.close()
    return took


def warm(site: Site) -> float:
    """Seconds of a reload, with the static files in the browser's cache."""
    with visit(site) as page:
        page.wait_for_timeout(1000)
        began = time.monotonic()
        page.reload(wait_until="commit")
        wait_for_answer(page)
        return time.monotonic() - began


def clicks(site: Site, runs: int) -> tuple[list[float], list[float]]:
    """Seconds from a click on the map to the GPU's page, and to its first chart."""
    chance = random.Random(SEED_OF_CLICKS)
    heads, charts = [], []
    with visit(site) as page:
        for _ in range(runs):
            aim(page, chance)
            began = time.monotonic()
            press(page)
            page.locator(GPU_HEAD).first.wait_for(timeout=PATIENCE_MS)
            heads.append(time.monotonic() - began)
            page.locator(CHART).first.wait_for(timeout=PATIENCE_MS)
            charts.append(time.monotonic() - began)
            page.go_back()
            wait_for_answer(page)
            page.wait_for_timeout(1000)
    return heads, charts


def press(page: Page) -> None:
    """Click where the pointer is."""
    page.mouse.down()
    page.mouse.up()


def refresh(site: Site, name: str) -> dict[str, Any]:
    """What one renewal of a page costs, with this one page open."""
    with visit(site) as page:
        OPENED[name](page)
        page.wait_for_timeout(SETTLE_SECONDS * 1000)
        watch = Watch(page, site.server)
        stretches = [watch.stretch(STRETCH_SECONDS) for _ in range(STRETCHES)]
        watch.close()
    found = costs(stretches)
    say(f"  a refresh of {name}: {found}")
    return found


def stay(_page: Page) -> None:
    """On the overview."""


def open_gpu(page: Page) -> None:
    aim(page, random.Random(SEED_OF_CLICKS))
    press(page)
    page.locator(CHART).first.wait_for(timeout=PATIENCE_MS)


def open_incidents(page: Page) -> None:
    page.locator(f"nav a[href='{page_links.INCIDENTS}']").click()
    page.locator(INCIDENT).first.wait_for(timeout=PATIENCE_MS)


OPENED: dict[str, Callable[[Page], None]] = {
    "overview": stay,
    "gpu": open_gpu,
    "incidents": open_incidents,
}


def costs(stretches: list[Stretch]) -> dict[str, Any]:
    """Of all stretches: median and worst in milliseconds, and bytes."""
    return {
        "refreshes": sum(one.refreshes for one in stretches),
        "stretches": len(stretches),
        "server_cpu_ms": in_milliseconds([it.server_seconds_per_refresh for it in stretches]),
        "answer_ms": in_milliseconds([s for it in stretches for s in it.wall_seconds]),
        "browser_ms": in_milliseconds([it.browser_seconds_per_refresh for it in stretches]),
        "bytes": round(sum(it.bytes_per_refresh for it in stretches) / len(stretches)),
    }


def report(site: Site, runs: int) -> dict[str, Any]:
    """Seconds of `gpuvigil report --last 7d`, its start included, and the size of the HTML."""
    out = site.product.state / "report.html"
    seconds = []
    for _ in range(runs):
        began = time.monotonic()
        site.run("report", "--last", "7d", "--out", str(out))
        seconds.append(time.monotonic() - began)
    return {**spread("report", seconds), "html_bytes": out.stat().st_size}


if __name__ == "__main__":
    sys.exit(main())
