"""The analyzer as a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from gpuvigil.model import RecordKind
from tests.polling import wait_until
from tests.servers import ROOT, HubProcess

SETTINGS = """
[hub]
url = "{url}"
service_token_file = "{token}"
[analyzer]
tick_seconds = {tick_seconds}
clear_seconds = 0.6
silent_after_seconds = 1
silent_verdict_seconds = 1
port_down_seconds = 0
idle_after_seconds = 3
metrics_port = 0
"""


class Analyzer:
    """`gpuvigil analyze` against one hub; ended by its pid."""

    def __init__(self, hub: HubProcess, tick_seconds: float = 0.2) -> None:
        self.hub = hub
        self.log = hub.directory / "analyze.log"
        self.config = hub.directory / "analyze.toml"
        token = hub.service_token_file
        text = SETTINGS.format(url=hub.url, token=token, tick_seconds=tick_seconds)
        self.config.write_text(text)
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
        return self.process.wait(timeout=30)


def running(process: Analyzer) -> Iterator[Analyzer]:
    """The process from its first pass on, ended at last."""
    process.start()
    try:
        client = process.hub.hub()
        wait_until("the first pulse", lambda: client.records(RecordKind.PULSE))
        yield process
    finally:
        if process.process is not None and process.process.poll() is None:
            process.end(signal.SIGKILL)
