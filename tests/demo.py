"""The demo with a Prometheus beside it: a simulated cluster and all services, each scraped by name."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.polling import wait_until
from tests.receiver import Receiver
from tests.servers import ROOT, HubProcess
from tests.timeseries import Prometheus, free_port

SETTINGS = """
[hub]
url = "{hub}"
collector_token_file = "{collector_token}"
service_token_file = "{service_token}"
[simulator]
nodes = {nodes}
gpus_per_node = {gpus}
faults_file = "{directory}/faults.json"
spool_directory = "{directory}/spool"
metrics_port = {simulator}
[analyzer]
tick_seconds = 2
metrics_port = {analyzer}
[alerts]
metrics_port = {alerts}
[[alerts.webhooks]]
name = "ops"
url = "{webhook}"
"""
SERVICES = ("simulate", "analyze", "alert")


class Demo:
    """Hub, simulated nodes, analyzer and alerts as processes; a context manager."""

    def __init__(self, directory: Path, nodes: int = 4, gpus: int = 4) -> None:
        self.directory = directory
        self._size = {"nodes": nodes, "gpus": gpus}
        self._stack = contextlib.ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Demo":
        hub = self._stack.enter_context(HubProcess(self.directory / "hub"))
        receiver = self._stack.enter_context(Receiver())
        ports = {name: free_port() for name in ("simulator", "analyzer", "alerts")}
        self.targets = {
            "gpuvigil-collector": [f"127.0.0.1:{ports['simulator']}"],
            "gpuvigil-server": [
                hub.url.partition("//")[2],
                *(f"127.0.0.1:{ports[name]}" for name in ("analyzer", "alerts")),
            ],
        }
        self.config = self.directory / "gpuvigil.toml"
        self.config.write_text(
            SETTINGS.format(
                hub=hub.url,
                collector_token=hub.collector_token_file,
                service_token=hub.service_token_file,
                directory=self.directory,
                webhook=receiver.url,
                **self._size,
                **ports,
            ),
            encoding="utf-8",
        )
        try:
            for name in SERVICES:
                self._start(name)
            for name, port in ports.items():
                address = f"http://127.0.0.1:{port}/metrics"
                wait_until(f"{name} is to be scraped", partial(_answers, address), 60.0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.end(name)
        self._stack.close()

    def _start(self, name: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "gpuvigil", name, "--config", str(self.config)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def end(self, name: str) -> None:
        """Kill a service."""
        process = self._processes.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)

    def inject(self, *what: str) -> None:
        """Inject a fault by the command line, as a person does."""
        command = [sys.executable, "-m", "gpuvigil", "inject", "--config", str(self.config), *what]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Scraping(Prometheus):
    """A Prometheus that scrapes jobs every second, with rules that wait a sixtieth of their time."""

    def __init__(
        self, directory: Path, jobs: Mapping[str, Sequence[str]], rules: Sequence[Path] = ()
    ) -> None:
        super().__init__(directory, "", {})
        self._jobs = jobs
        self._rules = rules

    def arguments(self) -> Sequence[str]:
        files = []
        for rule in self._rules:
            file = self.directory / rule.name
            file.write_text(hurried(rule.read_text(encoding="utf-8")), encoding="utf-8")
            files.append(str(file))
        jobs = [
            {"job_name": name, "static_configs": [{"targets": list(targets)}]}
            for name, targets in self._jobs.items()
        ]
        pace = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        whole = {"global": pace, "scrape_configs": jobs, "rule_files": files}
        config = self.directory / "prometheus.yml"
        # JSON is valid YAML.
        config.write_text(json.dumps(whole), encoding="utf-8")
        return (
            f"--config.file={config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )

    def ask(self, path: str, **question: str) -> Any:
        """Return the answer of Prometheus's API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(question)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.loads(answer.read())["data"]

    def firing(self) -> set[str]:
        """Return the alerts that fire now, each as `name node`."""
        found = self.ask("alerts")["alerts"]
        return {
            f"{one['labels']['alertname']} {one['labels'].get('node', '')}".strip()
            for one in found
            if one["state"] == "firing"
        }


_UNITS = {"m": 1, "h": 60, "d": 1440}


def hurried(text: str) -> str:
    """Return rules with waiting times cut to a sixtieth: `for`, and spans of hours and days."""
    return re.sub(
        r"(for: (?=\d+m)|\[|offset )(\d+)([mhd])\b",
        lambda it: it[0] if _counts(it) else f"{it[1]}{int(it[2]) * _UNITS[it[3]]}s",
        text,
    )


def _counts(found: re.Match[str]) -> bool:
    """Return whether the match is a span of minutes over which a counter rises, which a short demo also fills."""
    return found[3] == "m" and not found[1].startswith("for")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
