"""`gpuvigil doctor`: look at everything, print a line each, and say whether a collector can work."""

import argparse
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from gpuvigil.config import Config, load, startup
from gpuvigil.errors import GpuvigilError

from ..agent.node_config import config_file, file_of_up
from ..processes.watchdog_child import Send, run_in_child
from . import gpus, hub, nccl_settings, node, owner_sources, store
from .diagnosis import Diagnosis, as_json, can_work, limited, lines, missing, ok

_SECONDS = 15.0


def main(arguments: Sequence[str]) -> int:
    """Print what this node can and cannot do; 0 when a collector can do its work here, else 1."""
    parser = startup.parser(
        "doctor", "Show what this node can and cannot measure and send, and why."
    )
    parser.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=_SECONDS,
        metavar="SECONDS",
        help="time limit; what does not answer by then is reported as silent",
    )
    chosen = parser.parse_args(arguments)
    file = config_file(chosen.config)
    try:
        config = load(file)
    except GpuvigilError as error:
        return startup.fail(parser.prog, error)
    found = diagnose(config, file, chosen.timeout)
    text = as_json(found) if chosen.form == "json" else "\n".join(lines(found))
    with suppress(BrokenPipeError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    return 0 if can_work(found) else 1


def diagnose(config: Config, file: Path | None, seconds: float) -> list[Diagnosis]:
    """Return all diagnoses; nothing that hangs delays them for longer than `seconds`."""
    settings = config.collector
    name = settings.node or socket.gethostname()
    parts: dict[str, Callable[[], list[Diagnosis]]] = {
        "privileges": partial(node.access, settings),
        "network ports": partial(node.ports, settings),
        "InfiniBand fabric": partial(node.fabric, config.infiniband),
        "switches": partial(node.switches, config.switches),
        "dcgm-exporter": partial(node.dcgm, settings),
        "inference servers": partial(owner_sources.inference, settings),
        "kubelet": partial(owner_sources.kubelet, settings),
        "disks of jobs": partial(owner_sources.disks, settings),
        "Slurm's prolog": partial(owner_sources.slurm, settings),
        "NCCL": partial(nccl_settings.nccl, settings),
        "time synchronisation": node.clock,
        "hub": partial(hub.diagnose, config, file, name),
        "store": partial(store.diagnose, config.store),
        "spool": partial(node.spool, settings),
        "collector": partial(node.agent, settings),
    }
    report = gpus.ChildReport()

    def tasks(send: Send) -> dict[str, Callable[[], None]]:
        told = {part: partial(_report_part, part, look, send) for part, look in parts.items()}
        return {**gpus.tasks(settings, send), **told}

    report.end = run_in_child(tasks, partial(gpus.keep, report), seconds)
    found = [_configuration(file)]
    found += gpus.diagnoses(settings, report, seconds)
    for part in parts:
        told = report.told.get(part)
        found += [_untold(part, report, seconds)] if told is None else told
    return found


def _configuration(file: Path | None) -> Diagnosis:
    """Return which configuration file is used; the collector of `up` is unknown without its file."""
    if of_up := file_of_up(file, os.environ):
        text = "none is named: what follows is not about the collector of 'gpuvigil up'"
        return limited("configuration", text, f"for that, gpuvigil doctor --config {of_up}")
    return ok("configuration", str(file) if file else "defaults and variables: no file")


def _report_part(part: str, diagnose: Callable[[], list[Diagnosis]], send: Send) -> None:
    send("told", {part: diagnose()})


def _untold(part: str, report: gpus.ChildReport, seconds: float) -> Diagnosis:
    why: Any = report.unread.get(part, f"no answer within {seconds:.0f} s")
    return missing(part, str(why), "look at what this node's kernel log says")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 3600")
    return value
