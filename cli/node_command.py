"""`gpuvigil node`: record a person's decision about a node."""

import argparse
import getpass
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from accounting.hardware.acceptance_tests import Outcome, Verdict, judge, together
from gpuvigil.clock import SystemClock, duration, from_text, moment
from gpuvigil.config import Config
from gpuvigil.config.startup import configured_anywhere, parser, run_command
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import Acceptance, Incident, RecordKind, Retirement, Subject, readable

# A collector sends every few seconds, or every minute at the slowest.
_STILL_REPORTS = timedelta(minutes=3)


def main(arguments: Sequence[str]) -> int:
    """Accept or retire a node; return the exit code."""
    options = parser("node", "Record that a node may take jobs again, or that it is retired.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    accept = verbs.add_parser("accept", help="record that the node passed its tests")
    accept.add_argument("--note", default="", help="what was tested, and with what result")
    accept.add_argument(
        "--results",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="output of dcgmi diag or nccl-tests, which must have passed; repeatable",
    )
    accept.add_argument(
        "--least-bandwidth",
        type=float,
        metavar="GBPS",
        help="bus bandwidth that nccl-tests must reach at the largest size, in GB/s",
    )
    retire = verbs.add_parser("retire", help="stop expecting a node that is gone for good")
    retire.add_argument("--note", default="", help="why, and where it went")
    for verb, act in ((accept, _accept), (retire, _retire)):
        verb.add_argument("node", help="its name")
        verb.add_argument("--cluster", help="the cluster; default: collector.cluster")
        verb.add_argument("--by", default="", help="your name; default: the current user")
        verb.set_defaults(act=act)
    configured_anywhere(verbs.choices.values())
    return run_command(options, arguments, _run)


def _run(config: Config, chosen: argparse.Namespace) -> None:
    cluster = chosen.cluster or config.collector.cluster
    hub, node = service_hubs(config.hub)(), Subject(cluster=cluster, node=chosen.node)
    if not hub.inventory(node):
        raise ConfigError(f"the hub knows no node {node.key}; name its cluster with --cluster")
    chosen.by = chosen.by.strip() or getpass.getuser()
    chosen.act(hub, node, chosen)


def _accept(hub: Hub, node: Subject, chosen: argparse.Namespace) -> None:
    at, note = SystemClock().now(), chosen.note.strip()
    tested = tuple(it.text for it in _tested(node, chosen))
    if not note and not tested:
        raise ConfigError("say what was tested with --note, or give its output with --results")
    note = "; ".join([*tested, *([note] if note else [])])
    said = Acceptance(node=node, by=chosen.by, note=note, at=at, tested=bool(tested))
    hub.write_records([said.to_record()])
    print(f"{node.key} accepted by {said.by} at {moment(said.at)}: {said.note}")
    states = sorted(state.value for state in ACTIVE)
    found = hub.records(RecordKind.INCIDENT, subject=node.key, states=states)
    for one in readable(found, Incident.from_record):
        print(f"still firing: {one.title} ({one.id}); accept the node again once it is resolved")


def _tested(node: Subject, chosen: argparse.Namespace) -> list[Verdict]:
    """Return the verdict on each test output; ConfigError unless they show that the node passed."""
    found = []
    for path in chosen.results:
        try:
            output = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        found.append(judge(output, chosen.least_bandwidth))
    verdict = together(found, node.node) if found else None
    if verdict is not None and verdict.outcome is not Outcome.PASSED:
        raise ConfigError(f"{node.key} is not accepted: {verdict.outcome.value}: {verdict.text}")
    return found


def _retire(hub: Hub, node: Subject, chosen: argparse.Namespace) -> None:
    """Record the retirement, by the hub's clock; ConfigError for a node that still reports."""
    status = hub.status()
    now = from_text(status["now"])
    heard = [
        from_text(one["received_at"])
        for one in status["nodes"]
        if (one["cluster"], one["node"]) == (node.cluster, node.node)
    ]
    if heard and now - max(heard) < _STILL_REPORTS:
        ago = duration(now - max(heard))
        raise ConfigError(f"{node.key} reported {ago} ago; stop its collector before you retire it")
    said = Retirement(node=node, by=chosen.by, note=chosen.note.strip(), at=now)
    hub.write_records([said.to_record()])
    why = f": {said.note}" if said.note else ""
    print(f"{node.key} retired by {said.by} at {moment(said.at)}{why}")
    print(
        "It is no longer expected. If its collector reports again, the node comes back by itself."
    )
