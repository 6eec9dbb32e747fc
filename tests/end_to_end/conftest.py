"""A site of one node: fake driver, port tree, and every service as a real process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, RecordKind
from gpuvigil.store.hub import HubStore
from tests.nvml_fake import DEFAULTS, FakeDriver
from tests.polling import wait_until
from tests.receiver import Received, Receiver
from tests.servers import HubProcess
from tests.sysfs import PortTree

# Short ticks and limits, so that minutes of a cluster's life fit into a test.
SETTINGS = """
[hub]
url = "{hub}"
collector_token_file = "{collector_token}"
service_token_file = "{service_token}"
[collector]
node = "node-1"
tick_seconds = 0.5
driver_timeout_seconds = 0.4
reader_patience_seconds = 3
port_poll_seconds = 0.2
sysfs_root = "{sysfs}"
kernel_log = "{directory}/kmsg"
journalctl = ""
spool_directory = "{directory}/spool"
metrics_port = 0
[analyzer]
tick_seconds = 0.5
window_seconds = 5
idle_after_seconds = 4
silent_after_seconds = 12
silent_verdict_seconds = 12
port_down_seconds = 0
clear_seconds = 1
[alerts]
update_seconds = 1
cause_wait_seconds = 1
[[alerts.webhooks]]
name = "ops"
url = "{webhook}"
minimum_severity = "info"
"""
# What tests do to a GPU, and to its ports.
BENT = ("lost", "missing", "utilization_gpu_percent", "utilization_memory_percent")
PORTS = ("mlx5_0", "mlx5_1")


class Site:
    """One node and everything behind it; processes are started by name and ended by id."""

    def __init__(self, directory: Path, hub: HubProcess, driver: FakeDriver) -> None:
        self.directory = directory
        self.hub = hub
        self.driver = driver
        self.ports = PortTree(directory / "sys")
        self.receiver = Receiver()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.config = directory / "gpuvigil.toml"
        self._lines = 0
        self._former: set[str] = set()  # incidents of tests before

    def settle(self) -> None:
        """Heal what tests bend, wait until nothing is wrong any more, and forget all of it."""
        self.driver.release()
        for gpu in range(8):
            self.driver.set(gpu, compute_processes="", **{name: DEFAULTS[name] for name in BENT})
        for port in PORTS:
            self.ports.up(port)
        wait_until("a site without a fault", self._is_well, 60.0)
        self._former |= {incident.id for incident in self.incidents()}
        self.receiver.forget()

    def _is_well(self) -> bool:
        up = [row["up"] for row in self.gpus()] + [row["up"] for row in self.latest("port", ["up"])]
        told = {status: self._fingerprints(status) for status in ("firing", "resolved")}
        return (
            up == [1] * (8 + len(PORTS))
            and not self.incidents("open", "acknowledged")
            and told["firing"] <= told["resolved"]
        )

    def _fingerprints(self, status: str) -> set[str]:
        """Of what was told with this status."""
        payloads = [one.payload for one in self.receiver.accepted()]
        return {
            alert["fingerprint"]
            for payload in payloads
            for alert in payload["alerts"]
            if payload["status"] == status
        }

    def kernel_says(self, *lines: str) -> None:
        """Write lines into the kernel log, now."""
        with (self.directory / "kmsg").open("a") as log:
            for line in lines:
                self._lines += 1
                log.write(f"4,{self._lines},{int(time.monotonic() * 1e6)},-;{line}\n")

    def configure(self) -> None:
        (self.directory / "kmsg").touch()
        self.config.write_text(
            SETTINGS.format(
                hub=self.hub.url,
                collector_token=self.hub.collector_token_file,
                service_token=self.hub.service_token_file,
                sysfs=self.ports.root,
                directory=self.directory,
                webhook=self.receiver.url,
            )
        )

    def start(self, command: str, environment: Mapping[str, str] | None = None) -> None:
        """Start one of our commands; its log is `<command>.log`."""
        with (self.directory / f"{command}.log").open("ab") as log:
            self.processes[command] = subprocess.Popen(
                [sys.executable, "-m", "gpuvigil", command, "--config", str(self.config)],
                env={**os.environ, **(environment or {})},
                stdout=log,
                stderr=log,
            )

    def start_all(self) -> None:
        self.start("analyze")
        self.start("alert")
        self.start("collect", self.driver.environment())
        wait_until("the first rows of every GPU", lambda: len(self.gpus()) == 8)
        wait_until("the analyzer's first pass", lambda: self.client().records(RecordKind.PULSE))

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def client(self) -> Hub:
        return self.hub.hub()

    def gpus(self) -> list[dict[str, object]]:
        """The newest row of every GPU."""
        fields = ["up", "unmeasured_reason", "unmeasured_seconds", "utilization_percent"]
        fields += ["power_watts", "index"]
        return self.latest("gpu", fields)

    def latest(self, measurement: str, fields: list[str]) -> list[dict[str, object]]:
        """The newest row of every subject that reported within 3 s."""
        since = datetime.now(timezone.utc) - timedelta(seconds=3)
        store = HubStore(self.client())
        rows: list[dict[str, object]] = store.latest(measurement, fields, since).to_pylist()
        return rows

    def lines(self, measurement: str, end: datetime) -> int:
        """How many lines the store has of a measurement, up to `end`."""
        table = HubStore(self.client()).window(measurement, [], end - timedelta(hours=1), end)
        return sum(table.column("samples").to_pylist())

    def incidents(self, *states: str) -> list[Incident]:
        """Since the site was settled."""
        records = self.client().records(RecordKind.INCIDENT, states=states)
        found = [Incident.from_record(record) for record in records]
        return [incident for incident in found if incident.id not in self._former]

    def told(self, fault: str, status: str = "firing", timeout_seconds: float = 45.0) -> Received:
        """The first message about a fault with that status, once it has come."""
        got = self.receiver.wait(lambda all_: bool(about(all_, fault, status)), timeout_seconds)
        return about(got, fault, status)[0]

    def log(self, command: str) -> str:
        return (self.directory / f"{command}.log").read_text()


def about(received: list[Received], fault: str, status: str) -> list[Received]:
    """The accepted messages about a fault."""
    return [
        one
        for one in received
        if one.accepted
        and one.payload["status"] == status
        and one.payload["alerts"][0]["labels"]["alertname"] == fault
    ]


@contextmanager
def running(folder: Path, library: Path) -> Iterator[Site]:
    """A site that runs: eight GPUs, two InfiniBand ports, hub, collector, analyzer, alerts."""
    driver = FakeDriver(folder / "driver", library)
    with HubProcess(folder / "hub") as hub:
        site = Site(folder, hub, driver)
        with site.receiver:
            for port in PORTS:
                site.ports.infiniband(port)
            site.configure()
            try:
                site.start_all()
                yield site
            finally:
                driver.release()
                site.stop()


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("site"), library) as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Site:
    """The site of this file's tests, without a fault: for what the next test can undo."""
    shared_site.settle()
    return shared_site


@pytest.fixture
def fresh_site(tmp_path: Path, library: Path) -> Iterator[Site]:
    """A site of one's own, for what leaves traces."""
    with running(tmp_path, library) as site:
        yield site
