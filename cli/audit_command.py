"""`gpuvigil audit`: who did what, and when."""

import argparse
import json
from collections.abc import Sequence
from contextlib import closing

from gpuvigil.clock import SystemClock, moment
from gpuvigil.config import Config
from gpuvigil.config.startup import parser, run_command
from gpuvigil.hub_client import service_hubs
from gpuvigil.model import Audit, RecordKind, readable
from gpuvigil.typed_times import length

_MOST = 100_000


def main(arguments: Sequence[str]) -> int:
    """Print the audit entries of a span, oldest first; return the exit code."""
    options = parser("audit", "Show who signed in, acknowledged, silenced and changed people.")
    options.add_argument(
        "--last", default="7d", metavar="LENGTH", help="15m, 6h, 7d or 2w; default: 7d"
    )
    options.add_argument("--person", help="only this person's entries")
    options.add_argument("-o", dest="form", choices=("text", "json"), default="text")
    return run_command(options, arguments, _show)


def _show(config: Config, chosen: argparse.Namespace) -> None:
    since = SystemClock().now() - length(chosen.last, "--last")
    with closing(service_hubs(config.hub)()) as hub:
        records = hub.records(RecordKind.AUDIT, since=since, limit=_MOST)
    found = readable(sorted(records, key=lambda one: one.at), Audit.from_record)
    shown = [one for one in found if chosen.person in {None, one.person}]
    if chosen.form == "json":
        told = [{**one.to_record().body, "at": one.to_record().to_json()["at"]} for one in shown]
        print(json.dumps(told, indent=1))
    else:
        print("\n".join(map(line, shown)) or "nothing was recorded in this time")


def line(entry: Audit) -> str:
    """Return an audit entry as one line for people."""
    who = entry.person or "by link"
    rest = [entry.about, entry.detail, f"from {entry.address}" if entry.address else ""]
    return "  ".join([moment(entry.at), who, entry.deed.value, *filter(None, rest)])
