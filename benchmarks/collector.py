"""The collector's weight on a node, beside nvitop-exporter in the same run.

`python -m benchmarks.collector` starts both on the fake NVML library (8 GPUs with 18 NVLinks each,
at 1 s), ours from the one file that nodes run and shipping to a real hub, without the sensors that
the peer has nothing like; then ours with each of those beside ours without. It writes
`benchmarks/collector.json`; `make docs` makes the document from it. It takes about a quarter of an hour.
"""

import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.footprint import Memory, cpu_seconds, ended_children_seconds, memory
from benchmarks.spine import about, descendants, say
from gpuvigil.config import CollectorSettings
from scripts import collector_pyz
from tests.nvml_fake import LIBRARY, FakeDriver, build
from tests.polling import wait_until
from tests.servers import HubProcess
from tests.sysfs import PciTree, PortTree

RESULT = Path(__file__).with_suffix(".json")
ROUNDS = 3
GPUS = 8
LINKS = 18
CALL_SECONDS, DEAR_CALL_SECONDS = 20e-6, 100e-6  # of processor time, for both sides
TICK_SECONDS = 1.0
WARM_UP_SECONDS = 15.0
REST_SECONDS = 120.0  # two looks at the machine; ours ships meanwhile, and nobody scrapes either
SCRAPED_SECONDS = 10.0
SCRAPES = 100
PORTS = 8  # InfiniBand, as beside eight GPUs
# What each sensor is given to look at; its settings are the defaults.
SENSORS = ("network", "jobs", "machine")

_CONFIG = """
[hub]
url = "{hub}"
collector_token_file = "{token}"
[collector]
cluster = "bench"
node = "node-{port}"
tick_seconds = {tick}
metrics_port = {port}
metrics_links = true
spool_directory = "{spool}"
sysfs_root = "{sysfs}"
jobs_directory = "{jobs}"
steps_directory = "{steps}"
machine_seconds = {machine}
"""


def main() -> int:
    """Measure everything and write the result."""
    with tempfile.TemporaryDirectory(prefix="gpuvigil-bench-") as name, ExitStack() as stack:
        load_average = os.getloadavg()[0]
        stage = Stage(Path(name), stack)
        rounds = [one_round(stage) for _ in range(ROUNDS)]
        sensors = {name: added(name, stage) for name in SENSORS}
        result = {
            "about": {
                **{key: value for key, value in about().items() if key != "simulator_seed"},
                "command": "python -m benchmarks.collector",
                "load_average": load_average,
                "peer": f"nvitop-exporter {version('nvitop-exporter')}",
                "gpus": GPUS,
                "nvlinks_per_gpu": LINKS,
                "tick_seconds": TICK_SECONDS,
                "call_seconds": CALL_SECONDS,
                "dear_call_seconds": DEAR_CALL_SECONDS,
                "rounds": ROUNDS,
                "rest_seconds": REST_SECONDS,
                "scrapes_per_round": SCRAPES,
            },
            **{name: summed_up([found[name] for found in rounds]) for name in ("ours", "peer")},
            "sensors": sensors,
        }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    say(f"wrote {RESULT.name}: {json.dumps({n: result[n]['median'] for n in ('ours', 'peer')})}")
    return 0


class Stage:
    """What both programs run on: busy GPUs, a hub, and the one file."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.driver = FakeDriver(folder / "driver", build(folder / "nvml"), gpus=GPUS)
        self.steps = folder / "steps"
        self.steps.mkdir()
        for gpu in range(GPUS):
            process = stack.enter_context(computing())
            (self.steps / str(process.pid)).write_text("1234 0.82\n")
            self.driver.set(gpu, utilization_gpu_percent=97, links=LINKS, pci_bus_id=address(gpu))
            self.driver.set_processes(gpu, {process.pid: 60 * 1024**3})
        self.driver.charge(CALL_SECONDS, DEAR_CALL_SECONDS)
        self.bus, self.ports = (bus(folder / name) for name in ("bus", "ports"))
        tree = PortTree(self.ports)
        for port in range(PORTS):
            tree.infiniband(f"mlx5_{port}")
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        (self.jobs / "17-1700000000").write_text(f"job=17\ngpus=0-{GPUS - 1}\nstarted=1700000000\n")
        self.hub = stack.enter_context(HubProcess(folder / "hub", {"commit_seconds": 1.0}))
        self.file = folder / "collector.pyz"
        collector_pyz.write(self.file)

    def ours(self, *sensors: str) -> "Program":
        port, nowhere = free_port(), self.folder / "nowhere"
        config = self.folder / f"collector-{port}.toml"
        text = _CONFIG.format(
            hub=self.hub.url,
            token=self.hub.collector_token_file,
            tick=TICK_SECONDS,
            port=port,
            sysfs=self.ports if "network" in sensors else self.bus,
            jobs=self.jobs if "jobs" in sensors else nowhere,
            steps=self.steps if "jobs" in sensors else nowhere,
            machine=CollectorSettings().machine_seconds if "machine" in sensors else 0.0,
            spool=self.folder / f"spool-{port}",
        )
        config.write_text(text, encoding="utf-8")
        # As the unit starts it.
        command = [sys.executable, "-I", "-S", str(self.file), "collect", "--config", str(config)]
        return self._program(command, port)

    def peer(self) -> "Program":
        port, program = free_port(), Path(sys.executable).parent / "nvitop-exporter"
        interval = ["--interval", str(TICK_SECONDS)]
        return self._program([str(program), *interval, "--port", str(port)], port)

    def _program(self, command: Sequence[str], port: int) -> "Program":
        log = (self.folder / f"{port}.log").open("wb")
        environment = {**os.environ, **self.driver.environment()}
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        log.close()
        return Program(process=process, port=port)


@dataclass(frozen=True, slots=True)
class Program:
    """One of the two, running; a context manager that ends it."""

    process: subprocess.Popen[bytes]
    port: int

    def __enter__(self) -> "Program":
        wait_until("the first sample", self._answers, 60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    @property
    def pids(self) -> list[int]:
        return list(descendants(self.process.pid))

    def spent_seconds(self) -> float:
        """Of all its processes so far, those that have ended meanwhile too."""
        pids = self.pids
        return cpu_seconds(pids) + ended_children_seconds(pids)

    def scrape(self) -> tuple[float, bytes]:
        """Seconds of one scrape on a connection of its own, and the page."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read()
        took = time.perf_counter() - began
        connection.close()
        return took, page

    def _answers(self) -> bool:
        assert self.process.poll() is None, "it has ended by itself"
        try:
            return samples(self.scrape()[1]) > 0
        except (OSError, http.client.HTTPException):
            return False


def added(sensor: str, stage: Stage) -> dict[str, float]:
    """What a sensor takes more: ours with it beside ours without, over the same seconds."""
    with stage.ours(sensor) as more, stage.ours() as less:
        both = {"more": more, "less": less}
        time.sleep(WARM_UP_SECONDS)
        cpu = cpu_shares(both, REST_SECONDS, scraped=False)
        pss = {name: memory(program.pids, LIBRARY).pss for name, program in both.items()}
        values = {name: samples(program.scrape()[1]) for name, program in both.items()}
    found = {
        "cpu_percent": round(100 * (cpu["more"] - cpu["less"]), 3),
        "pss_mib": round(pss["more"] - pss["less"], 1),
        "values": values["more"] - values["less"],
    }
    say(f"  {sensor}: {found}")
    return found


def one_round(stage: Stage) -> dict[str, dict[str, float]]:
    """Both programs, started afresh, over the same seconds."""
    say("a round")
    with stage.ours() as ours, stage.peer() as peer:
        both = {"ours": ours, "peer": peer}
        time.sleep(WARM_UP_SECONDS)
        rest = cpu_shares(both, REST_SECONDS, scraped=False)
        scraped = cpu_shares(both, SCRAPED_SECONDS, scraped=True)
        times: dict[str, list[float]] = {name: [] for name in both}
        for _ in range(SCRAPES):
            for name, program in both.items():
                times[name].append(program.scrape()[0])
        found = {}
        for name, program in both.items():
            count = samples(program.scrape()[1])
            taken = memory(program.pids, LIBRARY)
            scrape = statistics.median(times[name])
            found[name] = figures(rest[name], scraped[name], scrape, count, taken)
            say(f"  {name}: {found[name]}")
    return found


def figures(
    rest: float, scraped: float, scrape_seconds: float, count: int, taken: Memory
) -> dict[str, float]:
    """What one round found of one program."""
    return {
        "cpu_percent": round(100 * rest, 3),
        "cpu_percent_scraped": round(100 * scraped, 3),
        "values": count,
        "scrape_ms": round(1e3 * scrape_seconds, 3),
        "scrape_us_per_value": round(1e6 * scrape_seconds / count, 3),
        "pss_mib": round(taken.pss, 1),
        "alone_mib": round(taken.alone, 1),
        "nvml_mib": round(taken.library, 1),
    }


def cpu_shares(programs: dict[str, Program], seconds: float, *, scraped: bool) -> dict[str, float]:
    """Processor seconds per second of each, over all its processes."""
    before = {name: program.spent_seconds() for name, program in programs.items()}
    began = time.monotonic()
    due = began
    while (left := began + seconds - time.monotonic()) > 0:
        if scraped:
            for program in programs.values():
                program.scrape()
        due += TICK_SECONDS
        time.sleep(max(min(due - time.monotonic(), left), 0.0))
    passed = time.monotonic() - began
    return {name: (it.spent_seconds() - before[name]) / passed for name, it in programs.items()}


def samples(page: bytes) -> int:
    """Values on a page of metrics, those without a number (NaN) left out."""
    lines = [line for line in page.splitlines() if line and not line.startswith(b"#")]
    return sum(1 for line in lines if not re.search(rb" NaN$", line))


def summed_up(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians over the rounds, and every round."""
    median = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    return {"median": median, "rounds": list(rounds)}


def bus(root: Path) -> Path:
    """The GPUs on the PCI bus, where a node has them."""
    tree = PciTree(root)
    for gpu in range(GPUS):
        tree.add(address(gpu))
    return root


def address(gpu: int) -> str:
    """Where a GPU is on the PCI bus."""
    return f"0000:{0x1B + gpu:02x}:00.0"


@contextmanager
def computing() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a GPU may be said to be held by."""
    process = subprocess.Popen(["sleep", "infinity"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
