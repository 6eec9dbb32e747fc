"""The command line: one program, a command per service. It finds services and imports none."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from . import __version__, lifeline

# What each command does, in the order in which people meet them.
COMMANDS: dict[str, str] = {
    "up": "run everything on this machine, with one Ctrl-C to end it",
    "url": "print a fresh address that signs its opener in to the dashboard",
    "status": "say what needs a person, worst first, and how the clusters are",
    "top": "say who holds GPUs now, those with most first",
    "idle": "say who holds GPUs and computes nothing on them, the longest first",
    "who": "say who holds the GPUs of a node, and how they are",
    "why": "say how a job ended and why, and what happened on its nodes then",
    "lemons": "say which nodes, slots and GPUs failed again and again",
    "rma": "say how far the return of a part to its maker is, or list them",
    "inefficient": "say who is busy and gets little out of their GPUs, and what they could do",
    "inference": "say what replicas of models had to do, and how many would carry it",
    "queue": "say which jobs wait and for what, and what is free meanwhile",
    "usage": "say where the GPU-hours of a span went, by user or job",
    "explain": "say why an incident is one: rule, numbers, steps, and what speaks against it",
    "report": "write how the GPUs were used: HTML, PDF, Markdown, CSV or JSON",
    "backtest": "say what other limits would have raised, against what was",
    "replay": "play recorded telemetry with faults laid over it, and say which are found",
    "inject": "make a fault happen in a simulated node, or clear it",
    "selftest": "make a marked fault happen for each rule, and say which did not fire",
    "check": "look at this node once, and say what is wrong and what to do first",
    "doctor": "say what this node can and cannot measure and send, and why",
    "collect": "read this node's sensors and send them to the hub",
    "slurm": "ask Slurm's controller about jobs and nodes, from one machine, and tell the hub",
    "kubernetes": "watch a Kubernetes cluster from one place: whose its pods are, and what waits",
    "simulate": "play a simulated cluster towards the hub",
    "hub": "keep telemetry and records, and answer for them",
    "store": "back up, restore, verify and count what the hub keeps",
    "token": "issue, list, revoke and rotate the tokens of nodes and readers",
    "analyze": "turn telemetry and events into incidents",
    "alert": "tell people about incidents",
    "act": "drain nodes with a fault, and give them back; off by default, and a dry run first",
    "node": "accept a node that was tested, so that it may take jobs again",
    "alerts": "explain which way an incident's messages go, or test a channel",
    "silence": "say what need not be told for a while",
    "dashboard": "serve the pages",
}

_GROUP = "gpuvigil.commands"

# Who asks for these gives up after seconds, and they need a fraction of one on one core: among forty
# busy processes that is too little at the common priority. Before anything large is loaded.
_URGENT, _URGENT_NICE = frozenset({"check"}), -10

# Started by other commands, not by people.
INTERNAL = frozenset({"read", "pods", "endpoints", "machine"})


def usage() -> str:
    """The help text; one that is not here, as in the collector's one file, is left out."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - see main

    here = entry_points(group=_GROUP).names
    commands = {name: text for name, text in COMMANDS.items() if name in here}
    width = max(map(len, commands)) + 2
    rows = "\n".join(f"  {name:<{width}}{text}" for name, text in commands.items())
    return (
        "usage: gpuvigil COMMAND [--config FILE] ...\n\n"
        "Watches a GPU cluster: idle GPUs, failing hardware, network bottlenecks.\n\n"
        f"{rows}\n\n'gpuvigil COMMAND --help' says more. 'gpuvigil --version' says which this is."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, 2 for a command that is not known."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0 if given else 2
    if given[0] == "--version":
        print(f"gpuvigil {__version__}")
        return 0
    name, rest = given[0], given[1:]
    if name not in COMMANDS and name not in INTERNAL:
        print(f"gpuvigil: {name!r} is not a command; see 'gpuvigil --help'", file=sys.stderr)
        return 2
    if name in _URGENT:
        _hurry()
    # Before the command's modules are loaded, which takes long enough for a parent to be killed.
    lifeline.hold()
    from importlib.metadata import entry_points  # noqa: PLC0415 - it takes a while to load

    found = tuple(entry_points(group=_GROUP, name=name))
    if not found:
        print(
            f"gpuvigil {name}: is not in this file, which holds the collector;"
            " it comes with gpuvigil[all]",
            file=sys.stderr,
        )
        return 2
    try:
        command = found[0].load()
    except ModuleNotFoundError as error:
        print(
            f"gpuvigil {name}: the package {error.name!r} is missing; install gpuvigil[all]",
            file=sys.stderr,
        )
        return 1
    code: int = command(rest)
    return code


def _hurry() -> None:
    """Only root may; who has started it at another priority than the common one means that."""
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) == 0:
            os.setpriority(os.PRIO_PROCESS, 0, _URGENT_NICE)


if __name__ == "__main__":
    sys.exit(main())
