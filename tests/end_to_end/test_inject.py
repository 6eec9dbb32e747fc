"""`gpuvigil inject` in both simulations: what is injected becomes the incident that it should."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuvigil.model import Incident, RecordKind, readable
from simulator import inject
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SETTINGS = """
[hub]
url = "{hub.url}"
collector_token_file = "{hub.collector_token_file}"
service_token_file = "{hub.service_token_file}"
[simulator]
nodes = 4
gpus_per_node = 4
tick_seconds = 1.0
fault_rate = 0.0
fleet = {fleet}
faults_file = "{hub.directory}/faults.json"
spool_directory = "{hub.directory}/spool"
[analyzer]
tick_seconds = 1.0
port_down_seconds = 0
silent_after_seconds = 12
silent_verdict_seconds = 12
clear_seconds = 1
"""
FAULTS = {
    "heat": ("gpu_hot", "0"),
    "nvlink-errors": ("gpu_nvlink", "1"),
    "xid79": ("gpu_lost", "2"),
    "xid119": ("gpu_xid", "3"),
}


@contextmanager
def running(command: str, file: Path) -> Iterator[None]:
    with (file.parent / f"{command}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuvigil", command, "--config", str(file)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("fleet", [False, True])
def test_what_is_injected_becomes_its_incident(fleet: bool, tmp_path: Path) -> None:
    nodes = ["sim-00000", "sim-00001", "sim-00002"] if fleet else ["sim-000", "sim-001", "sim-002"]
    with HubProcess(tmp_path / "hub") as hub:
        file = hub.directory / "site.toml"
        file.write_text(SETTINGS.format(hub=hub, fleet=str(fleet).lower()))

        def found() -> set[tuple[str, str, str]]:
            records = hub.hub().records(RecordKind.INCIDENT)
            incidents = list(readable(records, Incident.from_record))
            return {(one.fault, one.subject.node, one.state) for one in incidents}

        def inject_(*words: str) -> None:
            assert inject.main([*words, "--config", str(file)]) == 0

        with running("simulate", file), running("analyze", file):
            wait_until("numbers", lambda: len(hub.hub().status()["nodes"]) >= 4, 60.0)
            wait_until("a pass", lambda: hub.hub().records(RecordKind.PULSE), 60.0)
            for name, (_, gpu) in FAULTS.items():
                inject_(name, "--node", nodes[0], "--gpu", gpu)
            inject_("port-down", "--node", nodes[1])
            inject_("node-silent", "--node", nodes[2])
            expected = {(fault, nodes[0], "open") for fault, _ in FAULTS.values()}
            expected |= {("port_down", nodes[1], "open"), ("node_silent", nodes[2], "open")}
            try:
                wait_until("the incidents", lambda: expected <= found(), 120.0)
            except AssertionError:
                pytest.fail(f"missing: {expected - found()}; there are {found()}")
            inject_("port-down", "--node", nodes[1], "--clear")
            inject_("node-silent", "--node", nodes[2], "--clear")
            over = {("node_silent", nodes[2], "resolved")}
            wait_until("the node is back", lambda: over <= found(), 90.0)
