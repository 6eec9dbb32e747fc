"""The analyzer as a process, with a real hub that may be killed under it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gpuvigil.clock import to_ns, to_text
from gpuvigil.hub import Hub
from gpuvigil.lineprotocol import encode
from gpuvigil.model import EventKind, Incident, RecordKind, Subject, Transition
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

from .scene import GPU_FIELDS, NODE_FIELDS, allocation, event, gpu, inventory, node

pytestmark = pytest.mark.server

SETTINGS = """
[hub]
url = "{url}"
service_token_file = "{token}"
[analyzer]
tick_seconds = 0.2
clear_seconds = 0.6
silent_after_seconds = 1
idle_after_seconds = 2
"""


def now() -> datetime:
    return datetime.now(timezone.utc)


class Analyzer:
    """`gpuvigil analyze` against one hub; ended by its pid."""

    def __init__(self, hub: HubProcess) -> None:
        self.log = hub.directory / "analyze.log"
        self.config = hub.directory / "analyze.toml"
        self.config.write_text(SETTINGS.format(url=hub.url, token=hub.service_token_file))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gpuvigil", "analyze", "--config", str(self.config)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        os.kill(self.process.pid, number)
        return self.process.wait(timeout=10)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub") as process:
        yield process


@pytest.fixture
def analyzer(hub: HubProcess) -> Iterator[Analyzer]:
    process = Analyzer(hub)
    process.start()
    try:
        wait_until("the first pulse", lambda: hub.hub().records(RecordKind.PULSE))
        yield process
    finally:
        if process.process is not None and process.process.poll() is None:
            process.end(signal.SIGKILL)


def transitions(hub: Hub) -> list[Transition]:
    return [Transition.from_record(record) for record in hub.records(RecordKind.TRANSITION)]


def incidents(hub: Hub) -> list[Incident]:
    return [Incident.from_record(record) for record in hub.records(RecordKind.INCIDENT)]


def send(hub: Hub, number: int, lines: Mapping[Subject, Mapping[str, object]], sequence: int) -> None:
    """One body of a node, as its collector sends it."""
    at = to_ns(now())
    body = b"".join(line(subject, fields, at) for subject, fields in lines.items())
    headers = {
        "Gpuvigil-Cluster": "c",
        "Gpuvigil-Node": f"node-{number}",
        "Gpuvigil-Boot": "b",
        "Gpuvigil-Lane": "live",
        "Gpuvigil-Sequence": str(sequence),
        "Gpuvigil-Sent-At": to_text(now()),
        "Gpuvigil-Version": "1",
    }
    hub.request("POST", "/api/v2/write?precision=ns", body, headers)
