"""`gpuvigil report node` and `report incident`: what failed on a part, for the manufacturer's ticket."""

import argparse
import getpass
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from accounting.people.configured import with_pseudonyms
from gpuvigil.clock import SystemClock
from gpuvigil.config import load
from gpuvigil.config.startup import fail, parser
from gpuvigil.errors import ConfigError, GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.model import Audit, AuditedAction
from gpuvigil.state_directory import config_of_up
from gpuvigil.store.configured import hubs
from gpuvigil.typed_times import length

from .report_command import format_in, keep_entry, write
from .root_cause.page import Page, of_node
from .root_cause.page_formats import html, json_text, markdown
from .root_cause.page_inputs import (
    group_inputs,
    incident_called,
    node_called,
    read_records,
    without_names,
)

_RENDERERS = {"html": html, "json": json_text, "md": markdown}
_ABOUT = {
    "node": "Write what failed on a node: its parts, and each incident with evidence and steps.",
    "incident": "Write one incident with the part that it is about, for a ticket.",
}


def main(verb: str, arguments: Sequence[str]) -> int:
    """Run the command; return 0 when written, 2 for wrong arguments, 1 when the hub does not answer."""
    options = _parser(verb)
    chosen = options.parse_args(arguments)
    try:
        _run(verb, chosen)
    except GpuvigilError as error:
        return fail(options.prog, error)
    return 0


def _parser(verb: str) -> argparse.ArgumentParser:
    options = parser(f"report {verb}", _ABOUT[verb])
    if verb == "node":
        options.add_argument("name", help="the node's name")
        options.add_argument(
            "--last", default="30d", metavar="LENGTH", help="7d or 2w; 30d if left out"
        )
        options.add_argument("--cluster", metavar="NAME", help="where several have such a node")
    else:
        options.add_argument("name", help="the incident's id, as messages and pages show it")
    options.add_argument("--out", type=Path, metavar="FILE", help="where to write")
    options.add_argument(
        "-o",
        dest="form",
        choices=tuple(_RENDERERS),
        help="format; if left out, what FILE ends with",
    )
    options.add_argument(
        "--with-people", action="store_true", help="with users, who took it and their notes"
    )
    return options


def _run(verb: str, chosen: argparse.Namespace) -> None:
    form = format_in(chosen.form, chosen.out, tuple(_RENDERERS))
    if chosen.out is not None and not chosen.out.parent.is_dir():
        raise ConfigError(f"--out {chosen.out}: there is no directory {chosen.out.parent}")
    config, clock = load(config_of_up(chosen.config)), SystemClock()
    now = clock.now()
    with closing(hubs(config)()) as hub:
        page = page_of(with_pseudonyms(hub, config, clock), verb, chosen, now)
        names = ", with names" if page.with_people else ""
        entry = Audit(
            deed=AuditedAction.REPORT,
            person=getpass.getuser(),
            about=chosen.name,
            detail=f"{form}, root cause{names}",
            at=now,
        )
        keep_entry(hub, entry.to_record())
    content = _RENDERERS[form](page).encode()
    if chosen.out is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    write(chosen.out, content)
    print(f"wrote {chosen.out} ({len(content) / 1024:,.0f} KiB)", file=sys.stderr)


def page_of(hub: Hub, verb: str, chosen: argparse.Namespace, now: datetime) -> Page:
    """Return the requested page; raise ConfigError when the hub does not know its subject."""
    if verb == "node":
        node = node_called(hub, chosen.name, chosen.cluster)
        since, until, about = now - length(chosen.last, "--last"), now, ""
    else:
        incident = incident_called(hub, chosen.name)
        node, about = incident.subject.of_node(), incident.id
        since, until = incident.since, incident.resolved_at or now
    records = read_records(hub, node, since, until)
    if not chosen.with_people:
        records = without_names(records, now)
    return of_node(
        group_inputs(node, records), since, now, with_people=chosen.with_people, about=about
    )
