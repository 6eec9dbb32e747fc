"""`gpuvigil silence`: mute matching alerts for a while."""

import argparse
import getpass
from collections.abc import Sequence
from datetime import datetime

from accounting.people.typist import audit_of_command
from gpuvigil.clock import SystemClock, duration, from_text, moment
from gpuvigil.config import Config
from gpuvigil.config.startup import configured_anywhere, parser, run_command
from gpuvigil.errors import ConfigError
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.matching.matchers import LABELS
from gpuvigil.matching.silences import LONGEST, made
from gpuvigil.model import AuditedAction, Record, RecordKind, Silence, readable
from gpuvigil.typed_times import length


def main(arguments: Sequence[str]) -> int:
    """Add, list or end silences; return the exit code."""
    options = parser("silence", "Mute matching alerts for a while.")
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")
    add = verbs.add_parser("add", help="create a silence; all matchers must match")
    add.add_argument(
        "matcher", nargs="+", help=f'as node="n1" or rack=~"r1.*", of {", ".join(LABELS)}'
    )
    add.add_argument("--for", dest="span", required=True, help="30m, 4h or 2d")
    add.add_argument("--reason", required=True, help="why")
    add.add_argument("--by", default="", help="your name; default: the current user")
    add.add_argument(
        "--from",
        dest="starts_at",
        type=time,
        help="start, such as 2026-11-30T08:00:00Z; default: now",
    )
    shown = verbs.add_parser("list", help="list active and scheduled silences")
    shown.add_argument("--all", action="store_true", help="include expired ones")
    verbs.add_parser("end", help="expire a silence now").add_argument(
        "id", help="its ID, from 'list'"
    )
    configured_anywhere(verbs.choices.values())
    return run_command(options, arguments, _run)


def _run(config: Config, chosen: argparse.Namespace) -> None:
    _VERBS[chosen.verb](service_hubs(config.hub)(), chosen, SystemClock().now())


def line(silence: Silence, now: datetime) -> str:
    """Return a silence as one line for people."""
    if silence.holds(now):
        when = f"for {duration(silence.ends_at - now)} more"
    elif silence.ends_at <= silence.starts_at:
        when = "cancelled before it began"
    elif silence.starts_at > now:
        when = (
            f"from {moment(silence.starts_at)} for {duration(silence.ends_at - silence.starts_at)}"
        )
    else:
        when = f"expired {moment(silence.ends_at)}"
    return f"{silence.id}  {when}  {' '.join(silence.matchers)}  {silence.by}: {silence.reason}"


def _add(hub: Hub, chosen: argparse.Namespace, now: datetime) -> None:
    by, span = chosen.by or getpass.getuser(), length(chosen.span, "--for")
    if span > LONGEST:
        raise ConfigError(f"--for {chosen.span}: a silence is of {LONGEST.days} days at most")
    silence = made(chosen.matcher, by, chosen.reason, chosen.starts_at or now, span, now)
    hub.write_records([silence.to_record(), _entry(silence, "", now)])
    print(line(silence, now))


def _list(hub: Hub, chosen: argparse.Namespace, now: datetime) -> None:
    shown = [one for one in _silences(hub) if chosen.all or not one.is_over(now)]
    for silence in shown:
        print(line(silence, now))
    if not shown:
        print("nothing is silenced" if not chosen.all else "nothing was ever silenced")


def _end(hub: Hub, chosen: argparse.Namespace, now: datetime) -> None:
    found = next((one for one in _silences(hub) if one.id == chosen.id), None)
    if found is None:
        raise ConfigError(f"there is no silence {chosen.id!r}; see 'gpuvigil silence list --all'")
    if found.is_over(now):
        print(f"{found.id} had expired already")
        return
    hub.write_records([found.ended(now).to_record(), _entry(found, "ended", now)])
    planned = found.starts_at > now
    what = "is cancelled" if planned else "has expired; alerts it muted are sent within a minute"
    print(f"{found.id} {what}")


def _entry(silence: Silence, detail: str, now: datetime) -> Record:
    """Return an audit entry that names the operating-system user, not `--by`."""
    return audit_of_command(AuditedAction.SILENCE, silence.id, detail, now).to_record()


def _silences(hub: Hub) -> list[Silence]:
    found = readable(hub.records(RecordKind.SILENCE), Silence.from_record)
    return sorted(found, key=lambda one: (one.ends_at, one.id))


def time(text: str) -> datetime:
    """Parse an option's time; argparse reports a text that is not a time."""
    try:
        return from_text(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time like 2026-11-30T08:00:00Z"
        ) from None


_VERBS = {"add": _add, "list": _list, "end": _end}
