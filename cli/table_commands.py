"""The commands that print one table, such as `gpuvigil status`, `top`, `idle` and `who`."""

import argparse
import getpass
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from accounting.compare.faults import MACHINE, USUAL
from accounting.compare.query import compared
from accounting.cost.example import of_clusters
from accounting.cost.money import Prices
from accounting.usage import query
from accounting.usage.ledger_query import answer
from dashboard.data import offenders
from dashboard.lists import holders, inefficient, inference, inference_usage, network
from dashboard.lists.fleet_now import FleetNow, fetch
from dashboard.lists.idle_reasons import reasons
from dashboard.lists.table import FORMS, Grid, csv_text, json_text
from gpuvigil.clock import SystemClock
from gpuvigil.config import Config, load
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Attribute, RmaState
from gpuvigil.state_directory import config_of_up
from gpuvigil.store.configured import hubs
from report.span import span_of

from .tables import compare, jobs, lemons, live, queue, rma, status, topology, usage, who, why
from .tables.terminal import at_work, drawn

_COMPARED = "28d"
_UNKNOWN = 3  # the exit code by which monitoring plugins report an unknown state


def status_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil status`: exit code 0, 1 when the hub does not answer, 2 for wrong arguments.

    With `--exit-code`: 0 when all is well, 1 for a warning, 2 for a critical, 3 when that is not known.
    """
    what = "Show what needs attention, worst first, and the state of each cluster."
    commands = _parser("status", what)
    commands.add_argument(
        "--exit-code",
        action="store_true",
        help="exit codes for monitoring: 0 all is well, 1 a warning, 2 a critical, 3 unknown",
    )
    moments: list[FleetNow] = []

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        moments.append(_fetch(hub, config, chosen))
        return status.grid(moments[0])

    chosen = commands.parse_args(arguments)
    code = _answer(commands, chosen, grid)
    if not chosen.exit_code:
        return code
    return _UNKNOWN if code else status.exit_code(moments[0])


def top_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil top`, with the same exit codes. At a terminal it runs until somebody ends it."""
    commands = _parser("top", "Show who holds GPUs now, largest holders first.")
    commands.add_argument(
        "--once", action="store_true", help="print once and exit, even at a terminal"
    )
    chosen = commands.parse_args(arguments)
    is_watched = sys.stdin.isatty() and sys.stdout.isatty() and chosen.form == "table"
    if chosen.once or not is_watched:
        return _answer(commands, chosen, _now(holders.top))

    def watched(hub: Hub, config: Config) -> str:
        live.watch(lambda: holders.top(_fetch(hub, config, chosen)))
        return ""

    return _print_table(commands, chosen, watched)


def idle_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil idle`, with the same exit codes."""
    what = "Show allocated GPUs that compute nothing, longest idle first."

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        moment = _fetch(hub, config, chosen)
        prices = Prices(settings=config.cost)
        why = reasons(hub, config.analyzer, moment, config.alerts.idle)
        return holders.idle(moment, why, prices)

    return _run(_parser("idle", what), arguments, grid)


def who_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil who`, with the same exit codes; 2 also for an unknown node."""
    commands = _parser("who", "Show who holds the GPUs of a node, and their state.")
    commands.add_argument("node", metavar="NODE[:GPU]", help="a node, or one GPU by index or UUID")

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        return who.grid(_fetch(hub, config, chosen), chosen.node)

    return _run(commands, arguments, grid)


def why_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil why`, with the same exit codes; 2 also for an unknown job."""
    what = (
        "Show what bounds a running job, or how and why a job ended, and what its nodes reported."
    )
    commands = _parser("why", what)
    commands.add_argument("job", metavar="JOB", help="a Slurm job's number, or an array task's")

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        prices = Prices(settings=config.cost)
        return why.fetch(hub, chosen.job, chosen.cluster, prices, config.analyzer)

    return _run(commands, arguments, grid)


def jobs_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil jobs`, with the same exit codes."""
    what = (
        "Show what bounds each job, its pace, its incidents, and what a failure now would cost it."
    )
    commands = _parser("jobs", what)
    commands.add_argument(
        "--last",
        metavar="LENGTH",
        default="1d",
        help="also jobs that ended within 1h, 1d or 7d; default: 1d",
    )

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        start, end = span_of(chosen.last, None, None, SystemClock().now())
        moment = _fetch(hub, config, chosen)
        prices = of_clusters(config.cost, (one.name for one in moment.clusters))
        return jobs.fetch(hub, moment, end - start, prices)

    return _run(commands, arguments, grid)


def inefficient_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil inefficient`, with the same exit codes."""
    what = "Show busy holders that use their GPUs poorly, and what would help."
    commands = _parser("inefficient", what)
    commands.add_argument(
        "--last", metavar="LENGTH", default="1h", help="15m, 6h or 1d; default: 1h"
    )

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        span = span_of(chosen.last, None, None, SystemClock().now())
        prices = Prices(settings=config.cost)
        return inefficient.fetch(hub, _fetch(hub, config, chosen), span, prices)

    return _run(commands, arguments, grid)


def inference_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil inference`, with the same exit codes."""
    what = "Show the load of each model's replicas, and how many it needs."
    commands = _parser("inference", what)
    commands.add_argument(
        "--last", metavar="LENGTH", default="1d", help="1h, 6h, 1d or 7d; default: 1d"
    )

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        span = span_of(chosen.last, None, None, SystemClock().now())
        moment, prices = _fetch(hub, config, chosen), Prices(settings=config.cost)
        told = inference_usage.query_telemetry(hub, (one.name for one in moment.clusters), span)
        found = inference_usage.services(moment, told, config.alerts.idle, prices)
        return inference.grid(found, span, prices)

    return _run(commands, arguments, grid)


def queue_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil queue`, with the same exit codes."""
    commands = _parser(
        "queue", "Show pending jobs, what they wait for, and what is free meanwhile."
    )
    commands.add_argument(
        "--last", metavar="LENGTH", help="waits within 15m, 6h, 7d or 2w; default: 7d"
    )

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        span = span_of(chosen.last, None, None, SystemClock().now())
        moment = _fetch(hub, config, chosen)
        return queue.fetch(hub, moment, span, Prices(settings=config.cost))

    return _run(commands, arguments, grid)


def usage_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil usage`, with the same exit codes."""
    commands = _parser("usage", "Show where the GPU-hours of a time span went, largest first.")
    commands.add_argument(
        "--by",
        choices=sorted(usage.BY),
        type=usage.asked,
        default="user",
        help="default: user; team is account",
    )
    commands.add_argument(
        "--last", metavar="LENGTH", help="15m, 6h, 7d or 2w until --to; default: 7d"
    )
    _add_from_to(commands)

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        now, prices = SystemClock().now(), Prices(settings=config.cost)
        span = span_of(chosen.last, chosen.start, chosen.end, now)
        shape = usage.shape(chosen.by, prices, span)
        answers = [answer(hub, name, *span, now, shape) for name in _wanted(hub, chosen)]
        return usage.grid(answers, chosen.by, prices)

    return _run(commands, arguments, grid)


def lemons_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil lemons`, with the same exit codes."""
    commands = _parser("lemons", "List the nodes, slots and GPUs that failed repeatedly.")
    commands.add_argument("--all", action="store_true", help="also list single failures")

    def grid(hub: Hub, _: Config, chosen: argparse.Namespace) -> Grid:
        now = SystemClock().now()
        found = offenders.asked(hub, now)
        return lemons.grid(found, chosen.cluster, everything=chosen.all, now=now)

    return _run(commands, arguments, grid)


def compare_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil compare`, with the same exit codes."""
    commands = _parser(
        "compare", "Show whether nodes fail more often with one version than with another."
    )
    kinds = [one.value for one in Attribute]
    commands.add_argument("--by", choices=kinds, default=kinds[0], help=f"{kinds[0]} if left out")
    commands.add_argument("--last", metavar="LENGTH", help="7d, 4w or 90d until --to; default: 28d")
    _add_from_to(commands)
    commands.add_argument(
        "--fault",
        action="append",
        choices=sorted(MACHINE),
        metavar="KEY",
        help="count only this fault (docs/faults.md); repeatable; default: hardware and node deaths",
    )

    def grid(hub: Hub, _: Config, chosen: argparse.Namespace) -> Grid:
        last = chosen.last or (_COMPARED if chosen.start is None else None)
        span = span_of(last, chosen.start, chosen.end, SystemClock().now())
        by, faults = Attribute(chosen.by), frozenset(chosen.fault or USUAL)
        found = [compared(hub, name, by, span, faults) for name in _wanted(hub, chosen)]
        return compare.grid(found, by, faults)

    return _run(commands, arguments, grid)


def rma_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil rma`, with the same exit codes; 2 also for an incident without a return."""
    commands = _parser(
        "rma", "Record how far a part's return to its manufacturer is, or list all returns."
    )
    commands.add_argument("incident", nargs="?", help="the ID of a hardware incident")
    states = [state.value for state in RmaState]
    commands.add_argument("state", nargs="?", choices=states, help="its state now")
    commands.add_argument("--by", metavar="NAME", help="your name; default: the current user")
    commands.add_argument(
        "--note", default="", metavar="TEXT", help="for example the maker's case number"
    )
    commands.add_argument("--all", action="store_true", help="also list finished ones")

    def grid(hub: Hub, _: Config, chosen: argparse.Namespace) -> Grid:
        now = SystemClock().now()
        if chosen.incident is None:
            return rma.listed(hub, chosen.cluster, everything=chosen.all, now=now)
        if chosen.state is None:
            return rma.shown(hub, chosen.incident)
        by = getpass.getuser() if chosen.by is None else chosen.by
        return rma.record_step(hub, chosen.incident, RmaState(chosen.state), by, chosen.note, now)

    return _run(commands, arguments, grid)


def network_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil network`, with the same exit codes."""
    what = "Show whether the network is a bottleneck, which links, and whose jobs."

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        found = network.fetch(hub, _fetch(hub, config, chosen))
        return replace(found.grid, notes=[*found.grid.notes, *found.unseen])

    return _run(_parser("network", what), arguments, grid)


def topology_main(arguments: Sequence[str]) -> int:
    """Run `gpuvigil topology`, with the same exit codes; 2 also for a file that cannot be read."""
    what = "Show the switch and rail of each port, how each is known, and contradictions."
    commands = _parser("topology", what)
    commands.add_argument(
        "--file",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="read this in addition to topology.files: Slurm's topology, ibnetdiscover's output, labels, TOML",
    )
    chosen = commands.parse_args(arguments)

    def said(hub: Hub, config: Config) -> str:
        files = (*config.topology.files, *chosen.file)
        with at_work("asking the hub"):
            clusters = topology.fetch(hub, files, SystemClock().now())
        _known(clusters, chosen.cluster)
        wanted = {name: it for name, it in clusters.items() if chosen.cluster in {None, name}}
        if chosen.form == "json":
            return topology.json_text(wanted)
        grid = topology.ports(wanted) if chosen.form == "csv" else topology.switches(wanted)
        return _rendered(grid, chosen.form)

    return _print_table(commands, chosen, said)


_Grid = Callable[[Hub, Config, argparse.Namespace], Grid]


def _now(show: Callable[[FleetNow], Grid]) -> _Grid:
    """Return a function that shows the table of the fleet at this moment."""

    def grid(hub: Hub, config: Config, chosen: argparse.Namespace) -> Grid:
        return show(_fetch(hub, config, chosen))

    return grid


def _fetch(hub: Hub, config: Config, chosen: argparse.Namespace) -> FleetNow:
    moment = fetch(hub, config.analyzer, chosen.cluster)
    _known((one.name for one in moment.view.clusters), chosen.cluster)
    return moment


def _parser(name: str, what: str) -> argparse.ArgumentParser:
    commands = parser(name, what)
    commands.add_argument("--cluster", metavar="NAME", help="only this cluster")
    commands.add_argument("-o", dest="form", choices=FORMS, default="table", help="default: table")
    return commands


def _add_from_to(commands: argparse.ArgumentParser) -> None:
    commands.add_argument("--from", dest="start", metavar="TIME", help="2026-11-14, in UTC")
    commands.add_argument("--to", dest="end", metavar="TIME", help="the same; default: now")


def _run(commands: argparse.ArgumentParser, arguments: Sequence[str], grid: _Grid) -> int:
    return _answer(commands, commands.parse_args(arguments), grid)


def _answer(commands: argparse.ArgumentParser, chosen: argparse.Namespace, grid: _Grid) -> int:
    def said(hub: Hub, config: Config) -> str:
        with at_work("asking the hub"):
            found = grid(hub, config, chosen)
        return _rendered(found, chosen.form)

    return _print_table(commands, chosen, said)


def _print_table(
    commands: argparse.ArgumentParser,
    chosen: argparse.Namespace,
    render: Callable[[Hub, Config], str],
) -> int:
    try:
        config = load(config_of_up(chosen.config))
        with closing(hubs(config)()) as hub:
            said = render(hub, config)
    except GpuvigilError as error:
        return fail(commands.prog, error)
    try:
        sys.stdout.write(said)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.stderr.close()
    except OSError as error:
        why = f"the answer cannot be written: {error.strerror}"
        sys.stdout = None  # otherwise Python writes the rest when it exits
        return fail(commands.prog, GpuvigilError(why))
    return 0


def _wanted(hub: Hub, chosen: argparse.Namespace) -> list[str]:
    """Return the chosen cluster, or all clusters with usage; ConfigError for an unknown one."""
    names = query.clusters(hub)
    _known(names, chosen.cluster)
    return [name for name in names if chosen.cluster in {None, name}]


def _known(names: Iterable[str], wanted: str | None) -> None:
    """Raise ConfigError if the wanted cluster is unknown."""
    known = list(names)
    if wanted is not None and wanted not in known:
        named = ", ".join(known) or "none"
        raise ConfigError(f"--cluster {wanted}: there is no such cluster; known: {named}")


def _rendered(grid: Grid, form: str) -> str:
    if form == "json":
        return json_text(grid)
    if form == "csv":
        return csv_text(grid)
    return drawn(grid)
