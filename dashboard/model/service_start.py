"""The first minute of an installation, in which a service that never reported may still be starting."""

from datetime import datetime, timedelta

from gpuvigil.clock import duration

# Ours: on two busy cores the analyzer's first pass came within half a minute of the hub's start.
_STARTING = timedelta(minutes=1)


def still_starting(hub_since: datetime | None, service: str, now: datetime) -> str:
    """Return in words that a service which never reported may be starting; empty if it is late or that is not known."""
    age = None if hub_since is None else now - hub_since
    if age is None or age > _STARTING:
        return ""
    return f"the hub started {duration(age)} ago, and the {service} service has yet to report"
