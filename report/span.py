"""Which span a report is about, from what was typed."""

from datetime import datetime, timedelta

from gpuvigil.errors import ConfigError
from gpuvigil.typed_times import length, moment

DEFAULT = "7d"
SHORTEST = timedelta(minutes=15)
# What the hub keeps of usage (`hub.records_days`).
LONGEST = timedelta(days=400)


def span_of(
    last: str | None, start: str | None, end: str | None, now: datetime
) -> tuple[datetime, datetime]:
    """Start and end, the end not after `now`; ConfigError says which argument is wrong."""
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
