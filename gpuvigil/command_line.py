"""The command line: one program with a command per service. It loads services without importing them here."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from . import __version__, lifeline

# What each command does, in the order in which the help lists them.
COMMANDS: dict[str, str] = {
    "try": "say what is wrong, slow or idle here now; or of a site's Prometheus over a month",
    "up": "run everything on this machine; Ctrl-C stops it",
    "url": "print a sign-in link for the dashboard",
    "status": "show what needs attention, worst first, and each cluster's state",
    "top": "show who holds GPUs now, largest holders first",
    "idle": "show allocated GPUs that are idle, longest first",
    "who": "show who holds the GPUs of a node, and their state",
    "jobs": "show what bounds each job, its pace, its incidents and what it would lose",
    "why": "show what bounds a job, or how and why it ended, and what its nodes reported",
    "lemons": "list nodes, slots and GPUs that failed repeatedly",
    "compare": "compare the faults of nodes by driver, firmware, kernel, model or rack",
    "rma": "track returns to the manufacturer",
    "inefficient": "show busy holders that use their GPUs poorly, and what would help",
    "inference": "show the load of inference replicas, and how many it needs",
    "network": "show whether the network is a bottleneck, which links, and whose jobs",
    "topology": "show the switch and rail of each port, and contradictions",
    "queue": "show pending jobs, what they wait for, and what is free meanwhile",
    "usage": "show where the GPU-hours went, by user or job",
    "explain": "explain why an incident was raised, and the evidence against it",
    "report": "write a utilisation report: HTML, PDF, Markdown, CSV or JSON",
    "backtest": "replay the past with other limits and compare the incidents",
    "tune": "replay the past with other limits and show what each would have changed",
    "play": "play a simulated cluster of any seed and show which faults are found",
    "record": "write what the hub has of nodes and a span as a recording",
    "replay": "play a recording through the detectors and judge the incidents",
    "inject": "inject a fault into a simulated node, or clear it",
    "selftest": "inject a marked fault per rule and list the rules that did not fire",
    "check": "check this node once: what is wrong, and what to do first",
    "doctor": "show what this node can and cannot measure and send, and why",
    "join": "make this node report to a hub, and see that it does",
    "collect": "run the collector: read this node's sensors, send them to the hub",
    "slurm": "run the Slurm integration, on one machine per cluster",
    "kubernetes": "run the Kubernetes integration, in one place per cluster",
    "infiniband": "run the reader of an InfiniBand fabric, on one machine per fabric",
    "switches": "run the reader of switches that the site's Prometheus knows, once per site",
    "influxdb": "write incidents, states and usage to the site's own InfluxDB",
    "simulate": "run a simulated cluster against the hub",
    "server": "set up the server side on this machine",
    "hub": "run the hub: it keeps telemetry and records and answers queries",
    "store": "back up, restore, verify and measure the hub's data",
    "token": "issue, list, revoke and rotate access tokens",
    "analyze": "run the analyzer: it turns telemetry and events into incidents",
    "alert": "run alerting; show routes, test a channel, retry notifications",
    "act": "run actions: drain faulty nodes and return them; off by default",
    "node": "mark a tested node as ready for jobs, or retire one",
    "config": "check the settings: each mistake, and which limits are in force",
    "support": "write a bundle for a support case, without secrets or names",
    "evidence": "write what a pilot has shown, without secrets or names",
    "silence": "mute matching alerts for a while",
    "annotation": "mark a deploy, a roll-out or maintenance on the charts",
    "person": "people who sign in to the dashboard by name",
    "audit": "who did what, and when",
    "dashboard": "run the dashboard",
}
# Hints for page names that people type as commands.
_INSTEAD = {
    "incidents": "'gpuvigil status' shows the open ones, 'gpuvigil explain INCIDENT' one of them",
    "users": "'gpuvigil usage --by user' shows what each had, 'gpuvigil person' who may sign in",
    "teams": "'gpuvigil usage --by team' shows what each had",
    "nodes": "'gpuvigil status' shows what is wrong, 'gpuvigil who NODE' who is on one",
    "gpus": "'gpuvigil top' shows who holds them, 'gpuvigil who NODE' those of one node",
    "hardware": "'gpuvigil lemons' lists what failed repeatedly, 'gpuvigil rma' what was returned",
    "reports": "'gpuvigil report' writes one, 'gpuvigil report list' shows the scheduled ones",
}
# Old command names, accepted for one version.
_RENAMED = {"alerts": "alert"}

_GROUP = "gpuvigil.commands"
_NEAR = 0.7  # how similar a typed name must be to be suggested

# A caller of these commands gives up after seconds. They need a fraction of a second on one core,
# which is too little at normal priority among forty busy processes. Set before anything large is
# loaded.
_URGENT, _URGENT_NICE = frozenset({"check"}), -10

# Commands that other commands start, not people.
INTERNAL = frozenset({"read", "pods", "endpoints", "machine", "ranks", "trial"})
# An option that turns a command into another one: `try` checks a node, and with `--prometheus` a site.
_WITH_OPTION = {("try", "--prometheus"): "trial"}


def usage() -> str:
    """Return the help text. Commands that are not installed, as in the collector's single file, are left out."""
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
    """Run one command and return its exit code, 2 for an unknown command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0 if given else 2
    if given[0] == "--version":
        print(f"gpuvigil {__version__}")
        return 0
    name, rest = given[0], given[1:]
    if name in _RENAMED:
        now = _RENAMED[name]
        print(f"gpuvigil {name}: is now 'gpuvigil {now}'", file=sys.stderr)
        # Without a verb, the old command answered a question; the new one would run the service
        # instead.
        name, rest = now, rest or ["--help"]
    name = _WITH_OPTION.get((name, _option(rest, name)), name)
    if name not in COMMANDS and name not in INTERNAL:
        print(f"gpuvigil: {name!r} is not a command; {_instead(name)}", file=sys.stderr)
        return 2
    if name in _URGENT:
        _hurry()
    # Before the command's modules load, since a parent may be killed while they do.
    lifeline.hold()
    from importlib.metadata import entry_points  # noqa: PLC0415 - it takes a while to load

    found = tuple(entry_points(group=_GROUP, name=name))
    if not found:
        print(
            f"gpuvigil {name}: is not in this file, which holds the collector;"
            " it comes with the package gpuvigil-server",
            file=sys.stderr,
        )
        return 2
    try:
        command = found[0].load()
    except ModuleNotFoundError as error:
        print(
            f"gpuvigil {name}: the package {error.name!r} is missing: in a checkout, pip install '.[all]'",
            file=sys.stderr,
        )
        return 1
    return _run(command, rest)


def _instead(name: str) -> str:
    """Return a hint for an unknown command name: what to use instead."""
    from difflib import get_close_matches  # noqa: PLC0415 - for what is wrong

    asked = name.lower()
    for there, said in _INSTEAD.items():
        if asked in {there, there.removesuffix("s")}:
            return said
    longer = [known for known in COMMANDS if known.startswith(asked)]
    near = longer if len(longer) == 1 else get_close_matches(asked, COMMANDS, n=1, cutoff=_NEAR)
    help_ = "see 'gpuvigil --help'"
    return f"did you mean 'gpuvigil {near[0]}'? Else {help_}" if near else help_


def _run(command: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Return the command's exit code; 0 when the reader of its output is gone, as behind `head`."""
    try:
        code = command(arguments)
        if sys.stdout is not None:  # a command that could not write sets it to None
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _option(rest: Sequence[str], name: str) -> str:
    """Return the option that turns this command into another one, or "" if it is not given."""
    named = {word.partition("=")[0] for word in rest}
    return next((option for of, option in _WITH_OPTION if of == name and option in named), "")


def _hurry() -> None:
    """Raise this process's priority. Only root may; a non-default priority is somebody's choice and is kept."""
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) == 0:
            os.setpriority(os.PRIO_PROCESS, 0, _URGENT_NICE)


if __name__ == "__main__":
    sys.exit(main())
