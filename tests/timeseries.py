"""Real time-series servers for tests, from Debian: each a process on a free port of the loopback."""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from tests.polling import wait_until

MISSING = "{} is not installed: run scripts/install-test-servers"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TimeSeriesServer(ABC):
    """A server with data and log in `directory`, ended by its pid; a context manager."""

    program: str
    ready: str

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.log = directory / "log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """Return the command line after the program's name."""

    def __enter__(self):  # type: ignore[no-untyped-def]
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        if shutil.which(self.program) is None:
            pytest.fail(MISSING.format(self.program))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self.program, *self.arguments()], cwd=self.directory, stdout=log, stderr=log
            )
        try:
            wait_until(f"{self.program} answers", self._answers, 60.0)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
            self._process = None

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(20)
        self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text(encoding="utf-8")[-2000:]
        try:
            with urllib.request.urlopen(self.url + self.ready, timeout=5) as answer:
                return 200 <= int(answer.status) < 300
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False


class VictoriaMetrics(TimeSeriesServer):
    """A single VictoriaMetrics that keeps everything, and stores a line that is sent twice only once."""

    program = "victoria-metrics"
    ready = "/health"

    def arguments(self) -> Sequence[str]:
        return (
            f"-storageDataPath={self.directory / 'data'}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=100y",
            "-dedup.minScrapeInterval=1ms",
        )

    def flush(self) -> None:
        """Make everything acknowledged visible to queries."""
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=30).close()


class VMAuth(TimeSeriesServer):
    """A vmauth that lets one bearer token through, to a server's write paths only."""

    program = "vmauth"
    ready = "/health"

    def __init__(self, directory: Path, behind: str, token: str) -> None:
        super().__init__(directory)
        self._behind = behind
        self._token = token

    def arguments(self) -> Sequence[str]:
        routes = [{"src_paths": ["/api/v2/write", "/write"], "url_prefix": self._behind}]
        # YAML holds JSON.
        text = json.dumps({"users": [{"bearer_token": self._token, "url_map": routes}]})
        file = self.directory / "auth.yml"
        file.write_text(text, encoding="utf-8")
        return (f"-auth.config={file}", f"-httpListenAddr=127.0.0.1:{self.port}")


class InfluxDB(TimeSeriesServer):
    """An InfluxDB 1 without a password."""

    program = "influxd"
    ready = "/ping"

    def arguments(self) -> Sequence[str]:
        file = self.directory / "influxdb.conf"
        file.write_text(
            f"""reporting-disabled = true
bind-address = "127.0.0.1:{free_port()}"
[meta]
dir = "{self.directory}/meta"
[data]
dir = "{self.directory}/data"
wal-dir = "{self.directory}/wal"
index-version = "tsi1"
[http]
bind-address = "127.0.0.1:{self.port}"
log-enabled = false
[monitor]
store-enabled = false
""",
            encoding="utf-8",
        )
        return ("run", "-config", str(file))

    def create(self, database: str) -> None:
        self.query(f'CREATE DATABASE "{database}"')

    def query(self, text: str) -> bytes:
        form = urllib.parse.urlencode({"q": text}).encode()
        with urllib.request.urlopen(f"{self.url}/query", data=form, timeout=30) as answer:
            return bytes(answer.read())

    def write(self, database: str, lines: str) -> None:
        address = f"{self.url}/write?db={database}&precision=ns"
        urllib.request.urlopen(address, data=lines.encode(), timeout=30).close()


class Prometheus(TimeSeriesServer):
    """A Prometheus that scrapes `targets` every second: an exporter's path, with its labels."""

    program = "prometheus"
    ready = "/-/ready"

    def __init__(
        self, directory: Path, address: str, targets: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().__init__(directory)
        self._address = address
        self._targets = targets

    def arguments(self) -> Sequence[str]:
        scraped = [
            {"targets": [self._address], "labels": {"__metrics_path__": path, **labels}}
            for path, labels in self._targets.items()
        ]
        jobs = [{"job_name": "exporters", "static_configs": scraped}]
        # YAML holds JSON.
        text = json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})
        file = self.directory / "prometheus.yml"
        file.write_text(text, encoding="utf-8")
        return (
            f"--config.file={file}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )
