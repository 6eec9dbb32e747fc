"""The span of a report, from command-line arguments."""

import argparse
from datetime import datetime, timedelta

from gpuvigil.config.reporting import KINDS
from gpuvigil.errors import ConfigError
from gpuvigil.typed_times import length, moment

from .model.calendar import Calendar, recognized, written, zone_of

DEFAULT = "7d"
SHORTEST = timedelta(minutes=15)
# How long the hub keeps usage (`hub.records_days`).
LONGEST = timedelta(days=400)


def span_of(
    last: str | None, start: str | None, end: str | None, now: datetime
) -> tuple[datetime, datetime]:
    """Return start and end, the end not after `now`; ConfigError says which argument is wrong."""
    if start is not None and last is not None:
        raise ConfigError("name --last or --from, not both")
    until = now if end is None else min(moment(end, "--to"), now)
    since = until - length(last or DEFAULT, "--last") if start is None else moment(start, "--from")
    if since >= now:
        raise ConfigError(f"--from {start} is not in the past: there is nothing to report yet")
    if until <= since:
        raise ConfigError(f"--to {end} is not after --from {start}")
    if until - since < SHORTEST:
        raise ConfigError("the span is shorter than 15 minutes: usage is counted in quarters")
    if until - since > LONGEST:
        raise ConfigError("the span is longer than 400 days: usage is not kept for longer")
    return since, until


def add_options(commands: argparse.ArgumentParser) -> None:
    """Add the arguments that give a report's span."""
    commands.add_argument(
        "--last",
        metavar="LENGTH",
        help=f"15m, 6h, 7d or 2w until --to, or week, month or quarter for the last whole one; {DEFAULT} if left out",
    )
    commands.add_argument("--week", metavar="WEEK", help="2026-W47, from Monday to Sunday")
    commands.add_argument("--month", metavar="MONTH", help="2026-10")
    commands.add_argument("--quarter", metavar="QUARTER", help="2026-Q3, of the calendar year")
    commands.add_argument(
        "--from", dest="start", metavar="TIME", help="2026-11-14 or 2026-11-14T06:00:00Z, in UTC"
    )
    commands.add_argument("--to", dest="end", metavar="TIME", help="the same; default: now")
    commands.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="whose days, weeks, months and quarters, as Europe/Berlin; UTC if left out",
    )


def asked(typed: argparse.Namespace, now: datetime) -> tuple[tuple[datetime, datetime], Calendar]:
    """Return the requested span, and whether it is a week, month or quarter; ConfigError as `span_of`."""
    zone = zone_of(typed.time_zone)
    named = [kind for kind in KINDS if getattr(typed, kind) is not None]
    if not named and typed.last not in KINDS:
        span = span_of(typed.last, typed.start, typed.end, now)
        return span, recognized(span, zone)
    if len(named) + (typed.last is not None) > 1 or typed.start or typed.end:
        raise ConfigError("name one of --last, --week, --month, --quarter and --from")
    if not named:
        calendar = Calendar(covers=typed.last, zone=zone)
        return calendar.last(now), calendar
    (kind,) = named
    text = getattr(typed, kind)
    start, end = written(kind, text, zone)
    if start + SHORTEST > now:
        raise ConfigError(f"--{kind} {text} is not in the past: there is nothing to report yet")
    return (start, min(end, now)), Calendar(covers=kind, zone=zone)
