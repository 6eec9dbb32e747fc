"""`gpuvigil annotation`: mark on charts what was done to a cluster, and when."""

import argparse
import getpass
from collections.abc import Sequence
from datetime import datetime

from accounting.people.typist import audit_of_command
from gpuvigil.clock import SystemClock, moment
from gpuvigil.config import Config
from gpuvigil.config.startup import configured_anywhere, parser, run_command
from gpuvigil.errors import ConfigError
from gpuvigil.hostlist import expand
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.matching.annotations import checked, new_id
from gpuvigil.model import AuditedAction, RecordKind, readable
from gpuvigil.model.annotation import Annotation

from .silence_command import time


def main(arguments: Sequence[str]) -> int:
    """Add, list or delete annotations; return the exit code."""
    options = parser("annotation", "Mark a deploy, a roll-out or maintenance on the charts.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    add = verbs.add_parser("add", help="create an annotation")
    add.add_argument("note", help="what was done, such as 'driver 580 rolled out'")
    add.add_argument("--nodes", default="", help="such as n1,n[3-8]; default: the whole cluster")
    add.add_argument("--cluster", help="the cluster; default: collector.cluster")
    add.add_argument(
        "--at", type=time, help="when it happened, such as 2026-11-30T08:00:00Z; default: now"
    )
    add.add_argument("--until", type=time, help="when it ended; default: a single moment")
    add.add_argument("--by", default="", help="your name; default: the current user")
    verbs.add_parser("list", help="list annotations, oldest first")
    verbs.add_parser("delete", help="delete an annotation from the charts").add_argument(
        "id", help="its ID, from 'list'"
    )
    configured_anywhere(verbs.choices.values())
    return run_command(options, arguments, _run)


def _run(config: Config, chosen: argparse.Namespace) -> None:
    if chosen.verb == "add":
        chosen.cluster = chosen.cluster or config.collector.cluster
    _VERBS[chosen.verb](service_hubs(config.hub)(), chosen, SystemClock().now())


def _add(hub: Hub, chosen: argparse.Namespace, now: datetime) -> None:
    said = Annotation(
        id=new_id(),
        cluster=chosen.cluster,
        note=chosen.note.strip(),
        by=chosen.by.strip() or getpass.getuser(),
        at=chosen.at or now,
        until=chosen.until,
        nodes=tuple(dict.fromkeys(filter(None, expand(chosen.nodes)))),
    )
    checked(said, ((it["cluster"], it["node"]) for it in hub.status()["nodes"]))
    _write(hub, said, "", now)
    print(line(said))


def _list(hub: Hub, _chosen: argparse.Namespace, _now: datetime) -> None:
    shown = [one for one in _annotations(hub) if not one.deleted]
    for one in sorted(shown, key=lambda it: (it.at, it.id)):
        print(line(one))
    if not shown:
        print("no annotations")


def _delete(hub: Hub, chosen: argparse.Namespace, now: datetime) -> None:
    found = next((one for one in _annotations(hub) if one.id == chosen.id), None)
    if found is None or found.deleted:
        raise ConfigError(f"there is no annotation {chosen.id!r}; see 'gpuvigil annotation list'")
    _write(hub, found.without(), "deleted", now)
    print(f"{found.id} is deleted")


def line(said: Annotation) -> str:
    """Return an annotation as one line for people."""
    where = f"{said.cluster}/{','.join(said.nodes)}" if said.nodes else said.cluster
    until = "" if said.until is None else f" to {moment(said.until)}"
    return f"{said.id}  {moment(said.at)}{until}  {where}  {said.by}: {said.note}"


def _annotations(hub: Hub) -> list[Annotation]:
    return list(readable(hub.records(RecordKind.ANNOTATION), Annotation.from_record))


def _write(hub: Hub, said: Annotation, detail: str, now: datetime) -> None:
    """Write the annotation and an audit entry, which names the operating-system user, not `--by`."""
    hub.write_records(
        [
            said.to_record(),
            audit_of_command(AuditedAction.ANNOTATION, said.id, detail, now).to_record(),
        ]
    )


_VERBS = {"add": _add, "list": _list, "delete": _delete}
