"""Services beside a real hub, each its own process, ended by its pid."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .servers import ROOT, HubProcess

_SIMULATED = """
[hub]
url = "{url}"
service_token_file = "{service}"
collector_token_file = "{collector}"
[simulator]
nodes = {nodes}
tick_seconds = {tick}
seed = {seed}
spool_directory = "{folder}/spool"
faults_file = "{folder}/faults.json"
[analyzer]
tick_seconds = {tick}
"""


def simulated(folder: Path, hub: HubProcess, nodes: int, tick_seconds: float, seed: int) -> Path:
    """Write a configuration for the simulator and all services of its cluster to `folder`, and return its path."""
    config = folder / "everybody.toml"
    config.write_text(
        _SIMULATED.format(
            url=hub.url,
            service=hub.service_token_file,
            collector=hub.collector_token_file,
            nodes=nodes,
            tick=tick_seconds,
            seed=seed,
            folder=folder,
        ),
        encoding="utf-8",
    )
    return config


def commands(*services: str) -> dict[str, Sequence[str]]:
    """Return how each of these services of the product is started, in the form that `running` takes."""
    return {service: ("gpuvigil", service) for service in services}


@contextmanager
def running(
    folder: Path, config: Path, modules: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run Python modules with their arguments, by name, with logs in `folder`.

    RuntimeError is raised when one of them ended by itself.
    """
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in modules.items():
            with (folder / f"{name}.log").open("wb") as log:
                command = [sys.executable, "-m", *words, "--config", str(config)]
                started[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        yield started
        ended = [name for name, process in started.items() if process.poll() is not None]
        if ended:
            raise RuntimeError(f"ended by themselves: {ended}; see {folder}")
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            process.wait(60)
