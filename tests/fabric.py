"""A fabric of several nodes with all services as shipped: hub, collectors, analyzer, alerts.

Only names, places and addresses are set: delays and intervals are those of an installation.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gpuvigil.config import HubSettings
from gpuvigil.model import Inventory, RecordKind
from gpuvigil.store.hub import HubStore
from tests.polling import wait_until
from tests.receiver import Received, Receiver
from tests.servers import ROOT, HubProcess
from tests.sysfs import PortTree

_EVERYBODY = """
[hub]
url = "{url}"
collector_token_file = "{collector}"
service_token_file = "{service}"
"""
_COLLECTOR = """
[collector]
cluster = "lab"
node = "{node}"
gpus = false
sysfs_root = "{folder}/sys"
kernel_log = "{folder}/kmsg"
journalctl = ""
spool_directory = "{folder}/spool"
runtime_directory = "{folder}/run"
metrics_port = 0
"""
_ALERTS = """
[[alerts.webhooks]]
name = "ops"
url = "{webhook}"
"""


class Fabric:
    """Nodes with InfiniBand ports in file trees, and the webhook that hears when one goes down."""

    def __init__(self, folder: Path, hub: HubProcess, receiver: Receiver) -> None:
        self.hub = hub
        self.receiver = receiver
        self.trees: dict[str, PortTree] = {}
        self._folder = folder

    def add(self, node: str, ports: Sequence[str]) -> Path:
        """Add a node with these ports up, and return the configuration of its collector."""
        folder = self._folder / node
        folder.mkdir()
        (folder / "kmsg").touch()
        self.trees[node] = PortTree(folder / "sys")
        for port in ports:
            self.trees[node].infiniband(port)
        config = folder / "node.toml"
        config.write_text(self.everybody() + _COLLECTOR.format(node=node, folder=folder))
        return config

    def everybody(self) -> str:
        hub = self.hub
        return _EVERYBODY.format(
            url=hub.url, collector=hub.collector_token_file, service=hub.service_token_file
        )

    def down(self, *ports: tuple[str, str]) -> float:
        """Take down these ports, given by node and device, and return the monotonic time."""
        began = time.monotonic()
        for node, port in ports:
            self.trees[node].down(port)
        return began

    def up(self, *ports: tuple[str, str]) -> None:
        for node, port in ports:
            self.trees[node].up(port)

    def told(self, since: float, status: str = "firing") -> list[Received]:
        """Return the webhook's messages of this status since a monotonic time."""
        got = [one for one in self.receiver.accepted() if one.monotonic >= since]
        return [one for one in got if one.payload["status"] == status]

    def wait(self, since: float, status: str = "firing", timeout_seconds: float = 60.0) -> Received:
        """Wait for the first such message and return it."""
        self.receiver.wait(lambda _: bool(self.told(since, status)), timeout_seconds)
        return self.told(since, status)[0]

    def seconds_to_webhook(self, node: str, port: str) -> float:
        """Return the seconds from the loss of one port to its message; the port is up again and resolved at the end."""
        began = self.down((node, port))
        told = self.wait(began)
        labels = told.payload["alerts"][0]["labels"]
        assert (labels["alertname"], labels["node"], labels["device"]) == ("port_down", node, port)
        cleared = time.monotonic()
        self.up((node, port))
        self.wait(cleared, "resolved")
        return told.monotonic - began


def labels_of(message: Received) -> tuple[str, str]:
    """Return the alert's name and severity."""
    labels = message.payload["alerts"][0]["labels"]
    return labels["alertname"], labels["severity"]


@contextmanager
def running(folder: Path, nodes: Mapping[str, Sequence[str]]) -> Iterator[Fabric]:
    """Run everything, with each port of `nodes` seen up."""
    shipped = {"commit_seconds": HubSettings().commit_seconds}
    with ExitStack() as stack:
        hub = stack.enter_context(HubProcess(folder / "hub", shipped))
        fabric = Fabric(folder, hub, stack.enter_context(Receiver()))
        service = folder / "services.toml"
        service.write_text(fabric.everybody() + _ALERTS.format(webhook=fabric.receiver.url))
        commands = [("analyze", service), ("alert", service)]
        commands += [("collect", fabric.add(node, ports)) for node, ports in nodes.items()]
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(end, processes)
        for command, config in commands:
            with (config.parent / f"{command}.log").open("wb") as log:
                words = [sys.executable, "-m", "gpuvigil", command, "--config", str(config)]
                processes.append(subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log))
        _wait_until_seen(fabric, sum(map(len, nodes.values())))
        yield fabric


def _wait_until_seen(fabric: Fabric, ports: int) -> None:
    """Wait until both services have a pulse, and every port is known by inventory and by a line."""
    client = fabric.hub.hub()
    store, since = HubStore(client), datetime.now(timezone.utc) - timedelta(minutes=1)

    def is_seen() -> bool:
        pulses = {record.id for record in client.records(RecordKind.PULSE)}
        told = client.records(RecordKind.INVENTORY)
        known = sum(len(Inventory.from_record(record).ports) for record in told)
        rows = store.latest("port", ["up"], since).num_rows
        return len(pulses) >= 2 and known == rows == ports

    wait_until("every port is seen", is_seen, 90.0)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate all processes at once; one that does not end in time is killed."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
