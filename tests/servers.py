"""Real servers for tests: each a process on a free port of the loopback, ended by its pid."""

import contextlib
import multiprocessing
import multiprocessing.util
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from gpuvigil.command_line import main
from gpuvigil.hub_client import Hub
from tests.polling import wait_until

ROOT = Path(__file__).parent.parent
_COPIES = multiprocessing.get_context("forkserver")
# The fork server's socket is in a folder that is removed at the very end, after the tests' temporary folder.
multiprocessing.util.get_temp_dir()


class HubProcess:
    """`python -m gpuvigil hub` with tokens, data and log in `directory`; a context manager.

    `settings` are keys of the section [hub]. The port is chosen by the system at the first start
    and kept at every `restart`.
    """

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data = directory / "hub-data"
        self.config = directory / "hub.toml"
        self.log = directory / "hub.log"
        self.service_token_file = directory / "service-token"
        self.collector_token_file = directory / "collector-token"
        for file in (self.service_token_file, self.collector_token_file):
            file.write_text(secrets.token_urlsafe(16) + "\n", encoding="utf-8")
        # Tests write data of times long ago, which a hub would delete at its first look.
        longest = {"telemetry_days": 40_000.0, "rollup_days": 40_000.0, "records_days": 40_000.0}
        kept = {"commit_seconds": 0.02, **longest}
        self.settings: dict[str, object] = {**kept, **(settings or {})}
        self.within: list[str] = []  # a command that the hub runs under
        self.url = ""
        self.process: subprocess.Popen[bytes] | Copy | None = None
        self._clients: list[Hub] = []

    def __enter__(self) -> "HubProcess":
        try:
            self.start()
        except BaseException:
            # A hub that was too slow must be ended here, or it would slow down later tests.
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.stop()

    def start(self) -> None:
        """Start and wait until the hub answers that it is ready."""
        self.spawn()
        address = self.data / "hub.url"
        wait_until("the hub says its address", lambda: address.exists() or not self.running, 40.0)
        assert self.running, self.log.read_text(encoding="utf-8")
        self.url = address.read_text(encoding="utf-8").strip()
        wait_until("the hub is ready", self._ready)

    def spawn(self) -> None:
        """Start without waiting."""
        self.write_config()
        (self.data / "hub.url").unlink(missing_ok=True)
        self.process = self._started()

    def _started(self) -> "subprocess.Popen[bytes] | Copy":
        command = [sys.executable, "-m", "gpuvigil", "hub", "--config", str(self.config)]
        with self.log.open("ab") as log:
            return subprocess.Popen([*self.within, *command], cwd=ROOT, stdout=log, stderr=log)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int:
        """End the hub as an operator does, and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the hub with SIGKILL."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the hub if it runs, and start it on the same port and data."""
        self.stop()
        self.start()

    def hub(self) -> Hub:
        """Return a client with the service token, closed at the end."""
        return self._client(self.service_token_file)

    def collector_hub(self) -> Hub:
        """Return a client with the collector token, closed at the end."""
        return self._client(self.collector_token_file)

    @property
    def service_token(self) -> str:
        return self.service_token_file.read_text(encoding="utf-8").strip()

    @property
    def collector_token(self) -> str:
        return self.collector_token_file.read_text(encoding="utf-8").strip()

    def _client(self, token_file: Path) -> Hub:
        client = Hub(self.url, lambda: token_file.read_text(encoding="utf-8").strip())
        self._clients.append(client)
        return client

    def write_config(self) -> None:
        given = {
            "port": int(self.url.rpartition(":")[2]) if self.url else 0,
            "data_directory": str(self.data),
            "service_token_file": str(self.service_token_file),
            "collector_token_file": str(self.collector_token_file),
            **self.settings,
        }
        rows = [
            f'{key} = "{value}"' if isinstance(value, str | Path) else f"{key} = {value}"
            for key, value in given.items()
        ]
        self.config.write_text("\n".join(["[hub]", *rows, ""]), encoding="utf-8")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def _end(self, number: int) -> int:
        if self.process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        code = self.process.wait(timeout=20)
        self.process = None
        return code


class Copy:
    """A process forked from one that has loaded the hub's modules; used like a Popen."""

    def __init__(self, config: Path, log: Path) -> None:
        _COPIES.set_forkserver_preload(["hub.app"])
        given = (str(config), str(log), dict(os.environ))
        self._process = _COPIES.Process(target=_be_a_hub, args=given, daemon=True)
        # A child runs the main module again if it has a file, which a page of Streamlit's is for a while.
        ours = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            self._process.start()
        finally:
            sys.modules["__main__"] = ours
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("gpuvigil hub", timeout or 0.0)
        return code


class QuickHub(HubProcess):
    """A hub for tests of its clients; its modules, two thirds of a start, are loaded only once.

    Tests of the hub itself, and of the whole product, start it as its user does.
    """

    def _started(self) -> Copy:
        return Copy(self.config, self.log)


def _be_a_hub(config: str, log: str, environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(file, number)
    sys.exit(main(["hub", "--config", config]))
