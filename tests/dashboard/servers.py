"""A real dashboard on a free port, and sensors' data written through a real hub."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from dashboard.auth.auth_middleware import new_link
from dashboard.model.cluster import DisplayState
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.errors import HubError
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Record, RecordKind, Subject
from gpuvigil.store.hub import HubStore
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

from .scene import gpu, inventory, node, port
from .test_fabric import two_by_two

NODES = 4
GPUS = 8
# What every GPU of the fed fleet does, by its place on its node.
LOOKS = (
    DisplayState.ACTIVE,
    DisplayState.ACTIVE,
    DisplayState.ACTIVE,
    DisplayState.ACTIVE,
    DisplayState.IDLE,
    DisplayState.FAILED,
    DisplayState.FREE,
    DisplayState.FREE,
)


class DashboardProcess:
    """`python -m gpuvigil dashboard` on a hub; a context manager, ended by its pid.

    The port is chosen by the system at the first start and kept at every later one.
    """

    def __init__(self, directory: Path, hub: HubProcess, more: str = "") -> None:
        """`more` are further lines of its configuration, the first ones in `[dashboard]`."""
        self.more = more
        self.secrets = directory / "secrets"
        self.config = directory / "dashboard.toml"
        self.log = directory / "dashboard.log"
        self.url = ""
        self._hub = hub

    def __enter__(self) -> "DashboardProcess":
        self.start()
        return self

    def start(self) -> None:
        """Start and wait until it listens."""
        hub, port = self._hub, self.url.rpartition(":")[2] or "0"
        self.config.write_text(
            f'[hub]\nurl = "{hub.url}"\nservice_token_file = "{hub.service_token_file}"\n'
            f'[dashboard]\nport = {port}\nsecrets_directory = "{self.secrets}"\nrefresh_seconds = 1.0\n'
            f"{self.more}\n",
            encoding="utf-8",
        )
        self.log.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpuvigil", "dashboard", "--config", str(self.config)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        self.url = f"http://127.0.0.1:{wait_until('the dashboard says its port', self._port, 30)}"

    def __exit__(self, *_: object) -> None:
        assert self.stop() == 0, self.log.read_text(encoding="utf-8")

    def stop(self) -> int:
        """Ask it to end as an operator does; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(15)

    def link(self, query: str = "") -> str:
        """An address that signs in once and leads to the page with this query."""
        return new_link(self.secrets, self.url) + (f"&{query}" if query else "")

    def _port(self) -> str | None:
        text = self.log.read_text(encoding="utf-8")
        assert self.process.poll() is None, text
        found = re.search(r"listening .*port=(\d+)", text)
        return found.group(1) if found else None


class Feed:
    """Writes what collectors and the analyzer would: a simulated cluster and a machine without GPUs."""

    def __init__(self, hub: HubProcess) -> None:
        self.process = hub
        self.hub = hub.hub()
        # A hub's client belongs to one thread: this one to the feeding thread.
        self._pulses = hub.hub()
        self._store = HubStore(self._pulses)
        self._clock = SystemClock()
        self._stop = threading.Event()
        self.nodes = [node(f"sim-{number:03d}") for number in range(1, NODES + 1)]
        self.bench = Subject(cluster="local", node="bench")

    def __enter__(self) -> "Feed":
        now = self._clock.now()
        ports = (port("eth0", True), port("eth1", False))
        records = [inventory(one, at=now) for one in self.nodes]
        records.append(inventory(self.bench, gpus=0, at=now, ports=ports, driver_state="no driver"))
        self.hub.write_records(record.to_record() for record in records)
        self.step()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            # A test may take the hub away for a while.
            with contextlib.suppress(HubError):
                self.step()

    def step(self) -> None:
        """One tick of every node, and a sign of life of the services."""
        now = self._clock.now()
        at = to_ns(now)
        lines = [self._gpu(one, index, at) for one in self.nodes for index in range(GPUS)]
        tags = {
            "cluster": "local",
            "node": "bench",
            "port": "1",
            "kind": "ethernet",
            "role": "management",
        }
        for device, up in (("eth0", 1), ("eth1", 0)):
            fields = {"up": up, "speed_bits_per_second": 10_000_000_000 if up else None}
            lines.append(encode("port", {**tags, "device": device}, fields, at) or "")
        self._store.write("\n".join(lines).encode())
        version = int(now.timestamp() * 1e6)
        self._pulses.write_records(
            Record(kind=RecordKind.PULSE, id=name, at=now, subject=name, version=version)
            for name in ("analyzer", "alerts")
        )
        read = two_by_two(self.nodes[0].cluster)
        self._pulses.write_records(replace(it, at=now).to_record() for it in read)

    def _gpu(self, of: Subject, index: int, at: int) -> str:
        look, subject = LOOKS[index], gpu(index, of)
        tags = {"cluster": of.cluster, "node": of.node, "uuid": subject.gpu or "", "model": "H100"}
        if look is DisplayState.FAILED:
            return encode("gpu", tags, {"up": 0, "unmeasured_reason": 3}, at) or ""
        fields = {
            "up": 1,
            "index": index,
            "utilization_percent": 80 if look is DisplayState.ACTIVE else 0,
            "compute_processes": 0 if look is DisplayState.FREE else 1,
            "power_watts": 400.0,
            "power_limit_watts": 700.0,
            "temperature_celsius": 55,
            "sm_clock_hertz": 1_980_000_000,
        }
        return encode("gpu", tags, fields, at) or ""
