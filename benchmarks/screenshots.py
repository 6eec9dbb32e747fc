"""Photographs every page of the running product, the report and a message into `docs/images/`.

`make screenshots` runs it: a simulated cluster of 16 nodes with a week behind it, with faults that
were made to happen, one of them taken by somebody. Look at every picture afterwards.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Page, ViewportSize, expect

from benchmarks.stage import Prepared, Scale, Site, chromium, hub_of, prepare
from gpuvigil.clock import SystemClock
from gpuvigil.hub_client import Hub
from gpuvigil.model import Acknowledgement, Holder, Incident, RecordKind, Severity
from gpuvigil.web import page_links
from scripts import slack_preview
from tests.polling import wait_until
from tests.receiver import Receiver

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
LARGEST_BYTES = 250_000

NODES = 16
RECENT = timedelta(hours=3)
QUARTER = timedelta(minutes=15)
# A page that is shorter is shown without the empty rest.
LAPTOP: ViewportSize = {"width": 1440, "height": 1000}
TALL: ViewportSize = {"width": 1440, "height": 1450}
LONG: ViewportSize = {"width": 1440, "height": 2000}
PHONE: ViewportSize = {"width": 390, "height": 844}
WALL: ViewportSize = {"width": 1920, "height": 1080}
MESSAGE: ViewportSize = {"width": 780, "height": 200}
A4: ViewportSize = {"width": 794, "height": 1123}  # at 96 dots an inch

# What stands when the pictures are taken, and what is over by then.
ACTIVE: tuple[tuple[str, ...], ...] = (
    ("xid79", "--node", "sim-003", "--gpu", "5"),
    ("port-down", "--node", "sim-009", "--device", "mlx5_1"),
    ("node-silent", "--node", "sim-012"),
    ("xid48", "--node", "sim-006", "--gpu", "2"),
    ("congestion", "--node", "sim-000"),
    ("port-slow", "--node", "sim-005", "--device", "mlx5_1"),
)
OVER: tuple[tuple[str, ...], ...] = (
    ("port-down", "--node", "sim-001", "--device", "mlx5_0"),
    ("gpu-hang", "--node", "sim-014", "--gpu", "1"),
)
SETTLE_SECONDS = 6.0
REDRAW_MS = 1500
LEAST_CUT = 50  # pixels
# So that there is something to see after what happened.
STAND_SECONDS = 300.0
STANDS = ("open", "acknowledged", "flapping")
MOST_SHEETS = 8
# How many times three seconds a busy machine may take to turn a page.
PATIENCE_SHEETS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One picture of a page: its name, the address, the size of the screen, the colours."""

    name: str
    address: str
    size: ViewportSize
    scheme: Literal["dark", "light"] = "dark"


def main(arguments: Sequence[str] | None = None) -> int:
    """Take every picture."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.screenshots")
    options.add_argument("--days", type=float, default=7.0, help="how much past is written")
    options.add_argument("--out", type=Path, default=IMAGES, help="where the pictures go")
    chosen = options.parse_args(arguments)
    span = timedelta(days=chosen.days)
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpuvigil-pictures-") as name, Receiver() as receiver:
        prepared = with_a_past(Path(name), span, receiver)
        with prepared.product() as product, chromium() as browser:
            product.url()
            site = Site(product, browser)
            hub = hub_of(prepared, site)
            stand(site, hub, span)
            for shot in shots(hub):
                picture(site, shot, chosen.out)
            report(site, chosen.out)
            message(site, receiver, chosen.out)
            hub.close()
    return 0


def with_a_past(folder: Path, span: timedelta, receiver: Receiver) -> Prepared:
    """A past of sixteen nodes, and a channel that is told."""
    say(f"writing {span.total_seconds() / 86400:g} days of the past")
    more = f'[[alerts.slack]]\nname = "gpu-alerts"\nurl = "{receiver.url}"\n'
    scale = Scale(nodes=NODES, span=span, recent=min(RECENT, span))
    return prepare(folder, scale, tick_seconds=10.0, refresh_seconds=2.0, more=more)


def stand(site: Site, hub: Hub, span: timedelta) -> None:
    """Make faults happen and wait until they are told, and until the past's usage is counted."""
    for fault in OVER:
        site.run("inject", *fault)
    waited("the first faults are told", lambda: all_told(hub, OVER, STANDS), 300)
    for fault in (*OVER, *ACTIVE):
        site.run("inject", *fault, *(["--clear"] if fault in OVER else []))
    broken_at = time.monotonic()
    waited("the faults are told", lambda: all_told(hub, ACTIVE, STANDS), 300)
    waited("the others are over", lambda: all_told(hub, OVER, ["resolved"]), 600)
    acknowledge(hub)
    waited("one is taken", lambda: hub.records(RecordKind.INCIDENT, states=["acknowledged"]), 60)
    quarters = span // QUARTER - 8  # the newest is not over, the oldest are being forgotten
    waited("the past's usage is counted", lambda: counted(hub) >= quarters, 1200)
    time.sleep(max(broken_at + STAND_SECONDS - time.monotonic(), 0.0))


def waited(what: str, found: Callable[[], object], seconds: float) -> None:
    """Until it is so, and how long that took."""
    began = time.monotonic()
    wait_until(what, found, seconds)
    say(f"{what} after {time.monotonic() - began:.0f} s")


def all_told(hub: Hub, faults: Iterable[Sequence[str]], states: Sequence[str]) -> bool:
    """Whether of each of the faults on one GPU or port there is an incident on its node, beside notes.

    What befalls a whole node or a leaf is told later, or of another place.
    """
    records = hub.records(RecordKind.INCIDENT, states=states)
    found = {
        one.subject.node
        for one in map(Incident.from_record, records)
        if one.severity is not Severity.INFO
    }
    return found >= {fault[2] for fault in faults if len(fault) > 3}


def counted(hub: Hub) -> int:
    """How many quarters of an hour are counted."""
    time.sleep(1)
    return len(hub.records(RecordKind.USAGE, limit=2000))


def acknowledge(hub: Hub) -> None:
    """Somebody takes the incident of the port."""
    one = incident(hub, "port_down")
    taken = Acknowledgement(
        id="pictures",
        incident=one.id,
        subject=one.subject,
        by="Dana, on call",
        note="Optic ordered, swap at 14:00. Jobs on sim-009 may go on over mlx5_0.",
        at=SystemClock().now(),
    )
    hub.write_records([taken.to_record()])


def incident(hub: Hub, fault: str) -> Incident:
    """The newest that stands with this fault."""
    records = hub.records(RecordKind.INCIDENT, states=STANDS)
    found = [one for one in map(Incident.from_record, records) if one.fault == fault]
    return found[-1]


def shots(hub: Hub) -> Iterator[Shot]:
    """Every page, with something to see on it; windows end when their picture is taken."""
    lost = incident(hub, "gpu_lost")
    gpu, node = lost.subject, lost.subject.of_node()
    job = page_links.job_page(gpu.cluster, Holder.parse(lost.impact.holders[0]))
    yield Shot(name="overview", address=page_links.OVERVIEW, size=LAPTOP)
    yield Shot(name="overview-light", address=page_links.OVERVIEW, size=LAPTOP, scheme="light")
    yield Shot(name="wall", address=f"{page_links.OVERVIEW}?wall=1", size=WALL)
    yield Shot(name="gpu", address=page_links.subject_page(gpu, *last_hour()), size=TALL)
    yield Shot(name="node", address=page_links.subject_page(node, *last_hour()), size=LONG)
    yield Shot(name="jobs", address=page_links.JOBS, size=LAPTOP)
    yield Shot(name="job", address=job, size=TALL)
    yield Shot(name="people", address=page_links.PEOPLE, size=LAPTOP)
    yield Shot(name="incidents", address=page_links.INCIDENTS, size=LAPTOP)
    yield Shot(name="incident", address=page_links.incident_page(lost.id), size=TALL)
    yield Shot(name="phone", address=page_links.incident_page(lost.id), size=PHONE)
    yield Shot(name="network", address=page_links.NETWORK, size=TALL)
    yield Shot(name="efficiency", address=page_links.EFFICIENCY, size=LAPTOP)
    yield Shot(name="pipeline", address=page_links.PIPELINE, size=TALL)


def last_hour() -> tuple[datetime, datetime]:
    now = SystemClock().now()
    return now - timedelta(hours=1), now


def picture(site: Site, shot: Shot, out: Path) -> None:
    """Open a page, give it time to draw everything, and keep what is seen."""
    context = site.visitor(shot.size, shot.scheme)
    page = context.new_page()
    site.sign_in(page)
    page.goto(site.address + shot.address)
    page.locator("[data-testid='stApp'][data-test-script-state='notRunning']").wait_for()
    page.wait_for_timeout(SETTLE_SECONDS * 1000)
    # The first visitor since the start may see a chart a little later than the rest.
    page.get_by_text("Loading the day.").wait_for(state="detached", timeout=120_000)
    expect(page.locator(".gv-loading")).to_have_count(0, timeout=120_000)
    shorten(page, shot.size)
    keep(page.screenshot(), out / f"{shot.name}.png")
    context.close()


def shorten(page: Page, size: ViewportSize) -> None:
    """Cut a screen that is higher than its page."""
    drawn = page.locator("[data-testid='stMainBlockContainer']").bounding_box()
    if drawn is not None and 0 < drawn["y"] + drawn["height"] < size["height"] - LEAST_CUT:
        height = math.ceil(drawn["y"] + drawn["height"])
        page.set_viewport_size({"width": size["width"], "height": height})
        page.wait_for_timeout(REDRAW_MS)


def report(site: Site, out: Path) -> None:
    """The week's report, page by page, as it is printed."""
    file = site.product.state / "report.pdf"
    site.run("report", "--last", "7d", "--out", str(file))
    before = b""
    for number in range(1, MOST_SHEETS + 1):
        shown = sheet(site, f"{file.as_uri()}#toolbar=0&navpanes=0&view=Fit&page={number}", before)
        if shown is None:
            return
        keep(shown, out / f"report-{number}.png")
        before = shown


def sheet(site: Site, address: str, before: bytes) -> bytes | None:
    """A page of a document; None after the last one, where the viewer goes on showing that."""
    context = site.visitor(A4, "light")
    page = context.new_page()
    page.goto(address)
    try:
        for _ in range(PATIENCE_SHEETS):
            page.wait_for_timeout(3000)
            shown = without_rim(page)
            if shown != before:
                return shown
    finally:
        context.close()
    return None


def message(site: Site, receiver: Receiver, out: Path) -> None:
    """What was sent about the lost GPU, as Slack shows it."""
    sent = next(one for one in receiver.received() if "sim-003 GPU 5" in str(one.payload))
    context = site.visitor(MESSAGE, "light")
    page = context.new_page()
    page.set_content(slack_preview.page([sent.payload], f"{sent.at:%H:%M}"))
    keep(page.screenshot(full_page=True), out / "slack.png")
    context.close()


def without_rim(page: Page) -> bytes:
    """The sheet alone, without the dark desk that Chromium lays it on."""
    with Image.open(BytesIO(page.screenshot())) as shown:
        whole = shown.convert("L").point(lambda value: 255 if value > 60 else 0)
        out = BytesIO()
        shown.crop(whole.getbbox()).save(out, "PNG")
    return out.getvalue()


def keep(png: bytes, path: Path) -> None:
    """As few colours as it takes to be small; AssertionError when it stays too large."""
    with Image.open(BytesIO(png)) as shown:
        for colours in (256, 128, 64):
            few = shown.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
            few.save(path, "PNG", optimize=True)
            if path.stat().st_size < LARGEST_BYTES:
                break
    assert path.stat().st_size < LARGEST_BYTES, path
    say(f"{path}: {path.stat().st_size // 1000} KB")


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
