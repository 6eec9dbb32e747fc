"""`gpuvigil collect` as a process of its own, and what can be seen of it."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.polling import wait_until

ROOT = Path(__file__).parent.parent.parent


class Agent:
    """The agent of the node `n1` in the cluster `c`; `settings` are of the section [collector]."""

    def __init__(self, directory: Path, hub_url: str) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.settings: dict[str, object] = {
            "cluster": "c",
            "node": "n1",
            "tick_seconds": 0.25,
            "driver_timeout_seconds": 0.2,
            "port_poll_seconds": 0.1,
            "metrics_port": 0,
            "spool_directory": str(directory / "spool"),
            "sysfs_root": str(directory / "sys"),
            "kernel_log": str(directory / "kmsg"),
            "journalctl": "",
            "machine_seconds": 0.0,
            "runtime_directory": str(directory / "run"),
        }
        self.environment: Mapping[str, str] = {}
        self.within: list[str] = []  # a program that runs the agent in its own place
        self.log = directory / "log"
        self._hub_url = hub_url
        self.process: subprocess.Popen[bytes] | None = None
        (directory / "token").write_text("secret\n")
        (directory / "kmsg").write_text("")

    def start(self) -> None:
        """Start; what an earlier process logged is gone."""
        rows = [
            f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
            for key, value in self.settings.items()
        ]
        hub = f'[hub]\nurl = "{self._hub_url}"\ncollector_token_file = "token"\n'
        config = self.directory / "config.toml"
        config.write_text(hub + "[collector]\n" + "\n".join(rows) + "\n")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *self.within,
                    sys.executable,
                    "-m",
                    "gpuvigil",
                    "collect",
                    "--config",
                    str(config),
                ],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stderr=log,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def reader(self) -> int | None:
        """The process id of the reader, if there is one."""
        tasks = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        children = tasks.read_text().split()
        return int(children[0]) if children else None

    def metrics(self) -> str:
        """What `/metrics` answers within two seconds."""
        port = wait_until("the port of /metrics", self._metrics_port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            return str(answer.read().decode())

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)

    def kill(self) -> None:
        """kill -9."""
        self.end()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _metrics_port(self) -> int | None:
        found = re.search(r"metrics_port=(\d+)", self.said())
        return int(found[1]) if found else None
