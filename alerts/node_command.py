"""`gpuvigil node`: put on record that a node was tested and may take jobs again."""

import argparse
import getpass
from collections.abc import Sequence

from gpuvigil.clock import SystemClock, moment
from gpuvigil.command import configured_anywhere, fail, parser
from gpuvigil.config import load
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub import Hub, service_hubs
from gpuvigil.lifecycle import STANDING
from gpuvigil.model import Acceptance, Incident, RecordKind, Subject, readable
from gpuvigil.statedir import config_of_up


def main(arguments: Sequence[str]) -> int:
    """Accept a node; returns the exit code."""
    options = parser("node", "Put on record that a node was tested and may take jobs again.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    accept = verbs.add_parser("accept", help="record that the node passed its tests")
    accept.add_argument("node", help="its name")
    accept.add_argument("--cluster", help="its cluster; collector.cluster, if left out")
    accept.add_argument("--note", required=True, help="what was tested, and with what result")
    accept.add_argument("--by", default="", help="who; the one who runs this, if left out")
    configured_anywhere(verbs.choices.values())
    chosen = options.parse_args(arguments)
    try:
        config = load(chosen.config if chosen.config is not None else config_of_up(None))
        cluster = chosen.cluster or config.collector.cluster
        _accept(service_hubs(config.hub)(), Subject(cluster=cluster, node=chosen.node), chosen)
    except GpuvigilError as error:
        return fail(options.prog, error)
    return 0


def _accept(hub: Hub, node: Subject, chosen: argparse.Namespace) -> None:
    if not hub.inventory(node):
        raise ConfigError(f"the hub knows no node {node.key}; name its cluster with --cluster")
    said = Acceptance(
        node=node,
        by=chosen.by.strip() or getpass.getuser(),
        note=chosen.note.strip(),
        at=SystemClock().now(),
    )
    hub.write_records([said.to_record()])
    print(f"{node.key} accepted by {said.by} at {moment(said.at)}: {said.note}")
    states = sorted(state.value for state in STANDING)
    found = hub.records(RecordKind.INCIDENT, subject=node.key, states=states)
    for one in readable(found, Incident.from_record):
        print(f"still firing: {one.title} ({one.id}); accept the node again once it is resolved")
