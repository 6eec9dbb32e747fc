"""Which span a report is about, from what was typed."""

import re
from datetime import datetime, timedelta, timezone

from gpuvigil.clock import from_text
from gpuvigil.errors import ConfigError

DEFAULT = "7d"
SHORTEST = timedelta(minutes=15)
# What the hub keeps of usage (`hub.records_days`).
LONGEST = timedelta(days=400)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span_of(
    last: str | None, start: str | None, end: str | None, now: datetime
) -> tuple[datetime, datetime]:
    """Start and end, the end not after `now`; ConfigError says which argument is wrong."""
    if start is not None and last is not None:
        raise ConfigError("name --last or --from, not both")
    until = now if end is None else min(_moment(end, "--to"), now)
    since = until - length(last or DEFAULT) if start is None else _moment(start, "--from")
    if since >= now:
        raise ConfigError(f"--from {start} is not in the past: there is nothing to report yet")
    if until - since < SHORTEST:
        raise ConfigError("the span is shorter than 15 minutes: usage is counted in quarters")
    if until - since > LONGEST:
        raise ConfigError("the span is longer than 400 days: usage is not kept for longer")
    return since, until


def length(text: str) -> timedelta:
    """The length that `15m`, `6h`, `7d` or `2w` names; ConfigError for anything else."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", text.strip().lower())
    if found is None:
        raise ConfigError(f"--last {text!r} is no length: write 15m, 6h, 7d or 2w")
    number, unit = found.groups()
    return timedelta(**{_UNITS[unit]: int(number)})


def _moment(text: str, option: str) -> datetime:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc)
        return from_text(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r} is no time: write 2026-11-14 or 2026-11-14T06:00:00Z, in UTC"
        ) from None
