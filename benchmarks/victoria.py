"""VictoriaMetrics beside the hub: Debian's program on a free port of the loopback."""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.polling import wait_until

# As Debian's package names it; `make test-servers` installs it.
PROGRAM = "victoria-metrics"


class Victoria:
    """A running server with its data in `directory`; a context manager."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            raise SystemExit(f"{PROGRAM} is not installed: make test-servers")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.data = directory / "victoria"
        self._command = [
            program,
            f"-storageDataPath={self.data}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=100y",
            "-loggerLevel=ERROR",
        ]

    def __enter__(self) -> "Victoria":
        self._process = subprocess.Popen(self._command)
        wait_until("VictoriaMetrics answers", self._ready, 30.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    @property
    def pid(self) -> int:
        return self._process.pid

    def version(self) -> str:
        """As Debian counts it."""
        said = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", PROGRAM],
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stdout or "unknown"

    def get(self, path: str, parameters: dict[str, str] | list[tuple[str, str]]) -> bytes:
        """The answer's body."""
        question = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(question, timeout=120) as answer:
            return bytes(answer.read())

    def ask(self, path: str, parameters: dict[str, str]) -> Any:
        """The series of an answer in Prometheus' form, decoded."""
        return json.loads(self.get(path, parameters))["data"]["result"]

    def flush(self) -> None:
        """Make what was written visible to queries, and merge what is small."""
        self.get("/internal/force_flush", {})

    def merge(self) -> None:
        """Start the merge that it would make by and by; it goes on in the background."""
        self.get("/internal/force_merge", {})

    def metric(self, name: str) -> float:
        """The sum of one of its own metrics."""
        rows = self.get("/metrics", {}).decode().splitlines()
        found = (row.rpartition(" ") for row in rows if row.startswith(name))
        return sum(float(value) for _, _, value in found)

    def _ready(self) -> bool:
        try:
            return self.get("/health", {}) == b"OK"
        except (urllib.error.URLError, OSError):
            return False
