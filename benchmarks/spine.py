"""The spine's figures: from an empty clone to the page, from the sensor to the message, memory.

`make bench` runs it: clones what is committed, starts it as a newcomer does, injects faults, reads
the page in Chromium, and writes `benchmarks/spine.json`; `make docs` makes the document from it.
"""

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.nvml_fake import FakeDriver, build
from tests.product import Product, clean_environment
from tests.receiver import Received, Receiver

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).with_suffix(".json")
RUNS = 10
PAGE_RUNS = 5


def main() -> int:
    """Measure everything once and write the result."""
    with tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as name:
        folder = Path(name)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        with Receiver() as receiver:
            result = {"about": about(), **measure(clone, folder, receiver)}
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    say(f"wrote {RESULT.relative_to(ROOT)}")
    return 0


def about() -> dict[str, Any]:
    """What these figures belong to."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return {
        "command": "python -m benchmarks.spine",
        "commit": commit,
        "measured_at": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": {
            "cpus": os.cpu_count(),
            "memory_gib": None if memory is None else round(int(memory[1]) / 1024**2, 1),
            "system": f"{platform.system()} {platform.release()}",
            "nvidia_gpu": Path("/proc/driver/nvidia/version").exists(),
        },
        "simulator_seed": 1,
    }


def measure(clone: Path, folder: Path, receiver: Receiver) -> dict[str, Any]:
    """First start, restart, latencies and memory of one installation."""
    config = folder / "bench.toml"
    config.write_text(f'[[alerts.webhooks]]\nname = "ops"\nurl = "{receiver.url}"\n')
    command = ["make", "up", f"ARGUMENTS=--config {config} --simulate 16"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        say("first start, from an empty clone")
        with Product(command, clone, folder) as product:
            first = visited(product, browser, timeout_seconds=900)
        starts = []
        for number in range(5):
            say(f"restart {number + 1} of 5")
            with Product(command, clone, folder) as product:
                starts.append(visited(product, browser))
        with Product(command, clone, folder) as product:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            started(product, page)
            time.sleep(30)  # at rest: start-up is over, a refresh every 2 s, one page open
            memory = processes(product)
            bench = Injections(clone, product, receiver)
            result = {
                "first_start": first,
                "restart": {
                    "runs": len(starts),
                    "seconds_to_page": summary([start["seconds_to_page"] for start in starts]),
                    "steps": starts[len(starts) // 2]["steps"],
                },
                "xid_to_webhook": bench.told("xid79", "gpu_lost", ("--gpu", "5")),
                "webhook_to_page": bench.shown(page),
                "processes": memory,
            }
    return {**result, "processes_with_gpus": with_gpus(clone, folder)}


def with_gpus(clone: Path, folder: Path) -> list[dict[str, Any]]:
    """Every process of `up` on a machine with eight GPUs: the fake NVML library of the tests."""
    driver = FakeDriver(folder / "driver", build(folder / "nvml"))
    with Product(["make", "up"], clone, folder / "gpus", driver.environment()) as product:
        product.url()
        time.sleep(30)
        return processes(product)


def visited(product: Product, browser: Browser, timeout_seconds: float = 60) -> dict[str, Any]:
    """`started`, on a page that is closed again."""
    page = browser.new_page()
    try:
        return started(product, page, timeout_seconds)
    finally:
        page.close()


def started(product: Product, page: Page, timeout_seconds: float = 60) -> dict[str, Any]:
    """Seconds from the command to the URL and to the page in Chromium, and the steps of `up`."""
    url = product.url(timeout_seconds)
    to_url = time.monotonic() - product.began
    page.goto(url)
    page.get_by_text("Needs attention").wait_for(timeout=60_000)
    to_page = time.monotonic() - product.began
    steps = json.loads((product.state / "startup.json").read_text())
    return {"seconds_to_url": to_url, "seconds_to_page": to_page, "steps": steps}


class Injections:
    """Faults made in the simulated cluster, and how long until somebody is told."""

    def __init__(self, clone: Path, product: Product, receiver: Receiver) -> None:
        self._program = str(clone / ".venv/bin/gpuvigil")
        self._environment = {
            **clean_environment(),
            "XDG_STATE_HOME": str(product.state.parent),
        }
        self._receiver = receiver

    def inject(self, fault: str, node: str, arguments: list[str]) -> None:
        subprocess.run(
            [self._program, "inject", fault, "--node", node, *arguments],
            env=self._environment,
            check=True,
            capture_output=True,
        )

    def told(self, fault: str, alert: str, place: tuple[str, ...]) -> dict[str, Any]:
        """`RUNS` times: seconds from the start of `gpuvigil inject` to the webhook received."""
        seconds = []
        for number in range(RUNS):
            node = f"sim-{number % 16:03d}"
            arguments = list(place)
            began = time.monotonic()
            self.inject(fault, node, arguments)
            got = self.wait(alert, node, "firing", since=began)
            seconds.append(got.monotonic - began)
            cleared = time.monotonic()
            self.inject(fault, node, [*arguments, "--clear"])
            self.wait(alert, node, "resolved", since=cleared)
        say(f"{fault}: {summary(seconds)}")
        return {"runs": RUNS, "seconds": summary(seconds), "all_seconds": rounded(seconds)}

    def shown(self, page: Page) -> dict[str, Any]:
        """`PAGE_RUNS` times: seconds from the webhook received to the text on the page."""
        seconds = []
        for number in range(PAGE_RUNS):
            node = f"sim-{number:03d}"
            began = time.monotonic()
            self.inject("xid79", node, ["--gpu", "2"])
            page.get_by_text(f"{node} GPU 2").first.wait_for(timeout=30_000)
            shown = time.monotonic()
            told = self.wait("gpu_lost", node, "firing", since=began)
            seconds.append(shown - told.monotonic)
            self.inject("xid79", node, ["--gpu", "2", "--clear"])
            self.wait("gpu_lost", node, "resolved", since=shown)
            page.get_by_text(f"{node} GPU 2").first.wait_for(state="hidden", timeout=60_000)
        say(f"page: {summary(seconds)}")
        return {"runs": PAGE_RUNS, "seconds": summary(seconds), "all_seconds": rounded(seconds)}

    def wait(self, alert: str, node: str, status: str, since: float) -> Received:
        def wanted(one: Received) -> bool:
            labels = one.payload["alerts"][0]["labels"]
            told = (labels["alertname"], labels["node"], one.payload["status"])
            return one.monotonic >= since and told == (alert, node, status)

        got = self._receiver.wait(lambda all_: any(map(wanted, all_)), timeout_seconds=90)
        return next(filter(wanted, got))


def processes(product: Product) -> list[dict[str, Any]]:
    """Every process of `up`: its command, proportional set size, and CPU time used so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = []
    for pid in descendants(product.process.pid):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        name = command_of(words)
        if name is None:
            continue
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        pss = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found.append(
            {
                "command": name,
                "pss_mib": None if pss is None else round(int(pss[1]) / 1024, 1),
                "cpu_seconds": (int(stat[11]) + int(stat[12])) / ticks,
            }
        )
    return sorted(found, key=lambda one: str(one["command"]))


def command_of(words: list[str]) -> str | None:
    """Which of our commands a process is, None for make and shells."""
    if "collector.reader" in words:
        return "read"
    at = next((n for n, word in enumerate(words) if Path(word).name == "gpuvigil"), None)
    return None if at is None or at + 1 >= len(words) else words[at + 1]


def descendants(pid: int) -> Iterator[int]:
    """`pid` and all processes below it."""
    yield pid
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # A thread may have ended since it was listed.
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (thread / "children").read_text().split():
                yield from descendants(int(child))


def summary(seconds: list[float]) -> dict[str, float]:
    """Median, best and worst, to the millisecond."""
    aggregates: dict[str, Callable[[list[float]], float]] = {
        "median": statistics.median,
        "best": min,
        "worst": max,
    }
    return {name: round(function(seconds), 3) for name, function in aggregates.items()}


def rounded(seconds: list[float]) -> list[float]:
    return [round(value, 3) for value in seconds]


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
