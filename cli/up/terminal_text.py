"""What `up` prints in the terminal."""

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from gpuvigil import __version__
from gpuvigil.numbers_in_words import counted
from gpuvigil.state_directory import state_directory

from .machine import Driver


def print_line(text: str, stream: TextIO | None = None) -> None:
    """Print a line and flush it; ignore a terminal that is gone."""
    out = stream or sys.stdout
    with suppress(OSError, ValueError):
        out.write(text + "\n")
        out.flush()


def banner(
    driver: Driver | None, nodes: int, gpus_per_node: int, *, from_prometheus: bool = False
) -> str:
    """Return the first lines: the version, and which GPUs the pages will show."""
    cluster = f"simulated cluster ({counted(nodes, 'node')} x {counted(gpus_per_node, 'GPU')})"
    if from_prometheus:
        shown = "Showing what Prometheus has of its nodes; nothing is collected here"
    elif driver is None:
        shown = "No NVIDIA driver here: showing "
        shown += f"a {cluster}, marked as simulated" if nodes else "this machine's network ports"
    else:
        shown = driver.text + (f"; beside a {cluster}, marked as simulated" if nodes else "")
    return f"gpuvigil {__version__}\n{shown}."


def where(link: str, state: Path, program: str, place: tuple[int, int] | None) -> str:
    """Return the sign-in address and what to do next; `place` is a simulated node and GPU."""
    default = state == state_directory()
    config = "" if default else f" --config {shlex.quote(str(state / 'gpuvigil.toml'))}"
    rows = [("Open", link), ("", f"signs in once; another: {program} url{config}")]
    if place is not None:
        fault = f"inject xid79 --node sim-{place[0]:03d} --gpu {place[1]}"
        rows.append(("Try", f"{program} {fault}{config}"))
    rows += [("State", str(state)), ("Logs", str(state / "log")), ("Stop", "Ctrl-C")]
    lines = "\n".join(f"  {name:<7}{text}" for name, text in rows)
    return f"\n{lines}\n"
